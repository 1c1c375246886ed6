// Waiting for the calls of the native half: the event loop polls them when a waker has called the mailbox.
//
// If an `AbortSignal` ends a call, the call is dropped, which withdraws the request. The process stays alive
// while somebody waits for a call, unless the call runs in the background.

import { setMaxListeners } from 'node:events';
import * as timers from 'node:timers';
import { reasonOf } from './arguments.js';
import { translated } from './errors.js';
import { native } from './library.js';
import type * as Native from './native.js';

// Keep the timers as they are when the package is loaded: a test that replaces them later does not stop this
// package.
const { setImmediate, setInterval } = timers;

interface Pending {
  call: Native.Call;
  resolve: () => void;
  background: boolean;
  end: () => void;
}

const pending = new Map<number, Pending>();
const mailbox = new native.Mailbox(deliver);
let lastKey = 0;
let foreground = 0;

// Node exits when nothing refers to the event loop. This timer refers to it while somebody waits for a call.
const alive = setInterval(() => {}, 2 ** 31 - 1);
alive.unref();

/** Options of {@link result}. */
interface Waiting {
  /** Cancels the call. */
  signal?: AbortSignal | undefined;
  /** True if the process may end while the call waits. */
  background?: boolean;
}

/** Waits for the call. */
export async function result<T>(call: Native.Call, waiting: Waiting = {}): Promise<T> {
  await ended(call, waiting);
  // Take the result here and not where the event loop polls: so the stack of an error has the functions that
  // wait.
  return translated(() => call.take()) as T;
}

/** Waits until the call has ended. */
function ended(call: Native.Call, { signal, background = false }: Waiting): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      call.cancel();
      reject(reasonOf(signal));
      return;
    }
    const key = nextKey();
    const abort = (): void => {
      settled(key);
      call.cancel();
      reject(reasonOf(signal as AbortSignal));
    };
    const end = (): void => signal?.removeEventListener('abort', abort);
    if (signal) {
      allowListeners(signal);
      signal.addEventListener('abort', abort, { once: true });
    }
    pending.set(key, { call, resolve, background, end });
    if (!background && foreground++ === 0) {
      alive.ref();
    }
    poll(key);
  });
}

/** Lets many requests wait with one signal: otherwise Node would warn of a leak. */
export function allowListeners(signal: AbortSignal): void {
  try {
    setMaxListeners(0, signal);
  } catch {
    // The signal is not an EventTarget of Node, so Node does not count its listeners.
  }
}

function nextKey(): number {
  do {
    lastKey = (lastKey + 1) >>> 0;
  } while (pending.has(lastKey));
  return lastKey;
}

function deliver(): void {
  mailbox.take().forEach(poll);
}

function poll(key: number): void {
  const waiting = pending.get(key);
  const hasEnded = waiting?.call.poll(mailbox, key);
  if (waiting === undefined || hasEnded === false) {
    return;
  }
  if (hasEnded === true) {
    settled(key);
    waiting.resolve();
  } else {
    // The requests of other tasks that are ready travel with this one.
    setImmediate(poll, key);
  }
}

function settled(key: number): void {
  const waiting = pending.get(key);
  pending.delete(key);
  waiting?.end();
  if (waiting?.background === false && --foreground === 0) {
    alive.unref();
  }
}
