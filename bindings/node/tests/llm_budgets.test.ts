// docs/use/llm-budgets.md: its program, beside a small API that counts as such APIs do: a call when it has
// ended.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'permits';
import { comesToRest, LIMIT, Server } from './support.js';

const BLOCKS = join(__dirname, 'blocks');
const [REQUESTS, TOKENS] = [500, 90_000];

// Milliseconds. The page has a minute and 15 s. A call takes LONG at first and SHORT later, so its end moves
// within the window.
const [WINDOW, LONGEST_CALL, LONG, SHORT, BUSY] = [2000, 1000, 300, 20, 500];
const CALLS = 260;

interface Reply {
  status: number;
  tokens: number;
  headers: Map<string, string>;
}

type Ask = (tenant: string, estimate: number, send: () => Promise<Reply>) => Promise<Reply>;

/**
 * Counts the calls that ended in the last WINDOW. It refuses none for that, but says how many it would have. After the
 * call of the number `busy` somebody else has used up the budget for BUSY, so it refuses what begins in that time.
 */
class Api {
  over = 0;
  most = 0;
  refused = 0;
  begun = 0;
  longest = 0;
  #busyUntil = 0;
  readonly #start = performance.now();
  readonly #ended: { at: number; tokens: number }[] = [];

  constructor(readonly busy: number) {}

  readonly send = async (): Promise<Reply> => {
    const [number, began] = [++this.begun, performance.now()];
    if (began < this.#busyUntil) {
      this.refused++;
      return { status: 429, tokens: 0, headers: new Map([['retry-after', `${(this.#busyUntil - began) / 1000}`]]) };
    }
    await sleep(began - this.#start < WINDOW / 2 ? LONG : SHORT);
    const at = performance.now();
    this.longest = Math.max(this.longest, at - began);
    this.#ended.push({ at, tokens: 700 });
    const recent = this.#ended.filter((call) => call.at > at - WINDOW);
    const used = recent.reduce((sum, { tokens }) => sum + tokens, 0);
    this.most = Math.max(this.most, used);
    if (used > TOKENS || recent.length > REQUESTS) this.over++;
    if (number === this.busy) this.#busyUntil = at + BUSY;
    return { status: 200, tokens: 700, headers: new Map() };
  };
}

/** The program of the page, with the times of the test, on a server of its own. */
async function asked(margin: number, busy: number): Promise<Api> {
  await using server = await Server.start();
  const [name] = readdirSync(BLOCKS).filter((name) => name.startsWith('run-llm_budgets.test.ts-') && name.endsWith('.mjs'));
  const page = readFileSync(join(BLOCKS, name!), 'utf8');
  const text = page
    .replace('[60_000, 15_000]', `[${WINDOW}, ${margin}]`)
    .replace('process.env.TEST_URL', JSON.stringify(`${server.url}?recovery=off`));
  assert.notEqual(text, page, 'the page has the two times');
  const copy = join(__dirname, `llm-budgets-${randomUUID()}.mjs`);
  writeFileSync(copy, text);
  const { ask } = (await import(copy)) as { ask: Ask };
  rmSync(copy);
  const api = new Api(busy);
  const replies = Array.from({ length: CALLS }, (_, number) => ask(`tenant-${number % 10}`, 2000, api.send));
  for (const { status } of await Promise.all(replies)) assert.equal(status, 200);
  await using client = await connect(`${server.url}?recovery=off`);
  for (const name of await client.list()) await comesToRest(client.semaphore(name));
  return api;
}

/** Again, if the machine stood still for longer than the margin of the program. */
async function inRealTime(margin: number, busy = 0): Promise<Api> {
  for (let attempt = 0; attempt < 10; attempt++) {
    const api = await asked(margin, busy);
    if (api.longest < LONGEST_CALL * 0.8) return api;
  }
  return assert.fail('ten times a call took longer than the longest one');
}

test('the margin of the page keeps the budget of an API that counts ended calls', { timeout: LIMIT }, async () => {
  const api = await inRealTime(LONGEST_CALL);
  assert.deepEqual([api.over, api.refused, api.begun], [0, 0, CALLS], `at most ${api.most} tokens`);
});

test('without the margin the API sees more than its budget', { timeout: LIMIT }, async () => {
  const api = await inRealTime(0);
  assert.ok(api.over > 0, `at most ${api.most} tokens`);
});

test('the first 429 pauses all', { timeout: LIMIT }, async () => {
  const { refused } = await inRealTime(LONGEST_CALL, 60);
  assert.ok(refused >= 1 && refused <= 20, `${refused}: those alone that were granted before the pause`);
});
