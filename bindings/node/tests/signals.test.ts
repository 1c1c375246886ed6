// Signals of every kind end a wait: Node's own, and signals that a DOM or a package brings along.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Client, connect } from 'permits';
import { LIMIT, waiters } from './support.js';

/** A signal as older DOMs and the package abort-controller have it: without `reason`, `throwIfAborted` and Node's EventTarget. */
class OldSignal {
  aborted = false;
  readonly listeners = new Set<() => void>();
  addEventListener(_type: string, listener: () => void): void {
    this.listeners.add(listener);
  }
  removeEventListener(_type: string, listener: () => void): void {
    this.listeners.delete(listener);
  }
  abort(): void {
    this.aborted = true;
    this.listeners.forEach((listener) => listener());
  }
}

async function withClient(work: (client: Client) => Promise<void>): Promise<void> {
  const client = await connect('memory:signals');
  await work(client).finally(() => client.close());
}

test('a signal of the realm ends a wait', { timeout: LIMIT }, () =>
  withClient(async (client) => {
    const semaphore = client.semaphore('own', 1);
    const controller = new AbortController();
    const { signal } = controller;
    const permit = await semaphore.acquire({ signal });
    const ended = Promise.allSettled(Array.from({ length: 12 }, () => semaphore.acquire({ signal })));
    await waiters(semaphore, 12);
    controller.abort();
    for (const end of await ended) {
      assert.equal(end.status === 'rejected' && end.reason.name, 'AbortError');
    }
    await assert.rejects(semaphore.acquire({ signal }), { name: 'AbortError' });
    await assert.rejects(client.acquireAll([semaphore], { signal }), { name: 'AbortError' });
    await permit.release();
  }),
);

test('a signal without a reason ends a wait', { timeout: LIMIT }, () =>
  withClient(async (client) => {
    const semaphore = client.semaphore('old', 1);
    const old = new OldSignal();
    const signal = old as unknown as AbortSignal;
    const permit = await semaphore.acquire({ signal });
    assert.equal(old.listeners.size, 0);
    const refused = assert.rejects(semaphore.acquire({ signal }), { name: 'AbortError' });
    await waiters(semaphore, 1);
    old.abort();
    await refused;
    assert.equal(old.listeners.size, 0);
    await waiters(semaphore, 0);
    await assert.rejects(semaphore.acquire({ signal }), { name: 'AbortError' });
    await permit.release();
  }),
);

test('the signal of a permit may have many listeners', { timeout: LIMIT }, () =>
  withClient(async (client) => {
    const warnings: Error[] = [];
    const note = (warning: Error): number => warnings.push(warning);
    process.on('warning', note);
    const permit = await client.semaphore('many', 1).acquire();
    for (let listener = 0; listener < 20; listener++) {
      permit.signal.addEventListener('abort', () => {});
    }
    // A warning comes in a later turn.
    await new Promise((resolve) => setTimeout(resolve));
    process.off('warning', note);
    assert.deepEqual(warnings.map(String), []);
    await permit.release();
  }),
);
