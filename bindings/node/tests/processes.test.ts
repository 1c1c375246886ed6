// Event loops that are blocked, worker threads, other processes, and the ends of all of them.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { type Client, connect, type Semaphore } from 'permits';
import { comesToPass, isIdle, LIMIT, Program, Server, until, waiters } from './support.js';

let server: Server;
let client: Client;
let semaphore: Semaphore;
before(async () => {
  server = await Server.start();
  client = await connect(server.url, { recovery: 'off' });
});
beforeEach(() => {
  semaphore = client.semaphore(randomUUID(), 1);
});
after(() => client.close().finally(() => server.stop()));

/** A program with a client and the semaphore of this test. */
function program(text: string, ...flags: string[]): Program {
  const opening = `
    import { connect } from 'permits';
    const client = await connect(process.env.TEST_URL, { recovery: 'off', lease: 3_600_000 });
    const semaphore = client.semaphore(process.env.TEST_NAME, 1);
    const keepAlive = () => setInterval(() => {}, 1000);
  `;
  return new Program(opening + text, { TEST_URL: server.url, TEST_NAME: semaphore.name }, ...flags);
}

test('an event loop that is blocked delays no renewal', { timeout: LIMIT }, async () => {
  await comesToPass(async () => {
    const permit = await semaphore.acquire({ lease: 400 });
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000);
    const { isHeld, token } = permit;
    const stored = (await semaphore.inspect()).holders[0]?.token;
    await permit.release().catch(() => {});
    return isHeld && stored === token;
  });
});

test('a program with an idle client and a held permit ends', { timeout: LIMIT }, async () => {
  const other = program('const permit = await semaphore.acquire(); permit.signal; permit.lost; console.log("held");');
  assert.deepEqual([await other.end(), other.output, other.errors], [0, 'held\n', '']);
  await until(() => isIdle(semaphore));
});

test('a program that waits stays until its turn', { timeout: LIMIT }, async () => {
  const permit = await semaphore.acquire();
  const other = program('const permit = await semaphore.acquire(); console.log("mine"); await permit.release();');
  await waiters(semaphore, 1);
  await permit.release();
  assert.deepEqual([await other.end(), other.output], [0, 'mine\n']);
  await until(() => isIdle(semaphore));
});

test('process.exit in mid-wait leaves nothing', { timeout: LIMIT }, async () => {
  await using _held = await semaphore.acquire();
  const other = program('process.once("SIGTERM", () => process.exit(3)); semaphore.acquire(); keepAlive();');
  await waiters(semaphore, 1);
  other.kill('SIGTERM');
  assert.deepEqual([await other.end(), other.errors], [3, '']);
  await waiters(semaphore, 0);
});

test('process.exit releases what is held', { timeout: LIMIT }, async () => {
  const other = program('await semaphore.acquire(); console.log("held"); process.exit(4);');
  assert.deepEqual([await other.end(), other.output, other.errors], [4, 'held\n', '']);
  await until(() => isIdle(semaphore));
});

test('a program that ends right after a block has released', { timeout: LIMIT }, async () => {
  for (const end of ['', 'process.exit();', 'process.reallyExit();', 'process.kill(process.pid, "SIGTERM"); keepAlive();']) {
    for (const block of ['await (await semaphore.acquire())[Symbol.asyncDispose]();', 'await semaphore.run(() => {});']) {
      await program(block + end).end();
      await until(() => isIdle(semaphore));
    }
  }
});

test('a block ends while the server is away', { timeout: LIMIT }, async () => {
  await using server = await Server.start();
  await using client = await connect(server.url, { recovery: 'off', lease: 600_000 });
  const semaphore = client.semaphore('s', 3_000);
  const permits = await Promise.all(Array.from({ length: 2_999 }, () => semaphore.acquire()));
  await semaphore.run(() => server.signal('SIGSTOP'));
  // Each end of a block would have waited here. What the socket does not take is sent later.
  for (const permit of permits) {
    await permit[Symbol.asyncDispose]();
  }
  server.signal('SIGCONT');
  await until(() => isIdle(semaphore));
});

test('an uncaught error releases what is held', { timeout: LIMIT }, async () => {
  const other = program('await semaphore.acquire(); setImmediate(() => { throw new Error("bug"); });');
  assert.equal(await other.end(), 1);
  assert.match(other.errors, /bug/);
  await until(() => isIdle(semaphore));
});

test('a rejection that is not handled ends the program and releases', { timeout: LIMIT }, async () => {
  const other = program('await semaphore.acquire(); keepAlive(); semaphore.acquire({ timeout: 10 });');
  assert.equal(await other.end(), 1);
  assert.match(other.errors, /TIMED_OUT/);
  await until(() => isIdle(semaphore));
});

test('Ctrl-C ends a program that waits', { timeout: LIMIT }, async () => {
  await using _held = await semaphore.acquire();
  await using other = program('await semaphore.acquire({ lease: 1000 });');
  await waiters(semaphore, 1);
  other.kill('SIGINT');
  assert.equal(await other.end(), 'SIGINT');
  // The request of the process leaves the line when its lease ends.
  await waiters(semaphore, 0);
});

test('Ctrl-C with a handler leaves nothing', { timeout: LIMIT }, async () => {
  const text = 'process.once("SIGINT", () => process.exit(130)); await semaphore.acquire(); console.log("held"); keepAlive();';
  await using other = program(text);
  await other.prints('held');
  other.kill('SIGINT');
  assert.equal(await other.end(), 130);
  await until(() => isIdle(semaphore));
});

