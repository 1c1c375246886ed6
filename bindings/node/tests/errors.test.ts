// Errors have a class and a code, and name what is wrong.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { inspect } from 'node:util';
import * as permits from 'permits';
import { type Client, connect, diagnose, InvalidInputError, NotNowError, PermitsError, StoreError } from 'permits';
import { LIMIT, Server } from './support.js';

let server: Server;
let client: Client;
before(async () => {
  server = await Server.start();
  client = await connect(server.url, { recovery: 'off' });
});
after(() => client.close().finally(() => server.stop()));

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
  await using gone = await Server.start();
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
  assert.throws(() => client.semaphore('s', 0), refused(/the limit is 0/));
  assert.throws(() => client.semaphore('s', 1.5), refused(/^limit is a whole number from 1 to 4294967295, not 1.5$/));
  assert.throws(() => client.semaphore('s', undefined, { exactly: true }), refused(/exactly/));
  await assert.rejects(semaphore.acquire({ timeout: Number.NaN }), refused(/^timeout is a finite number, not NaN$/));
  await assert.rejects(semaphore.adjustLimit(0.5), refused(/0.5/));
  await assert.rejects(connect(server.url, { recovery: 'never' as 'off' }), refused(/never/));
  await assert.rejects(client.acquireAll([semaphore, semaphore]), refused(/arguments/));
  // Absent options have their defaults.
  await (await semaphore.acquire({ timeout: undefined, weight: undefined })).release();
  await (await connect('memory:', { keep: undefined, label: undefined })).close();
  await semaphore.setAlert({ wait: undefined, waiting: undefined });
  await (await semaphore.acquire({ timeout: Infinity })).release();
});

test('arguments of another type are refused by name', async () => {
  // As programs without types call it.
  const untyped = permits as any;
  const open = client as any;
  const semaphore = open.semaphore('types', 2);
  await using permit = await semaphore.acquire();
  const wrong: Record<string, unknown[]> = {
    'a string': [4, false, {}, [], Symbol('x'), 4n],
    'a boolean': ['true', 1, {}],
    'a function': ['x', {}, undefined, Promise.resolve()],
    'a plain object': ['x', 4, null, [], new Map(), new AbortController().signal, new (class Options {})(), () => {}],
    'an iterable': [4, {}, null],
    'an AbortSignal': ['x', 4, {}],
    'a semaphore, or one and its options': ['x', {}, null, ['x']],
  };
  const calls: (readonly [name: string, type: string, call: (value: unknown) => unknown])[] = [
    ['url', 'a string', (value) => untyped.connect(value)],
    ['url', 'a string', (value) => untyped.diagnose(value)],
    ['name', 'a string', (value) => open.semaphore(value, 1)],
    ['handle', 'a string', (value) => open.adopt(value)],
    ['handle', 'a string', (value) => open.renew(value)],
    ['handle', 'a string', (value) => open.release(value)],
    ['renew', 'a boolean', (value) => permit.autoRenew(value)],
    ['work', 'a function', (value) => semaphore.run(value)],
    ...[
      (value: unknown) => untyped.connect('memory:', value),
      (value: unknown) => untyped.diagnose('memory:', value),
      (value: unknown) => open.semaphore('types', 2, value),
      (value: unknown) => semaphore.acquire(value),
      (value: unknown) => semaphore.tryAcquire(value),
      (value: unknown) => semaphore.run(() => {}, value),
      (value: unknown) => semaphore.setLimit(2, value),
      (value: unknown) => semaphore.setAlert(value),
      (value: unknown) => semaphore.setLane('a', value),
      (value: unknown) => semaphore.inspect(value),
      (value: unknown) => open.acquireAll([semaphore], value),
      (value: unknown) => open.acquireAll([[semaphore, value]]),
    ].map((call) => ['options', 'a plain object', call] as const),
    ['requests', 'an iterable', (value) => open.acquireAll(value)],
    ['a request', 'a semaphore, or one and its options', (value) => open.acquireAll([value])],
    ['signal', 'an AbortSignal', (signal) => semaphore.acquire({ signal })],
    ['signal', 'an AbortSignal', (signal) => open.acquireAll([semaphore], { signal })],
  ];
  for (const [name, type, call] of calls) {
    for (const value of wrong[type] ?? []) {
      await assert.rejects(
        async () => await call(value),
        (error: PermitsError) => {
          assert.deepEqual([error.name, error.code], ['InvalidInputError', 'INVALID_INPUT'], error.message);
          assert.ok(error.message.startsWith(`${name} is ${type}, not `), error.message);
          return true;
        },
      );
    }
  }
  // The message shows the value, and no contents of an object.
  await assert.rejects(semaphore.acquire(new AbortController().signal), { message: 'options is a plain object, not [object AbortSignal]' });
  const url = new URL('redis://:secret@127.0.0.1/');
  await assert.rejects(untyped.connect(url), { message: 'url is a string, not [object URL]' });
  assert.deepEqual([permit.isHeld, await semaphore.available()], [true, 1]);
});

