// The blocks of the documents: scripts/test-node has made a module of each, which tsc has checked. They run,
// and those of the cookbook keep their limits.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type Client, connect, type Semaphore } from 'permits';
import { isIdle, LIMIT, PACKAGE, Server, until, waiters } from './support.js';

const BLOCKS = join(__dirname, 'blocks');

let server: Server;
before(async () => {
  server = await Server.start();
});
after(() => server.stop());

test('the blocks of the documents run', { timeout: LIMIT }, async () => {
  const blocks = readdirSync(BLOCKS).filter((name) => name.endsWith('.mjs') && !name.startsWith('cookbook'));
  assert.ok(blocks.length >= 10, 'the documents have blocks');
  await using client = await connect(server.url, { recovery: 'off' });
  for (const block of blocks) {
    const environment = { ...process.env, TEST_URL: `${server.url}?recovery=off`, NODE_TEST_CONTEXT: undefined };
    await promisify(execFile)(process.execPath, [join(BLOCKS, block)], { cwd: PACKAGE, env: environment });
    for (const name of await client.list()) {
      const { waiting, holders } = await client.semaphore(name).inspect();
      assert.deepEqual([waiting, holders.filter(({ cooling }) => !cooling)], [0, []], block);
    }
  }
});

/** Serves by the middleware of the documents, until the end of the test. */
async function served(context: TestContext, semaphore: Semaphore, timeout?: number): Promise<Served> {
  const names = readdirSync(BLOCKS).filter((name) => name.endsWith('.mjs'));
  const [name] = names.filter((name) => readFileSync(join(BLOCKS, name), 'utf8').includes('function limited('));
  const { limited } = await import(join(BLOCKS, name!));
  const middleware = limited(semaphore, timeout);
  const [handled, failures]: [ServerResponse[], Error[]] = [[], []];
  const web = createServer((request, response) => {
    middleware(request, response, (error?: Error) => {
      if (error === undefined) handled.push(response);
      else failures.push(error);
    });
  });
  await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
  context.after(() => {
    web.close();
    web.closeAllConnections();
  });
  const { port } = web.address() as AddressInfo;
  return { handled, failures, request: (signal) => fetch(`http://127.0.0.1:${port}/`, signal && { signal }) };
}

interface Served {
  handled: ServerResponse[];
  failures: Error[];
  request: (signal?: AbortSignal) => Promise<Response>;
}

test('the middleware admits as many requests as the limit', { timeout: LIMIT }, async (context) => {
  await using client = await connect(server.url, { recovery: 'off', lease: 3_600_000 });
  const semaphore = client.semaphore('web', 2);
  const { handled, request } = await served(context, semaphore, LIMIT);
  const first = request();
  await until(() => handled.length === 1);
  const [gone, impatient] = [new AbortController(), new AbortController()];
  const ended = [gone, impatient].map(({ signal }) => request(signal).then(() => 'replied', () => 'gone'));
  await until(() => handled.length === 2);
  await waiters(semaphore, 1);

  const { request: requestAtLimit } = await served(context, semaphore, 10);
  const refused = await requestAtLimit();
  assert.deepEqual([refused.status, refused.headers.get('Retry-After')], [429, '1']);
  assert.match(await refused.text(), /no permit within/);

  // Browsers go away: one that is served, and one that waits.
  gone.abort();
  impatient.abort();
  assert.deepEqual(await Promise.all(ended), ['gone', 'gone']);
  await until(async () => (await semaphore.available()) === 1);
  await waiters(semaphore, 0);
  handled[0]!.end('done');
  assert.equal(await (await first).text(), 'done');
  await until(() => isIdle(semaphore));

  await semaphore.closeLine('down until Monday');
  assert.equal((await request()).status, 503);
  await semaphore.openLine();

  const lost = request().then(() => 'replied', () => 'closed');
  await until(() => handled.length > 1 && handled.some((response) => !response.closed));
  for (const { holder } of (await semaphore.inspect()).holders) await semaphore.revoke(holder);
  assert.equal(await lost, 'closed');
});

