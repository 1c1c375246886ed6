// Graphs of the last minutes of a semaphore or of the store, and the reading of all of them at one time, under the pointer or by
// keyboard.

import { duration, make, setText, setTip } from "./table.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 42;
const BOTTOM = 16;
const TOP = 10;
const RIGHT = 4;
const BARS = 30;
const GAP = 1;
export const MINUTE_MS = 60000;

// The bounds of the classes of waits; the last one has none.
const BOUNDS = ["10 ms", "100 ms", "1 s", "10 s", "100 s"];
const CLASSES = BOUNDS.length + 1;
// The least number of waits of which there is a bound for 95 %.
const MANY = 20;

export function add(svg, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) setText(element, text);
  svg.append(element);
  return element;
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

function seconds(us) {
  const value = us / 1e6;
  if (value >= 60) return `${Math.floor(value / 60)} m ${Math.round(value % 60)} s`;
  return value >= 1 ? `${value.toFixed(1)} s` : `${Math.round(value * 1000)} ms`;
}

// The grants between two times, and the waits that they ended. Those of a point are spread evenly over the time since the
// point before.
function passedBetween(points, from, to) {
  const sum = { grants: 0, waits: { total_us: 0, numbers: Array(CLASSES).fill(0) } };
  for (let index = 1; index < points.length; index += 1) {
    const began = points[index - 1].at_ms;
    const ended = Math.max(points[index].at_ms, began + 1);
    const shared = Math.min(ended, to) - Math.max(began, from);
    if (shared <= 0) continue;
    const { grants, waits } = points[index];
    const part = shared / (ended - began);
    sum.grants += grants * part;
    if (!waits) continue;
    sum.waits.total_us += waits.total_us * part;
    waits.numbers.forEach((number, index) => (sum.waits.numbers[index] += number * part));
  }
  return sum;
}

// The number of waits, their mean, and the bounds that half of them and 95 % did not exceed.
function summary({ total_us, numbers }) {
  const number = numbers.reduce((sum, number) => sum + number, 0);
  const within = (part) => {
    let sum = 0;
    const bound = BOUNDS[numbers.findIndex((each) => (sum += each) > 0 && sum >= part * number * (1 - 1e-9))];
    return bound ? `≤ ${bound}` : `> ${BOUNDS.at(-1)}`;
  };
  // The bounds say no more than their classes.
  if (number <= 0) return null;
  const mean = seconds(total_us / number);
  // Of fewer waits one may be all of the last 5 %.
  const most = number < MANY ? "" : `, 95 % ${within(0.95)}`;
  return { number, text: `mean ${mean}${most}`, detail: `mean ${mean}, half ${within(0.5)}${most}` };
}

// The point that is valid at a time.
const pointAt = (points, at) => points.findLast((point) => point.at_ms <= at);

// The held units that do not cool.
export const inUse = (row) => row.held - row.cooling;

// The held units that are no work, or may be none: class, words and number.
export const apart = (row) => [["cool", "cooling", row.cooling], ["quiet", "may be kept", row.may_be_kept]].filter(([, , units]) => units > 0);

export const clock = (at) => new Date(at).toLocaleTimeString();

// The graphs: what each draws, and its reading at a time.
const GRAPHS = [
  {
    id: "held", title: "Held", draw: (graph) => graph.held(),
    read: (points, { at }) => {
      const point = pointAt(points, at);
      if (!point) return undefined;
      const cooling = point.cooling ? `, cooling ${point.cooling}` : "";
      return `${inUse(point)}${point.limit === null ? "" : ` of ${point.limit}`}${cooling}`;
    },
  },
  { id: "waiting", title: "Waiting", draw: (graph) => graph.steps([["", (point) => point.waiting]]), read: (points, { at }) => pointAt(points, at)?.waiting },
  {
    id: "grants", title: "Granted", draw: (graph) => graph.bars(),
    read: (points, { from, step }) => `${Math.round(passedBetween(points, from, from + step).grants)} in ${step / 1000} s`,
  },
  {
    id: "wait", title: "Wait", draw: (graph) => graph.heat(),
    read: (points, { from, step }) => {
      const waits = summary(passedBetween(points, from, from + step).waits);
      return waits ? waits.detail : "none ended";
    },
  },
];

// One graph: its figure, and the functions from times and values to coordinates.
class Graph {
  constructor(graphs, kind) {
    Object.assign(this, { graphs, kind });
    this.value = make("b", { id: `${graphs.prefix}${kind.id}-now` });
    this.caption = make("figcaption", {}, `${kind.title} `, this.value);
    this.figure = make("figure", {}, this.caption);
    const label = `${kind.title}: the time that is read`;
    this.svg = add(this.figure, "svg", { id: `${graphs.prefix}${kind.id}-graph`, class: kind.id, role: "slider", tabindex: "0", "aria-label": label });
    Object.assign(this.svg, {
      onpointermove: (event) => graphs.readAt(this.timeAt(event)),
      onpointerleave: () => graphs.readAt(null),
      onblur: () => graphs.readAt(null),
      onkeydown: (event) => graphs.onKey(event),
    });
  }

