// Made by napi-rs from src/: `npm run build` writes it.

/** An operation in progress. It begins with the first poll. */
export declare class Call {
  /**
   * Polls it for the event loop of `mailbox`, which notes `key` when it is to be polled again. Returns
   * true if it has ended, false if it waits, and null if it is to be polled as soon as the tasks that
   * are ready have run.
   */
  poll(mailbox: Mailbox, key: number): boolean | null
  /** Begins it, without a wait. */
  start(): void
  /** Blocks the event loop until it has ended. */
  block(): void
  /** Takes the result, or throws the error. */
  take(): unknown
  /** Cancels it. Without effect once it has ended. */
  cancel(): void
}

/** A session with a store. */
export declare class Client {
  /** The address of the store, without a password. */
  readonly store: string
  /**
   * The semaphore of this name. Without a limit: the stored one. With `exactly`, no other limit is
   * accepted. Without `keep`, it keeps permits as the client does.
   */
  semaphore(name: string, limit: number | undefined | null, exactly: boolean, keep?: number | undefined | null): Semaphore
  /** Permits of several semaphores, all or none, each with the options at its index. */
  acquireAll(semaphores: Array<Semaphore>, options: Array<string | undefined | null>): Call
  /** The names of all semaphores. */
  list(): Call
  /** Takes over the permit of a handle. */
  adopt(handle: string): Call
  /** Renews the permit of a handle, which stays valid. */
  renew(handle: string): Call
  /** Releases the permit of a handle. */
  release(handle: string): Call
  /** Releases everything and ends the session. */
  close(): Call
}

/** The calls of one event loop that have to be polled. */
export declare class Mailbox {
  /** A mailbox whose event loop calls `deliver` when calls have to be polled. */
  constructor(deliver: () => void)
  /** Takes the keys of the calls that have to be polled. */
  take(): Array<number>
}

/** Some units of a semaphore, held for a lease. */
export declare class Permit {
  readonly semaphore: string
  readonly holder: string
  readonly token: number
  readonly slot: number
  get weight(): number
  get leaseMs(): number
  get remainingMs(): number
  get status(): 'held' | 'unsure' | 'lost' | 'released'
  /** Waits until it is lost: the loss as JSON; or released: null, unless the release found a loss. */
  waitLost(): Call
  renew(): Call
  releasePart(units: number): Call
  count(units: number): void
  setLease(ms: number): Call
  autoRenew(renew: boolean): void
  /** Releases it. Without effect if it was released before. */
  release(): Call
  /** Releases it without a wait for the confirmation. */
  forget(): void
  /** Makes a handle of it, for another process. */
  handOver(): Call
}

/** A named line with a limit. */
export declare class Semaphore {
  /** Acquires a permit. With `now`, it does not wait. The options are JSON. */
  acquire(options: string | undefined | null, now: boolean): Call
  declare(): Call
  setLimit(limit: number, version?: number | undefined | null): Call
  adjustLimit(number: number): Call
  unpin(): Call
  pause(ms: number | undefined | null, reason: string): Call
  resume(): Call
  closeLine(reason: string): Call
  openLine(): Call
  revoke(holder: string, reason: string): Call
  revokeCooling(holder: string, token: number): Call
  delete(unreadable: boolean): Call
  /** The state, as JSON. */
  inspect(max: number): Call
  available(): Call
}

/** Refuses the name of an option that is none of those that are known. */
export declare function checkField(name: string, known: Array<string>): void

/** Connects to a store. `program` is the name of the program that the interpreter runs. */
export declare function connect(url: string, settings: Settings, program: string): Call

/** Diagnoses a store. */
export declare function diagnose(url: string, settings: Settings): Call

/** Settings of a client. One that is absent has the default of the library. */
export interface Settings {
  /** The first part of every key; `permits` unless set. */
  prefix?: string
  /**
   * The label of acquisitions that have none of their own, and the author of this client's changes. Unless
   * set, the label is the name of the program, and the author its host name and process id. An empty label
   * is none.
   */
  label?: string
  /**
   * The time for which a permit is valid without renewal, in milliseconds: 100 ms to 1 day, 15,000 unless
   * set.
   */
  lease?: number
  /** The time for which semaphores keep permits that were released, in milliseconds; 0 unless set. */
  keep?: number
  /**
   * The way in which the store recovers after a restart that may have lost state; `"interval"` unless the
   * URL says.
   */
  recovery?: 'off' | 'interval' | 'strict'
  /** The longest line of a semaphore; 100,000 unless set, and 10,000 at most with `local:`. */
  maxWaiters?: number
  /** The number of replicas that must have a grant before it is reported; 0 unless set. */
  replicas?: number
  /**
   * The time for which the store may be unreachable before operations fail, in milliseconds; 30,000 unless
   * set.
   */
  storeTimeout?: number
}

/** The version of the library. */
export declare const VERSION: string