test('the exit does not wait for long for a server that is stuck', { timeout: LIMIT }, async () => {
  await using stuck = await Server.start();
  const text = `
    import { connect } from 'permits';
    const client = await connect(process.env.TEST_URL, { recovery: 'off' });
    await client.semaphore('s', 1).acquire();
    setInterval(() => {}, 1000);
    process.once('SIGTERM', () => process.exit(5));
    console.log('held');
  `;
  await using other = new Program(text, { TEST_URL: stuck.url });
  await other.prints('held');
  await stuck.stop();
  other.kill('SIGTERM');
  assert.equal(await other.end(), 5);
});

test('permits that are garbage are released, with a warning', { timeout: LIMIT }, async () => {
  const text = `
    await (async () => { const permit = await semaphore.acquire(); permit.lost; permit.signal; })();
    const timer = setInterval(gc, 10);
    process.once('warning', (warning) => { console.log(warning.name); });
    const next = await semaphore.acquire();
    await next.release();
    clearInterval(timer);
  `;
  const other = program(text, '--expose-gc');
  assert.equal(await other.end(), 0);
  assert.equal(other.output, 'PermitsWarning\n');
  assert.match(other.errors, /garbage-collected/);
});

test('a permit whose block has ended is garbage without a warning', { timeout: LIMIT }, () =>
  garbageWithoutWarning('await permit[Symbol.asyncDispose]()'));

test('so is one that a closed client has released', { timeout: LIMIT }, () => garbageWithoutWarning('await client.close()'));

async function garbageWithoutWarning(end: string): Promise<void> {
  const text = `
    const collected = new Promise((resolve) => { globalThis.registry = new FinalizationRegistry(resolve); });
    await (async () => {
      const permit = await semaphore.acquire();
      registry.register(permit, 'collected');
      ${end};
    })();
    process.on('warning', ({ message }) => { if (message.includes('garbage')) console.log(message); });
    const timer = setInterval(gc, 10);
    const found = await collected;
    // The package has learnt of it, too.
    await new Promise((resolve) => setTimeout(resolve, 50));
    clearInterval(timer);
    console.log(found);
  `;
  const other = program(text, '--expose-gc');
  assert.equal(await other.end(), 0);
  assert.equal(other.output, 'collected\n');
}

const WORKER = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { connect } = require('permits');
  (async () => {
    const client = await connect(workerData.url, { recovery: 'off' });
    const semaphore = client.semaphore(workerData.name, 1);
    for (let turn = 0; turn < workerData.turns; turn++) {
      await semaphore.run(async () => {
        const running = Atomics.add(workerData.running, 0, 1) + 1;
        if (running > 1) throw new Error('two at once');
        await new Promise(setImmediate);
        Atomics.sub(workerData.running, 0, 1);
      });
    }
    const permit = workerData.hold ? await semaphore.acquire() : undefined;
    parentPort.postMessage('done');
    if (permit) await semaphore.acquire();
  })();
`;

function worker(terms: { turns: number; hold: boolean; running: Int32Array }): Worker {
  const workerData = { url: server.url, name: semaphore.name, ...terms };
  return new Worker(WORKER, { eval: true, workerData });
}

test('worker threads exclude one another, and end', { timeout: LIMIT }, async () => {
  const running = new Int32Array(new SharedArrayBuffer(4));
  const workers = [1, 2, 3].map(() => worker({ turns: 10, hold: false, running }));
  const exits = await Promise.all(workers.map((one) => new Promise((resolve, reject) => {
    one.once('error', reject);
    one.once('exit', resolve);
  })));
  assert.deepEqual(exits, [0, 0, 0]);
  await until(() => isIdle(semaphore));
});

test('a worker that is terminated releases what it held and leaves the line', { timeout: LIMIT }, async () => {
  for (let turn = 0; turn < 3; turn++) {
    const holding = worker({ turns: 0, hold: true, running: new Int32Array(1) });
    await new Promise((resolve) => holding.once('message', resolve));
    await waiters(semaphore, 1);
    await holding.terminate();
    await until(() => isIdle(semaphore));
  }
});

test('processes of a cluster exclude one another', { timeout: LIMIT }, async () => {
  const child = `
    const { connect } = require('permits');
    connect(process.env.TEST_URL, { recovery: 'off' }).then(async (client) => {
      const semaphore = client.semaphore(process.env.TEST_NAME, 1);
      await semaphore.run((permit) => process.send(permit.token));
      process.disconnect();
    });
  `;
  const file = join(__dirname, 'child.js');
  writeFileSync(file, child);
  const text = `
    import cluster from 'node:cluster';
    cluster.setupPrimary({ exec: ${JSON.stringify(file)}, execArgv: [] });
    const held = await semaphore.acquire();
    const tokens = [];
    const exits = [1, 2].map(() => new Promise((resolve) => {
      cluster.fork().on('message', (token) => tokens.push(token)).on('exit', resolve);
    }));
    while ((await semaphore.inspect()).waiting < 2) {}
    await held.release();
    console.log(await Promise.all(exits), tokens.length, new Set(tokens).size);
  `;
  const other = program(text);
  assert.deepEqual([await other.end(), other.output, other.errors], [0, '[ 0, 0 ] 2 2\n', '']);
  await until(() => isIdle(semaphore));
});
