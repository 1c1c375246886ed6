// What an operator changes: each act says what it does and to how many, and asks before it does it.

import * as api from "./api.js";
import { aged, totals } from "./rank.js";
import { duration, makeButton } from "./table.js";

const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000 };

// The milliseconds of a time such as 30s, 1h30m or 1.5h; null if it is none.
function milliseconds(text) {
  let sum = 0;
  const rest = text.replace(/([\d.]+)\s*(ms|[smhd])\s*/g, (_, number, unit) => ((sum += number * UNITS[unit]), ""));
  return rest.trim() ? null : Math.round(sum) || null;
}

const many = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
// The most names in a question, and the most changes of several at once.
const SHOWN = 3;
const AT_ONCE = 4;
const TIME_WORDS = "such as 30s, 5m or 2h";
const isTime = (text) => (text && !milliseconds(text) ? `A time ${TIME_WORDS}` : "");
const REASON = { name: "reason", label: "Reason, which is shown to all", maxLength: 1000 };

// The acts by the name of their change, which is that of their button. `shows` says in which state there is a button; `question`
// returns what the dialog asks; `body` makes the fields of the change of its answers, which are its fields unless there is one.
const ACTS = {
  pause: {
    words: "Pause…", shows: (status) => !status.paused,
    question: ({ status, held, waits }) => ({
      title: `Pause ${status.name}?`, done: "Pause",
      text: `From now on nothing is granted. ${held}, and ${waits} on.`,
      fields: [REASON, { name: "time", label: `For a time, ${TIME_WORDS}. Empty: until it is resumed`, check: isTime }],
    }),
    body: ({ reason, time }) => ({ reason, time_ms: milliseconds(time) }),
  },
  resume: {
    words: "Resume…", shows: (status) => status.paused,
    question: ({ status }) => ({ title: `Resume ${status.name}?`, done: "Resume", text: `${many(status.waiting, "waiter")}: those are granted that fit, in their order.` }),
  },
  set_limit: {
    words: "Limit…", shows: () => true,
    question: ({ status }) => ({
      title: `Limit of ${status.name}`, done: "Set and pin",
      text: `${many(status.held, "unit")} held. With a lower limit nothing is granted until what is held fits. Setting it pins it: limits that programs declare are ignored until you unpin it.`,
      fields: [
        { name: "limit", label: "New limit", type: "number", value: String(status.limit ?? ""), min: 1, max: 4294967295 },
        ...(status.mutexes > 0 ? [{ name: "several", label: `${status.members ? `${status.mutexes} of them admit one at a time` : "It is a mutex"}: admit several at once, in place of one`, type: "checkbox", unless: ({ limit }) => Number(limit) <= 1 }] : []),
      ],
    }),
    body: ({ limit }) => ({ limit: Number(limit) }),
  },
  unpin: {
    words: "Unpin limit…", shows: (status) => status.pinned,
    question: ({ status }) => ({ title: `Unpin the limit of ${status.name}?`, done: "Unpin", text: `It stays ${status.limit ?? "as it is"} until a program declares another with its next request.` }),
  },
  close_line: {
    words: "Close line…", shows: (status) => status.closed === null,
    question: ({ status, held }) => ({
      title: `Close the line of ${status.name}?`, done: "Close line",
      text: `${many(status.waiting, "waiter")} and all new requests are refused, with this reason. ${held}.`,
      fields: [REASON],
    }),
  },
  open_line: {
    words: "Open line…", shows: (status) => status.closed !== null,
    question: ({ status }) => ({ title: `Open the line of ${status.name}?`, done: "Open line", text: "Requests are granted or wait again." }),
  },
  set_alert: {
    words: "Alert…", shows: () => true,
    question: ({ status: { name, alert } }) => ({
      title: `Alert of ${name}`, done: "Set",
      text: "It needs a look beyond these. Without its own, a wait of a minute counts.",
      fields: [
        { name: "wait", label: `Longest wait, ${TIME_WORDS}. Empty: none`, value: alert?.wait_ms ? `${alert.wait_ms / 1000}s` : "", check: isTime },
        { name: "waiting", label: "Most waiting. Empty: none", type: "number", required: false, value: alert?.waiting ?? "", min: 1, max: 4294967295 },
      ],
    }),
    body: ({ wait, waiting }) => ({ wait_ms: milliseconds(wait), waiting: Number(waiting) || null }),
  },
  set_lane: {
    words: "Lane…", shows: () => true,
    question: ({ status }) => ({
      title: `Lane of ${status.name}`, done: "Set and pin",
      text: "Limit and floor are set together, and those that requests name are ignored. With neither, they count again.",
      fields: [{ name: "lane", label: "Lane", required: true, maxLength: 120 }, ...["limit", "floor"].map((name) => ({ name, label: `Its ${name}. Empty: none`, type: "number", required: false, min: 1, max: 4294967295 }))],
    }),
    body: ({ lane, limit, floor }) => (limit || floor ? { lane, limit: Number(limit) || null, floor: Number(floor) || null } : { change: "unpin_lane", lane }),
  },
  delete: {
    words: "Delete…", shows: () => true, isOff: (status) => status.held > 0 || status.waiting > 0,
    question: ({ status }) => ({
      title: `Delete ${status.name}?`, done: "Delete", isDanger: true,
      text: "The store forgets its limit, its state and its counts. A program that still uses it makes it again, with the limit that it declares.",
    }),
  },
};

