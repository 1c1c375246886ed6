// The list of semaphores: search, order, and the events that change it.

import { Table, setText, fillName, duration } from "./table.js";

const SVG = "http://www.w3.org/2000/svg";

// Draws the shares of the limit that are at work, that may be kept and that cool, and the numbers.
function fillUsage(cell, row) {
  let bar = cell.firstElementChild;
  if (!bar) {
    bar = document.createElement("div");
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("aria-hidden", "true");
    for (const name of ["cooling", "kept", "working"]) {
      const rect = svg.appendChild(document.createElementNS(SVG, "rect"));
      rect.setAttribute("class", name);
      rect.setAttribute("height", "8");
    }
    bar.append(svg, document.createElement("span"));
    cell.append(bar);
  }
  const share = (units) => (row.limit ? Math.min(1, units / row.limit) : 0);
  const uncooled = row.held - row.cooling;
  const working = uncooled - row.may_be_kept;
  bar.className = share(working) >= 1 ? "usage full" : "usage";
  // The units at work are drawn above those that may be kept, and these above all that are held.
  [row.held, uncooled, working].forEach((units, index) => bar.querySelectorAll("rect")[index].setAttribute("width", `${Math.round(share(units) * 100)}%`));
  setText(bar.querySelector("span"), row.unreadable === null ? `${row.held} / ${row.limit ?? "–"}` : "–");
}

// The held units that are no work, or may be none, as badges.
export function apart(row) {
  const all = [["cool", `cooling ${row.cooling}`, row.cooling], ["quiet", `${row.may_be_kept} may be kept`, row.may_be_kept]];
  return all.filter(([, , units]) => units > 0).map(([className, text]) => [className, text]);
}

// The state as badges, pairs of a class and a text: what stops grants, what ends by itself, and what is ordinary.
export function badges(row) {
  const all = [
    ["bad", "UNREADABLE", Boolean(row.unreadable)],
    ["bad", "PAUSED", row.paused],
    ["bad", "CLOSED", row.closed !== null],
    ["wait", "recovering", row.recovering_ms > 0 && row.limit !== null],
    ...apart(row).map((badge) => [...badge, true]),
    ["quiet", "pinned", row.pinned],
  ];
  return all.filter(([, , set]) => set).map(([className, text]) => [className, text]);
}

const state = (row) => badges(row).map(([, text]) => text).join(" ");

function fillSemaphore(cell, row) {
  fillName(cell, row.name, badges(row), [["note", row.unreadable ?? row.closed ?? ""]]);
}

// The age of a row's field now, because it was read a moment ago.
const aged = (age, row) => (age === null ? null : age + (Date.now() - row.read));

const ORDER = {
  name: (row) => row.name,
  held: (row) => row.held,
  waiting: (row) => row.waiting,
  holder: (row) => aged(row.oldest_holder_age_ms, row) ?? -1,
  waiter: (row) => aged(row.oldest_waiter_age_ms, row) ?? -1,
};

const age = (field) => (cell, row) => setText(cell, duration(aged(row[field], row)));

const COLUMNS = [
  { title: "Name", key: "name", fill: fillSemaphore },
  { title: "Held", key: "held", className: "number units", fill: fillUsage },
  {
    title: "Waiting", key: "waiting", className: "number waiting",
    fill: (cell, row) => {
      setText(cell, row.unreadable === null ? String(row.waiting) : "–");
      cell.classList.toggle("some", row.waiting > 0);
    },
  },
  { title: "Oldest holder", key: "holder", className: "number oldest holder", fill: age("oldest_holder_age_ms") },
  { title: "Oldest waiter", key: "waiter", className: "number oldest waiter", fill: age("oldest_waiter_age_ms") },
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
    const descending = sort.key === key ? !sort.descending : key !== "name";
    this.sort = { key, descending };
    this.table.setSort(key, descending);
    this.update();
  }

  update() {
    const { search, busy, count } = this.elements;
    const text = search.value.toLowerCase();
    // One that cannot be read may be in use.
    const isBusy = (row) => row.held > 0 || row.waiting > 0 || row.unreadable !== null;
    const matches = (row) =>
      [row.name, state(row)].some((words) => words.toLowerCase().includes(text)) && (!busy.checked || isBusy(row));
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
