// Requests through the door of this package: the table of requests, which the tests of every door walk.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { type AcquireOptions, type Client, connect, InvalidInputError, type Semaphore } from 'permits';
import { LIMIT, PACKAGE, Server } from './support.js';

interface Row {
  field: string;
  json?: AcquireOptions;
  node?: AcquireOptions | null;
  arrives?: string;
  refused?: string;
  lost?: string;
  words: string;
}

/** Copied by scripts/test-node. */
const TABLE: { arrives_as: string; options: Row[]; wrong: Row[] } = JSON.parse(
  readFileSync(join(PACKAGE, 'tests/requests.json'), 'utf8'),
);

function options({ json, node }: Row): AcquireOptions | null | undefined {
  return node === undefined ? json : node;
}

let server: Server;
let client: Client;
before(async () => {
  server = await Server.start();
  client = await connect(server.url, { label: '', recovery: 'off' });
});
after(async () => {
  await client.close();
  await server.stop();
});

/** Acquires, and returns what the server got, in the form of the table. */
async function arrived(semaphore: Semaphore, options: AcquireOptions): Promise<string> {
  const monitor = createConnection(server.port, '127.0.0.1', () => monitor.write('MONITOR\r\n'));
  for await (const line of createInterface(monitor)) {
    if (line === '+OK') {
      await (await semaphore.acquire(options)).release();
    } else if (line.includes('"EVALSHA"') && line.includes(`"${semaphore.name}"`)) {
      const [, ...groups] = new RegExp(TABLE.arrives_as).exec(line) ?? assert.fail(line);
      monitor.destroy();
      return groups.map((group) => group || '-').join(' ');
    }
  }
  return assert.fail('the server ended the connection');
}

for (const [number, row] of TABLE.options.entries()) {
  test(`the option ${row.field} has its effect`, { timeout: LIMIT }, async () => {
    const semaphore = client.semaphore(`${number}/${row.field}`, 9);
    const given = options(row) as AcquireOptions;
    if (row.arrives !== undefined) {
      assert.equal(await arrived(semaphore, given), row.arrives);
    } else if (row.refused !== undefined) {
      await using _held = await semaphore.acquire({ weight: 9 });
      await assert.rejects(semaphore.acquire(given), { name: 'NotNowError', message: new RegExp(`^${row.refused}`) });
    } else {
      const permit = await semaphore.acquire(given);
      assert.ok((await permit.lost)?.message.includes(row.lost as string));
    }
  });
}

test('a wrong request has the words of every door', async () => {
  const semaphore = client.semaphore('wrong', 9);
  for (const row of TABLE.wrong) {
    const given = options(row);
    if (!given) continue;
    for (const refused of [() => semaphore.acquire(given), () => client.acquireAll([[semaphore, given]])]) {
      await assert.rejects(refused, (error) => {
        assert.ok(error instanceof InvalidInputError && error.code === 'INVALID_INPUT', row.words);
        assert.ok(error.message.includes(row.words), error.message);
        return true;
      });
    }
  }
});

test('every option has a type', () => {
  const every: Required<Omit<AcquireOptions, 'signal'>> = {
    weight: 1,
    timeout: 1,
    holder: 'h',
    label: 'l',
    lane: 'l',
    share: 1,
    laneLimit: 1,
    laneFloor: 1,
    laneWaiters: 1,
    lease: 100,
    atLeast: 1,
    maxHold: 100,
    autoRenew: true,
    supersede: 'main',
  };
  const known = new Set(TABLE.options.flatMap((row) => Object.keys(options(row) ?? {})));
  assert.deepEqual([...known].sort(), Object.keys(every).sort());
});