const REVOKE_ALL = {
  words: "Revoke all…",
  question: ({ status }) => ({
    title: `Revoke all permits and places in line of ${status.name}?`, done: "Revoke all", isDanger: true,
    text: `${many(status.held, "unit")} held, ${many(status.waiting, "waiter")}. A holder that cannot be reached works on until its next renewal.`,
    fields: [{ ...REASON, label: "Reason that is reported to them" }],
  }),
};

const bodyOf = (name, answers) => ({ change: name, ...(ACTS[name].body?.(answers) ?? answers) });

// Works on items, several at once, until one fails.
async function each(items, work) {
  const queue = [...items];
  const worker = async () => {
    try {
      while (queue.length) await work(queue.shift(), queue);
    } finally {
      queue.length = 0;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

// Waiters come first, because revoking a holder grants a waiter. A state lists 1,000 of each. Later ones are not revoked.
async function revokeAll(name, { reason }, say) {
  let revoked = 0;
  for (const [list, all] of [["waiters", "waiting"], ["holders", "held"]]) {
    let status = await api.status(name);
    for (let left = status[all]; left > 0 && status[list].length; status = await api.status(name)) {
      await each(status[list], async ({ holder, cooling, token, weight }) => {
        left -= all === "held" ? weight : 1;
        try {
          await api.change(name, { change: "revoke", holder, reason, token: cooling ? token : null });
          say(`${name}: ${(revoked += 1)} revoked`);
        } catch (error) {
          // It has gone meanwhile.
          if (error.status !== 404) throw error;
        }
      });
    }
  }
}

// The buttons of a semaphore.
export class Acts {
  // ask(question) returns a promise of the answers, or of null; say(text) announces; onFailed gets errors; changed(status, name) gets the
  // state after an act.
  constructor(container, context) {
    Object.assign(this, { container, ...context });
    this.buttons = Object.entries(ACTS).map(([name, act]) => {
      const button = makeButton(act.words, () => this.act(name));
      button.id = name;
      container.append(button);
      return [button, act];
    });
  }

  show(status, isWritable) {
    this.status = status;
    this.container.hidden = !isWritable;
    for (const [button, act] of this.buttons) {
      button.hidden = !act.shows(status);
      button.disabled = Boolean(act.isOff?.(status));
      button.title = button.disabled ? "Units are held or cool, or requests wait." : "";
    }
  }

  async act(name) {
    const status = { ...this.status, mutexes: Number(this.status.limit === 1) };
    const [act, holders] = [ACTS[name], status.holders.filter((holder) => !holder.cooling).length];
    const held = holders === 1 ? "1 holder keeps its permit" : `${holders} holders keep their permits`;
    const waits = status.waiting === 1 ? "1 waiter waits" : `${status.waiting} waiters wait`;
    await this.change(status.name, act.question({ status, held, waits }), (answers) => bodyOf(name, answers));
  }

  // Changes several semaphores: asks for the change, and before it is made.
  async actOnAll(rows) {
    const all = many(rows.length, "semaphore");
    const more = rows.length > SHOWN ? ` and ${rows.length - SHOWN} more` : "";
    const names = `${rows.slice(0, SHOWN).map(({ name }) => `“${name}”`).join(", ")}${more}`;
    const options = [...Object.entries(ACTS).filter(([name]) => name !== "delete"), ["revoke", REVOKE_ALL]].map(([name, { words }]) => [name, words]);
    const chosen = await this.ask({ title: `Change ${all}`, text: names, done: "Continue", fields: [{ name: "act", label: "Change", options }] });
    if (!chosen) return;
    const [name, act] = [chosen.act, ACTS[chosen.act] ?? REVOKE_ALL];
    const { held, waiting } = totals(rows);
    const status = { name: all, members: rows, held, waiting, limit: null, mutexes: rows.filter(({ limit }) => limit === 1).length };
    const question = act.question({ status, held: `What is held stays held (${many(held, "unit")})`, waits: `${many(waiting, "waiter")} wait` });
    const answers = await this.ask({ ...question, text: `${names}\n${question.text}` });
    if (!answers) return;
    const make = (semaphore) => (act === REVOKE_ALL ? revokeAll(semaphore, answers, this.say) : api.change(semaphore, bodyOf(name, answers)));
    const failed = [];
    await each(rows, async ({ name: semaphore }, queue) => {
      try {
        await make(semaphore);
      } catch (error) {
        failed.push(`${semaphore}: ${error.message}`);
        // Without a reply the others would fail as well.
        if (error.status === 0) failed.push(...queue.splice(0));
      }
      this.say(`${question.done}: ${rows.length - queue.length} of ${rows.length}`);
    });
    this.say(failed.length ? `${question.done}: ${failed.length} of ${all} failed: ${failed[0]}` : `${all}: ${question.done}: done`);
  }

  async revoke(name, item) {
    const waits = item.position !== undefined;
    const age = duration(aged(item.age_ms, item));
    const place = waits ? `has waited for ${age}, ${item.position} before it` : item.cooling ? `cools in slot ${item.slot}` : `has held slot ${item.slot} for ${age}`;
    const named = [item.label && `“${item.label}”`, item.holder].filter(Boolean);
    const question = {
      title: `Revoke the ${waits ? "place in line" : "permit"} of ${named[0]}?`, done: "Revoke", isDanger: true,
      text: `${named.at(-1)} ${place}.\nA holder that cannot be reached works on until its next renewal, while another may be granted its units.`,
      fields: [{ ...REASON, label: "Reason that is reported to it" }],
    };
    await this.change(name, question, async (answers) => {
      // Granted while the question was open.
      const holds = ({ holder, cooling }) => holder === item.holder && !cooling;
      if (waits && (await api.status(name)).holders.some(holds)) throw new Error("It holds a permit now: nothing was revoked.");
      // Without its token, a permit or a place in line of the same holder would end first.
      return { change: "revoke", holder: item.holder, token: item.cooling ? item.token : null, ...answers };
    });
  }

  // Makes the change that `of` makes of the answers to a question, unless it is cancelled.
  async change(name, question, of) {
    const answers = await this.ask(question);
    if (!answers) return;
    try {
      const status = await api.change(name, await of(answers));
      this.say(`${name}: ${question.done}: done`);
      this.changed(status, name);
    } catch (error) {
      this.onFailed(error, true);
    }
  }
}
