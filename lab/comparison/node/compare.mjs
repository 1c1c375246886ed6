// `permits` beside the npm package redis-semaphore, in one run on one private server. Writes the tables of
// lab/packages.md. The argument is a directory whose node_modules has both, and ioredis.
//
// A cycle is an acquisition and its release, without contention. In the crowd, tasks of one process share a
// limit: each waits, holds for 2 ms, releases, and repeats that. A grant overtakes if a request that began at
// least 2 ms earlier still waits. A request to the server is a command that a client sends, as MONITOR shows
// them in a crowd of its own, because MONITOR slows the server.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const installed = createRequire(join(resolve(process.argv[2]), 'package.json'));
const permits = installed('permits');
const { Redis } = installed('ioredis');
const { Semaphore } = installed('redis-semaphore');

const PAGE = fileURLToPath(new URL('../../packages.md', import.meta.url));
const [BEGIN, END] = ['<!-- figures of scripts/lab node -->', '<!-- end of figures of scripts/lab node -->'];
const ROUNDS = 5;
const CYCLES = 1000;
const [TASKS, LIMIT, TURNS, HOLD_MS] = [64, 8, 20, 2];
// The turns of a crowd in which requests are counted.
const COUNTED_TURNS = 5;

async function started() {
  const listener = createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address();
  listener.close();
  const directory = mkdtempSync(join(tmpdir(), 'permits-bench-'));
  const options = ['--port', `${port}`, '--bind', '127.0.0.1', '--save', '', '--dir', directory];
  const server = spawn('redis-server', options, { stdio: 'ignore' });
  server.unref();
  process.once('exit', () => {
    server.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  });
  return port;
}

/** An acquisition of a task by `permits`: returns a function that releases. */
const ours = (semaphore) => () => async () => {
  const permit = await semaphore.acquire();
  // As the end of a block does, of `run` or `await using`.
  return () => permit[Symbol.asyncDispose]();
};

/** The acquisitions of each package. */
function packages(client, redis, name) {
  return {
    permits: ours(client.semaphore(name, LIMIT)),
    // Every task has a semaphore of its own, as the package asks for.
    'redis-semaphore': () => {
      const own = new Semaphore(redis, name, LIMIT, { acquireTimeout: Number.POSITIVE_INFINITY });
      return async () => {
        await own.acquire();
        return () => own.release();
      };
    },
  };
}

const sorted = (values) => values.toSorted((left, right) => left - right);
const quantile = (values, part) => sorted(values)[Math.floor((values.length - 1) * part)];

/** The median time of a cycle in µs. */
async function cycle(turn) {
  const times = [];
  for (let number = 0; number < CYCLES; number++) {
    const began = performance.now();
    await turn();
    times.push(performance.now() - began);
  }
  return quantile(times, 0.5) * 1e3;
}

async function crowd(open, turns) {
  const asked = new Set();
  const waits = [];
  let overtook = 0;
  const task = async () => {
    const acquire = open();
    for (let number = 0; number < turns; number++) {
      const request = { began: performance.now() };
      asked.add(request);
      const release = await acquire();
      asked.delete(request);
      waits.push(performance.now() - request.began);
      // A set is in order of insertion: the first is the oldest that waits.
      const [oldest] = asked;
      overtook += oldest !== undefined && oldest.began < request.began - 2;
      await sleep(HOLD_MS);
      await release();
    }
  };
  const began = performance.now();
  await Promise.all(Array.from({ length: TASKS }, task));
  const turn = (performance.now() - began) / waits.length;
  return { turn, half: quantile(waits, 0.5), most: quantile(waits, 0.99), overtook: overtook / waits.length };
}

/** The commands that clients send meanwhile, for each grant of a crowd. */
async function requests(port, open) {
  const monitor = createConnection(port, '127.0.0.1');
  let seen = '';
  monitor.setEncoding('utf8').on('data', (text) => (seen += text));
  monitor.write('MONITOR\r\n');
  while (!seen.includes('+OK')) await sleep(1);
  await crowd(open, COUNTED_TURNS);
  const last = createConnection(port, '127.0.0.1', () => last.end('ECHO end-of-crowd\r\n'));
  while (!seen.includes('"end-of-crowd"')) await sleep(1);
  monitor.destroy();
  // Commands of scripts are of the client `lua`.
  const sent = seen.split('\n').filter((line) => /^\+[\d.]+ \[\d+ (?!lua)/.test(line));
  return (sent.length - 1) / (TASKS * COUNTED_TURNS);
}

const table = (head, rows) => {
  const columns = head.split('|').length - 2;
  return [head, `|---|${'---:|'.repeat(columns - 1)}`, ...rows.map((row) => `| ${row.join(' | ')} |`)].join('\n');
};
const ratio = (value, beside) => (value / beside).toFixed(2);
const middle = (runs, key) => quantile(runs.map((run) => run[key]), 0.5);

const port = await started();
// The client retries until the server has started.
const redis = new Redis(port, '127.0.0.1').on('error', () => {});
await redis.ping();
const client = await permits.connect(`redis://127.0.0.1:${port}/`, { recovery: 'off' });
const [cycles, crowds] = [{}, {}];
for (let round = 0; round < ROUNDS; round++) {
  const uncontended = {
    ...packages(client, redis, `cycle-${round}`),
    'permits, with `keep`': ours(client.semaphore(`kept-${round}`, LIMIT, { keep: 1000 })),
  };
  for (const [name, open] of Object.entries(uncontended)) {
    const acquire = open();
    (cycles[name] ??= []).push(await cycle(async () => (await acquire())()));
  }
  (cycles['ioredis, two PINGs'] ??= []).push(await cycle(async () => (await redis.ping(), await redis.ping())));
  for (const [name, open] of Object.entries(packages(client, redis, `crowd-${round}`))) {
    const run = await crowd(open, TURNS);
    (crowds[name] ??= []).push({ ...run, requests: await requests(port, open) });
  }
}
await client.close();
redis.disconnect();

const reference = quantile(cycles.permits, 0.5);
const alone = Object.entries(cycles).map(([name, values]) => {
  const value = quantile(values, 0.5);
  return [name, value.toFixed(0), ratio(value, reference)];
});
const together = Object.entries(crowds).map(([name, runs]) => [
  name,
  middle(runs, 'turn').toFixed(2),
  middle(runs, 'half').toFixed(1),
  middle(runs, 'most').toFixed(1),
  ratio(middle(runs, 'most'), middle(crowds.permits, 'most')),
  `${(100 * middle(runs, 'overtook')).toFixed(0)} %`,
  middle(runs, 'requests').toFixed(1),
]);
const version = (name) => JSON.parse(readFileSync(installed.resolve(`${name}/package.json`))).version;
const versions = ['redis-semaphore', 'ioredis'].map((name) => `${name} ${version(name)}`).join(', ');
const text = [
  `Node ${process.versions.node}, ${versions}:`,
  table('| a cycle without contention | p50, µs | beside `permits` |', alone),
  table(
    `| ${TASKS} tasks, limit ${LIMIT}, held for ${HOLD_MS} ms | a turn, ms | wait p50, ms | wait p99, ms | beside \`permits\` | ` +
      'grants that overtook | requests a grant |',
    together,
  ),
].join('\n\n');
console.log(text);
const page = readFileSync(PAGE, 'utf8');
const [before, rest] = page.split(BEGIN);
writeFileSync(PAGE, `${before}${BEGIN}\n\n${text}\n\n${END}${rest.split(END)[1]}`);