  timeAt(event) {
    const { left, width } = this.svg.getBoundingClientRect();
    const { window, now } = this.graphs.time;
    const part = ((event.clientX - left) * (this.width / width) - LEFT) / (this.width - LEFT - RIGHT);
    return now - window + Math.min(1, Math.max(0, part)) * window;
  }

  draw(now) {
    const { svg, graphs } = this;
    this.width = Math.max(160, svg.clientWidth);
    this.height = Math.max(60, svg.clientHeight);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.kind.draw(this);
    for (const { at, text } of graphs.marks) {
      const mark = add(svg, "path", { class: "mark", d: `M${this.x(at)} ${TOP} v${this.height - TOP - BOTTOM} m-3 ${-(this.height - TOP - BOTTOM)} h6 l-3 5 z` });
      add(mark, "title", {}, text);
    }
    this.cursor = add(svg, "line", { class: "cursor", y1: TOP, y2: this.height - BOTTOM, visibility: "hidden" });
    this.now = now;
    this.show();
  }

  // Draws the scale of values up to `most`, with their texts, and that of the time, with a note.
  grid(most, note = "", labels = [[0, "0"], [most, short(most)]]) {
    const { svg, width, height } = this;
    const { window, now } = this.graphs.time;
    const began = now - window;
    this.x = (at) => LEFT + ((Math.min(Math.max(at, began), now) - began) / window) * (width - LEFT - RIGHT);
    this.y = (value) => TOP + (1 - value / most) * (height - TOP - BOTTOM);
    for (const [value, text] of labels) {
      add(svg, "line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: this.y(value), y2: this.y(value) });
      add(svg, "text", { x: LEFT - 5, y: this.y(value) + 3, "text-anchor": "end" }, text);
    }
    add(svg, "text", { x: LEFT, y: height - 3 }, `−${window / MINUTE_MS} min`);
    add(svg, "text", { x: width - RIGHT, y: height - 3, "text-anchor": "end" }, "now");
    add(svg, "text", { x: (LEFT + width - RIGHT) / 2, y: height - 3, "text-anchor": "middle" }, note);
  }

  // The units that are held, above those that cool too, and the limits.
  held() {
    const limit = (point) => point.limit ?? 0;
    const draw = this.steps([[" cooling", (point) => point.held], ["", inUse]], limit);
    if (draw && this.graphs.points.some(limit)) add(this.svg, "path", { class: "limit", d: `M${draw(limit).join(" L")}` });
  }

  // Numbers of points, each valid until the next point, in the order in which they are drawn, with their classes. Returns
  // the function from the numbers of points to corners.
  steps(series, most = () => 0) {
    const { points, time } = this.graphs;
    const values = points.flatMap((point) => [most(point), ...series.map(([, value]) => value(point))]);
    this.grid(round(Math.max(1, ...values)));
    if (!points.length) return null;
    const corners = (value) =>
      points.flatMap((point, index) => {
        const y = this.y(value(point)).toFixed(1);
        return [`${this.x(point.at_ms).toFixed(1)} ${y}`, `${this.x(points[index + 1]?.at_ms ?? time.now).toFixed(1)} ${y}`];
      });
    const start = this.x(points[0].at_ms).toFixed(1);
    for (const [className, value] of series) {
      const curve = corners(value).join(" L");
      const ground = `${this.x(time.now).toFixed(1)} ${this.y(0)} Z`;
      add(this.svg, "path", { class: `area${className}`, d: `M${start} ${this.y(0)} L${curve} L${ground}` });
      add(this.svg, "path", { class: `curve${className}`, d: `M${curve}` });
    }
    return corners;
  }

  // The grants as bars of equal times, the last of which is not over.
  bars() {
    const { svg, graphs: { points, time, parts } } = this;
    const grants = parts.map(({ passed }) => passed.grants);
    this.grid(round(Math.max(...grants)), `per ${time.step / 1000} s`);
    if (!points.length) return;
    const ground = this.y(0);
    const first = points[0].at_ms;
    parts.forEach(({ from }, index) => {
      const left = this.x(Math.max(from, first));
      const width = this.x(from + time.step) - left - GAP;
      const height = ground - this.y(grants[index]);
      if (height > 0 && width > 0) add(svg, "rect", { class: "grants", x: left, y: ground - height, width, height });
    });
    // A time without grants has the line alone, and a time without data has none.
    add(svg, "line", { class: "known", x1: this.x(first), x2: this.x(time.now), y1: ground, y2: ground });
  }

  // The waits that ended in equal times, by class: the darker, the larger the part of them.
  heat() {
    const { svg, graphs: { points, time, parts } } = this;
    const labels = [...BOUNDS, "longer"].map((bound, index) => [index + 1, bound]);
    this.grid(CLASSES, `ended per ${time.step / 1000} s`, labels);
    if (!points.length) return;
    for (const { from, passed: { waits } } of parts) {
      const all = waits.numbers.reduce((sum, number) => sum + number, 0);
      const left = this.x(from);
      const width = this.x(from + time.step) - left - GAP;
      waits.numbers.forEach((number, index) => {
        if (number < 0.01 || width <= 0) return;
        const [y, below] = [this.y(index + 1), this.y(index)];
        add(svg, "rect", { class: "waits", x: left, y: y + GAP, width, height: below - y - GAP, opacity: (0.25 + 0.75 * (number / all)).toFixed(2) });
      });
    }
    add(svg, "line", { class: "known", x1: this.x(points[0].at_ms), x2: this.x(time.now), y1: this.y(0), y2: this.y(0) });
  }

  // Shows the reading, or what is true now.
  show() {
    const { graphs, svg, cursor } = this;
    const { at, time, points } = graphs;
    cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
    let text = this.now;
    if (at !== null) {
      for (const end of ["x1", "x2"]) cursor.setAttribute(end, this.x(at));
      const read = points.length && at >= points[0].at_ms ? this.kind.read(points, { at, from: Math.floor(at / time.step) * time.step, step: time.step }) : "no data";
      text = `${clock(at)}: ${read}`;
    }
    setText(this.value, text);
    setTip(this.caption, this.caption.textContent);
    const times = { min: time.now - time.window, max: time.now, now: at ?? time.now };
    for (const [name, ms] of Object.entries(times)) svg.setAttribute(`aria-value${name}`, Math.round(ms / 1000));
    svg.setAttribute("aria-valuetext", `${text}${at === null ? "" : graphs.near(at)}`);
  }
}

export class Graphs {
  constructor(container, prefix = "") {
    Object.assign(this, { prefix, at: null, points: [], marks: [] });
    this.all = GRAPHS.map((kind) => new Graph(this, kind));
    container.append(...this.all.map((graph) => graph.figure));
  }

