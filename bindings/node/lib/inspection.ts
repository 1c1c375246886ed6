// Inspections and diagnoses: plain objects.

/** The state of a semaphore. */
export interface Inspection {
  name: string;
  /** `null` if none is stored. */
  limit: number | null;
  /** Rises with every change of the limit or its pin. */
  limitVersion: number;
  pinned: boolean;
  paused: boolean;
  /** The time until the pause ends by itself; `null` if it has no end, or the semaphore is not paused. */
  pauseRemainingMs: number | null;
  /** The reason of the pause, possibly empty; `null` if it is not paused. */
  pauseReason: string | null;
  /** The reason for which the line is closed, possibly empty; `null` if it is open. */
  closed: string | null;
  /** The held units. */
  held: number;
  /** Those of the held units whose holders have gone, and that stay taken: see `atLeast`. */
  cooling: number;
  /** The number of waiters. */
  waiting: number;
  /** The time for which the store still grants no free units after a restart. */
  recoveringMs: number;
  /** Permits granted since the store has the semaphore. It and the other three begin again at 0 when the store forgets it. */
  grants: number;
  /** Requests refused since then. */
  refused: number;
  /** Holders and waiters whose lease has ended since then. */
  expired: number;
  /** Holders and waiters that operators have revoked since then. */
  revoked: number;
  /** The waits of requests that were granted out of the line: their sum, and how many took at most 0.01, 0.1, 1, 10, 100 s, and longer. */
  waits: { totalUs: number; numbers: number[] };
  /** The first holders, by the end of their leases. */
  holders: HolderInfo[];
  /** The first waiters, in order. */
  waiters: WaiterInfo[];
  /** The lanes, if any is named; up to 32, those with the most waiters first. */
  lanes: LaneInfo[];
  /** The last changes by operators, the newest first. */
  changes: ChangeInfo[];
}

/** A holder, in an {@link Inspection}. */
export interface HolderInfo {
  holder: string;
  weight: number;
  slot: number;
  token: number;
  /** The rest of its lease; if it cools, the time until its units are free. */
  leaseRemainingMs: number;
  /** True if the holder has gone, and its grant still counts: see `atLeast`. */
  cooling: boolean;
  /** True if its client may keep it without using it: see `keep`. False while requests wait. */
  mayBeKept: boolean;
  /** The time since its grant, by the store's clock. */
  ageMs: number;
  label: string | null;
  lane: string | null;
}

/** A waiter, in an {@link Inspection}. */
export interface WaiterInfo {
  holder: string;
  weight: number;
  /** The number of waiters before it. */
  position: number;
  /** The time since it was queued, by the store's clock. */
  ageMs: number;
  label: string | null;
  lane: string | null;
}

/** A lane, in an {@link Inspection}. */
export interface LaneInfo {
  /** Its name; `null` for the lane of the requests that name none. */
  lane: string | null;
  /** The number of its waiters. */
  waiting: number;
  /** The units that its listed holders hold. */
  held: number;
}

/** A change by an operator, in an {@link Inspection}. */
export interface ChangeInfo {
  change: 'limit_set' | 'unpinned' | 'paused' | 'resumed' | 'line_closed' | 'line_opened' | 'revoked';
  /** The label of the client that made it, else its host name and process id. */
  by: string;
  /** The time of the change, in milliseconds since 1970, by the store's clock. */
  atMs: number;
  /** The time since then, by the store's clock. */
  ageMs: number;
  /** The limit that was set. */
  limit: number | null;
  /** The holder or waiter that was revoked. */
  holder: string | null;
  /** The reason of a pause, a closed line or a revocation, possibly empty. */
  reason: string | null;
}

/** The findings about a store. */
export interface Diagnosis {
  /** The address, without a password. */
  store: string;
  /** True if no finding is a problem. */
  isHealthy: boolean;
  findings: Finding[];
}

/** One finding, in a {@link Diagnosis}. */
export interface Finding {
  subject: string;
  severity: string;
  observed: string;
  /** Empty if nothing is to be done. */
  advice: string;
}

/** The objects of a JSON text, with their names in the style of JavaScript. */
export function parsed<T>(json: string): T {
  return renamed(JSON.parse(json)) as T;
}

function renamed(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(renamed);
  }
  if (typeof value !== 'object' || value === null) {
    return value;
  }
  const name = (key: string): string => key.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [name(key), renamed(item)]));
}
