// Made of docs/reference/status.schema.json: the test `inspections` of permits-testkit writes it.

/** The thresholds, set by an operator, beyond which the semaphore needs a look. */
export interface Alert {
  /** The longest wait that needs no look, in milliseconds, 1 ms to 366 days. None unless set. */
  waitMs: number | null;
  /** The most waiters that need no look, at least 1. None unless set. */
  waiting: number | null;
}

/** The waits of requests that were granted out of the line. */
export interface Waits {
  /** The sum of all waits, in microseconds. */
  totalUs: number;
  /**
   * The number of waits of at most 0.01, 0.1, 1, 10 and 100 s, and of longer ones. Each wait counts once,
   * at the lowest bound that it does not exceed. After 4,294,967,295 a number begins again at 0.
   */
  numbers: number[];
}

/** A holder. */
export interface HolderInfo {
  /** The name of the holder. */
  holder: string;
  /** The number of units. */
  weight: number;
  /** The slot. */
  slot: number;
  /** The fencing token. */
  token: number;
  /** The rest of the lease, in milliseconds; for a grant that cools, the time until its units are free. */
  leaseRemainingMs: number;
  /** True if the holder has gone, and its grant still counts: see `atLeast`. */
  cooling: boolean;
  /**
   * True if the client may keep the permit without using it; false while a request waits, and while the
   * semaphore is paused, closed or recovering, or has a pinned lane.
   */
  mayBeKept: boolean;
  /** The time since the grant, in milliseconds, by the store's clock. */
  ageMs: number;
  /** The label; `null` if there is none. */
  label: string | null;
  /** The lane of the request; `null` if it names no lane. */
  lane: string | null;
}

/** A waiter. */
export interface WaiterInfo {
  /** The name of the waiter. */
  holder: string;
  /** The units that it asks for. */
  weight: number;
  /** The number of waiters before it. */
  position: number;
  /** The time since it was queued, in milliseconds, by the store's clock. */
  ageMs: number;
  /** The label; `null` if there is none. */
  label: string | null;
  /** The lane of the request; `null` if it names no lane. */
  lane: string | null;
}

/** A lane. */
export interface LaneInfo {
  /** The name of the lane; `null` for the requests that name no lane. */
  lane: string | null;
  /** The number of waiters in the lane. */
  waiting: number;
  /**
   * The units that the lane holds and that count for its limit and floor. Without these, the units of its
   * listed holders.
   */
  held: number;
  /** The most units that the lane may hold; `null` without a limit of its own. */
  limit: number | null;
  /** The units up to which the lane is served before others; 0 without a floor. */
  floor: number;
  /** True if an operator has set the limit and the floor, so that requests do not change them. */
  pinned: boolean;
}

/** A change by an operator. */
export interface ChangeInfo {
  /** The change. */
  change: 'limit_set' | 'unpinned' | 'paused' | 'resumed' | 'line_closed' | 'line_opened' | 'alert_set' | 'alert_removed' | 'lane_pinned' | 'lane_unpinned' | 'revoked';
  /** The label of the client that made it, else its host name and process id. */
  by: string;
  /** The change as a text for people, such as: set the limit to 4. */
  text: string;
  /** The time of the change, in milliseconds since 1970, by the store's clock. */
  atMs: number;
  /** The time since the change, in milliseconds, by the store's clock. */
  ageMs: number;
  /** The limit that was set; `null` for other changes. */
  limit: number | null;
  /** The holder or waiter that was revoked; `null` for other changes. */
  holder: string | null;
  /** The reason of a pause, a closed line or a revocation, possibly empty; `null` for other changes. */
  reason: string | null;
}

/** The state of a semaphore. */
export interface Inspection {
  /** The name of the semaphore. */
  name: string;
  /** The number of units that may be held at once; `null` if no limit is stored. */
  limit: number | null;
  /** The version of the limit: rises with every change of the limit or its pin. */
  limitVersion: number;
  /** True if an operator has pinned the limit. */
  pinned: boolean;
  /** True if granting is stopped. */
  paused: boolean;
  /**
   * The time until the pause ends by itself, in milliseconds; `null` if it has no end, or the semaphore
   * is not paused.
   */
  pauseRemainingMs: number | null;
  /** The reason of the pause, possibly empty; `null` if the semaphore is not paused. */
  pauseReason: string | null;
  /** Why the line is closed, possibly empty; `null` if it is open. */
  closed: string | null;
  /** The thresholds, set by an operator, beyond which the semaphore needs a look. */
  alert: Alert;
  /** The number of units that are taken: by holders, kept by a client, or cooling. */
  held: number;
  /** The units among `held` whose holders have left, but which stay taken: see `atLeast`. */
  cooling: number;
  /** The held units of the listed holders whose clients may keep them without using them: see `keep`. */
  mayBeKept: number;
  /** The number of waiters. */
  waiting: number;
  /** The longest age of the listed holders that do not cool, in milliseconds; `null` if there is none. */
  oldestHolderAgeMs: number | null;
  /** The longest age of the listed waiters, in milliseconds; `null` if there is no waiter. */
  oldestWaiterAgeMs: number | null;
  /**
   * The time for which the store still grants no free units after a restart, in milliseconds; 0
   * otherwise.
   */
  recoveringMs: number;
  /**
   * The number of permits granted since the store has the semaphore. It and the other three begin again
   * at 0 when the store forgets an idle semaphore, or loses its state.
   */
  grants: number;
  /**
   * The number of requests refused since then: at their arrival, or later because of a lowered limit, a
   * closed line, or a newer request with their supersede key.
   */
  refused: number;
  /**
   * The number of holders and waiters whose lease has ended since then, for example because a program
   * crashed.
   */
  expired: number;
  /** The number of holders, waiters and cooling grants that operators have revoked since then. */
  revoked: number;
  /** The waits of requests that were granted out of the line. */
  waits: Waits;
  /** The first 1,000 holders, by the end of their leases. */
  holders: HolderInfo[];
  /** The first 1,000 waiters, in order; of a line with lanes, in the order that equal shares give. */
  waiters: WaiterInfo[];
  /**
   * The lanes of the waiters and of the listed holders: up to 32, and all that are pinned; those with the
   * most waiters first, then those with the most units. Empty if there is only the lane without a name.
   */
  lanes: LaneInfo[];
  /**
   * The last changes by operators, the newest first: 32, those of the last minute up to 256, and of each
   * kind (the limit, a pause, a closed line, the alert, lanes, a revocation) at least the last one.
   */
  changes: ChangeInfo[];
}
