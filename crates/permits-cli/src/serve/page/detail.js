// One semaphore: holders, waiters, graphs, and the acts of an operator.

import * as api from "./api.js";
import { Acts } from "./acts.js";
import { Table, shown, setText, setTip, setLong, setBadges, fillParts, make, makeButton, span, duration } from "./table.js";
import { alerts, badges, joined, stopped } from "./list.js";
import { aged } from "./rank.js";
import { Graphs, MINUTE_MS, apart } from "./graph.js";

const REFRESH_MS = 2000;
// The times that the graphs show, and the interval in which the longer one is fetched.
const WINDOWS = [["5 min", 5 * MINUTE_MS], ["1 h", 60 * MINUTE_MS]];
const SLOW_MS = 10000;

const number = (title, className, value) => ({ title, className: `number ${className}`, fill: (cell, item) => setLong(cell, String(value(item))) });
// The tooltip has the time by the clock.
const AGE = {
  title: "Age", className: "number age",
  fill: (cell, item) => {
    setText(cell, duration(aged(item.age_ms, item)));
    setTip(cell, new Date(item.read - item.age_ms).toLocaleString());
  },
};
const WEIGHT = number("Weight", "weight", (item) => item.weight);

// The rest of a lease. A permit that cools has no rest that a renewal extends, and is gone at its end.
function lease(item) {
  const rest = item.lease_remaining_ms - (Date.now() - item.read);
  return item.cooling && rest < 1000 ? "" : duration(rest);
}

// Fills a cell with the label, the name beside it, badges, and the columns that a narrow table leaves out. Without a label the
// name has its place.
function fillPlace(cell, item, badges, columns) {
  const [label, name] = note(item) ? [note(item), item.holder] : [item.holder, ""];
  const rest = [item.weight > 1 ? `weight ${item.weight}` : "", ...columns].filter(Boolean).join(", ");
  fillParts(cell, [["label", label], ["name", name], ["badges", badges], ["columns", rest]]);
}

function fillHolder(cell, item) {
  const rest = lease(item);
  const end = rest && `${item.cooling ? "free in" : "lease"} ${rest}`;
  const kept = item.may_be_kept ? [["quiet", "may be kept"]] : [];
  fillPlace(cell, item, item.cooling ? [["cool", "cooling"]] : kept, [`slot ${item.slot}`, end]);
}

const fillWaiter = (cell, item) => fillPlace(cell, item, [], [`${item.position} before it`]);

function fillLane(cell, item) {
  const bounds = [item.limit === null ? "" : `limit ${item.limit}`, item.floor ? `floor ${item.floor}` : ""].filter(Boolean).join(", ");
  fillParts(cell, [["label", item.lane ?? "(none)"], ["name", item.pinned ? "pinned" : ""], ["columns", bounds]]);
}

// The lane in brackets, and the label.
const note = (item) => [item.lane === null ? "" : `[${item.lane}]`, item.label ?? ""].filter(Boolean).join(" ");

export class Detail {
  // elements by id; context as for Acts, without `changed`.
  constructor(elements, context) {
    Object.assign(this, { elements, name: null, writable: false }, context);
    const revoke = { title: "Revoke", className: "revoke", fill: (cell, item) => this.fillRevoke(cell, item) };
    const keyOf = (item) => JSON.stringify([item.holder, item.token ?? null]);
    const table = (id, columns, options) => new Table(elements[id], columns, { id, scroller: elements.body, keyOf, ...options });
    this.holders = table("holders", [{ title: "Holders", fill: fillHolder }, WEIGHT, number("Lease", "lease", lease), number("Slot", "slot", (item) => item.slot), AGE, revoke], {
      caption: "Holders", empty: () => "Nothing is held.",
    });
    this.waiters = table("waiters", [{ title: "Waiters", fill: fillWaiter }, WEIGHT, number("Before", "place", (item) => item.position), AGE, revoke], {
      caption: "Waiters", empty: () => "No request waits.",
    });
    const counts = [number("Waiting", "units", (item) => item.waiting), number("Held", "units", (item) => item.held)];
    const bounds = [number("Limit", "units bound", (item) => item.limit ?? ""), number("Floor", "units bound", (item) => item.floor || "")];
    this.lanes = table("lanes", [{ title: "Lanes", fill: fillLane }, ...counts, ...bounds], {
      caption: "Lanes", keyOf: (item) => JSON.stringify(item.lane), empty: () => "",
    });
    const by = { title: "Operator", className: "operator", fill: (cell, item) => setLong(cell, item.by) };
    const change = { title: "Changes by operators", fill: (cell, item) => setLong(cell, item.text) };
    this.changes = table("changes", [change, by, AGE], {
      caption: "Changes by operators", keyOf: (item) => JSON.stringify([item.at_ms, item.text]), empty: () => "",
    });
    const changed = (status, name) => {
      if (this.name !== name) return;
      this.show(status);
      this.refresh(true);
    };
    this.acts = new Acts(elements.actions, { ...context, changed });
    this.graphs = new Graphs(elements.graphs);
    this.window = WINDOWS[0][1];
    this.windows = WINDOWS.map(([words, window]) => {
      const button = makeButton(words, () => this.setWindow(window));
      button.setAttribute("aria-pressed", String(window === this.window));
      elements.windows.append(button);
      return [button, window];
    });
    new ResizeObserver(() => this.draw()).observe(elements.graphs);
    setInterval(() => this.refresh(), REFRESH_MS);
  }