  // Draws a history of at most `most` milliseconds. `row` has the numbers of now; `marksAt(now)` returns the changes by operators.
  show({ points, at_ms: now }, most, row, marksAt = () => []) {
    // The server's clock dates the points, so its last read is now.
    const known = Math.max(0, now - (points[0]?.at_ms ?? now));
    const window = Math.min(Math.max(1, Math.ceil(known / MINUTE_MS)) * MINUTE_MS, most);
    const minute = known < MINUTE_MS ? duration(known) : "minute";
    const passed = passedBetween(points, now - MINUTE_MS, now);
    const waits = summary(passed.waits);
    const held = row.limit === null ? String(inUse(row)) : `${inUse(row)} of ${row.limit}`;
    const texts = {
      held: [held, ...apart(row).map(([, words, units]) => `${units} ${words}`)].join(", "),
      waiting: String(row.waiting),
      grants: known > 0 ? `${Math.round(passed.grants)} in the last ${minute}` : "",
      wait: waits ? `${waits.text}, last ${minute}` : known > 0 ? `no grant in the last ${minute}` : "",
    };
    const step = window / BARS;
    const began = now - window;
    Object.assign(this, { points, time: { now, window, step }, marks: marksAt(now).filter(({ at }) => at >= began) });
    // Parts begin at multiples of their time, so that a bar keeps its height while it moves.
    this.parts = [];
    for (let from = Math.floor(began / step) * step; from < now; from += step) {
      this.parts.push({ from, passed: passedBetween(points, from, from + step) });
    }
    if (this.at !== null && this.at < began) this.at = began;
    for (const graph of this.all) graph.draw(texts[graph.kind.id]);
  }

  // The change beside a time, as a text behind a reading.
  near(at) {
    const close = this.marks.filter((mark) => Math.abs(mark.at - at) <= this.time.step / 2);
    return close.map(({ text }) => `, ${text}`).join("");
  }

  readAt(at) {
    if (!this.time) return;
    this.at = at;
    for (const graph of this.all) graph.show();
  }

  onKey(event) {
    const { window, now, step } = this.time ?? {};
    const at = this.at ?? now;
    const to = { ArrowLeft: at - step, ArrowRight: at + step, Home: now - window, End: now, Escape: null }[event.key];
    if (!this.time || to === undefined || (to === null && this.at === null) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.readAt(to === null ? null : Math.min(Math.max(to, now - window), now));
  }
}
