// The errors: `code` is the reason, and the class is the kind of reason. All of them extend `PermitsError`.

import { types } from 'node:util';
import { parsed } from './diagnosis.js';
import type { Inspection } from './inspection.js';

/** The reason of an error. */
export type ErrorCode = NotNowCode | NeverCode | StoreCode | EndedCode | 'LOST';

/** Not now: a later attempt may succeed. */
export type NotNowCode =
  | 'NO_PERMITS'
  | 'RECOVERING'
  | 'COOLING'
  | 'PAUSED'
  | 'LANE_FULL'
  | 'TIMED_OUT'
  | 'LINE_CLOSED'
  | 'QUEUE_FULL'
  | 'ALREADY_HELD'
  | 'SUPERSEDED'
  | 'NOT_REPLICATED'
  | 'IN_USE';

/** Never: this request, or these arguments, cannot succeed. */
export type NeverCode =
  | 'EXCEEDS_LIMIT'
  | 'EXCEEDS_LANE_LIMIT'
  | 'NO_LIMIT'
  | 'LIMIT_MISMATCH'
  | 'INVALID_INPUT'
  | 'VERSION_MISMATCH'
  | 'TOO_MANY_PINS'
  | 'LIMIT_OUT_OF_RANGE'
  | 'INVALID_URL';

/** The store refused, or was unreachable for too long. */
export type StoreCode =
  | 'UNREACHABLE'
  | 'NO_ANSWER'
  | 'DENIED'
  | 'MISMATCH'
  | 'TLS'
  | 'WRONG_TYPE'
  | 'OTHER_LAYOUT'
  | 'UNREADABLE'
  | 'OUT_OF_MEMORY'
  | 'UNSUPPORTED'
  | 'REJECTED'
  | 'MALFORMED';

/** The request, the permit or the client has ended. */
export type EndedCode =
  | 'RELEASED'
  | 'REVOKED'
  | 'CANCELLED'
  | 'RETRY_LATER'
  | 'GONE'
  | 'NOT_RELEASED'
  | 'CLOSED'
  | 'FORKED'
  | 'SESSION_FAILED'
  | 'RESOURCE';

/** The values in a message. Which there are depends on the code. */
export interface ErrorDetails {
  readonly semaphore?: string;
  readonly holder?: string;
  readonly lane?: string;
  readonly key?: string;
  /** What an operator gave as the reason, possibly empty. */
  readonly reason?: string;
  readonly weight?: number;
  readonly limit?: number;
  readonly required?: number;
  readonly stored?: number;
  readonly expected?: number;
  readonly version?: number;
  readonly held?: number;
  readonly waiting?: number;
  readonly max?: number;
  readonly most?: number;
  readonly confirmed?: number;
  readonly wanted?: number;
  readonly count?: number;
  readonly waitedMs?: number;
  /** The time after which the same request succeeds if no other comes first. Known only if time alone frees the units. */
  readonly retryAfterMs?: number;
  /** A pause, a closed line or a recovery keeps every request out, even if units are free. */
  readonly standsStill?: boolean;
  /**
   * If the time was up: what kept the request out. This is the semaphore at that time, without the request, with at most four
   * holders and waiters. Absent if the store did not answer within a tenth of the timeout, 100 ms at most.
   */
  readonly inspection?: Inspection;
  readonly loss?: Loss;
  readonly isTemporary?: boolean;
  readonly isOutcomeUnknown?: boolean;
}

/** How a permit was lost. */
export type Loss = 'expired' | 'gone' | 'revoked' | 'held_too_long' | 'closed' | 'forked' | 'session_failed' | 'other';

/** An error of this package. */
export class PermitsError extends Error {
  /** The reason. */
  readonly code: ErrorCode;
  /** The values of the message. */
  readonly details: ErrorDetails;

  /** @internal */
  constructor(code: ErrorCode, message: string, details: ErrorDetails) {
    super(message);
    this.name = new.target.name;
    this.code = code;
    this.details = details;
  }
}

/** Not now: retry later. Its codes are {@link NotNowCode}. */
export class NotNowError extends PermitsError {}

/** An argument or a URL is not valid: `INVALID_INPUT`, `INVALID_URL`. */
export class InvalidInputError extends PermitsError {}

/** The permit is no longer held: the work has to stop. `LOST`. */
export class LostError extends PermitsError {
  /** How it was lost. */
  get loss(): Loss {
    return this.details.loss ?? 'other';
  }

  /** The reason of a revocation, possibly empty. */
  get reason(): string {
    return this.details.reason ?? '';
  }
}

/** The store refused, or was unreachable for too long. Its codes are {@link StoreCode}. */
export class StoreError extends PermitsError {
  /** True if a retry may succeed. */
  get isTemporary(): boolean {
    return this.details.isTemporary ?? false;
  }

  /** True if the store may have done what was asked. */
  get isOutcomeUnknown(): boolean {
    return this.details.isOutcomeUnknown ?? false;
  }
}

const CLASSES = { PermitsError, NotNowError, InvalidInputError, LostError, StoreError };

interface Failure {
  class: keyof typeof CLASSES;
  code: ErrorCode;
  message: string;
  properties: ErrorDetails;
}

/** Makes the error that this JSON describes. */
export function fromJson(json: string): PermitsError {
  const failure = parsed<Failure>(json);
  return new CLASSES[failure.class](failure.code, failure.message, failure.properties);
}

/** Calls the native half, and translates what it throws. */
export function translated<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw isNative(error) ? fromJson(error.message) : error;
  }
}

/**
 * Does it come from the native half? Node makes such an error in the main realm, and a test runner such as Jest gives this module
 * a realm of its own: there, `error instanceof Error` is false.
 */
function isNative(error: unknown): error is Error {
  return types.isNativeError(error) && (error as { code?: unknown }).code === 'GenericFailure' && error.message.startsWith('{');
}