  setWindow(window) {
    this.window = window;
    for (const [button, each] of this.windows) button.setAttribute("aria-pressed", String(each === window));
    this.history = null;
    this.refresh(true);
  }

  open(name) {
    this.name = name;
    [this.shown, this.history] = [null, null];
    setLong(this.elements.name, name);
    for (const table of [this.holders, this.waiters, this.lanes, this.changes]) {
      table.selected = null;
      table.setItems([]);
    }
    this.explain([], []);
    // They are of the semaphore before, until the state of this one has come.
    this.elements.actions.hidden = true;
    this.elements.graphs.hidden = true;
    this.elements.body.scrollTop = 0;
    this.refresh(true);
  }

  close() {
    this.name = null;
    this.stop?.abort();
  }

  // Fetches the semaphore. One fetch at a time, and none for a page that is not visible.
  async refresh(now) {
    if (this.name === null || (!now && (this.fetching || document.hidden))) return;
    // A browser takes these names for steps in a path, encoded or not.
    if (this.name === "." || this.name === "..") {
      this.explain([], [span("", `A browser cannot ask for this name: permits status ${this.name}`)], true);
      return;
    }
    this.stop?.abort();
    const stop = (this.stop = new AbortController());
    const name = this.name;
    this.fetching = true;
    try {
      const isDue = this.window === WINDOWS[0][1] || !this.history || Date.now() - this.history.read >= SLOW_MS;
      const history = isDue ? api.history(name, this.window, stop.signal) : null;
      const [status, fetched] = await Promise.all([api.status(name, stop.signal), history]);
      if (this.name !== name || stop.signal.aborted) return;
      if (fetched) this.history = { ...fetched, read: Date.now() };
      this.show(status);
    } catch (error) {
      if (stop.signal.aborted) return;
      if (this.shown === null && error.status !== 401) this.explain([], [span("bad", error.message)], true);
      else this.onFailed(error);
    } finally {
      if (this.stop === stop) this.fetching = false;
    }
  }

  show(status) {
    const { elements } = this;
    this.shown = { ...status, read: Date.now() };
    const stamp = (item) => ({ ...item, read: Date.now() });
    // By grant, because the order of the store changes with every renewal. What cools is no longer there.
    const holders = status.holders.map(stamp).sort((a, b) => a.cooling - b.cooling || a.token - b.token);
    const holding = holders.filter((item) => !item.cooling).length;
    this.holders.setTitle(counted("Holders", holding, holders.length, status.held, "units held"));
    this.waiters.setTitle(counted("Waiters", status.waiters.length, status.waiters.length, status.waiting, "waiting"));
    for (const [table, items] of [[this.holders, holders], [this.waiters, status.waiters.map(stamp)]]) {
      const heaviest = items.reduce((most, item) => Math.max(most, item.weight), 1);
      table.container.classList.toggle("weighted", heaviest > 1);
      table.container.style.setProperty("--digits", String(heaviest).length);
      table.setItems(items);
    }
    elements.lanes.hidden = status.lanes.length === 0;
    elements.lanes.classList.toggle("bounded", status.lanes.some((item) => item.limit !== null || item.floor > 0));
    this.lanes.setItems(status.lanes);
    this.changes.setItems(status.changes.map(stamp));
    elements.changes.hidden = status.changes.length === 0;
    const isKnown = status.limit !== null || status.held > 0 || status.waiting > 0 || status.paused || status.closed !== null || alerts(status.alert) || status.lanes.some((item) => item.pinned);
    if (isKnown) this.describe();
    else this.explain([], [span("", "No such semaphore: the name is another one, or no program uses it.")], true);
    elements.detail.classList.toggle("writable", this.writable);
    this.acts.show(status, this.writable);
    this.draw();
  }

