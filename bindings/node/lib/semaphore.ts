// `Semaphore`: acquisitions and administration.

import { inspect, type InspectOptions } from 'node:util';
import { argument, invalid, json, request } from './arguments.js';
import { parsed } from './diagnosis.js';
import { InvalidInputError, NotNowError, translated } from './errors.js';
import type { Inspection } from './inspection.js';
import type * as Native from './native.js';
import { Permit } from './permit.js';
import { shown } from './shown.js';
import { observed } from './telemetry.js';
import { result } from './waiting.js';

/** Options of an acquisition. Times are in milliseconds. An option that is absent has its default. */
export interface AcquireOptions {
  /** The number of units: at least 1, at most the limit. 1 unless set. */
  weight?: number | undefined;
  /**
   * The longest wait in line; without limit unless set. With 0 the request does not wait: it is granted now, or
   * refused.
   */
  timeout?: number | undefined;
  /**
   * The name of this acquisition: 1 to 200 bytes of printable UTF-8. A holder has at most one permit of a semaphore:
   * while it holds or waits, a second request with its name is refused. Unique unless set.
   */
  holder?: string | undefined;
  /**
   * A note for operators, shown beside the holder: at most 120 bytes of printable UTF-8. Many holders may have the same
   * label. The client's unless set; an empty label means no label.
   */
  label?: string | undefined;
  /**
   * A lane of the line, 1 to 120 bytes of printable UTF-8: a tenant, a user, a kind of work. Requests of one lane are
   * granted in the order in which they came. Lanes that wait get units in proportion to their shares, so a thousand
   * requests of one tenant do not stand before the first of another. Requests without a lane are one lane together.
   */
  lane?: string | undefined;
  /**
   * The share of the lane, 1 to 1,000; 1 unless set. While two lanes wait, one with the share 10 gets ten times the
   * units of one with the share 1. Use the same share for all requests of a lane.
   */
  share?: number | undefined;
  /**
   * The most units that the requests of the lane hold together, at least 1; without limit unless set. While a lane is
   * at its limit, its requests wait, and requests of other lanes pass them. Use the same limit for all requests of a
   * lane: the latest counts.
   */
  laneLimit?: number | undefined;
  /**
   * The units up to which the lane is served before others, at most the limits of the lane and of the semaphore. Unless
   * you set it, or with 0, the request names no floor. While the lane holds fewer, it gets the next units. Use the same
   * floor for all requests of a lane: the latest counts.
   */
  laneFloor?: number | undefined;
  /**
   * The most requests of the lane that wait, this one included, at least 1; without bound unless set. The next one is
   * refused, so one tenant cannot fill the line for all.
   */
  laneWaiters?: number | undefined;
  /**
   * The lease: how long a permit, or a place in line, stays valid if your process dies and nothing renews it. 100 ms to
   * 1 day; the client's unless set.
   */
  lease?: number | undefined;
  /**
   * The time for which the grant counts, up to 1 day; 0 unless set. If the permit is released or lost earlier, its
   * units *cool*: they stay taken until that time has passed since the grant. For example, a limit of 100 and one
   * minute admit at most 100 in any minute.
   */
  atLeast?: number | undefined;
  /**
   * The longest time for which the permit is held, at least 100 ms; without limit unless set. The permit is lost then,
   * even if it is renewed: for work that may hang.
   */
  maxHold?: number | undefined;
  /**
   * Whether the client renews the permit in the background: `true` unless set. If `false`, the permit ends with its
   * lease unless your program renews it. A request that waits is always renewed.
   */
  autoRenew?: boolean | undefined;
  /**
   * A key, such as a branch: 1 to 120 bytes of printable UTF-8. At most one request waits for each key: a new request
   * takes the place of the one that waits, which is refused. A permit with the key stays held. The request must wait:
   * use a timeout above 0, or no timeout.
   */
  supersede?: string | undefined;
  /** Ends the wait: the request leaves the line, and the promise rejects with the reason of the signal. */
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
    return this.#acquired(options);
  }

  /** Returns a permit, or `null` if too few units are free now or a pause stops all. Otherwise fails as `acquire`. */
  async tryAcquire(options: Omit<AcquireOptions, 'timeout'> = {}): Promise<Permit | null> {
    const { timeout } = request<AcquireOptions>(options);
    if (timeout !== undefined && timeout !== null) {
      throw new InvalidInputError('INVALID_INPUT', 'tryAcquire does not wait: it has no timeout', {});
    }
    try {
      return await this.#acquired({ ...options, timeout: 0 });
    } catch (error) {
      if (error instanceof NotNowError && ['NO_PERMITS', 'COOLING', 'PAUSED', 'LANE_FULL'].includes(error.code)) {
        return null;
      }
      throw error;
    }
  }

  /**
   * Runs `work` with a permit, and releases the permit when `work` ends. That does not wait for the store: the release
   * is sent, and the next in line is granted as soon as it arrives. Rejects with the error of `work`, or else with a
   * `LostError` if the permit is known to be lost. `Permit.release` waits, and tells what the store has replied.
   */
  async run<T>(work: (permit: Permit) => T, options: AcquireOptions = {}): Promise<Awaited<T>> {
    argument('a function', { work });
    const permit = await this.acquire(options);
    let value;
    try {
      value = await work(permit);
    } catch (error) {
      // The caller gets this error, even if the permit was lost.
      permit.forget();
      throw error;
    }
    permit.leave();
    return value;
  }

  async #acquired(options: AcquireOptions): Promise<Permit> {
    const { signal, ...terms } = request(options);
    const call = translated(() => this.#native.acquire(json(terms)));
    const { weight = 1, timeout } = terms;
    const permit = await observed({ semaphores: [this.name], weight, timeout }, () => result<Native.Permit>(call, { signal }));
    return new Permit(permit, this.#client);
  }

  /** Stores the limit now, as the first acquisition would. Returns the limit that then applies. */
  declare(): Promise<number> {
    return this.#call(() => this.#native.call('declare'));
  }

  /**
   * Sets the limit and pins it: from now on declarations of programs are ignored, until `unpin`. Returns the limit's
   * new version.
   *
   * If you give a version, the limit is set only if it is still at that version.
   */
  async setLimit(limit: number, options: { ifVersion?: number | undefined } = {}): Promise<number> {
    return (await this.#change('set_limit', { limit }, options)).limitVersion;
  }

  /**
   * Adds a number to the limit, and pins the sum as `setLimit` does. Returns the new limit. Calls of several sessions
   * add up.
   */
  async adjustLimit(number: number): Promise<number> {
    return (await this.#change('adjust_limit', { by: number })).limit;
  }

  /**
   * Lets programs declare the limit again. A program does so with its next request if its last one was granted or
   * queued during the pin, else when it starts again. The limit stays until then. Returns its new version.
   */
  async unpin(): Promise<number> {
    return (await this.#change('unpin')).limitVersion;
  }

  /**
   * Stops granting, for a reason of at most 1,000 bytes, which may be empty. Holders keep what they hold; waiters wait.
   * It stays so until `resume`.
   *
   * If you give a time, in milliseconds, the pause ends by itself. If pauses overlap, the one that ends last counts.
   */
  async pause(time?: number | null, reason = ''): Promise<void> {
    await this.#change('pause', { time, reason });
  }

  /** Grants again, beginning with the head of the line. */
  async resume(): Promise<void> {
    await this.#change('resume');
  }

  /**
   * Closes the line: waiters are refused with the reason (at most 1,000 bytes), and so are new requests, until
   * `openLine`. Holders keep what they hold, renew and release.
   */
  async closeLine(reason = ''): Promise<void> {
    await this.#change('close_line', { reason });
  }

  /** Opens a closed line. */
  async openLine(): Promise<void> {
    await this.#change('open_line');
  }

  /**
   * Sets the thresholds beyond which the semaphore needs a look. They replace the earlier ones, so a threshold that you
   * do not give is removed. The store keeps them as it keeps a pin. `permits serve`, its page and its alerts use them
   * in place of their own. They change no grant.
   */
  async setAlert(options: { wait?: number | undefined; waiting?: number | undefined } = {}): Promise<void> {
    await this.#change('set_alert', {}, options);
  }

  /**
   * Sets the limit and the floor of a lane, and pins them: the store then ignores the bounds that requests name, until
   * `unpinLane`. They replace the earlier bounds: a bound that you do not give is removed. All that the lane holds
   * counts for them. The store keeps them as it keeps a pinned limit.
   */
  async setLane(
    lane: string,
    bounds: { limit?: number | undefined; floor?: number | undefined },
  ): Promise<void> {
    await this.#change('set_lane', { lane }, bounds);
  }

  /**
   * Lets requests name the limit and the floor of a lane again. The lane keeps its bounds until one of its requests
   * names others, or until nobody holds or waits in it.
   */
  async unpinLane(lane: string): Promise<void> {
    await this.#change('unpin_lane', { lane });
  }

  /**
   * Revokes a holder's permit, or a waiter's request, and sends it the reason (at most 1,000 bytes). Returns whether
   * the semaphore had either.
   */
  async revoke(holder: string, reason = ''): Promise<boolean> {
    return (await this.#change('revoke', { holder, reason })).found;
  }

  /**
   * Frees a grant that cools: see `atLeast`. `token` is the token of the grant, which `inspect` shows. Returns whether
   * the grant cooled.
   */
  async revokeCooling(holder: string, token: number): Promise<boolean> {
    if (token === undefined || token === null) {
      // Without a token the permit of the holder would be revoked.
      throw invalid('token', 'the token of a grant', token);
    }
    return (await this.#change('revoke', { holder, token })).found;
  }

  /**
   * Forgets the semaphore at once, with all that the store knows of it: the limit, an operator's pins, a pause, a
   * closed line, and an alert. Refused while units are held or cool, or requests wait. Returns whether there was one.
   */
  async delete(): Promise<boolean> {
    return (await this.#change('delete')).found;
  }

  /**
   * Deletes the semaphore even if its data cannot be read, and then even if it is in use: more than the limit may be
   * held until the leases have ended. One that can be read is deleted as by `delete`.
   */
  async deleteUnreadable(): Promise<boolean> {
    return (await this.#change('delete', { unreadable: true })).found;
  }

  /** The state, with at most `max` holders, waiters and changes each. With 0 there are no lanes. */
  async inspect(options: { max?: number | undefined } = {}): Promise<Inspection> {
    return parsed<Inspection>(await this.#call(() => this.#native.call('inspect', json(options) ?? '{}')));
  }

  /**
   * The units that are not held: the limit less the held units, at least 0. A request for as many may still wait:
   * behind others, or because the semaphore is paused or the store recovers. If the store has no limit, because the
   * semaphore is not used, the limit is what this program declares.
   */
  available(): Promise<number> {
    return this.#call(() => this.#native.call('available'));
  }

  /** @internal The text that `console.log` shows. */
  [inspect.custom](depth: number, options: InspectOptions): string {
    return shown('Semaphore', { name: this.name, limit: this.#limit }, depth, options);
  }

  async #change(change: string, fields: object = {}, options: object = {}): Promise<Changed> {
    const given = { ...argument('a plain object', { options }), ...fields, change };
    return parsed<Changed>(await this.#call(() => this.#native.call('change', json(given))));
  }

  async #call<T>(call: () => Native.Call): Promise<T> {
    return result<T>(translated(call));
  }
}