test('the middleware tells failures of the store from other errors', { timeout: LIMIT }, async (context) => {
  await using store = await Server.start();
  await using client = await connect(store.url, { recovery: 'off' });
  await store.stop();
  const { request } = await served(context, client.semaphore('web', 1), 10);
  assert.equal((await request()).status, 503);
  const { request: requestWrong, failures } = await served(context, client.semaphore('web', 1), -1);
  const stopped = new AbortController();
  const wrong = requestWrong(stopped.signal).catch(() => {});
  await until(() => failures.length === 1);
  stopped.abort();
  await wrong;
  assert.match(failures[0]!.message, /timeout is a time of at least 0 ms, not -1/);
});

/**
 * The blocks of the cookbook: copies that run at once, and of each function how often it runs, and its units at once
 * at most.
 */
const COOKBOOK: Record<string, [copies: number, functions: Record<string, [runs: number, most: number]>]> = {
  'A mutex': [4, { post: [4, 1] }],
  'So many a minute, and so many at once': [12, { callApi: [12, 8] }],
  'Tokens a minute of a paid API': [12, { callApi: [12, 12] }],
  'When the API says no': [6, { callApi: [7, 8] }],
  'A door that opens every 200 ms': [4, { step: [4, 1] }],
  'A limit for each tenant, within a limit for all': [12, { callApi: [12, 10] }],
  'Tenants of one API': [12, { callApi: [12, 8] }],
  'Interactive before batch': [10, { reindex: [10, 8], answer: [10, 8] }],
  'Room for urgent work': [10, { reindex: [10, 6], answer: [10, 8] }],
  'Readers and a writer': [4, { read: [8, 4], write: [4, 1] }],
  'A licence that lingers': [8, { simulate: [8, 8] }],
  'One cron job over many hosts': [4, { backup: [1, 1] }],
  'A deploy lock': [4, { deploy: [4, 1] }],
  'Database migrations': [4, { migrate: [4, 1] }],
  'The workers of a job queue': [6, { work: [12, 20] }],
};

/** Counts calls, and those that overlap. A heavy job is 5 units. The first call is refused. */
class Calls {
  readonly runs: Record<string, number> = {};
  readonly most: Record<string, number> = {};
  readonly #running: Record<string, number> = {};

  named(name: string): (job?: number) => Promise<object> {
    return async (job) => {
      const units = job === 101 ? 5 : 1;
      const status = (this.runs[name] ?? 0) === 0 ? 429 : 200;
      this.runs[name] = (this.runs[name] ?? 0) + 1;
      this.#running[name] = (this.#running[name] ?? 0) + units;
      this.most[name] = Math.max(this.most[name] ?? 0, this.#running[name]);
      assert.ok(!this.#running.write || !this.#running.read, 'a writer is alone');
      await sleep(20);
      this.#running[name] -= units;
      return { status, headers: new Map([['Retry-After', '0.1']]), tokens: 700 };
    };
  }
}

test('the blocks of the cookbook do what it says', { timeout: LIMIT }, async () => {
  const names = readdirSync(BLOCKS).filter((name) => /^cookbook-.*\.mjs$/.test(name));
  const blocks: { heading: string; block: (client: Client, scope: object) => Promise<void> }[] = await Promise.all(
    names.map((name) => import(join(BLOCKS, name))),
  );
  assert.deepEqual(blocks.map(({ heading }) => heading).sort(), Object.keys(COOKBOOK).sort());
  for (const { heading, block } of blocks) {
    const [copies, functions] = COOKBOOK[heading]!;
    const calls = new Calls();
    const scope = Object.fromEntries(Object.keys(functions).map((name) => [name, calls.named(name)]));
    const jobs = [...Array(8).fill(101), ...Array(4).fill(1)];
    const prefix = randomUUID();
    // Each copy is a host with a client of its own.
    const connecting = Array.from({ length: copies }, () => connect(server.url, { recovery: 'off', prefix }));
    const clients = await Promise.all(connecting);
    await Promise.all(clients.map((client) => block(client, { ...scope, nextJob: () => jobs.shift() })));
    for (const [name, [runs, most]] of Object.entries(functions)) {
      assert.equal(calls.runs[name], runs, `${heading}: ${name}`);
      assert.ok(calls.most[name]! <= most, `${heading}: ${calls.most[name]} ${name} at once`);
    }
    const [first] = clients;
    for (const name of await first!.list()) {
      const { waiting, holders } = await first!.semaphore(name).inspect();
      assert.ok(waiting === 0 && holders.every(({ cooling }) => cooling), `${heading}: ${name}`);
    }
    await Promise.all(clients.map((client) => client.close()));
  }
});
