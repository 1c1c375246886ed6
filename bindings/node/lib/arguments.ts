// The types of arguments. A program without types may pass any value, so each argument is checked by name.
// The native half checks arguments that travel as JSON, such as numbers, and this file checks the others.

import { inspect } from 'node:util';
import { InvalidInputError } from './errors.js';

/** The types, named in the words of the messages. Each says whether a value has it. */
const TYPES = {
  'a string': (value: unknown) => typeof value === 'string',
  'a boolean': (value: unknown) => typeof value === 'boolean',
  'a function': (value: unknown) => typeof value === 'function',
  'a plain object': (value: unknown) => isObject(value) && isPlain(prototype(value)),
  'an iterable': (value: unknown) => typeof (value as Iterable<unknown> | null)?.[Symbol.iterator] === 'function',
  'an AbortSignal': isSignal,
};

/** Returns the argument, or throws. Pass it with its name: `argument('a string', { name })`. */
export function argument<T>(type: keyof typeof TYPES, named: Record<string, T>): T {
  const [[name, value]] = Object.entries(named) as [[string, T]];
  if (!TYPES[type](value)) {
    throw invalid(name, type, value);
  }
  return value;
}

/** The same for an argument that may be absent. */
export function optional<T>(type: keyof typeof TYPES, named: Record<string, T>): T {
  const [value] = Object.values(named) as [T];
  return value === undefined || value === null ? value : argument(type, named);
}

/** The options of an acquisition, which the native half checks, except for the signal. */
export function request<T extends { signal?: AbortSignal | undefined }>(options: T): T {
  const { signal } = argument('a plain object', { options });
  if (optional('an AbortSignal', { signal })?.aborted) {
    throw reasonOf(signal as AbortSignal);
  }
  return options;
}

/** Options as JSON; `undefined` if there are none. */
export function json(options: object): string | undefined {
  argument('a plain object', { options });
  return Object.keys(options).length === 0 ? undefined : JSON.stringify(options, plain);
}

/** A number as JSON. */
export function number(named: Record<string, unknown>): string {
  const [[name, value]] = Object.entries(named) as [[string, unknown]];
  return JSON.stringify(plain(name, value) ?? null);
}

/** The value of an argument, or an error if JSON cannot have it. */
function plain(name: string, value: unknown): unknown {
  switch (typeof value) {
    case 'number':
      if (!Number.isFinite(value) && !(name === 'timeout' && value === Infinity)) {
        throw invalid(name, 'a finite number', value);
      }
      return value;
    case 'string':
      // Replace halves of surrogate pairs, as Node does wherever it makes bytes of a text.
      return value.replace(/[\uD800-\uDFFF]/gu, '\uFFFD');
    case 'bigint':
    case 'function':
    case 'symbol':
      throw invalid(name, 'a number, a string or a boolean', value);
    default:
      return value;
  }
}

/** The error for an argument that is not as expected. It never shows the contents of an object, which may be secret. */
export function invalid(name: string, expected: string, value: unknown): InvalidInputError {
  const found = isObject(value)
    ? `[object ${prototype(value)?.constructor?.name ?? 'Object'}]`
    : inspect(value, { maxStringLength: 40 });
  const kind = typeof value === 'string' ? 'the string ' : '';
  return new InvalidInputError('INVALID_INPUT', `${name} is ${expected}, not ${kind}${found}`, {});
}

/**
 * Is it a signal of any kind: from Node, from a DOM such as jsdom, or from the package abort-controller? Older signals have
 * neither `throwIfAborted` nor `reason`.
 */
function isSignal(value: unknown): boolean {
  const { aborted, addEventListener, removeEventListener } = (value ?? {}) as Partial<AbortSignal>;
  return typeof aborted === 'boolean' && typeof addEventListener === 'function' && typeof removeEventListener === 'function';
}

/** Why a signal was aborted. */
export function reasonOf(signal: AbortSignal): unknown {
  return signal.reason ?? new DOMException('This operation was aborted', 'AbortError');
}

function isObject(value: unknown): value is object {
  return typeof value === 'function' || (typeof value === 'object' && value !== null);
}

function prototype(value: object): object | null {
  return Object.getPrototypeOf(value);
}

/** Is it the prototype of plain objects, in any realm? An object of a class may have getters, which JSON leaves out. */
function isPlain(prototypeOfValue: object | null): boolean {
  return prototypeOfValue === null || prototype(prototypeOfValue) === null;
}
