// The grants of semaphores in the last seconds: a rate, and a sparkline.

import { add } from "./graph.js";
import { setLong, span } from "./table.js";

const BARS = 20;
const BAR_MS = 3000;
const MOST_MS = BARS * BAR_MS;
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

  // Adds the grants between two states of a semaphore, of reads at two times. A counter that falls has begun again.
  add(before, row, from, to) {
    const grants = row.grants - (before?.grants ?? row.grants);
    if (grants <= 0) return;
    const recent = (this.grants.get(row.name) ?? []).filter(([, last]) => to - last < MOST_MS);
    this.grants.set(row.name, [...recent, [Math.min(from, to - 1), to, grants]]);
  }

  // Notes the time of a read, by the server's clock. Reads without a change are not reported, so after a bar's time without a report
  // the time goes on.
  read(at) {
    this.first = Math.min(this.first || at, at);
    if (at !== this.at) [this.at, this.came] = [at, Date.now()];
  }

  // The grants of a semaphore until now, by bars, and in a second of the time that is known.
  of(name) {
    const now = this.at + Math.max(0, Date.now() - this.came - BAR_MS);
    const began = now - MOST_MS;
    const all = this.grants.get(name)?.filter(([, to]) => to > began) ?? [];
    if (!all.length) return NONE;
    const bars = Array.from({ length: BARS }, (_, bar) => {
      const [from, to] = [began + bar * BAR_MS, began + (bar + 1) * BAR_MS];
      return all.reduce((sum, [first, last, grants]) => sum + (grants * Math.max(0, Math.min(to, last) - Math.max(from, first))) / (last - first), 0);
    });
    return { bars, perSecond: (bars.reduce((sum, grants) => sum + grants) / Math.min(MOST_MS, now - this.first)) * 1000 };
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
