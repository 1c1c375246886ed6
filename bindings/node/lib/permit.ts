// `Permit` and `PermitSet`: units that are held.

import { inspect, type InspectOptions } from 'node:util';
import { argument, number } from './arguments.js';
import { fromJson, type LostError, translated } from './errors.js';
import type * as Native from './native.js';
import { shown } from './shown.js';
import { allowListeners, result } from './waiting.js';

if (Symbol.asyncDispose === undefined) {
  Object.defineProperty(Symbol, 'asyncDispose', { value: Symbol('Symbol.asyncDispose') });
}

/** A permit that is held, and its client: an open client is closed at exit, which releases its permits. */
interface Owned {
  permit: Native.Permit;
  client: Native.Client;
}

const garbage = new FinalizationRegistry<Owned>(({ permit }) => {
  const { semaphore, status } = permit;
  permit.forget();
  // The permit has ended with its block or its client, or it is lost, which `lost` and `signal` report.
  if (status !== 'held' && status !== 'unsure') {
    return;
  }
  process.emitWarning(`a permit of "${semaphore}" was garbage-collected before it was released`, 'PermitsWarning');
});

// The functions below refer to no permit: a wait for a loss must not keep a permit from becoming garbage.

async function lossOf(call: Native.Call): Promise<LostError | undefined> {
  const json = await result<string | null>(call, { background: true });
  return json === null ? undefined : (fromJson(json) as LostError);
}

/** The first loss, or `undefined` when all permits were released. */
function firstOf(losses: readonly Promise<LostError | undefined>[]): Promise<LostError | undefined> {
  return new Promise((resolve) => {
    const watched = losses.map((loss) => loss.then((lost) => lost && resolve(lost)));
    void Promise.all(watched).then(() => resolve(undefined));
  });
}

/**
 * The properties that {@link Permit} and {@link PermitSet} have in common.
 *
 * `await using` releases it, and does not wait for the store: the release is sent, and the next in line is granted as soon
 * as it arrives. The end of the block throws a {@link LostError} only if the permit is already known to be lost.
 */
export abstract class Held implements AsyncDisposable {
  #lost: Promise<LostError | undefined> | undefined;
  #signal: AbortSignal | undefined;

  /**
   * Resolves with the loss when the permit is lost, at its deadline at the latest, or with `undefined` when it was
   * released. Never rejects. It does not keep the process alive.
   */
  get lost(): Promise<LostError | undefined> {
    return (this.#lost ??= this.watch());
  }

  /** A signal that is aborted when the permit is lost, with the {@link LostError} as its reason. */
  get signal(): AbortSignal {
    if (this.#signal === undefined) {
      const controller = new AbortController();
      this.#signal = controller.signal;
      allowListeners(controller.signal);
      void this.lost.then((lost) => lost && controller.abort(lost));
    }
    return this.#signal;
  }

  /** @internal */
  protected abstract watch(): Promise<LostError | undefined>;

  /** Releases it. */
  abstract release(): Promise<void>;

  /** @internal Releases it without waiting for the store. */
  abstract forget(): void;

  /** @internal Ends a block: as `forget`, but throws the {@link LostError} of a permit that is known to be lost. */
  abstract leave(): void;

  async [Symbol.asyncDispose](): Promise<void> {
    this.leave();
  }
}

/**
 * Some units of a semaphore, held for a lease that is renewed in the background.
 *
 * If you let it become garbage, it is released, with a warning of the process.
 */
export class Permit extends Held {
  readonly #native: Native.Permit;

  /** @internal */
  constructor(permit: Native.Permit, client: Native.Client) {
    super();
    this.#native = permit;
    garbage.register(this, { permit, client }, this);
  }

  /** The name of the semaphore. */
  get semaphore(): string {
    return this.#native.semaphore;
  }

  /** The holder. */
  get holder(): string {
    return this.#native.holder;
  }

  /** The fencing token: greater than the token of every earlier grant of this slot. Compare tokens only within a slot. */
  get token(): number {
    return this.#native.token;
  }

  /** The slot: a number from 0, below the limit, that no other live permit has. */
  get slot(): number {
    return this.#native.slot;
  }

  /** The number of units. */
  get weight(): number {
    return this.#native.weight;
  }

  /** The lease. */
  get leaseMs(): number {
    return this.#native.leaseMs;
  }

  /** How long the permit is certainly held without another renewal; 0 if it is not held. */
  get remainingMs(): number {
    return this.#native.remainingMs;
  }

  /**
   * `held`; `unsure` if the last renewal failed, so that the permit will be lost at its deadline unless one succeeds; `lost`;
   * or `released`, even if it was handed over.
   */
  get status(): 'held' | 'unsure' | 'lost' | 'released' {
    return this.#native.status;
  }

