// The order of semaphores: what needs a look comes first. Groups by the first part of the name, and what is idle, are folded.

import { together } from "./rate.js";

// The least number of semaphores that make a group, and of idle ones that are folded.
const GROUP = 3;
const IDLE = 8;

// Needs: from WAITS on the longest wait comes first, and the title of the tab counts those from LONG on.
const [STOPPED, WAITS, LONG] = [2, 4, 5];

// The age of a row's field now, because it was read a moment ago.
export const aged = (age, row) => (age === null || age === undefined ? null : age + (Date.now() - row.read));

export const isInNeed = (row) => row.need >= LONG;
export const isNoticed = (row) => row.need >= STOPPED;

export const isStopped = (row) => row.paused || row.closed !== null;
export const isWaiting = (row) => row.waiting > 0;
// One that cannot be read may be in use.
export const isBusy = (row) => row.held > 0 || row.waiting > 0 || row.unreadable !== null;

export const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
export const byName = (a, b) => order(a.name, b.name);
export const byNeed = (a, b) => order(b.need, a.need) || (a.need >= WAITS ? order(b.wait, a.wait) : 0) || byName(a, b);

// The sums of the units and requests of rows. A sum of limits would say nothing.
export function totals(rows) {
  const total = (field) => rows.reduce((sum, row) => sum + row[field], 0);
  return { held: total("held"), limit: null, cooling: total("cooling"), may_be_kept: total("may_be_kept"), waiting: total("waiting") };
}

// The sums of rows, with the fields of a row.
function sum(name, members) {
  const worst = members.reduce((worst, row) => (byNeed(row, worst) < 0 ? row : worst));
  return {
    name, members, worst, read: Date.now(), need: worst.need, wait: Math.max(...members.map((row) => row.wait)),
    ...totals(members), rate: together(members.map((row) => row.rate)),
    oldest_holder: null, oldest_holder_age_ms: Math.max(...members.map((row) => aged(row.oldest_holder_age_ms, row) ?? 0)) || null,
    paused: false, closed: null, pinned: false, recovering_ms: 0, unreadable: null,
  };
}

function prefix(name) {
  const slash = name.indexOf("/");
  return slash > 0 ? name.slice(0, slash + 1) : null;
}

// The rows as they are listed: sorted, with a row for each group and one for what is idle, and the members of those in `open`.
export function arranged(rows, compare, open, isFlat) {
  for (const row of rows) row.level = 1;
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
  const idle = top.filter((row) => row.need === 0);
  // What is idle is as visible as anything else if there is little of it, or nothing else.
  const folds = idle.length >= IDLE && idle.length < top.length;
  const listed = folds ? top.filter((row) => row.need > 0) : top;
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
