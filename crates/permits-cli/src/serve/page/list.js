// The list of semaphores: search, order, and the events that change it.

import { Table, setText, setLong, duration } from "./table.js";

const SVG = "http://www.w3.org/2000/svg";

// Draws the share of the limit that is held, and the numbers.
function fillUsage(cell, row) {
  let bar = cell.firstElementChild;
  if (!bar) {
    bar = document.createElement("div");
    const [svg, rect] = ["svg", "rect"].map((name) => document.createElementNS(SVG, name));
    svg.setAttribute("aria-hidden", "true");
    rect.setAttribute("height", "8");
    svg.append(rect);
    bar.append(svg, document.createElement("span"));
    cell.append(bar);
  }
  const share = row.limit ? Math.min(1, row.held / row.limit) : 0;
  bar.className = share >= 1 ? "usage full" : "usage";
  bar.querySelector("rect").setAttribute("width", `${Math.round(share * 100)}%`);
  setText(bar.querySelector("span"), `${row.held} / ${row.limit ?? "–"}`);
}

function flags(row) {
  const all = [
    ["paused", row.paused],
    ["closed", row.closed !== null],
    ["pinned", row.pinned],
    ["recovering", row.recovering_ms > 0],
  ];
  return all.filter(([, set]) => set).map(([flag]) => flag).join(", ");
}

// The age of a row's field now, because it was read a moment ago.
const aged = (age, row) => (age === null ? null : age + (Date.now() - row.read));

const ORDER = {
  name: (row) => row.name,
  held: (row) => row.held,
  waiting: (row) => row.waiting,
  holder: (row) => aged(row.oldest_holder_age_ms, row) ?? -1,
  waiter: (row) => aged(row.oldest_waiter_age_ms, row) ?? -1,
  state: flags,
};

const COLUMNS = [
  { title: "Name", key: "name", fill: (cell, row) => setLong(cell, row.name) },
  { title: "Held", key: "held", className: "number", width: "11.5rem", fill: fillUsage },
  {
    title: "Waiting", key: "waiting", className: "number", width: "6rem",
    fill: (cell, row) => {
      setText(cell, String(row.waiting));
      cell.className = row.waiting > 0 ? "number some" : "number quiet";
    },
  },
  { title: "Oldest holder", key: "holder", className: "number extra", width: "8rem", fill: (cell, row) => setText(cell, duration(aged(row.oldest_holder_age_ms, row))) },
  { title: "Oldest waiter", key: "waiter", className: "number extra", width: "8rem", fill: (cell, row) => setText(cell, duration(aged(row.oldest_waiter_age_ms, row))) },
  { title: "State", key: "state", className: "flags extra", width: "13rem", fill: (cell, row) => setLong(cell, flags(row)) },
];

export class List {
  // elements: { table, search, busy, count }; onOpen gets a name.
  constructor(elements, onOpen) {
    this.elements = elements;
    this.rows = new Map();
    this.omitted = 0;
    this.sort = { key: "name", descending: false };
    this.table = new Table(elements.table, COLUMNS, {
      caption: "Semaphores",
      quiet: true,
      id: "semaphore",
      keyOf: (row) => row.name,
      empty: () => (this.rows.size ? "No semaphore matches." : "There are no semaphores."),
      onOpen: (row) => onOpen(row.name),
      onSort: (key) => this.sortBy(key),
    });
    elements.search.addEventListener("input", () => this.update());
    elements.busy.addEventListener("change", () => this.update());
    this.table.setSort("name", false);
  }

  // Applies an event. Returns the names that have changed.
  apply(name, data) {
    const rows = name === "all" ? data.semaphores : data.changed;
    if (name === "all") this.rows.clear();
    for (const row of rows) this.rows.set(row.name, { ...row, read: Date.now() });
    for (const removed of data.removed ?? []) this.rows.delete(removed);
    this.omitted = data.omitted;
    this.update();
    return new Set([...rows.map((row) => row.name), ...(data.removed ?? [])]);
  }

  sortBy(key) {
    const { sort } = this;
    // Numbers are most interesting where they are large.
    const descending = sort.key === key ? !sort.descending : !["name", "state"].includes(key);
    this.sort = { key, descending };
    this.table.setSort(key, descending);
    this.update();
  }

  update() {
    const { search, busy, count } = this.elements;
    const text = search.value.toLowerCase();
    const matches = (row) =>
      row.name.toLowerCase().includes(text) && (!busy.checked || row.held > 0 || row.waiting > 0);
    const rows = [...this.rows.values()].filter(matches);
    const value = ORDER[this.sort.key];
    const sign = this.sort.descending ? -1 : 1;
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    rows.sort((a, b) => sign * order(value(a), value(b)) || order(a.name, b.name));
    this.table.setItems(rows);
    const all = this.rows.size;
    const shown = rows.length === all ? `${all} semaphores` : `${rows.length} of ${all} semaphores`;
    setText(count, this.omitted ? `${shown}, ${this.omitted} more are not read` : shown);
  }
}
