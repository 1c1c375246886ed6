// `Semaphore`: acquisitions and administration.

import { inspect, type InspectOptions } from 'node:util';
import { argument, json, optional, options as checked, plain, request } from './arguments.js';
import { parsed } from './diagnosis.js';
import { NotNowError, translated } from './errors.js';
import type { Inspection } from './inspection.js';
import type * as Native from './native.js';
import { Permit } from './permit.js';
import { shown } from './shown.js';
import { result } from './waiting.js';

/** Options of an acquisition. Times are milliseconds. One that is absent has its default. */
export interface AcquireOptions {
  /** The number of units; 1 unless set. */
  weight?: number | undefined;
  /** The longest wait; without end unless set. */
  timeout?: number | undefined;
  /** The name of this acquisition, which no two permits of a semaphore share; a unique one unless set. */
  holder?: string | undefined;
  /** A note for operators, shown beside the holder; that of the client unless set. */
  label?: string | undefined;
  /** The lane: requests of one lane are granted in order, and lanes take turns. */
  lane?: string | undefined;
  /** The share of the lane: 1 to 1,000, 1 unless set. */
  share?: number | undefined;
  /** The lease; that of the client unless set. */
  lease?: number | undefined;
  /** The time for which the units count from the grant on, even if they are released before. */
  atLeast?: number | undefined;
  /** The longest time for which it is held; without limit unless set. */
  maxHold?: number | undefined;
  /** False if only `renew` renews the permit. */
  autoRenew?: boolean | undefined;
  /** The key by which it supersedes: of the requests that wait with it the newest stays. */
  supersede?: string | undefined;
  /** Ends the wait: the request leaves the line, and the promise is rejected with the reason of the signal. */
  signal?: AbortSignal | undefined;
}

/** The result of a change: the limit and its version after a change of the limit. */
interface Changed {
  found: boolean;
  limit: number;
  limitVersion: number;
}

/** A named line with a limit. */
export class Semaphore {
  readonly #native: Native.Semaphore;
  readonly #client: Native.Client;
  readonly #limit: number | undefined;
  /** The name. */
  readonly name: string;

  /** @internal */
  constructor(semaphore: Native.Semaphore, name: string, limit: number | undefined, client: Native.Client) {
    this.#native = semaphore;
    this.#client = client;
    this.#limit = limit;
    this.name = name;
  }

  /** @internal */
  get native(): Native.Semaphore {
    return this.#native;
  }

  /** Waits in line for a permit. */
  acquire(options: AcquireOptions = {}): Promise<Permit> {
    return this.#acquired(options, false);
  }

  /** A permit, or `null` if too few units are free now. Other errors are those of `acquire`. */
  async tryAcquire(options: Omit<AcquireOptions, 'timeout'> = {}): Promise<Permit | null> {
    try {
      return await this.#acquired(options, true);
    } catch (error) {
      if (error instanceof NotNowError && ['NO_PERMITS', 'COOLING', 'PAUSED'].includes(error.code)) {
        return null;
      }
      throw error;
    }
  }

  /**
   * Runs `work` with a permit, which is released at its end. Rejected with the error of `work`; otherwise as
   * `Permit.release`, so that a loss is noticed.
   */
  async run<T>(work: (permit: Permit) => T, options: AcquireOptions = {}): Promise<Awaited<T>> {
    argument('a function', { work });
    const permit = await this.acquire(options);
    let value;
    try {
      value = await work(permit);
    } catch (error) {
      await permit.release().catch(() => {});
      throw error;
    }
    await permit.release();
    return value;
  }