  describe() {
    this.explain(badges(this.shown), facts(this.shown, this.needOf(this.name)));
  }

  // Shows badges beside the name and lines below it. Of a semaphore that is absent, nothing else is shown.
  explain(badges, lines, isAbsent = false) {
    const { elements } = this;
    setBadges(elements.badges, badges);
    elements.facts.replaceChildren(...lines);
    elements.detail.classList.toggle("absent", isAbsent);
  }

  draw() {
    const { shown: status, history, elements } = this;
    if (!status || !history) return;
    elements.graphs.hidden = history.omitted;
    setText(elements.unkept, history.omitted ? "The last hour of this semaphore is not kept: others need a look more." : "");
    if (history.omitted) return;
    const marks = (now) => status.changes.map((change) => ({ at: now - change.age_ms, text: `${change.text} by ${change.by}` }));
    this.graphs.show(history, this.window, status, marks);
  }

  // Renders the ages again.
  tick() {
    if (this.name === null) return;
    for (const table of [this.holders, this.waiters, this.changes]) table.render();
    if (this.shown && !this.elements.detail.classList.contains("absent")) this.describe();
  }

  fillRevoke(cell, item) {
    let button = cell.firstElementChild;
    if (!button) {
      button = makeButton("Revoke…", () => this.acts.revoke(this.name, cell.parentElement.item), "danger");
      cell.append(button);
    }
    button.setAttribute("aria-label", shown(`Revoke ${note(item)} ${item.holder}`));
  }
}

// The head of a table, with the number of its rows.
function counted(title, holding, listed, all, noun) {
  const cooling = listed - holding;
  const text = `${title} ${holding}${cooling ? `, ${cooling} cooling` : ""}`;
  return listed >= 1000 ? `${text} (the first ${listed}; ${all} ${noun})` : text;
}

// The lines below the name: the numbers, what stops grants, and the limit.
function facts(status, need) {
  const tile = (className, number, words) => make("span", { className: `tile ${className}` }, make("b", {}, String(number)), ` ${words}`);
  const held = status.held - status.cooling;
  const numbers = span("numbers", "");
  numbers.append(tile("", status.limit === null ? held : `${held} / ${status.limit}`, "held"), tile(status.waiting ? "" : "none", status.waiting, "waiting"));
  if (status.waiting > 0) {
    const wait = tile("", duration(aged(status.oldest_waiter_age_ms, status)), "longest wait");
    wait.dataset.wait = need;
    numbers.append(wait);
  }
  for (const [, words, units] of apart(status)) numbers.append(tile("", units, words));
  const author = (keyword) => status.changes.find((item) => item.change === keyword) ?? null;
  const lines = stopped({ ...status, paused_by: author("paused"), closed_by: author("line_closed") });
  const shown = lines.map(([what, reason, rest]) => span("bad", `${what}${reason ? `: ${reason},` : ""} ${rest}`));
  if (status.recovering_ms > 0 && status.limit !== null) shown.push(span("wait", `recovering for ${duration(status.recovering_ms)}: free units are not granted yet`));
  const pin = author("limit_set");
  const pinned = status.pinned ? `, pinned${pin ? ` by ${pin.by} ${duration(aged(pin.age_ms, status))} ago` : ""}` : "";
  shown.push(span("", joined(status.limit === null ? "no limit is set" : `limit ${status.limit}${pinned} (version ${status.limit_version} of the limit)`, alerts(status.alert))));
  return [numbers, ...shown];
}