  /** True if the permit is held now. A permit that is no longer held never is again. */
  get isHeld(): boolean {
    return this.status === 'held' || this.status === 'unsure';
  }

  /** @internal */
  protected override watch(): Promise<LostError | undefined> {
    return lossOf(this.#native.call('wait_lost'));
  }

  /** Renews the permit now. You need this only after `autoRenew(false)`, or to be sure of a full lease. */
  renew(): Promise<void> {
    return this.#changed(() => this.#native.call('renew'));
  }

  /** Releases some units, but not all. The permit keeps its slot, its token and its lease. */
  releasePart(units: number): Promise<void> {
    return this.#changed(() => this.#native.call('release_part', number({ units })));
  }

  /**
   * Corrects the units that the grant of a permit with `atLeast` counts for, once the work has shown what it cost. The
   * store learns of the last correction with the release: if you count fewer units, the others are free at once; if
   * you count more, the line waits until they have cooled. It has no effect if the permit is revoked or handed over,
   * if its lease has ended, or if you release it later than `atLeast` after its grant. Without `atLeast` it throws
   * `INVALID_INPUT`.
   */
  count(units: number): void {
    translated(() => this.#native.count(number({ units })));
  }

  /** Gives the permit another lease, in milliseconds, 100 to 86,400,000, from now on, and renews it. */
  setLease(lease: number): Promise<void> {
    return this.#changed(() => this.#native.call('set_lease', number({ lease })));
  }

  /** Renews the permit in the background from now on, or leaves that to `renew`. */
  autoRenew(renew: boolean): void {
    translated(() => this.#native.autoRenew(argument('a boolean', { renew })));
  }

  /**
   * Releases the permit: the next in line is granted in the same moment. Has no effect if it was released before.
   *
   * Rejects with a {@link LostError} if the permit was lost before, so that another holder may have used the resource
   * meanwhile, and with a `StoreError` if the store could not be reached until the end of the lease.
   */
  override release(): Promise<void> {
    garbage.unregister(this);
    return this.#changed(() => this.#native.call('release'));
  }

  /** @internal */
  override forget(): void {
    this.#native.forget();
  }

  /** @internal */
  override leave(): void {
    translated(() => this.#native.leave());
  }

  /**
   * Ends the permit here without a release, and returns a handle: a text from which another process makes the permit
   * again, once and within one lease, by `Client.adopt`. Treat a handle as a secret. If this rejects, the permit has
   * been released, or is lost: stop the work.
   */
  async handOver(): Promise<string> {
    garbage.unregister(this);
    return result<string>(this.#native.call('hand_over'));
  }

  /** @internal The text that `console.log` shows. */
  [inspect.custom](depth: number, options: InspectOptions): string {
    const { semaphore, holder, token, slot, weight, isHeld } = this;
    return shown('Permit', { semaphore, holder, token, slot, weight, isHeld }, depth, options);
  }

  async #changed(call: () => Native.Call): Promise<void> {
    await result(translated(call));
  }
}

/** Permits of several semaphores, which are acquired and released together. */
export class PermitSet extends Held {
  /** The permits, in the order in which they were acquired. */
  readonly permits: readonly Permit[];

  /** @internal */
  constructor(permits: readonly Permit[]) {
    super();
    this.permits = permits;
  }

  /** The permit of the semaphore of this name. */
  get(semaphore: string): Permit | undefined {
    return this.permits.find((permit) => permit.semaphore === semaphore);
  }

  /** True if all of them are held now. */
  get isHeld(): boolean {
    return this.permits.every((permit) => permit.isHeld);
  }

  /** @internal */
  protected override watch(): Promise<LostError | undefined> {
    return firstOf(this.permits.map((permit) => permit.lost));
  }

  /** Releases all of them. Rejects as `Permit.release` does, with the first error of the permits. */
  override async release(): Promise<void> {
    const released = await Promise.allSettled(this.permits.map((permit) => permit.release()));
    for (const outcome of released) {
      if (outcome.status === 'rejected') {
        throw outcome.reason;
      }
    }
  }

  /** @internal */
  override forget(): void {
    for (const permit of this.permits) {
      permit.forget();
    }
  }

  /** @internal */
  override leave(): void {
    const losses: unknown[] = [];
    for (const permit of this.permits) {
      try {
        permit.leave();
      } catch (lost) {
        losses.push(lost);
      }
    }
    if (losses.length > 0) {
      throw losses[0];
    }
  }

  /** @internal The text that `console.log` shows. */
  [inspect.custom](depth: number, options: InspectOptions): string {
    const { permits, isHeld } = this;
    return shown('PermitSet', { permits, isHeld }, depth, options);
  }
}
