// The blocks of the documents: blocks.mjs has made a module of each, which tsc has checked. They run, and in
// several copies at once keep their limits.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type Client, connect, type Semaphore } from 'permits';
import { comesToRest, isIdle, LIMIT, PACKAGE, Server, until, waiters } from './support.js';

const BLOCKS = join(__dirname, 'blocks');

/** The modules of blocks whose names begin so. */
const modules = (kind: string) =>
  readdirSync(BLOCKS).filter((name) => name.startsWith(`${kind}-`) && name.endsWith('.mjs'));

let server: Server;
before(async () => {
  server = await Server.start();
});
after(() => server.stop());

test('the blocks of the documents run', { timeout: LIMIT }, async () => {
  const blocks = modules('alone');
  assert.ok(blocks.length >= 10, 'the documents have blocks');
  await using client = await connect(server.url, { recovery: 'off' });
  for (const block of blocks) {
    const environment = { ...process.env, TEST_URL: `${server.url}?recovery=off`, NODE_TEST_CONTEXT: undefined };
    await promisify(execFile)(process.execPath, [join(BLOCKS, block)], { cwd: PACKAGE, env: environment });
    for (const name of await client.list()) await comesToRest(client.semaphore(name));
  }
});

/** Serves by the middleware of the documents, until the end of the test. */
async function served(context: TestContext, semaphore: Semaphore, timeout?: number): Promise<Served> {
  const [name] = modules('run-docs.test.ts');
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
  assert.equal(await refused.text(), 'not now');

  // Two browsers go away: the one is being served, and the other waits.
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
  const client = await connect(store.url, { recovery: 'off' });
  // A request that was sent just before the store ended cannot be released.
  context.after(() => client.close().catch(() => {}));
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

/** Counts calls, and how many of them overlap. A heavy job is 5 units. The first call is refused. */
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

interface Copies {
  heading: string;
  copies: number;
  /** How often each function runs, and how many units it may have at once. */
  functions: Record<string, [runs: number, most: number]>;
  block: (client: Client, scope: object) => Promise<void>;
}

test('copies of a block call their functions as often as its words say', { timeout: LIMIT }, async () => {
  const blocks: Copies[] = await Promise.all(modules('copies').map((name) => import(join(BLOCKS, name))));
  assert.ok(blocks.length >= 10, 'the documents have blocks');
  for (const { heading, copies, functions, block } of blocks) {
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
    for (const name of await first!.list()) await comesToRest(first!.semaphore(name));
    await Promise.all(clients.map((client) => client.close()));
  }
});