test('numbers and texts are checked as at every door', async () => {
  // As programs without types call it.
  const open = client as any;
  const semaphore = open.semaphore('numbers', 2);
  await using permit = await semaphore.acquire();
  const whole = 'is a whole number from 1 to 4294967295';
  const time = 'is a time of at least 0 ms';
  const version = 'is a whole number from 0 to 9223372036854775807';
  for (const [call, message] of [
    [() => open.semaphore('numbers', '4'), `limit ${whole}, not the string "4"`],
    [() => open.semaphore('numbers', 4n), 'limit is a number, a string or a boolean, not 4n'],
    [() => open.semaphore('numbers', 2, { keep: '5s' }), `keep ${time}, not the string "5s"`],
    [() => open.semaphore('numbers', 2, { exactly: 1 }), 'exactly is true or false, not 1'],
    [() => open.semaphore('numbers', 2, { kep: 5 }), '"kep" is unknown: write "keep"'],
    [() => semaphore.setLimit('4'), `limit ${whole}, not the string "4"`],
    [() => semaphore.setLimit(2, { ifVersion: '1' }), `ifVersion ${version}, not the string "1"`],
    [() => semaphore.adjustLimit(0.5), 'by is a whole number from -4294967295 to 4294967295, not 0.5'],
    [() => semaphore.pause('1h'), `time ${time}, not the string "1h"`],
    [() => semaphore.pause(null, 4), 'reason is a string, not 4'],
    [() => semaphore.setAlert({ wait: '30' }), `wait ${time}, not the string "30"`],
    [() => semaphore.setAlert({ waiting: true }), 'waiting is a whole number from 1 to 4294967295, not true'],
    [() => semaphore.setLane(4, { limit: 1 }), 'lane is a string, not 4'],
    [() => semaphore.setLane('', { limit: 1 }), 'the lane is empty: give it 1 to 120 bytes'],
    [() => semaphore.setLane('a', {}), 'neither a limit nor a floor of the lane is given: name one of them'],
    [() => semaphore.setLane('a', { limit: 1, floor: 2 }), 'the floor of the lane is 2: it must be at most 1, its limit'],
    [() => semaphore.unpinLane(4), 'lane is a string, not 4'],
    [() => semaphore.revoke(4), 'holder is a string, not 4'],
    [() => semaphore.revokeCooling('h', undefined), 'token is the token of a grant, not undefined'],
    [() => semaphore.revokeCooling('h', '1'), `token ${version}, not the string "1"`],
    [() => semaphore.inspect({ max: -1 }), 'max is a whole number from 0 to 4294967295, not -1'],
    [() => semaphore.inspect({ maxx: 3 }), '"maxx" is unknown: write "max"'],
    [() => semaphore.tryAcquire({ timeout: 500 }), 'tryAcquire does not wait: it has no timeout'],
    [() => permit.setLease('1s'), `lease ${time}, not the string "1s"`],
    [() => permit.releasePart('1'), `units ${whole}, not the string "1"`],
    [() => permit.count(Number.NaN), 'units is a finite number, not NaN'],
  ] as [() => unknown, string][]) {
    await assert.rejects(async () => await call(), { name: 'InvalidInputError', code: 'INVALID_INPUT', message });
  }
  // A text that was cut may end with half of a surrogate pair.
  const label = 'a👍'.slice(0, 2);
  const cut = await semaphore.acquire({ label });
  assert.ok((await semaphore.inspect()).holders.some((holder: { label: string }) => holder.label === 'a\uFFFD'));
  await cut.release();
});

