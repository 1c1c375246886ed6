// A graph of numbers that are valid until the next point, as steps.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 34;
const BOTTOM = 16;
const TOP = 6;
const RIGHT = 4;

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

// Draws `points` of { at_ms, [field], limit } from `now - window` to `now`.
export function draw(svg, points, { field, limit, window, now, label }) {
  const width = Math.max(160, svg.clientWidth);
  const height = Math.max(60, svg.clientHeight);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const values = points.map((point) => point[field]);
  const limits = limit ? points.map((point) => point.limit ?? 0) : [];
  const most = round(Math.max(1, ...values, ...limits));
  const began = now - window;
  const x = (at) => LEFT + ((Math.max(at, began) - began) / window) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / most) * (height - TOP - BOTTOM);
  const steps = (value) => {
    const corners = [];
    points.forEach((point, index) => {
      const from = x(point.at_ms);
      const to = x(points[index + 1]?.at_ms ?? now);
      corners.push(`${from.toFixed(1)} ${y(value(point)).toFixed(1)}`, `${to.toFixed(1)} ${y(value(point)).toFixed(1)}`);
    });
    return corners;
  };
  for (const value of [0, most]) {
    add(svg, "line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) });
    add(svg, "text", { x: LEFT - 5, y: y(value) + 3, "text-anchor": "end" }, short(value));
  }
  const minutes = Math.round(window / 60000);
  add(svg, "text", { x: LEFT, y: height - 3 }, `−${minutes} min`);
  add(svg, "text", { x: width - RIGHT, y: height - 3, "text-anchor": "end" }, "now");
  if (points.length) {
    const curve = steps((point) => point[field]);
    const start = x(points[0].at_ms).toFixed(1);
    add(svg, "path", { class: "area", d: `M${start} ${y(0)} L${curve.join(" L")} L${x(now).toFixed(1)} ${y(0)} Z` });
    add(svg, "path", { class: "curve", d: `M${curve.join(" L")}` });
    if (limit) add(svg, "path", { class: "limit", d: `M${steps((point) => point.limit ?? 0).join(" L")}` });
  }
  const range = values.length ? `now ${values.at(-1)}, at most ${Math.max(...values)}` : "no data";
  svg.setAttribute("aria-label", `${label} over the last ${minutes} min: ${range}`);
}
