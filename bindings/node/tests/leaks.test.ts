// Memory, threads and descriptors over many cycles.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMIT, Program } from './support.js';

const TEXT = `
  import { readdirSync } from 'node:fs';
  import { connect } from 'permits';
  const client = await connect('memory:');
  const semaphore = client.semaphore('leaks', 2);
  const pause = () => new Promise((resolve) => setTimeout(resolve, 5));
  async function cycles(number) {
    for (let cycle = 0; cycle < number; cycle++) {
      const controller = new AbortController();
      const permit = await semaphore.acquire({ timeout: ${LIMIT}, signal: controller.signal });
      permit.lost;
      permit.signal;
      const waiting = semaphore.acquire({ weight: 2, signal: controller.signal }).catch(() => {});
      controller.abort();
      await waiting;
      await permit.release();
      // V8 does not count native memory, so by itself it would seldom collect garbage.
      if (cycle % 250 === 0) { gc(); await pause(); }
    }
  }
  async function counts() {
    for (let turn = 0; turn < 3; turn++) { gc(); await pause(); }
    const { heapUsed, rss } = process.memoryUsage();
    const [files, threads] = ['fd', 'task'].map((name) => readdirSync('/proc/self/' + name).length);
    return { heapUsed, rss, files, threads };
  }
  await cycles(2000);
  let before = await counts();
  const rounds = [];
  for (let round = 0; round < 5; round++) {
    await cycles(1000);
    const after = await counts();
    rounds.push(Object.fromEntries(Object.keys(after).map((name) => [name, after[name] - before[name]])));
    before = after;
  }
  console.log(JSON.stringify(rounds));
`;

test('cycles leave nothing', { timeout: LIMIT, skip: process.platform !== 'linux' && 'reads /proc' }, async () => {
  const program = new Program(TEXT, {}, '--expose-gc');
  assert.deepEqual([await program.end(), program.errors], [0, '']);
  const rounds = JSON.parse(program.output) as Record<string, number>[];
  // A round grows by what V8 compiles, or shrinks by what it drops of the warm-up; a leak grows in each. So
  // the second least counts: of an object kept in each cycle it is 57,000 bytes, without one below 10,000.
  const grown = (name: string): number => rounds.map((round) => round[name] ?? NaN).sort((a, b) => a - b)[1] ?? NaN;
  console.log(rounds);
  assert.ok(grown('heapUsed') < 30_000, program.output);
  assert.ok(grown('rss') < 1_000_000, program.output);
  assert.ok(grown('files') <= 0 && grown('threads') <= 0, program.output);
});
