// `connect` and `Client`: what concerns several semaphores.

import { basename } from 'node:path';
import { inspect, type InspectOptions } from 'node:util';
import { argument, invalid, json, number, request } from './arguments.js';
import { asked, type Credentials } from './credentials.js';
import { type Diagnosis, parsed } from './diagnosis.js';
import { translated } from './errors.js';
import { report } from './events.js';
import { native } from './library.js';
import type * as Native from './native.js';
import { Permit, PermitSet } from './permit.js';
import { type AcquireOptions, Semaphore } from './semaphore.js';
import { shown } from './shown.js';
import { observed } from './telemetry.js';
import { result } from './waiting.js';

/** Settings of a client. Times are in milliseconds. A setting that is absent has its default. */
export interface ConnectOptions {
  /**
   * The first part of every key: 1 to 64 printable ASCII characters without braces and spaces. `permits` unless set.
   * Sessions with different prefixes don't see each other's semaphores.
   */
  prefix?: string | undefined;
  /**
   * The label of acquisitions that have no label of their own, and the author of this client's changes: at most 120
   * bytes of printable UTF-8. The file name of the program unless set, and as the author its host name and process id.
   * An empty label means no label.
   */
  label?: string | undefined;
  /**
   * The time for which a permit is valid without renewal: 100 ms to 1 day, 15 s unless set. It is also the time until
   * the units of a crashed holder are free, and until a disconnected holder loses its permit.
   */
  lease?: number | undefined;
  /**
   * The time for which the client keeps a released permit for its next request while nobody else waits, so that this
   * request needs no round trip: at most a third of the lease. 0 unless set, which keeps no permit. A semaphore can say
   * otherwise.
   */
  keep?: number | undefined;
  /**
   * How long a server grants nothing after a start, since it may have forgotten holders: not at all with `off`, long
   * enough for connected holders to reconnect with `interval`, for the longest lease with `strict`. As the URL says
   * (`?recovery=…`) unless set, else `interval`.
   */
  recovery?: 'off' | 'interval' | 'strict' | undefined;
  /**
   * The longest line of a semaphore, beyond which more requests are refused: 100,000 unless set. With `local:` it is
   * 10,000, and connecting fails if you ask for more.
   */
  maxWaiters?: number | undefined;
  /** The number of replicas of the server that must have a grant before it is reported: 0 unless set. */
  replicas?: number | undefined;
  /**
   * The time for which the store may be unreachable before operations that need it fail: 30 s unless set. Permits that
   * are held are not affected: they last until their deadlines.
   */
  storeTimeout?: number | undefined;
  /**
   * A function that returns the password of the server, such as a token, or {@link Credentials}, or a promise of it. It is
   * called for each new connection, and before its credentials end, for the connections that are open. It has 10 seconds.
   */
  credentials?: (() => string | Credentials | Promise<string | Credentials>) | undefined;
}

/** Options of a semaphore. */
export interface SemaphoreOptions {
  /** True to accept no other limit than this one. */
  exactly?: boolean | undefined;
  /** How long permits are kept after their release, in milliseconds. Unless set, as long as the client keeps them. */
  keep?: number | undefined;
}

/** The clients that are open. They are closed with the process, or with the worker thread. */
interface Clients {
  open: Set<WeakRef<Native.Client>>;
  dropped: FinalizationRegistry<WeakRef<Native.Client>>;
}

// All copies of this module in a thread share it: a development server that loads the package again and again
// would otherwise add a listener of `exit` each time.
const CLIENTS = Symbol.for('permits.clients');
const { open, dropped } = ((process as { [CLIENTS]?: Clients })[CLIENTS] ??= clients());

function clients(): Clients {
  const open: Clients['open'] = new Set();
  process.on('exit', () => closeAll(open));
  return { open, dropped: new FinalizationRegistry((client) => open.delete(client)) };
}

function closeAll(open: Clients['open']): void {
  const clients = [...open].map((client) => client.deref());
  const calls = clients.filter((client) => client !== undefined).map((client) => client.call('close'));
  calls.forEach((call) => call.start());
  calls.forEach((call) => call.block());
}

/**
 * Connects to the store at `url`: `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://`, `redis+cluster://`,
 * `local:` or `memory:`.
 */
export async function connect(url: string, options: ConnectOptions = {}): Promise<Client> {
  argument('a string', { url });
  report();
  return new Client(await result<Native.Client>(translated(() => native.connect(url, settings(options), program(), asked(options?.credentials)))));
}

