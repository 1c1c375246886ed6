// The list of semaphores: summary, search, order, and the events that change it.

import * as api from "./api.js";
import { Table, setText, setTip, fillParts, make, makeButton, span, duration } from "./table.js";
import { aged, arranged, byName, byNeed, isBusy, isInNeed, isNoticed, isStopped, isWaiting, order, totals } from "./rank.js";
import { Graphs, add, apart, inUse } from "./graph.js";
import { Rates, fillRate } from "./rate.js";

const OPEN = "permits.open";
const HOUR_MS = 3600000;
// The interval in which the history of the store is fetched.
const WHOLE_MS = 10000;

// The text of the held units: of a group without a limit, because the sum of limits of idle members says nothing.
const usage = (row) => (row.unreadable !== null ? "–" : row.members ? String(inUse(row)) : `${inUse(row)} / ${row.limit ?? "–"}`);

// Draws the shares of the limit that are at work, that may be kept and that cool, and the numbers.
function fillUsage(cell, row) {
  let bar = cell.firstChild;
  if (!bar) {
    bar = make("div");
    const svg = add(bar, "svg", { "aria-hidden": "true" });
    for (const name of ["cooling", "kept", "working"]) add(svg, "rect", { class: name, height: 8 });
    bar.append(span("", ""));
    cell.append(bar);
  }
  const share = (units) => (row.limit ? Math.min(1, units / row.limit) : 0);
  const working = inUse(row) - row.may_be_kept;
  bar.className = `usage ${row.limit ? "" : "unlimited"}`;
  // The units at work are drawn above those that may be kept, and these above all that are held.
  [row.held, inUse(row), working].forEach((units, index) => bar.querySelectorAll("rect")[index].setAttribute("width", `${Math.round(share(units) * 100)}%`));
  setText(bar.querySelector("span"), usage(row));
  setTip(cell, [usage(row), ...apart(row).map(([, words, units]) => `${units} ${words}`)].join(", "));
}

// The state as badges, pairs of a class and a text: what stops grants, what ends by itself, and what is ordinary.
export function badges(row) {
  const all = [
    ["bad", "UNREADABLE", Boolean(row.unreadable)],
    ["bad", "PAUSED", row.paused],
    ["bad", "CLOSED", row.closed !== null],
    ["wait", "recovering", row.recovering_ms > 0 && row.limit !== null],
    ...apart(row).map(([className, words, units]) => [className, `${units} ${words}`, true]),
    ["quiet", "pinned", row.pinned],
  ];
  return all.filter(([, , set]) => set).map(([className, text]) => [className, text]);
}

// A pause or a closed line: the reason, and the operator, the time since then, and the time left.
export function stopped(row) {
  const by = (author) => (author ? `by ${author.by} ${duration(aged(author.age_ms, row))} ago` : "");
  const left = row.pause_remaining_ms === null ? "" : `for another ${duration(Math.max(0, row.pause_remaining_ms - (Date.now() - row.read)))}`;
  const lines = [];
  if (row.paused) lines.push(["PAUSED", row.pause_reason, joined(by(row.paused_by), left)]);
  if (row.closed !== null) lines.push(["CLOSED", row.closed, by(row.closed_by)]);
  return lines;
}

export const joined = (...texts) => texts.filter(Boolean).join(", ");

// The thresholds beyond which a semaphore needs a look; a group has none.
export function alerts(alert) {
  const at = [alert?.wait_ms && `a wait of ${duration(alert.wait_ms)}`, alert?.waiting && `${alert.waiting} waiting`].filter(Boolean);
  return at.length ? `alert beyond ${at.join(" or ")}` : "";
}

// The text beside the state: why the semaphore is stopped, or what a group consists of.
function note(row) {
  // The name is beside it.
  if (row.unreadable) return row.unreadable.replace(/^semaphore .*? cannot be read: /s, "");
  if (!row.members) return stopped(row).map(([, ...texts]) => joined(...texts)).join("; ");
  if (row.isIdle) return "";
  const members = row.members.flatMap((member) => member.members ?? [member]);
  const counted = (test, words) => {
    const number = members.filter(test).length;
    return number && `${number} ${words}`;
  };
  return joined(
    counted(isWaiting, `of ${members.length} with waiters`) || `${members.length} semaphores`,
    counted((member) => member.unreadable !== null, "unreadable"),
    counted(isStopped, "paused or closed"),
    isNoticed(row) && `first: ${row.worst.name}`,
  );
}

