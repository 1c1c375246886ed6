// The npm package `permits`: a distributed semaphore for Redis and Valkey.

/// <reference lib="esnext.disposable" preserve="true" />

import { native } from './library.js';

export { Client, connect, diagnose } from './client.js';
export type { ConnectOptions, SemaphoreOptions } from './client.js';
export type { Credentials } from './credentials.js';
export type { Diagnosis, Finding } from './diagnosis.js';
export { InvalidInputError, LostError, NotNowError, PermitsError, StoreError } from './errors.js';
export type * from './errors.js';
export { events } from './events.js';
export type { Events, LibraryEvent } from './events.js';
export type * from './inspection.js';
export { Permit, PermitSet } from './permit.js';
export type { Held } from './permit.js';
export { Semaphore } from './semaphore.js';
export type { AcquireOptions } from './semaphore.js';

/** The version of the package. */
export const version: string = native.VERSION;
