// The list of semaphores: summary, search, order, and the events that change it.

import { Table, setText, setTip, fillName, span, duration } from "./table.js";
import { aged, arranged, byName, byNeed, isBusy, isStopped, isWaiting, longestWait, severity } from "./rank.js";

const SVG = "http://www.w3.org/2000/svg";
const OPEN = "permits.open";

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
  bar.className = `usage ${severity(longestWait(row))}`;
  // The units at work are drawn above those that may be kept, and these above all that are held.
  [row.held, uncooled, working].forEach((units, index) => bar.querySelectorAll("rect")[index].setAttribute("width", `${Math.round(share(units) * 100)}%`));
  setText(bar.querySelector("span"), row.unreadable === null ? `${uncooled} / ${row.limit ?? "–"}` : "–");
  setTip(cell, [`${working} at work`, ...apart(row).map(([, text]) => text)].join(", "));
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

// A pause or a closed line: the operator, the time since then, the time left, and the reason.
export function stopped(row) {
  const by = (author) => (author ? ` by ${author.by} ${duration(aged(author.age_ms, row))} ago` : "");
  const left = row.pause_remaining_ms === null ? "" : `, for another ${duration(Math.max(0, row.pause_remaining_ms - (Date.now() - row.read)))}`;
  const because = (reason) => (reason ? `: ${reason}` : "");
  const lines = [];
  if (row.paused) lines.push(["PAUSED", `${by(row.paused_by)}${left}${because(row.pause_reason)}`]);
  if (row.closed !== null) lines.push(["CLOSED", `${by(row.closed_by)}${because(row.closed)}`]);
  return lines;
}

// The second line of a row.
function note(row) {
  if (!row.members) return row.unreadable ?? stopped(row).map(([what, text]) => `${what.toLowerCase()}${text}`).join("; ");
  const members = row.members.flatMap((member) => member.members ?? [member]);
  const counted = (test, words) => {
    const number = members.filter(test).length;
    return number ? [`${number} ${words}`] : [];
  };
  const all = row.isIdle ? [] : [`${members.length} semaphores`];
  const worst = row.need <= 3 ? [`first: ${row.worst.name}`] : [];
  const unreadable = counted((member) => member.unreadable !== null, "unreadable");
  return [...all, ...unreadable, ...counted(isWaiting, "with waiters"), ...counted(isStopped, "paused or closed"), ...worst].join(", ");
}

function fillSemaphore(cell, row) {
  cell.dataset.fold = row.members ? (row.expanded ? "open" : "folded") : "";
  cell.dataset.level = row.level;
  fillName(cell, row.isIdle ? `${row.name} semaphores` : row.name, badges(row), [["note", note(row)]]);
}

function fillWaiting(cell, row) {
  if (!cell.children.length) cell.append(span("", ""), span("below", ""));
  const [number, wait] = cell.children;
  setText(number, row.unreadable === null ? String(row.waiting) : "–");
  setText(wait, row.waiting > 0 ? duration(longestWait(row)) : "");
  cell.classList.toggle("some", row.waiting > 0);
  mark(cell, row);
}

// Marks a cell by the longest wait.
function mark(cell, row) {
  const wanted = row.waiting > 0 ? severity(longestWait(row)) : "";
  cell.classList.toggle("long", wanted === "long");
  cell.classList.toggle("too-long", wanted === "too-long");
}

const ORDER = {
  name: (row) => row.name,
  held: (row) => row.held,
  waiting: (row) => row.waiting,
  waiter: (row) => longestWait(row),
  holder: (row) => aged(row.oldest_holder_age_ms, row) ?? -1,
};

const COLUMNS = [
  { title: "Name", key: "name", fill: fillSemaphore },
  { title: "Held", key: "held", className: "number units", fill: fillUsage },
  { title: "Waiting", key: "waiting", className: "number waiting", fill: fillWaiting },
  {
    title: "Longest wait", key: "waiter", className: "number oldest waiter",
    fill: (cell, row) => {
      setText(cell, row.waiting > 0 ? duration(longestWait(row)) : "");
      mark(cell, row);
    },
  },
  {
    title: "Oldest holder", key: "holder", className: "number oldest holder",
    fill: (cell, row) => setText(cell, duration(aged(row.oldest_holder_age_ms, row))),
  },
];

// What the summary counts, and lists when it is chosen.
const PARTS = [
  { id: "all", words: "semaphores", test: () => true },
  { id: "busy", words: "busy", test: isBusy },
  { id: "waiting", words: "with waiters", test: isWaiting },
  { id: "stopped", words: "paused or closed", test: isStopped },
  { id: "unreadable", words: "unreadable", test: (row) => row.unreadable !== null, isRare: true },
];