/** The settings as JSON, which the native half checks. */
function settings(options: ConnectOptions): string {
  if (options?.credentials === undefined) {
    return json(options) ?? '{}';
  }
  const { credentials: _, ...others } = options;
  return json(others) ?? '{}';
}

/** The name of the program: the file of its script. */
function program(): string {
  return basename(process.argv[1] ?? process.execPath);
}

/** Finds the problems of a store, with advice: what `permits doctor` prints. */
export async function diagnose(url: string, options: ConnectOptions = {}): Promise<Diagnosis> {
  argument('a string', { url });
  return parsed<Diagnosis>(await result<string>(translated(() => native.diagnose(url, settings(options), asked(options?.credentials)))));
}

/** A session with a store: one connection, for all semaphores of a program. */
export class Client implements AsyncDisposable {
  readonly #native: Native.Client;
  readonly #reference: WeakRef<Native.Client>;

  /** @internal */
  constructor(client: Native.Client) {
    this.#native = client;
    this.#reference = new WeakRef(client);
    open.add(this.#reference);
    dropped.register(client, this.#reference);
  }

  /** The semaphore of this name, with this limit. If you give no limit, the stored limit applies. */
  semaphore(name: string, limit?: number, options: SemaphoreOptions = {}): Semaphore {
    argument('a string', { name });
    const semaphore = translated(() => this.#native.semaphore(name, number({ limit }), json(options) ?? '{}'));
    return new Semaphore(semaphore, name, limit, this.#native);
  }

  /**
   * Acquires permits of several semaphores, all or none, in an order that all programs share. The options of a semaphore
   * precede the options for all, and the shortest timeout limits the whole wait.
   */
  async acquireAll(
    requests: Iterable<Semaphore | readonly [Semaphore, Omit<AcquireOptions, 'signal'>]>,
    options: AcquireOptions = {},
  ): Promise<PermitSet> {
    const { signal, ...common } = request(options);
    const pairs = [...argument('an iterable', { requests })].map(pair);
    const semaphores = pairs.map(([semaphore]) => semaphore.native);
    const terms = pairs.map(([, own]) => json(own));
    const call = translated(() => this.#native.acquireAll(semaphores, terms, json(common)));
    const timeouts = [common, ...pairs.map(([, own]) => own)].map(({ timeout }) => timeout ?? Infinity);
    const asked = {
      semaphores: pairs.map(([semaphore]) => semaphore.name),
      weight: pairs.reduce((sum, [, { weight }]) => sum + (weight ?? 1), 0),
      timeout: Math.min(...timeouts),
    };
    const permits = await observed(asked, () => result<Native.Permit[]>(call, { signal }));
    return new PermitSet(permits.map((permit) => new Permit(permit, this.#native)));
  }

  /** The names of the semaphores in the store. */
  async list(): Promise<string[]> {
    return JSON.parse(await this.#call<string>(() => this.#native.call('list')));
  }

  /** Takes over the permit of a handle that `Permit.handOver` has made. */
  async adopt(handle: string): Promise<Permit> {
    argument('a string', { handle });
    return new Permit(await this.#call<Native.Permit>(() => this.#native.call('adopt', handle)), this.#native);
  }

  /** Renews the permit of a handle, which stays valid. False if the store does not have the permit. */
  renew(handle: string): Promise<boolean> {
    return this.#call(() => this.#native.call('renew', argument('a string', { handle })));
  }

  /** Releases the permit of a handle. False if the store does not have the permit. */
  release(handle: string): Promise<boolean> {
    return this.#call(() => this.#native.call('release', argument('a string', { handle })));
  }

  /**
   * Releases all permits, ends all waits with `CLOSED`, and disconnects. Rejects with `NOT_RELEASED` if the store did
   * not confirm every release within 5 s.
   */
  async close(): Promise<void> {
    open.delete(this.#reference);
    await this.#call(() => this.#native.call('close'));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal The text that `console.log` shows. */
  [inspect.custom](depth: number, options: InspectOptions): string {
    return shown('Client', { store: this.#native.store }, depth, options);
  }

  async #call<T>(call: () => Native.Call): Promise<T> {
    return result<T>(translated(call));
  }
}

/** A request of `acquireAll`: a semaphore, and its own options. */
function pair(one: Semaphore | readonly [Semaphore, AcquireOptions]): readonly [Semaphore, AcquireOptions] {
  const [semaphore, own = {}] = Array.isArray(one) ? one : [one];
  // A test runner may load this module twice, with two classes `Semaphore`. The native half is loaded once.
  if (!(semaphore?.native instanceof native.Semaphore)) {
    throw invalid('a request', 'a semaphore, or one and its options', semaphore);
  }
  return [semaphore, own];
}
