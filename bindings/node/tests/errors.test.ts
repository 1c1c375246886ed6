// Errors have a class and a code, and name what is wrong.

import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import * as permits from 'permits';
import { type Client, connect, diagnose, InvalidInputError, NotNowError, PermitsError, StoreError } from 'permits';
import { LIMIT, PACKAGE, Server } from './support.js';

let server: Server;
let client: Client;
before(async () => {
  server = await Server.start();
  client = await connect(server.url, { recovery: 'off' });
});
after(async () => {
  await client.close();
  await server.stop();
});

test('an unknown URL is not valid', async () => {
  await assert.rejects(connect('http://127.0.0.1/'), (error) => {
    assert.ok(error instanceof InvalidInputError && error instanceof PermitsError && error instanceof Error);
    assert.equal(error.code, 'INVALID_URL');
    assert.match(error.message, /http.*redis/);
    return true;
  });
});

test('a server that is not there is unreachable', { timeout: LIMIT }, async () => {
  await assert.rejects(connect('redis://127.0.0.1:1/', { storeTimeout: 100 }), (error) => {
    assert.ok(error instanceof StoreError && error.isTemporary);
    assert.equal(error.code, 'UNREACHABLE');
    return true;
  });
});

test('an outage is not busy', { timeout: LIMIT }, async () => {
  const gone = await Server.start();
  const away = await connect(gone.url, { recovery: 'off', lease: 1000 });
  const semaphore = away.semaphore('outage', 1);
  await (await semaphore.acquire()).release();
  await gone.stop();
  const isOutage = (error: unknown): boolean => error instanceof StoreError && error.isTemporary;
  await assert.rejects(semaphore.acquire({ timeout: 500 }), isOutage);
  await assert.rejects(semaphore.acquire({ timeout: 0 }), isOutage);
  await assert.rejects(semaphore.tryAcquire(), isOutage);
});

test('arguments that are not valid are refused by name', async () => {
  const semaphore = client.semaphore('arguments', 2);
  const refused = (message: RegExp) => ({ name: 'InvalidInputError', code: 'INVALID_INPUT', message });
  assert.throws(() => client.semaphore('', 1), refused(/name/));
  assert.throws(() => client.semaphore('s', 0), refused(/the limit .* not 0/));
  assert.throws(() => client.semaphore('s', 1.5), refused(/the limit .* not 1.5/));
  assert.throws(() => client.semaphore('s', undefined, { exactly: true }), refused(/exactly/));
  await assert.rejects(semaphore.acquire({ weight: 0 }), refused(/weight .* not 0/));
  await assert.rejects(semaphore.acquire({ timeout: -1 }), refused(/timeout .* not -1/));
  await assert.rejects(semaphore.acquire({ timeout: Number.NaN }), refused(/timeout .* not NaN/));
  await assert.rejects(semaphore.acquire({ lease: 1 }), refused(/lease/));
  await assert.rejects(semaphore.acquire({ lane: '' }), refused(/lane/));
  await assert.rejects(semaphore.acquire({ share: 1001 }), refused(/share .* not 1001/));
  await assert.rejects(semaphore.acquire({ label: '\n' }), refused(/label/));
  await assert.rejects(semaphore.acquire({ timeout: '5s' as unknown as number }), refused(/timeout/));
  await assert.rejects(semaphore.adjustLimit(0.5), refused(/0.5/));
  await assert.rejects(connect(server.url, { recovery: 'never' as 'off' }), refused(/never/));
  await assert.rejects(client.acquireAll([semaphore, semaphore]), refused(/arguments/));
  // Absent options have their defaults.
  await (await semaphore.acquire({ timeout: undefined, weight: undefined })).release();
  await (await semaphore.acquire({ timeout: Infinity })).release();
});

test('requests that cannot succeed say why', async () => {
  const semaphore = client.semaphore('never', 2);
  await using held = await semaphore.acquire({ holder: 'h' });
  await assert.rejects(semaphore.acquire({ holder: held.holder }), { code: 'ALREADY_HELD', details: { holder: 'h' } });
  await assert.rejects(semaphore.acquire({ weight: 3 }), { code: 'EXCEEDS_LIMIT', details: { weight: 3, limit: 2 } });
  await assert.rejects(client.semaphore('unknown').acquire(), { code: 'NO_LIMIT', details: { semaphore: 'unknown' } });
  const exactly = client.semaphore('never', 5, { exactly: true });
  await assert.rejects(exactly.acquire(), { code: 'LIMIT_MISMATCH' });
  await assert.rejects(semaphore.adjustLimit(-5), { code: 'LIMIT_OUT_OF_RANGE' });
});

test('a full line and a revoked request say so', async () => {
  await using crowded = await connect(server.url, { recovery: 'off', maxWaiters: 1 });
  const semaphore = crowded.semaphore('crowded', 1);
  await using _held = await semaphore.acquire();
  const waiting = semaphore.acquire({ holder: 'w' });
  const revoked = assert.rejects(waiting, { code: 'REVOKED', details: { reason: 'not today' } });
  await assert.rejects(semaphore.acquire(), (error) => error instanceof NotNowError && error.code === 'QUEUE_FULL');
  await semaphore.revoke('w', 'not today');
  await revoked;
});

test('a closed client ends waits, losses and later calls', async () => {
  const closing = await connect(server.url, { recovery: 'off' });
  const semaphore = closing.semaphore('closing', 1);
  const permit = await semaphore.acquire();
  const waiting = semaphore.acquire();
  const refused = assert.rejects(waiting, { code: 'CLOSED' });
  await closing.close();
  await refused;
  assert.equal((await permit.lost)?.loss, 'closed');
  await assert.rejects(semaphore.acquire(), { code: 'CLOSED' });
  assert.equal((await client.semaphore('closing').inspect()).held, 0);
});

test('the version is that of the package', () => {
  const { version } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8'));
  assert.equal(permits.version, version);
});

test('a diagnosis is a plain object', async () => {
  const { store, isHealthy, findings } = await diagnose(server.url);
  assert.match(store, /127\.0\.0\.1/);
  assert.equal(typeof isHealthy, 'boolean');
  assert.ok(findings.length > 0 && findings.every(({ subject, severity }) => subject && severity));
});

test('a package without a library for this platform says which it has and how to build one', (context) => {
  const copy = mkdtempSync(join(tmpdir(), 'permits-node-'));
  context.after(() => rmSync(copy, { recursive: true }));
  cpSync(join(PACKAGE, 'dist/lib'), join(copy, 'dist/lib'), { recursive: true });
  const load = (): unknown => require(join(copy, 'dist/lib/index.js'));
  const platform = `${process.platform}-${process.arch}`;

  writeFileSync(join(copy, 'permits.beos-ppc.node'), '');
  assert.throws(load, new RegExp(`no library for ${platform}, only for beos-ppc\\..*npm run build`));

  // Such as that of another libc.
  writeFileSync(join(copy, `permits.${platform}.node`), '');
  assert.throws(load, new RegExp(`library for ${platform} cannot be loaded: .*npm run build`));
});
