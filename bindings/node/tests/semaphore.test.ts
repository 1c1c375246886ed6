// Uses of semaphores and permits in a program, on every store.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import timers = require('node:timers');
import { type Client, connect, LostError, NotNowError, Permit, type Semaphore } from 'permits';
import { isIdle, LIMIT, Server, until, waiters } from './support.js';

let server: Server;
const directory = mkdtempSync(join(tmpdir(), 'permits-node-'));
before(async () => {
  server = await Server.start();
});
after(async () => {
  await server.stop();
  rmSync(directory, { recursive: true });
});

const STORES: Record<string, () => string> = {
  redis: () => server.url,
  memory: () => `memory:${randomUUID()}`,
  local: () => `local:${join(directory, 'permits')}`,
};

for (const [store, url] of Object.entries(STORES)) {
  describe(store, { timeout: LIMIT }, () => {
    let client: Client;
    let semaphore: Semaphore;
    beforeEach(async () => {
      client = await connect(url(), { recovery: 'off', prefix: randomUUID() });
      semaphore = client.semaphore('s', 2);
    });
    // Every test must give back all that it held.
    afterEach(async () => {
      await until(() => isIdle(semaphore));
      await client.close();
    });

    test('waiters are granted in order of arrival', async () => {
      const held = await semaphore.acquire({ weight: 2 });
      const order: number[] = [];
      const running = [];
      for (let number = 0; number < 8; number++) {
        running.push(
          semaphore.acquire({ weight: 2 }).then((permit) => {
            order.push(number);
            return permit.release();
          }),
        );
        await waiters(semaphore, number + 1);
      }
      await held.release();
      await Promise.all(running);
      assert.deepEqual(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    });

    test('permits have weights, slots and tokens', async () => {
      const [a, b] = await Promise.all([semaphore.acquire({ label: 'a' }), semaphore.acquire({ holder: 'b' })]);
      assert.deepEqual([a.slot, b.slot].sort(), [0, 1]);
      assert.ok(Number.isSafeInteger(a.token) && a.token !== b.token);
      assert.deepEqual([b.holder, b.semaphore, b.weight, b.leaseMs, b.status], ['b', 's', 1, 15_000, 'held']);
      assert.ok(b.remainingMs > 0 && b.remainingMs <= 15_000);
      await Promise.all([a.release(), b.release()]);
      const both = await semaphore.acquire({ weight: 2, lease: 60_000 });
      assert.equal(await semaphore.available(), 0);
      await both.releasePart(1);
      assert.deepEqual([both.weight, await semaphore.available()], [1, 1]);
      await both.setLease(30_000);
      both.autoRenew(false);
      await both.renew();
      assert.equal(both.leaseMs, 30_000);
      await both.release();
      assert.deepEqual([both.isHeld, both.status, both.remainingMs], [false, 'released', 0]);
    });

    test('the label of a client is that of its acquisitions', async () => {
      const [store, common] = [url(), { recovery: 'off', prefix: randomUUID() } as const];
      const clients = [await connect(store, { label: 'exporter-7', ...common }), await connect(store, common)];
      const [own, others] = clients.map((client) => client.semaphore('s', 4)) as [Semaphore, Semaphore];
      const permits = [await own.acquire(), await own.acquire({ label: 'a' }), await own.acquire({ label: '' })];
      permits.push(await others.acquire());
      const labels = new Set((await others.inspect()).holders.map((holder) => holder.label));
      assert.deepEqual(labels, new Set(['exporter-7', 'a', null, basename(process.argv[1] as string)]));
      assert.ok(permits[0]?.holder.includes(`:${process.pid}/`));
      for (const permit of permits) await permit.release();
      for (const client of clients) await client.close();
    });

    test('a try returns null when too few units are free', async () => {
      const permit = await semaphore.tryAcquire();
      assert.ok(permit instanceof Permit);
      assert.equal(await semaphore.tryAcquire({ weight: 2 }), null);
      await assert.rejects(semaphore.tryAcquire({ weight: 3 }), { code: 'EXCEEDS_LIMIT' });
      await permit.release();
    });

    test('a timeout ends a wait', async () => {
      await using _held = await semaphore.acquire({ weight: 2 });
      await assert.rejects(semaphore.acquire({ timeout: 20 }), (error) => {
        assert.ok(error instanceof NotNowError);
        assert.deepEqual([error.name, error.code, error.details.waitedMs], ['NotNowError', 'TIMED_OUT', 20]);
        return true;
      });
      assert.equal((await semaphore.inspect()).waiting, 0);
    });

    test('a signal ends a wait, and leaves nothing', async () => {
      await using _held = await semaphore.acquire({ weight: 2 });
      const controller = new AbortController();
      const { signal } = controller;
      let warning: Error | undefined;
      process.once('warning', (given) => (warning = given));
      const waiting = Array.from({ length: 20 }, () => semaphore.acquire({ signal }));
      await waiters(semaphore, 20);
      controller.abort(new Error('no longer needed'));
      for (const outcome of await Promise.allSettled(waiting)) {
        assert.ok(outcome.status === 'rejected' && outcome.reason.message === 'no longer needed');
      }
      await waiters(semaphore, 0);
      assert.equal(warning, undefined);
      await assert.rejects(semaphore.acquire({ signal }), { message: 'no longer needed' });
      await assert.rejects(semaphore.acquire({ signal: AbortSignal.timeout(10) }), { name: 'TimeoutError' });
      await waiters(semaphore, 0);
    });

    test('a signal that fires at the moment of the grant leaves nothing', async () => {
      for (let turn = 0; turn < 50; turn++) {
        const controller = new AbortController();
        const acquiring = semaphore.acquire({ weight: 2, signal: controller.signal });
        setImmediate(() => controller.abort());
        await acquiring.then((permit) => permit.release()).catch((error) => assert.equal(error.name, 'AbortError'));
      }
      await until(() => isIdle(semaphore));
    });

    test('a revoked permit is lost', async () => {
      const permit = await semaphore.acquire();
      const { signal, lost } = permit;
      assert.equal(signal.aborted, false);
      assert.equal(await semaphore.revoke(permit.holder, 'maintenance'), true);
      // The promise does not keep the process alive.
      await until(() => signal.aborted);
      const loss = await lost;
      assert.ok(loss instanceof LostError && loss === signal.reason);
      assert.deepEqual([loss.code, loss.loss, loss.reason], ['LOST', 'revoked', 'maintenance']);
      assert.deepEqual([permit.isHeld, permit.status], [false, 'lost']);
      await assert.rejects(permit.release(), LostError);
      await permit.release();
    });

    test('the loss of a released permit is undefined', async () => {
      const permit = await semaphore.acquire();
      const { lost, signal } = permit;
      await permit.release();
      assert.deepEqual([await lost, await permit.lost, signal.aborted], [undefined, undefined, false]);
      await assert.rejects(permit.renew(), { code: 'RELEASED' });
    });

    test('fake timers stop no call', async (context) => {
      for (const replaced of [globalThis, timers]) {
        for (const name of ['setImmediate', 'setInterval', 'setTimeout'] as const) {
          context.mock.method(replaced as typeof timers, name, () => ({ ref() {}, unref() {} }) as never);
        }
      }
      // The second call is polled again in a later turn, so that both travel together.
      const permits = await Promise.all([semaphore.acquire(), semaphore.acquire()]);
      await Promise.all(permits.map((permit) => permit.release()));
      context.mock.restoreAll();
    });

    test('await using and run release at the end of their blocks', async () => {
      {
        await using permit = await semaphore.acquire({ weight: 2 });
        assert.equal(permit.isHeld, true);
      }
      assert.ok(await isIdle(semaphore));
      assert.equal(await semaphore.run((permit) => permit.weight, { weight: 2 }), 2);
      await assert.rejects(
        semaphore.run(() => Promise.reject(new Error('the work failed'))),
        { message: 'the work failed' },
      );
      await assert.rejects(
        semaphore.run(async (permit) => {
          await semaphore.revoke(permit.holder);
          await permit.lost;
        }),
        LostError,
      );
      assert.ok(await isIdle(semaphore));
    });

    test('the next request follows the release of a block', async () => {
      for (let number = 0; number < 100; number++) {
        await semaphore.run(() => {}, { weight: 2 });
        const permit = await semaphore.tryAcquire({ weight: 2 });
        assert.ok(permit, 'the permit of the block is free');
        await permit[Symbol.asyncDispose]();
      }
    });

    test('lanes share the grants', async () => {
      const held = await semaphore.acquire({ weight: 2 });
      const order: string[] = [];
      const running = [];
      for (const lane of ['a', 'a', 'a', 'a', 'b', 'b']) {
        const granted = (permit: Permit): Promise<void> => {
          order.push(lane);
          return permit.release();
        };
        const of = lane === 'a' ? { share: 2, laneLimit: 2 } : {};
        running.push(semaphore.acquire({ weight: 2, lane, ...of }).then(granted));
        await waiters(semaphore, running.length);
      }
      const { lanes } = await semaphore.inspect();
      assert.deepEqual(lanes, [
        { lane: 'a', waiting: 4, held: 0, limit: 2, floor: 0, pinned: false },
        { lane: 'b', waiting: 2, held: 0, limit: null, floor: 0, pinned: false },
        { lane: null, waiting: 0, held: 2, limit: null, floor: 0, pinned: false },
      ]);
      await held.release();
      await Promise.all(running);
      assert.ok(order.slice(0, 3).includes('b') && order.slice(0, 3).includes('a'), order.join());
    });

    test('a kept permit is granted again without the store', async () => {
      const keeping = client.semaphore('s', 2, { keep: 300 });
      for (let turn = 0; turn < 20; turn++) {
        await using _permit = await keeping.acquire();
      }
      assert.ok((await semaphore.inspect()).grants < 20);
    });

    test('several permits are acquired, all or none', async () => {
      const other = client.semaphore('t', 4);
      {
        await using set = await client.acquireAll([semaphore, [other, { weight: 3 }]], { timeout: LIMIT });
        assert.deepEqual([set.get('s')?.weight, set.get('t')?.weight, set.get('u')], [1, 3, undefined]);
        assert.ok(set.isHeld);
        {
          await using same = await client.acquireAll([other, semaphore]);
          const names = [set, same].map(({ permits }) => permits.map((permit) => permit.semaphore));
          assert.deepEqual(names[0], names[1], 'in the order in which all are acquired');
        }
        // The first permit may come after the whole wait on a busy machine, so try longer waits.
        let waitsFor: unknown;
        for (let timeout = 10; waitsFor !== 't'; timeout *= 4) {
          await assert.rejects(client.acquireAll([semaphore, [other, { weight: 2 }]], { timeout }), (error) => {
            assert.ok(error instanceof NotNowError);
            waitsFor = error.details.semaphore;
            assert.deepEqual([error.code, error.details.waitedMs], ['TIMED_OUT', timeout]);
            return true;
          });
        }
        // The shortest timeout counts, and an absent timeout does not.
        for (const [own, common] of [[undefined, 10], [LIMIT, 10], [10, LIMIT], [10, undefined]]) {
          const requests = [[other, { weight: 2, timeout: own }]] as const;
          await assert.rejects(client.acquireAll(requests, { timeout: common }), { code: 'TIMED_OUT' });
        }
        assert.equal((await semaphore.inspect()).held, 1);
        const signal = AbortSignal.timeout(10);
        await assert.rejects(client.acquireAll([[other, { weight: 2 }]], { signal }), { name: 'TimeoutError' });
        await other.revoke(set.get('t')?.holder ?? '');
        await until(() => set.signal.aborted);
        assert.equal((await set.lost)?.loss, 'revoked');
        await assert.rejects(set.release(), LostError);
      }
      assert.ok((await isIdle(semaphore)) && (await isIdle(other)));
    });

    test('a permit is handed over and adopted', async () => {
      const permit = await semaphore.acquire();
      const { token } = permit;
      const handle = await permit.handOver();
      assert.equal(permit.status, 'released');
      assert.equal(await client.renew(handle), true);
      const adopted = await client.adopt(handle);
      assert.deepEqual([adopted.semaphore, adopted.isHeld, adopted.token >= token], ['s', true, true]);
      const again = await adopted.handOver();
      assert.equal(await client.release(again), true);
      assert.equal(await client.release(again), false);
      await assert.rejects(client.adopt(again), { code: 'GONE' });
      await assert.rejects(client.adopt('no handle'), { code: 'INVALID_INPUT' });
    });

    test('a pause with an end, a corrected cost, the newest request, and the longest hold', async () => {
      await semaphore.declare();
      await semaphore.pause(3_600_000, '429');
      assert.equal(await semaphore.tryAcquire(), null);
      const paused = await semaphore.inspect();
      assert.equal(paused.pauseReason, '429');
      assert.ok((paused.pauseRemainingMs ?? 0) > 3_000_000);
      await semaphore.resume();
      const held = await semaphore.acquire({ weight: 2 });
      const build = { supersede: 'main' };
      const first = semaphore.acquire(build);
      await waiters(semaphore, 1);
      const second = semaphore.acquire({ ...build, atLeast: 300, maxHold: 500 });
      await assert.rejects(first, { code: 'SUPERSEDED', details: { key: 'main' } });
      await held.release();
      const granted = await second;
      assert.equal((await semaphore.inspect()).waits.numbers.reduce((sum, number) => sum + number), 1);
      granted.count(2);
      assert.throws(() => held.count(-1), { code: 'INVALID_INPUT' });
      await granted.lost;
      assert.equal(granted.isHeld, false);
    });

    test('operators change limits, pause, close and delete', async () => {
      assert.equal(await semaphore.declare(), 2);
      const version = await semaphore.setLimit(3);
      await assert.rejects(semaphore.setLimit(4, { ifVersion: version - 1 }), { code: 'VERSION_MISMATCH' });
      assert.ok((await semaphore.setLimit(4, { ifVersion: version })) > version);
      assert.equal(await semaphore.adjustLimit(+1), 5);
      await semaphore.unpin();
      await semaphore.pause();
      assert.equal(await semaphore.tryAcquire(), null);
      await semaphore.resume();
      await semaphore.closeLine('down until Monday');
      await assert.rejects(semaphore.acquire(), { code: 'LINE_CLOSED', details: { reason: 'down until Monday', standsStill: true } });
      await semaphore.setAlert({ wait: 30_000, waiting: 100 });
      assert.deepEqual((await semaphore.inspect()).alert, { waitMs: 30_000, waiting: 100 });
      await semaphore.setAlert();
      await semaphore.setLane('tenant-7', { limit: 3, floor: 1 });
      assert.deepEqual((await semaphore.inspect()).lanes, [{ lane: 'tenant-7', waiting: 0, held: 0, limit: 3, floor: 1, pinned: true }]);
      await assert.rejects(semaphore.setLane('tenant-8', { floor: 6 }), { code: 'INVALID_INPUT' });
      await semaphore.unpinLane('tenant-7');
      assert.deepEqual((await semaphore.inspect()).lanes, []);
      await semaphore.openLine();
      const { changes, ...state } = await semaphore.inspect({ max: 10 });
      assert.deepEqual([state.paused, state.closed, state.pinned, state.refused > 0], [false, null, false, true]);
      assert.equal(changes[0]?.change, 'line_opened');
      assert.ok(Math.abs((changes[0]?.atMs ?? 0) - Date.now()) < 1000 * LIMIT);
      assert.deepEqual(await client.list(), ['s']);
      const permit = await semaphore.acquire();
      await assert.rejects(semaphore.delete(), { code: 'IN_USE', details: { semaphore: 's', held: 1, waiting: 0 } });
      await permit.release();
      assert.equal(await semaphore.delete(), true);
      assert.equal(await semaphore.delete(), false);
    });

    test('a timeout says why', async () => {
      // A store may be too slow to say why on a busy machine: ask again.
      const told = async (tries = 30): Promise<NotNowError> => {
        const error = await semaphore.acquire({ timeout: 500 }).catch((error: unknown) => error);
        assert.ok(error instanceof NotNowError && error.code === 'TIMED_OUT');
        return error.details.inspection || tries === 0 ? error : told(tries - 1);
      };
      const permit = await semaphore.acquire({ weight: 2, holder: 'web-3', label: 'nightly' });
      const busy = await told();
      assert.match(busy.message, /^no permit within 500ms: 2 of 2 held by "nightly" \(web-3\) for \d+ s, 0 waiting$/);
      assert.equal(busy.details.inspection?.holders[0]?.label, 'nightly');
      assert.deepEqual([busy.details.retryAfterMs, busy.details.standsStill], [undefined, undefined]);
      await permit.release();
      await semaphore.pause(3_600_000, 'deploy');
      const { inspection, retryAfterMs = 0, standsStill } = (await told()).details;
      assert.deepEqual([inspection?.paused, inspection?.pauseReason, standsStill], [true, 'deploy', true]);
      assert.ok(retryAfterMs > 3_000_000 && retryAfterMs <= 3_600_000);
      await semaphore.resume();
    });

    test('units that cool are freed by an operator', async () => {
      const permit = await semaphore.acquire({ atLeast: 60_000 });
      await permit.release();
      const refused = await semaphore.acquire({ timeout: 0, weight: 2 }).catch((error: unknown) => error);
      assert.ok(refused instanceof NotNowError && refused.code === 'COOLING');
      const { retryAfterMs = 0 } = refused.details;
      assert.ok(retryAfterMs > 0 && retryAfterMs <= 60_001);
      assert.equal(await semaphore.tryAcquire({ weight: 2 }), null);
      const { cooling, holders: [holder] } = await semaphore.inspect();
      assert.ok(holder?.cooling && cooling === 1);
      assert.equal(await semaphore.revokeCooling(holder.holder, holder.token), true);
    });
  });
}