test('an option that JSON cannot have is refused by name', async () => {
  // As programs without types call it.
  const semaphore = client.semaphore('options', 2) as any;
  const scalar = 'a number, a string or a boolean';
  for (const [options, reason] of [
    [{ weight: 4n }, `weight is ${scalar}, not 4n`],
    [{ weight: () => 3 }, `weight is ${scalar}, not [object Function]`],
    [{ weight: Symbol('x') }, `weight is ${scalar}, not Symbol(x)`],
    [{ timeout: -Infinity }, 'timeout is a finite number, not -Infinity'],
    [{ lease: Infinity }, 'lease is a finite number, not Infinity'],
  ] as [object, string][]) {
    for (const refused of [() => semaphore.acquire(options), () => (client as any).acquireAll([[semaphore, options]])]) {
      await assert.rejects(refused, (error: PermitsError) => {
        assert.deepEqual([error.name, error.code], ['InvalidInputError', 'INVALID_INPUT'], error.message);
        assert.ok(error.message.includes(reason), error.message);
        return true;
      });
    }
  }
});

test('a wrong setting of a client is refused by name', async () => {
  const whole = 'is a whole number from 0 to 4294967295';
  const time = 'is a time of at least 0 ms';
  for (const [settings, reason] of [
    [{ prefix: 4 }, 'prefix is a string, not 4'],
    [{ label: {} }, 'label is a string, not a list or an object'],
    [{ recovery: 'never' }, 'recovery is "off", "interval" or "strict", not the string "never"'],
    [{ lease: '4' }, `lease ${time}, not the string "4"`],
    [{ keep: Number.NaN }, 'keep is a finite number, not NaN'],
    [{ storeTimeout: -1 }, `storeTimeout ${time}, not -1`],
    [{ maxWaiters: 1.5 }, `maxWaiters ${whole}, not 1.5`],
    [{ replicas: true }, `replicas ${whole}, not true`],
    [{ lable: 'x' }, '"lable" is unknown: write "label"'],
  ] as [object, string][]) {
    for (const refused of [() => connect('memory:', settings), () => diagnose('memory:', settings)]) {
      await assert.rejects(refused, { name: 'InvalidInputError', code: 'INVALID_INPUT', message: reason });
    }
  }
});

test('what console.log shows has no secret', async () => {
  await using guarded = await connect(server.url.replace('//', '//default:secret@'), { recovery: 'off' });
  const semaphore = guarded.semaphore('shown', 2);
  const permits = await guarded.acquireAll([[semaphore, { holder: 'h', weight: 2 }]]);
  const permit = `Permit { semaphore: 'shown', holder: 'h', token: ${permits.permits[0]?.token}, slot: 0, weight: 2, isHeld: true }`;
  const shown = (value: unknown): string => inspect(value, { breakLength: Infinity });
  assert.equal(shown(permits), `PermitSet { permits: [ ${permit} ], isHeld: true }`);
  assert.equal(shown({ semaphore }), "{ semaphore: Semaphore { name: 'shown', limit: 2 } }");
  assert.match(shown(guarded), /^Client { store: '.*127\.0\.0\.1.*' }$/);
  assert.doesNotMatch(shown(guarded), /secret/);
  assert.equal(shown({ a: { b: { c: semaphore } } }), '{ a: { b: { c: [Semaphore] } } }');
  await permits.release();
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

test('a diagnosis is a plain object', async () => {
  const { store, isHealthy, findings } = await diagnose(server.url);
  assert.match(store, /127\.0\.0\.1/);
  assert.equal(typeof isHealthy, 'boolean');
  assert.ok(findings.length > 0 && findings.every(({ subject, severity }) => subject && severity));
});
