// One semaphore: holders, waiters, graphs, and the acts of an operator.

import * as api from "./api.js";
import { Acts } from "./acts.js";
import { Table, setText, setLong, setBadges, fillName, span, duration } from "./table.js";
import { apart, badges, stopped } from "./list.js";
import { Graphs, passedBetween, summary } from "./graph.js";

const REFRESH_MS = 2000;
const MINUTE_MS = 60000;
// The times that the graphs show, and the interval in which the longer one is fetched.
const WINDOWS = [["5 min", 5 * MINUTE_MS], ["1 h", 60 * MINUTE_MS]];
const SLOW_MS = 10000;
// The most characters of a name that has one line beside all columns.
const LONG = 24;

const since = (item, age) => duration(age + (Date.now() - item.read));
const AGE = { title: "Age", className: "number age", fill: (cell, item) => setText(cell, since(item, item.age_ms)) };
const WEIGHT = { title: "Weight", className: "number weight", fill: (cell, item) => setText(cell, String(item.weight)) };

// The rest of a lease. A permit that cools has no rest that a renewal extends, and is gone at its end.
function lease(item) {
  const rest = item.lease_remaining_ms - (Date.now() - item.read);
  return item.cooling && rest < 1000 ? "" : duration(rest);
}

// Fills a cell with a name, the lane and the label below it, and the columns that a narrow table leaves out.
function fillPlace(cell, item, badges, columns) {
  const all = [item.weight > 1 ? `weight ${item.weight}` : "", ...columns].filter(Boolean);
  fillName(cell, item.holder, badges, [["label", note(item)], ["since", since(item, item.age_ms)], ["columns", all.join(", ")]]);
}

function fillHolder(cell, item) {
  const rest = lease(item);
  const end = rest && `${item.cooling ? "free in" : "lease"} ${rest}`;
  const kept = item.may_be_kept ? [["quiet", "may be kept"]] : [];
  fillPlace(cell, item, item.cooling ? [["cool", "cooling"]] : kept, [`slot ${item.slot}`, end]);
}

const fillWaiter = (cell, item) => fillPlace(cell, item, [], [`${item.position} before it`]);

// The lane in brackets, and the label.
const note = (item) => [item.lane === null ? "" : `[${item.lane}]`, item.label ?? ""].filter(Boolean).join(" ");

export class Detail {
  // elements by id; context as for Acts, without `changed`.
  constructor(elements, context) {
    this.elements = elements;
    this.onFailed = context.onFailed;
    this.name = null;
    this.writable = false;
    const revoke = { title: "Revoke", className: "revoke", fill: (cell, item) => this.fillRevoke(cell, item) };
    const rest = { title: "Lease", className: "number lease", fill: (cell, item) => setText(cell, lease(item)) };
    const slot = { title: "Slot", className: "number slot", fill: (cell, item) => setText(cell, String(item.slot)) };
    const place = { title: "Before it", className: "number place", fill: (cell, item) => setText(cell, String(item.position)) };
    const keyOf = (item) => JSON.stringify([item.holder, item.token ?? null]);
    this.holders = new Table(elements.holders, [{ title: "Holder", fill: fillHolder }, WEIGHT, slot, AGE, rest, revoke], {
      caption: "Holders", id: "holder", keyOf, empty: () => "Nothing is held.",
    });
    this.waiters = new Table(elements.waiters, [{ title: "Waiter", fill: fillWaiter }, WEIGHT, place, AGE, revoke], {
      caption: "Waiters", id: "waiter", keyOf, empty: () => "No request waits.",
    });
    const lane = { title: "Lane", fill: (cell, item) => setLong(cell, item.lane ?? "(none)") };
    const number = (title, field) => ({ title, className: "number weight", fill: (cell, item) => setText(cell, String(item[field])) });
    this.lanes = new Table(elements.lanes, [lane, number("Waiting", "waiting"), number("Held", "held")], {
      caption: "Lanes", id: "lane", keyOf: (item) => JSON.stringify(item.lane), empty: () => "",
    });
    const by = { title: "Operator", className: "operator", fill: (cell, item) => setLong(cell, item.by) };
    const change = { title: "Change", fill: (cell, item) => setLong(cell, item.text) };
    this.changes = new Table(elements.changes, [by, change, AGE], {
      caption: "Changes by operators", id: "change", keyOf: (item) => JSON.stringify([item.at_ms, item.text]), empty: () => "",
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
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = words;
      button.setAttribute("aria-pressed", String(window === this.window));
      button.addEventListener("click", () => this.setWindow(window));
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
      table.clearSelection();
      table.setItems([]);
    }
    this.explain([], []);
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
      this.explain([], [["", `A browser cannot ask for this name: permits status ${this.name}`]], true);
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
      if (this.shown === null && error.status !== 401) this.explain([], [["bad", error.message]], true);
      else this.onFailed(error);
    } finally {
      if (this.stop === stop) this.fetching = false;
    }
  }

