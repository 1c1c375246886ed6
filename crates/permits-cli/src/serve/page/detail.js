// One semaphore: holders, waiters, graphs, and the actions of an operator.

import * as api from "./api.js";
import { Table, setText, setLong, setBadges, fillName, span, duration } from "./table.js";
import { apart, badges } from "./list.js";
import { drawSteps, drawBars, grantsBetween } from "./graph.js";

const REFRESH_MS = 2000;
const MINUTE_MS = 60000;
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
  // elements by id; ask(question) returns a promise of the text, or of null; say(text) announces; onFailed gets errors.
  constructor(elements, { ask, say, onFailed }) {
    Object.assign(this, { elements, ask, say, onFailed });
    this.name = null;
    this.writable = false;
    const revoke = { title: "", className: "revoke", fill: (cell, item) => this.fillRevoke(cell, item) };
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
    elements.pause.addEventListener("click", () => this.pause());
    elements.limit.addEventListener("click", () => this.limit());
    elements.unpin.addEventListener("click", () => this.change("limit", { unpin: true }, "limit unpinned"));
    setInterval(() => this.refresh(), REFRESH_MS);
  }

  open(name) {
    this.name = name;
    this.shown = null;
    setLong(this.elements.name, name);
    this.holders.clearSelection();
    this.waiters.clearSelection();
    this.changes.clearSelection();
    this.lanes.clearSelection();
    this.lanes.setItems([]);
    this.holders.setItems([]);
    this.waiters.setItems([]);
    this.changes.setItems([]);
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
    this.stop?.abort();
    const stop = (this.stop = new AbortController());
    const name = this.name;
    this.fetching = true;
    try {
      const [status, history] = await Promise.all([api.status(name, stop.signal), api.history(name, stop.signal)]);
      if (this.name === name && !stop.signal.aborted) this.show(status, history);
    } catch (error) {
      if (stop.signal.aborted) return;
      if (this.shown === null && error.status !== 401) this.explain([], [["bad", error.message]], true);
      else this.onFailed(error);
    } finally {
      if (this.stop === stop) this.fetching = false;
    }
  }

  show(status, history) {
    const { elements } = this;
    this.shown = status;
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
    if (isKnown) this.explain(badges(status), facts(status));
    else this.explain([], [["", "No such semaphore: the name is another one, or no program uses it."]], true);
    setText(elements.pause, status.paused ? "Resume" : "Pause");
    elements.unpin.hidden = !status.pinned;
    elements.actions.hidden = !this.writable;
    const held = status.limit === null ? String(status.held) : `${status.held} of ${status.limit}`;
    setText(elements.heldNow, [held, ...apart(status).map(([, text]) => text)].join(", "));
    setText(elements.waitingNow, String(status.waiting));
    if (history) this.draw(history);
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

  draw(history) {
    const { elements } = this;
    // The server's clock dates the points, so its last read is now.
    const { points, window_ms: most, at_ms: now } = history;
    const known = Math.max(0, now - (points[0]?.at_ms ?? now));
    const minutes = Math.max(1, Math.ceil(known / MINUTE_MS));
    const time = { now, window: Math.min(minutes * MINUTE_MS, most) };
    drawSteps(elements.heldGraph, points, time, { field: "held", limit: true, label: "Held units" });
    drawSteps(elements.waitingGraph, points, time, { field: "waiting", label: "Waiters" });
    drawBars(elements.grantsGraph, points, time, { label: "Grants" });
    const grants = Math.round(grantsBetween(points, now - MINUTE_MS, now));
    const span = known < MINUTE_MS ? duration(known) : "minute";
    setText(elements.grantsNow, known > 0 ? `${grants} in the last ${span}` : "");
  }

  // Renders the ages again.
  tick() {
    if (this.name === null) return;
    this.holders.render();
    this.waiters.render();
    this.changes.render();
  }

  fillRevoke(cell, item) {
    let button = cell.firstElementChild;
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.textContent = "Revoke…";
      button.addEventListener("click", (event) => {
        event.stopPropagation();
        this.revoke(cell.parentElement.item);
      });
      cell.append(button);
    }
    button.hidden = !this.writable;
    button.setAttribute("aria-label", `Revoke ${item.holder}`);
  }

  async revoke(item) {
    const what = item.position === undefined ? "permit" : "place in line";
    const reason = await this.ask({
      title: `Take the ${what} of ${item.holder} away?`,
      text: "A holder that cannot be reached works on until its next renewal, while another may be granted its units.",
      prompt: "Reason that is reported to it", done: "Revoke", value: "",
    });
    if (reason !== null) await this.change("revoke", { holder: item.holder, reason }, `revoked ${item.holder}`);
  }

  async pause() {
    const verb = this.shown?.paused ? "resume" : "pause";
    await this.change(verb, {}, verb === "pause" ? "paused" : "resumed");
  }

  async limit() {
    const value = String(this.shown?.limit ?? "");
    const text = "It is pinned: limits that programs declare do not count until it is unpinned.";
    const limit = await this.ask({ title: `Limit of ${this.name}`, text, prompt: "New limit", done: "Set and pin", value, number: true });
    if (limit !== null) await this.change("limit", { limit: Number(limit) }, `limit ${limit}`);
  }

  async change(verb, body, done) {
    const { name } = this;
    try {
      const status = await api.change(name, verb, body);
      this.say(`${name}: ${done}`);
      if (this.name === name) {
        this.show(status);
        this.refresh(true);
      }
    } catch (error) {
      this.onFailed(error, true);
    }
  }
}

// The lines below the name.
function facts(status) {
  const by = (keyword) => {
    const info = status.changes.find((item) => item.change === keyword);
    return info ? ` by ${info.by} ${duration(info.age_ms)} ago` : "";
  };
  const lines = [];
  if (status.paused) lines.push(["bad", `PAUSED${by("paused")}: nothing is granted`]);
  if (status.closed !== null) lines.push(["bad", `CLOSED${by("line_closed")}${status.closed && `: ${status.closed}`}`]);
  if (status.recovering_ms > 0 && status.limit !== null) lines.push(["wait", `recovering for ${duration(status.recovering_ms)}: free units are not granted yet`]);
  const pinned = status.pinned ? `, pinned${by("limit_set")}` : "";
  lines.push(["", status.limit === null ? "no limit is set" : `limit ${status.limit}${pinned} (version ${status.limit_version})`]);
  return lines;
}
