// Made by napi-rs from src/: `npm run build` writes it.

/** The questions of one client for credentials. */
export declare class Asked {
  constructor()
  /** Waits for a question, and returns true. Returns false when the client is gone. */
  next(): Call
  /** Answers all questions, with JSON. */
  answer(answer: string): void
}

/** An operation in progress. It begins with the first poll. */
export declare class Call {
  /**
   * Polls the operation for the event loop of `mailbox`, which notes `key` when it has to be polled again.
   * Returns true if it has ended, and false if it waits. Null means: poll it again as soon as the tasks
   * that are ready have run.
   */
  poll(mailbox: Mailbox, key: number): boolean | null
  /** Begins the operation, without waiting for it. */
  start(): void
  /** Blocks the event loop until it has ended. */
  block(): void
  /** Takes the result, or throws the error. */
  take(): unknown
  /** Cancels the operation. Has no effect once it has ended. */
  cancel(): void
}

/** A session with a store. */
export declare class Client {
  /** The address of the store, without a password. */
  readonly store: string
  /** The semaphore of this name, with a limit and options as JSON. */
  semaphore(name: string, limit: string, options: string): Semaphore
  /**
   * Acquires permits of several semaphores, all or none. Each has the options at its index, and the
   * options for all. All options are JSON.
   */
  acquireAll(semaphores: Array<Semaphore>, options: Array<string | undefined | null>, common?: string | undefined | null): Call
  /** Runs an operation of the session, or on the permit of a handle. */
  call(operation: 'list' | 'close' | 'adopt' | 'renew' | 'release', handle?: string): Call
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
  get semaphore(): string
  get holder(): string
  get token(): number
  get slot(): number
  get weight(): number
  get leaseMs(): number
  get remainingMs(): number
  get status(): 'held' | 'unsure' | 'lost' | 'released'
  /** Runs an operation. Its number of units or milliseconds is JSON, and so is the loss that it waits for. */
  call(operation: 'renew' | 'release' | 'hand_over' | 'wait_lost' | 'release_part' | 'set_lease', number?: string): Call
  count(units: string): void
  autoRenew(renew: boolean): void
  /** Releases the permit, without waiting for the confirmation. */
  forget(): void
  /** Ends a block: as `forget`, but throws the loss if the permit is known to be lost. */
  leave(): void
}

/** A named line with a limit. */
export declare class Semaphore {
  /** Acquires a permit. The options are JSON. */
  acquire(options?: string | undefined | null): Call
  /** Runs an operation, whose argument is JSON. */
  call(operation: 'declare' | 'available' | 'inspect' | 'change', argument?: string): Call
}

/**
 * Connects to a store. The settings are JSON, and `program` is the name of the program that the interpreter
 * runs.
 */
export declare function connect(url: string, settings: string, program: string, asked?: Asked | undefined | null): Call

/** Diagnoses a store. The result is JSON. */
export declare function diagnose(url: string, settings: string, asked?: Asked | undefined | null): Call

/** The events of the library since the last call, as JSON. */
export declare function events(): Call

/** The version of the library. */
export declare const VERSION: string
