// The rank of semaphores: what needs a look comes first. Groups by the first part of the name, and what is idle, are folded.

import { together } from "./rate.js";

// The least number of semaphores that make a group, and of idle ones that are folded.
const GROUP = 3;
const IDLE = 8;

// A wait is shown as long from the first, and as too long from the second on.
const LONG_MS = 10000;
const TOO_LONG_MS = 60000;

// A wait that is shorter is ordinary work, and changes no order.
const SHORT_MS = 1000;

// The age of a row's field now, because it was read a moment ago.
export const aged = (age, row) => (age === null || age === undefined ? null : age + (Date.now() - row.read));

export const longestWait = (row) => aged(row.oldest_waiter_age_ms, row) ?? 0;

// The class of a wait: "", "long", "too-long".
export const severity = (wait) => (wait >= TOO_LONG_MS ? "too-long" : wait >= LONG_MS ? "long" : "");

export const isStopped = (row) => row.paused || row.closed !== null;
export const isWaiting = (row) => row.waiting > 0;
// One that cannot be read may be in use.
export const isBusy = (row) => row.held > 0 || row.waiting > 0 || row.unreadable !== null;

// The need of what is idle, the highest.
const NO_NEED = 5;

// The need for a look, the least number first: stopped with waiters, a wait that is noticed, unreadable, stopped, in use, idle.
export function need(row) {
  if (row.unreadable !== null) return 2;
  if (isStopped(row) && row.waiting > 0) return 0;
  if (longestWait(row) >= SHORT_MS) return 1;
  if (isStopped(row)) return 3;
  return isBusy(row) ? 4 : NO_NEED;
}

// Counted in the title of the tab.
export const isInNeed = (row) => need(row) === 0 || severity(longestWait(row)) !== "";

const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
export const byName = (a, b) => order(a.name, b.name);
export const byNeed = (a, b) => order(a.need, b.need) || (a.need < 2 ? order(b.wait, a.wait) : 0) || byName(a, b);

// The sums of the units and requests of rows. A sum of limits would say nothing.
export function totals(rows) {
  const total = (field) => rows.reduce((sum, row) => sum + row[field], 0);
  return { held: total("held"), limit: null, cooling: total("cooling"), may_be_kept: total("may_be_kept"), waiting: total("waiting") };
}

// The sums of rows, with the fields of a row.
function sum(name, members) {
  const oldest = (field) => members.reduce((most, row) => Math.max(most ?? 0, aged(row[field], row) ?? 0) || most, null);
  const worst = members.reduce((worst, row) => (byNeed(row, worst) < 0 ? row : worst));
  return {
    name, members, worst, read: Date.now(), need: worst.need, wait: Math.max(...members.map((row) => row.wait)),
    ...totals(members), rate: together(members.map((row) => row.rate)),
    oldest_holder: null, oldest_holder_age_ms: oldest("oldest_holder_age_ms"), oldest_waiter_age_ms: oldest("oldest_waiter_age_ms"),
    paused: false, closed: null, pinned: false, recovering_ms: 0, unreadable: null,
  };
}

function prefix(name) {
  const slash = name.indexOf("/");
  return slash > 0 ? name.slice(0, slash + 1) : null;
}

// The rows as they are listed: sorted, with a row for each group and one for what is idle, and the members of those in `open`.
export function arranged(rows, compare, open, isFlat) {
  for (const row of rows) [row.need, row.wait, row.level] = [need(row), longestWait(row), 1];
  if (isFlat) return rows.sort(compare);
  const groups = new Map();
  for (const row of rows) {
    const key = prefix(row.name);
    if (!key) continue;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  const isAlone = (row) => (groups.get(prefix(row.name))?.length ?? 0) < GROUP;
  const grouped = [...groups].filter(([, members]) => members.length >= GROUP).map(([key, members]) => sum(key, members));
  const top = [...rows.filter(isAlone), ...grouped].sort(compare);
  const idle = top.filter((row) => row.need === NO_NEED);
  // What is idle is as visible as anything else if there is little of it, or nothing else.
  const folds = idle.length >= IDLE && idle.length < top.length;
  const listed = folds ? top.filter((row) => row.need < NO_NEED) : top;
  if (folds) {
    const semaphores = idle.flatMap((row) => row.members ?? [row]);
    listed.push({ ...sum(`${semaphores.length} idle`, semaphores), isIdle: true, members: idle });
  }
  const unfolded = (item, level) => {
    item.level = level;
    if (!item.members) return [item];
    item.expanded = open.has(item.isIdle ? "" : item.name);
    const members = item.expanded ? [...item.members].sort(compare) : [];
    return [item, ...members.flatMap((member) => unfolded(member, level + 1))];
  };
  return listed.flatMap((item) => unfolded(item, 1));
}
