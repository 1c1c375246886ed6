// The grants of semaphores in the last seconds: a rate, and a sparkline.

import { add } from "./graph.js";
import { setLong, span } from "./table.js";

const BARS = 20;
const BAR_MS = 3000;
const [WIDTH, HEIGHT] = [4, 14];

const NONE = { bars: Array(BARS).fill(0), perSecond: 0 };

// The sum of rates.
export function together(rates) {
  const plus = (sum, { bars, perSecond }) => ({ bars: sum.bars.map((grants, bar) => grants + bars[bar]), perSecond: sum.perSecond + perSecond });
  return rates.filter((rate) => rate !== NONE).reduce(plus, NONE);
}

export class Rates {
  constructor() {
    // By name: the time of the read before, that of the read, and the grants between them.
    this.grants = new Map();
  }

  // Adds the grants between two states of a semaphore. A counter that falls has begun again. Between two reads without a change
  // there is no event, so the time of the read before is known for a short time.
  add(before, row, readBefore, readAt) {
    const grants = row.grants - (before?.grants ?? row.grants);
    if (grants <= 0) return;
    const recent = (this.grants.get(row.name) ?? []).filter(([, to]) => readAt - to < BARS * BAR_MS);
    this.grants.set(row.name, [...recent, [Math.min(Math.max(readBefore, readAt - BAR_MS), readAt - 1), readAt, grants]]);
  }

  // The grants of a semaphore until `now`, by bars, and in a second.
  of(name, now) {
    const began = now - BARS * BAR_MS;
    const all = this.grants.get(name)?.filter(([, to]) => to > began) ?? [];
    if (!all.length) return NONE;
    const bars = Array.from({ length: BARS }, (_, bar) => {
      const [from, to] = [began + bar * BAR_MS, began + (bar + 1) * BAR_MS];
      return all.reduce((sum, [first, last, grants]) => sum + (grants * Math.max(0, Math.min(to, last) - Math.max(from, first))) / (last - first), 0);
    });
    return { bars, perSecond: (bars.reduce((sum, grants) => sum + grants, 0) / BARS / BAR_MS) * 1000 };
  }
}

// Draws the grants, as high as the highest bar, and writes those of a second, or of a minute if they are few.
export function fillRate(cell, { rate: { bars, perSecond } }) {
  if (!cell.firstChild) {
    add(add(cell, "svg", { viewBox: `0 0 ${BARS * WIDTH} ${HEIGHT}`, "aria-hidden": "true" }), "path", {});
    cell.append(span("", ""));
  }
  const [svg, text] = cell.children;
  const most = Math.max(...bars);
  const drawn = bars.map((grants, bar) => (grants ? `M${bar * WIDTH} ${HEIGHT}v${-Math.max(1, (grants / most) * HEIGHT).toFixed(1)}h${WIDTH - 1}V${HEIGHT}z` : "")).join("");
  if (svg.firstChild.getAttribute("d") !== drawn) svg.firstChild.setAttribute("d", drawn);
  const rate = perSecond >= 10 ? `${perSecond.toFixed(0)}/s` : perSecond >= 1 ? `${perSecond.toFixed(1)}/s` : perSecond > 0 ? `${Math.round(perSecond * 60)}/min` : "";
  setLong(text, rate);
}