  async #acquired(options: AcquireOptions, now: boolean): Promise<Permit> {
    const { signal, ...terms } = request(options);
    const call = translated(() => this.#native.acquire(json(terms), now));
    return new Permit(await result<Native.Permit>(call, { signal }), this.#client);
  }

  /** Stores the limit now, as the first acquisition does; the limit that then applies. */
  declare(): Promise<number> {
    return this.#call(() => this.#native.call('declare'));
  }

  /** Sets the limit and pins it: programs that declare another do not change it. With a version, only if the limit still
   * has this version. The new version. */
  async setLimit(limit: number, options: { ifVersion?: number } = {}): Promise<number> {
    const { ifVersion } = checked({ ifVersion: 'a number' }, options);
    const changed = await this.#change('set_limit', { limit: argument('a number', { limit }), if_version: ifVersion });
    return changed.limitVersion;
  }

  /** Adds to the limit, and pins it; the new limit. */
  async adjustLimit(number: number): Promise<number> {
    return (await this.#change('adjust_limit', { by: argument('a number', { number }) })).limit;
  }

  /** Lets programs declare the limit again; the new version. */
  async unpin(): Promise<number> {
    return (await this.#change('unpin')).limitVersion;
  }

  /** Stops granting, for `ms` or until `resume`. Permits that are held stay held. Of two pauses the one that ends later counts. */
  async pause(ms?: number | null, reason = ''): Promise<void> {
    await this.#change('pause', { time_ms: optional('a number', { ms }), reason: argument('a string', { reason }) });
  }

  /** Grants again. */
  async resume(): Promise<void> {
    await this.#change('resume');
  }

  /** Refuses new requests, and those that wait. */
  async closeLine(reason = ''): Promise<void> {
    await this.#change('close_line', { reason: argument('a string', { reason }) });
  }

  /** Opens the line again. */
  async openLine(): Promise<void> {
    await this.#change('open_line');
  }

  /** Sets the wait, in milliseconds, and the number of waiters beyond which the semaphore needs a look; without either, none. */
  async setAlert(options: { waitMs?: number; waiting?: number } = {}): Promise<void> {
    const { waitMs, waiting } = checked({ waitMs: 'a number', waiting: 'a number' }, options);
    await this.#change('set_alert', { wait_ms: waitMs, waiting });
  }

  /** Removes a holder or waiter. False if there is none of this name. */
  async revoke(holder: string, reason = ''): Promise<boolean> {
    const fields = { holder: argument('a string', { holder }), reason: argument('a string', { reason }) };
    return (await this.#change('revoke', fields)).found;
  }

  /** Frees the units of a permit that was released and still counts, by its holder and token. */
  async revokeCooling(holder: string, token: number): Promise<boolean> {
    const fields = { holder: argument('a string', { holder }), token: argument('a number', { token }) };
    return (await this.#change('revoke', fields)).found;
  }

  /** Deletes it from the store. False if the store has none; `IN_USE` if a permit is held or a request waits. */
  async delete(): Promise<boolean> {
    return (await this.#change('delete')).found;
  }

  /** Deletes it even though its data cannot be read. */
  async deleteUnreadable(): Promise<boolean> {
    return (await this.#change('delete', { unreadable: true })).found;
  }

  /** The state, with at most `max` holders and waiters each. */
  async inspect(options: { max?: number } = {}): Promise<Inspection> {
    const { max = 1000 } = checked({ max: 'a number' }, options);
    return parsed<Inspection>(await this.#call(() => this.#native.call('inspect', String(max))));
  }

  /** The units that are free now. */
  available(): Promise<number> {
    return this.#call(() => this.#native.call('available'));
  }

  /** @internal The text that `console.log` shows. */
  [inspect.custom](depth: number, options: InspectOptions): string {
    return shown('Semaphore', { name: this.name, limit: this.#limit }, depth, options);
  }

  async #change(change: string, fields: object = {}): Promise<Changed> {
    const given = JSON.stringify({ change, ...fields }, plain);
    return parsed<Changed>(await this.#call(() => this.#native.call('change', given)));
  }

  async #call<T>(call: () => Native.Call): Promise<T> {
    return result<T>(translated(call));
  }
}
