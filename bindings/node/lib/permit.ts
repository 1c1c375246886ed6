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

/** A permit that is held, and its client: one that is open is closed at exit, which releases its permits. */
interface Owned {
  permit: Native.Permit;
  client: Native.Client;
}

const garbage = new FinalizationRegistry<Owned>(({ permit }) => {
  const { semaphore } = permit;
  permit.forget();
  process.emitWarning(`a permit of "${semaphore}" was garbage-collected before it was released`, 'PermitsWarning');
});

// Functions that refer to no permit, because what waits for a loss must not keep a permit from being garbage.

async function lossOf(call: Native.Call): Promise<LostError | undefined> {
  const json = await result<string | null>(call, { background: true });
  return json === null ? undefined : (fromJson(json) as LostError);
}

/** The first loss; or none, when all permits were released. */
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
 * as it arrives. Only a permit that is known to be lost throws its {@link LostError} then.
 */
export abstract class Held implements AsyncDisposable {
  #lost: Promise<LostError | undefined> | undefined;
  #signal: AbortSignal | undefined;

  /**
   * Resolved with the loss when it is lost, at its deadline at the latest; with `undefined` when it was released. Never
   * rejected. It does not keep the process alive.
   */
  get lost(): Promise<LostError | undefined> {
    return (this.#lost ??= this.watch());
  }

  /** Aborted when it is lost, with the {@link LostError} as its reason. */
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

  /** @internal Releases it without a wait for the store. */
  abstract forget(): void;

  /** @internal As `forget`, at the end of a block. Throws the {@link LostError} of one that is known to be lost. */
  abstract leave(): void;

  async [Symbol.asyncDispose](): Promise<void> {
    this.leave();
  }
}

/**
 * Some units of a semaphore, held for a lease that is renewed in the background.
 *
 * One that is garbage is released, with a warning of the process.
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

  /** The fencing token: greater than that of every earlier grant of this slot. Compare tokens for each slot apart. */
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

  /** The time for which it is certainly held without another renewal; 0 if it is not held. */
  get remainingMs(): number {
    return this.#native.remainingMs;
  }

  /**
   * `held`; `unsure`, if the last renewal failed, so that it will be lost at its deadline unless one succeeds; `lost`;
   * or `released`, also if it was handed over.
   */
  get status(): 'held' | 'unsure' | 'lost' | 'released' {
    return this.#native.status;
  }

  /** True if it is held now. A permit that is not held never is again. */
  get isHeld(): boolean {
    return this.status === 'held' || this.status === 'unsure';
  }

  /** @internal */
  protected override watch(): Promise<LostError | undefined> {
    return lossOf(this.#native.call('wait_lost'));
  }

  /** Renews it now. Needed only after `autoRenew(false)`, or to be sure of a full lease. */
  renew(): Promise<void> {
    return this.#changed(() => this.#native.call('renew'));
  }

  /** Releases some of its units. Its slot, its token and its lease stay. */
  releasePart(units: number): Promise<void> {
    return this.#changed(() => this.#native.call('release_part', number({ units })));
  }

  /**
   * Corrects the units that its grant counts for, once the work has shown what it cost: of a permit with `atLeast`. The last
   * correction counts, with the release: what it is less is free at once; if it is more, the line waits until it has cooled.
   */
  count(units: number): void {
    translated(() => this.#native.count(number({ units })));
  }

  /** Gives it another lease, 100 ms to 1 day, from now on, and renews it. */
  setLease(lease: number): Promise<void> {
    return this.#changed(() => this.#native.call('set_lease', number({ lease })));
  }

  /** Renews it in the background from now on, or leaves that to `renew`. */
  autoRenew(renew: boolean): void {
    translated(() => this.#native.autoRenew(argument('a boolean', { renew })));
  }

  /**
   * Releases it: the next in line is granted in the same moment. Without effect if it was released before.
   *
   * Rejected with a {@link LostError} if it was lost before, so that another holder may have used the resource
   * meanwhile, and with a `StoreError` if the store could not be reached until the end of the lease.
   */
  override release(): Promise<void> {
    garbage.unregister(this);
    return this.#changed(() => this.#native.call('release'));
  }

  /** @internal */
  override forget(): void {
    garbage.unregister(this);
    this.#native.forget();
  }

  /** @internal */
  override leave(): void {
    garbage.unregister(this);
    translated(() => this.#native.leave());
  }

  /**
   * Ends it here without a release, and returns a handle: a text from which another process makes the permit again,
   * by `Client.adopt`. A handle is a secret.
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

  /** Releases all of them. Rejected as `Permit.release`, with the error of the first one that has one. */
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