export class List {
  // elements: { table, summary, search, ranked, count }; onOpen gets a name.
  constructor(elements, onOpen) {
    Object.assign(this, { elements, onOpen });
    this.rows = new Map();
    this.isRead = false;
    this.omitted = 0;
    this.sort = null;
    this.part = "all";
    this.open = new Set(JSON.parse(sessionStorage.getItem(OPEN) ?? "[]"));
    this.table = new Table(elements.table, COLUMNS, {
      caption: "Semaphores",
      quiet: true,
      isTree: true,
      id: "semaphore",
      keyOf: (row) => (row.members ? `group ${row.isIdle ? "" : row.name}` : `semaphore ${row.name}`),
      empty: () => {
        if (!this.isRead) return "Nothing has been read yet.";
        return this.rows.size ? "No semaphore matches." : "There are no semaphores. The first request for a permit makes one.";
      },
      onOpen: (row) => (row.members ? this.fold(row, !row.expanded) : onOpen(row.name)),
      onFold: (row, isOpen) => row.members && row.expanded !== isOpen && this.fold(row, isOpen),
      onSort: (key) => this.sortBy(key),
    });
    this.summarise();
    elements.search.addEventListener("input", () => this.update());
    elements.ranked.addEventListener("click", () => this.sortBy(null));
  }

  summarise() {
    const tile = (id, words) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = `tile ${id}`;
      button.append(document.createElement("b"), " ", document.createElement("span"));
      button.lastChild.textContent = words;
      this.elements.summary.append(button);
      return button;
    };
    this.tiles = PARTS.map(({ id, words }) => {
      const button = tile(id, words);
      button.addEventListener("click", () => {
        this.part = this.part === id ? "all" : id;
        this.update();
      });
      return button;
    });
    this.longest = tile("longest", "longest wait");
    this.longest.addEventListener("click", () => this.worst && this.onOpen(this.worst.name));
  }

  // Applies an event. Returns the names that have changed.
  apply(name, data) {
    this.isRead = true;
    const rows = name === "all" ? data.semaphores : data.changed;
    if (name === "all") this.rows.clear();
    for (const row of rows) this.rows.set(row.name, { ...row, read: Date.now() });
    for (const removed of data.removed ?? []) this.rows.delete(removed);
    this.omitted = data.omitted;
    this.updateSoon();
    return new Set([...rows.map((row) => row.name), ...(data.removed ?? [])]);
  }

  // Updates once a frame, however many events come.
  updateSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.update();
    });
  }

  fold(row, isOpen) {
    const key = row.isIdle ? "" : row.name;
    if (isOpen) this.open.add(key);
    else this.open.delete(key);
    sessionStorage.setItem(OPEN, JSON.stringify([...this.open]));
    this.update();
  }

  // Sorts by a column, or by need.
  sortBy(key) {
    const { sort } = this;
    // Numbers are most interesting where they are large.
    const descending = sort?.key === key ? !sort.descending : key !== "name";
    this.sort = key === null ? null : { key, descending };
    this.table.setSort(key, descending);
    this.elements.ranked.hidden = key === null;
    this.table.setItems([]);
    this.update();
  }

  compare() {
    if (this.sort === null) return byNeed;
    const [value, sign] = [ORDER[this.sort.key], this.sort.descending ? -1 : 1];
    return (a, b) => {
      const [left, right] = [value(a), value(b)];
      return sign * (left < right ? -1 : left > right ? 1 : 0) || byName(a, b);
    };
  }

  // Lists the rows. Also every second: a wait that grows changes the order without an event.
  update() {
    const { search, count } = this.elements;
    const text = search.value.toLowerCase();
    const part = PARTS.find(({ id }) => id === this.part);
    const words = (row) => `${row.name}\n${badges(row).map(([, text]) => text).join(" ")}`.toLowerCase();
    const all = [...this.rows.values()];
    const rows = all.filter((row) => part.test(row) && (!text || words(row).includes(text)));
    const listed = arranged(rows, this.compare(), this.open, Boolean(text) || this.part !== "all");
    this.table.setItems(this.steady(listed));
    this.showSummary(all);
    const shown = rows.length === all.length ? [] : [`${rows.length} of ${all.length} semaphores`];
    setText(count, [...shown, ...(this.omitted ? [`${this.omitted} more are not read`] : [])].join(", "));
  }

  // The same rows in the order before, while a pointer is above them: none moves away from it.
  steady(listed) {
    if (!this.elements.table.matches(":hover")) return listed;
    const before = this.table.items.map(this.table.options.keyOf);
    const found = new Map(listed.map((row) => [this.table.options.keyOf(row), row]));
    const isSame = before.length === found.size && before.every((key) => found.has(key));
    return isSame ? before.map((key) => found.get(key)) : listed;
  }

  // Selects a semaphore, or nothing.
  select(name) {
    this.table.selected = name === null ? null : `semaphore ${name}`;
    this.table.render();
  }

  showSummary(all) {
    PARTS.forEach(({ id, test, isRare }, index) => {
      const [tile, number] = [this.tiles[index], all.filter(test).length];
      setText(tile.firstChild, String(number));
      tile.setAttribute("aria-pressed", String(this.part === id));
      tile.classList.toggle("none", number === 0);
      tile.hidden = Boolean(isRare) && number === 0;
    });
    this.worst = all.filter(isWaiting).reduce((worst, row) => (worst === null || longestWait(row) > longestWait(worst) ? row : worst), null);
    const wait = this.worst ? longestWait(this.worst) : 0;
    setText(this.longest.firstChild, this.worst ? duration(wait) : "–");
    this.longest.className = `tile longest ${severity(wait)} ${this.worst ? "" : "none"}`;
    this.longest.disabled = !this.worst;
    setTip(this.longest, this.worst?.name ?? "");
  }
}