function fillSemaphore(cell, row) {
  cell.dataset.fold = row.members ? (row.expanded ? "open" : "folded") : "";
  cell.dataset.level = row.level;
  cell.parentElement.dataset.wait = row.waiting > 0 ? row.need : "";
  const flags = badges(row);
  const who = fillParts(cell, [["name", row.isIdle ? `${row.name} semaphores` : row.name], ["badges", flags], ["note", note(row)]]);
  who.classList.toggle("plain", flags.length === 0 && !note(row));
}

function fillWaiting(cell, row) {
  if (!cell.children.length) cell.append(span("", ""), span("below", ""));
  setText(cell.firstChild, row.unreadable === null ? String(row.waiting) : "–");
  setText(cell.lastChild, wait(row));
  setTip(cell, alerts(row.alert));
}

const wait = (row) => (row.waiting > 0 ? duration(row.wait) : "");

const COLUMNS = [
  { title: "Held", key: "held", value: inUse, className: "number units", fill: fillUsage },
  { title: "Granted", key: "rate", value: (row) => row.rate.perSecond, className: "number rate", fill: fillRate },
  { title: "Waiting", key: "waiting", value: (row) => row.waiting, className: "number waiting", fill: fillWaiting },
  { title: "Longest wait", key: "waiter", value: (row) => row.wait, className: "number oldest waiter", fill: (cell, row) => setText(cell, wait(row)) },
  {
    title: "Oldest holder", key: "holder", value: (row) => aged(row.oldest_holder_age_ms, row) ?? -1, className: "number oldest holder",
    fill: (cell, row) => fillParts(cell, [["label", row.oldest_holder ?? ""], ["age", duration(aged(row.oldest_holder_age_ms, row))]]),
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
  // elements by id; onOpen gets a name, onGroup the rows of semaphores that are to be changed.
  constructor(elements, onOpen, onGroup) {
    Object.assign(this, { elements, onOpen, onGroup, isRead: false, omitted: 0, sort: null });
    this.rows = new Map();
    this.rates = new Rates();
    this.readView();
    this.open = new Set(JSON.parse(sessionStorage.getItem(OPEN) ?? "[]"));
    const fillName = (cell, row) => {
      fillSemaphore(cell, row);
      this.fillChange(cell, row);
    };
    this.table = new Table(elements.semaphores, [{ title: "Name", key: "name", value: (row) => row.name, fill: fillName }, ...COLUMNS], {
      caption: "Semaphores",
      isTree: true,
      id: "semaphore",
      keyOf: (row) => (row.members ? `group ${row.isIdle ? "" : row.name}` : `semaphore ${row.name}`),
      empty: () => {
        if (!this.isRead) return "Nothing has been read yet.";
        const part = PARTS.find(({ id }) => id === this.part && id !== "all");
        if (this.rows.size) return `No semaphore matches.${part ? ` Only those ${part.words} are listed.` : ""}`;
        return "There are no semaphores. The first request for a permit makes one.";
      },
      onOpen: (row) => (row.members ? this.fold(row, !row.expanded) : onOpen(row.name)),
      onFold: (row, isOpen) => row.members && row.expanded !== isOpen && this.fold(row, isOpen),
      onSort: (key) => this.sortBy(key),
    });
    this.summarise();
    elements.search.addEventListener("input", () => this.update());
    elements.ranked.addEventListener("click", () => this.sortBy(null));
    elements.change.addEventListener("click", () => onGroup(this.chosen));
    this.graphs = new Graphs(elements["store-graphs"], "store-");
    elements.whole.addEventListener("toggle", () => this.showWhole());
    new ResizeObserver(() => this.drawWhole()).observe(elements["store-graphs"]);
    setInterval(() => this.showWhole(), WHOLE_MS);
  }

  readView() {
    const view = new URLSearchParams(location.search);
    this.part = view.get("part") ?? "all";
    this.elements.search.value = view.get("search");
  }

  fillChange(cell, row) {
    let button = cell.querySelector("button");
    if (!button) {
      button = makeButton("⋯", (event) => {
        event.stopPropagation();
        this.onGroup(cell.parentElement.item.members);
      });
      cell.firstElementChild.append(button);
    }
    button.hidden = !this.writable || !row.members || Boolean(row.isIdle);
    setTip(button, `Change all of ${row.name}…`);
    button.setAttribute("aria-label", button.title);
  }

  // Fetches the last hour of the store, while its graphs are unfolded.
  async showWhole() {
    if (!this.elements.whole.open || document.hidden || !this.isRead) return;
    try {
      this.history = await api.history(null, HOUR_MS);
    } catch {
      // The state of the connection says so.
    }
    this.drawWhole();
  }

  drawWhole() {
    if (this.history && this.elements.whole.open) this.graphs.show(this.history, HOUR_MS, this.totals);
  }

  summarise() {
    const tile = (id, words, onclick) => {
      const button = make("button", { type: "button", className: `tile ${id}`, onclick }, make("b"), ` ${words}`);
      this.elements.summary.append(button);
      return button;
    };
    this.tiles = PARTS.map(({ id, words }) =>
      tile(id, words, () => {
        this.part = this.part === id ? "all" : id;
        this.update();
      }));
    this.longest = tile("longest", "longest wait", () => this.worst && this.onOpen(this.worst.name));
  }

  // Applies an event. Returns the names that have changed.
  apply(name, data) {
    this.isRead = true;
    const rows = name === "all" ? data.semaphores : data.changed;
    for (const row of rows) this.rates.add(this.rows.get(row.name), row, data.since_ms ?? this.rates.at, data.at_ms);
    this.rates.read(data.at_ms);
    if (name === "all") this.rows.clear();
    for (const row of rows) this.rows.set(row.name, { ...row, read: Date.now() });
    for (const removed of data.removed ?? []) [this.rows, this.rates.grants].forEach((map) => map.delete(removed));
    this.omitted = data.omitted;
    this.updateSoon();
    return new Set([...rows.map((row) => row.name), ...(data.removed ?? [])]);
  }

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
    const { value } = this.table.columns.find(({ key }) => key === this.sort.key);
    const sign = this.sort.descending ? -1 : 1;
    return (a, b) => sign * order(value(a), value(b)) || byName(a, b);
  }

  // Lists the rows. Also every second: a wait that grows changes the order without an event.
  update() {
    const { search, count, change } = this.elements;
    const text = search.value.toLowerCase();
    // A view is in the address, which can be kept and shared.
    const view = text || this.part !== "all" ? `?${new URLSearchParams({ search: search.value, part: this.part })}` : "";
    if (view !== this.view) history.replaceState(null, "", location.pathname + (this.view = view) + location.hash);
    const part = PARTS.find(({ id }) => id === this.part) ?? PARTS[0];
    const words = (row) => `${row.name}\n${badges(row).map(([, text]) => text).join(" ")}`.toLowerCase();
    const all = [...this.rows.values()];
    for (const row of all) [row.rate, row.wait] = [this.rates.of(row.name), aged(row.oldest_waiter_age_ms, row) ?? 0];
    const rows = all.filter((row) => part.test(row) && (!text || words(row).includes(text)));
    this.chosen = [...rows];
    const listed = arranged(rows, this.compare(), this.open, Boolean(text) || this.part !== "all");
    // A number is never cut: its column is as wide as the widest, or as the widest part of two lines.
    const numbers = listed.map(usage);
    const widest = (name, texts) => this.elements.semaphores.style.setProperty(name, texts.reduce((most, text) => Math.max(most, text.length), 5));
    widest("--whole", numbers);
    widest("--part", numbers.flatMap((text) => text.split(/(?<=\/) /)));
    this.table.setItems(this.steady(listed));
    this.showSummary(all);
    change.hidden = !this.writable || rows.length === 0 || rows.length === all.length;
    setText(change, `Change these ${rows.length}…`);
    setText(count, joined(rows.length < all.length && `${rows.length} of ${all.length} semaphores`, this.omitted && `${this.omitted} more are not read`));
  }

  // The same rows in the order before, while a pointer is above them: none moves away from it.
  steady(listed) {
    if (!this.elements.semaphores.matches(":hover")) return listed;
    const before = this.table.items.map(this.table.options.keyOf);
    const found = new Map(listed.map((row) => [this.table.options.keyOf(row), row]));
    const isSame = before.length === found.size && before.every((key) => found.has(key));
    return isSame ? before.map((key) => found.get(key)) : listed;
  }

  select(name) {
    this.table.selected = name === null ? null : `semaphore ${name}`;
    this.table.render();
  }

  get inNeed() {
    return [...this.rows.values()].filter(isInNeed).length;
  }

  showSummary(all) {
    this.totals = totals(all);
    PARTS.forEach(({ id, test, isRare }, index) => {
      const [tile, number] = [this.tiles[index], all.filter(test).length];
      setText(tile.firstChild, String(number));
      tile.setAttribute("aria-pressed", String(this.part === id));
      tile.classList.toggle("none", number === 0);
      tile.hidden = Boolean(isRare) && number === 0;
    });
    this.worst = all.filter(isWaiting).reduce((worst, row) => (row.wait > (worst?.wait ?? -1) ? row : worst), null);
    setText(this.longest.firstChild, this.worst ? wait(this.worst) : "–");
    this.longest.dataset.wait = this.worst?.need ?? "";
    this.longest.disabled = !this.worst;
    setTip(this.longest, this.worst?.name ?? "");
  }
}
