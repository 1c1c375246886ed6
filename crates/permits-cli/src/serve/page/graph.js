// Graphs of the last minutes of a semaphore: numbers that are valid until the next point, as steps, and grants, as bars.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 34;
const BOTTOM = 16;
const TOP = 6;
const RIGHT = 4;
const BARS = 30;
const GAP = 1;
const MINUTE_MS = 60000;

function add(svg, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  svg.append(element);
}

// A round number that is at least `value`: 1, 2 or 5 times a power of ten.
function round(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((number) => number >= value);
}

function short(number) {
  if (number >= 1e6) return `${number / 1e6}M`;
  return number >= 1e4 ? `${number / 1e3}k` : String(number);
}

// Empties `svg` and draws a grid of values up to `most` and of the time from `now - window` to `now`, with a note below.
// Returns the functions from times and values to coordinates.
function grid(svg, most, { window, now }, note) {
  const width = Math.max(160, svg.clientWidth);
  const height = Math.max(60, svg.clientHeight);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const began = now - window;
  const x = (at) => LEFT + ((Math.max(at, began) - began) / window) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / most) * (height - TOP - BOTTOM);
  for (const value of [0, most]) {
    add(svg, "line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) });
    add(svg, "text", { x: LEFT - 5, y: y(value) + 3, "text-anchor": "end" }, short(value));
  }
  add(svg, "text", { x: LEFT, y: height - 3 }, `−${window / MINUTE_MS} min`);
  add(svg, "text", { x: width - RIGHT, y: height - 3, "text-anchor": "end" }, "now");
  add(svg, "text", { x: (LEFT + width - RIGHT) / 2, y: height - 3, "text-anchor": "middle" }, note);
  return { x, y };
}

function describe(svg, label, { window }, range) {
  svg.setAttribute("aria-label", `${label} over the last ${window / MINUTE_MS} min: ${range}`);
}

// Draws the numbers `field` of `points`, and the limits if `limit`. `time` has `window`, in whole minutes, and `now`.
export function drawSteps(svg, points, time, { field, limit, label }) {
  const values = points.map((point) => point[field]);
  const limits = limit ? points.map((point) => point.limit ?? 0) : [];
  const { x, y } = grid(svg, round(Math.max(1, ...values, ...limits)), time, "");
  const steps = (value) => {
    const corners = [];
    points.forEach((point, index) => {
      const from = x(point.at_ms);
      const to = x(points[index + 1]?.at_ms ?? time.now);
      corners.push(`${from.toFixed(1)} ${y(value(point)).toFixed(1)}`, `${to.toFixed(1)} ${y(value(point)).toFixed(1)}`);
    });
    return corners;
  };
  if (points.length) {
    const curve = steps((point) => point[field]);
    const start = x(points[0].at_ms).toFixed(1);
    add(svg, "path", { class: "area", d: `M${start} ${y(0)} L${curve.join(" L")} L${x(time.now).toFixed(1)} ${y(0)} Z` });
    add(svg, "path", { class: "curve", d: `M${curve.join(" L")}` });
    if (limit) add(svg, "path", { class: "limit", d: `M${steps((point) => point.limit ?? 0).join(" L")}` });
  }
  describe(svg, label, time, values.length ? `now ${values.at(-1)}, at most ${Math.max(...values)}` : "no data");
}

// The grants between two times. Those of a point are spread evenly over the time since the point before.
export function grantsBetween(points, from, to) {
  let grants = 0;
  for (let index = 1; index < points.length; index += 1) {
    const began = points[index - 1].at_ms;
    const ended = Math.max(points[index].at_ms, began + 1);
    const shared = Math.min(ended, to) - Math.max(began, from);
    if (shared > 0) grants += (points[index].grants * shared) / (ended - began);
  }
  return grants;
}

// Draws the grants of `points` as bars of equal times, the last of which is not over. They begin at multiples of that time,
// so that a bar keeps its height while it moves.
export function drawBars(svg, points, time, { label }) {
  const step = time.window / BARS;
  const each = `${step / 1000} s`;
  const bars = [];
  for (let from = Math.floor((time.now - time.window) / step) * step; from < time.now; from += step) {
    bars.push({ from, grants: grantsBetween(points, from, from + step) });
  }
  const most = Math.max(...bars.map((bar) => bar.grants));
  const { x, y } = grid(svg, round(most), time, `per ${each}`);
  if (!points.length) {
    describe(svg, label, time, "no data");
    return;
  }
  const ground = y(0);
  const [first, last] = [points[0].at_ms, time.now];
  for (const { from, grants } of bars) {
    const left = x(Math.max(from, first));
    const width = x(Math.min(from + step, last)) - left - GAP;
    const height = ground - y(grants);
    if (height > 0 && width > 0) add(svg, "rect", { class: "grants", x: left, y: ground - height, width, height });
  }
  // A time without grants has the line alone, and a time without data has none.
  add(svg, "line", { class: "known", x1: x(first), x2: x(last), y1: ground, y2: ground });
  const all = Math.round(grantsBetween(points, last - time.window, last));
  describe(svg, label, time, `${all}, at most ${Math.round(most)} in ${each}`);
}