  show(status) {
    const { elements } = this;
    this.shown = { ...status, read: Date.now() };
    const stamp = (item) => ({ ...item, read: Date.now() });
    // By grant, because the order of the store changes with every renewal.
    const holders = status.holders.map(stamp).sort((a, b) => a.token - b.token);
    this.holders.setCaption(this.counted("Holders", holders.length, "units held", status.held));
    this.waiters.setCaption(this.counted("Waiters", status.waiters.length, "waiting", status.waiting));
    for (const [table, items] of [[this.holders, holders], [this.waiters, status.waiters.map(stamp)]]) {
      table.container.classList.toggle("labelled", items.some((item) => note(item) !== ""));
      table.container.classList.toggle("long", items.some((item) => item.holder.length > LONG));
      table.setItems(items);
    }
    elements.lanes.hidden = status.lanes.length === 0;
    this.lanes.setItems(status.lanes);
    this.changes.setItems(status.changes.map(stamp));
    elements.changes.hidden = status.changes.length === 0;
    const isKnown = status.limit !== null || status.held > 0 || status.waiting > 0 || status.paused || status.closed !== null;
    if (isKnown) this.explain(badges(status), facts(this.shown));
    else this.explain([], [["", "No such semaphore: the name is another one, or no program uses it."]], true);
    elements.detail.classList.toggle("writable", this.writable);
    this.acts.show(status, this.writable);
    this.draw();
  }

  // Shows badges beside the name and lines below it. Of a semaphore that is absent, nothing else is shown.
  explain(badges, lines, isAbsent = false) {
    const { elements } = this;
    setBadges(elements.badges, badges);
    elements.facts.replaceChildren(...lines.map(([className, text]) => span(className, text)));
    elements.detail.classList.toggle("absent", isAbsent);
  }

  counted(title, listed, noun, all) {
    return listed >= 1000 ? `${title} (the first ${listed}; ${all} ${noun})` : `${title} (${listed})`;
  }

  draw() {
    const { shown: status, history } = this;
    if (!status || !history) return;
    // The server's clock dates the points, so its last read is now.
    const { points, at_ms: now } = history;
    const known = Math.max(0, now - (points[0]?.at_ms ?? now));
    const window = Math.min(Math.max(1, Math.ceil(known / MINUTE_MS)) * MINUTE_MS, this.window);
    const minute = known < MINUTE_MS ? duration(known) : "minute";
    const passed = passedBetween(points, now - MINUTE_MS, now);
    const waits = summary(passed.waits);
    const inUse = status.held - status.cooling;
    const held = status.limit === null ? String(inUse) : `${inUse} of ${status.limit}`;
    const marks = status.changes.map((change) => ({ at: now - change.age_ms, text: `${change.text} by ${change.by}` }));
    this.graphs.draw(points, marks, { now, window }, {
      held: [held, ...apart(status).map(([, text]) => text)].join(", "),
      waiting: String(status.waiting),
      grants: known > 0 ? `${Math.round(passed.grants)} in the last ${minute}` : "",
      wait: waits ? `${waits.text} in the last ${minute}` : "",
    });
  }

  // Renders the ages again.
  tick() {
    if (this.name === null) return;
    for (const table of [this.holders, this.waiters, this.changes]) table.render();
    if (this.shown && !this.elements.detail.classList.contains("absent")) this.explain(badges(this.shown), facts(this.shown));
  }

  fillRevoke(cell, item) {
    let button = cell.firstElementChild;
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.textContent = "Revoke…";
      button.addEventListener("click", (event) => {
        event.stopPropagation();
        this.acts.revoke(this.name, cell.parentElement.item);
      });
      cell.append(button);
    }
    button.setAttribute("aria-label", `Revoke ${item.holder}`);
  }
}

// The lines below the name.
function facts(status) {
  const author = (keyword) => status.changes.find((item) => item.change === keyword) ?? null;
  const lines = stopped({ ...status, paused_by: author("paused"), closed_by: author("line_closed") });
  const shown = lines.map(([what, text]) => ["bad", `${what}${text}`]);
  if (status.recovering_ms > 0 && status.limit !== null) shown.push(["wait", `recovering for ${duration(status.recovering_ms)}: free units are not granted yet`]);
  const pin = author("limit_set");
  const pinned = status.pinned ? `, pinned${pin ? ` by ${pin.by} ${duration(pin.age_ms + Date.now() - status.read)} ago` : ""}` : "";
  shown.push(["", status.limit === null ? "no limit is set" : `limit ${status.limit}${pinned} (version ${status.limit_version})`]);
  return shown;
}
