// The types of arguments. A program without types may pass any value, so each is checked, by name, before it
// crosses to the native half.

import { inspect } from 'node:util';
import { InvalidInputError, translated } from './errors.js';
import { native } from './waiting.js';

/** The types, in the words of the messages: is a value one of them? */
const TYPES = {
  'a string': (value: unknown) => typeof value === 'string',
  'a number': (value: unknown) => typeof value === 'number',
  'a boolean': (value: unknown) => typeof value === 'boolean',
  'a function': (value: unknown) => typeof value === 'function',
  'an object': (value: unknown) => typeof value === 'object' && value !== null,
  'an iterable': (value: unknown) => typeof (value as Iterable<unknown> | null)?.[Symbol.iterator] === 'function',
  'an AbortSignal': (value: unknown) => typeof (value as AbortSignal | null)?.throwIfAborted === 'function',
};

/** A type of arguments. */
type Type = keyof typeof TYPES;

/** The types of the options `T`, any of which may be absent. */
export type Types<T> = { readonly [Name in keyof T]-?: Type };

/** The argument, with its name: `argument('a number', { limit })`. */
export function argument<T>(type: Type, named: Record<string, T>): T {
  const [[name, value]] = Object.entries(named) as [[string, T]];
  if (!TYPES[type](value)) {
    throw invalid(name, type, value);
  }
  return value;
}

/** The argument, with its name, if it is not absent. */
export function optional<T>(type: Type, named: Record<string, T>): T {
  const [value] = Object.values(named) as [T];
  return value === undefined || value === null ? value : argument(type, named);
}

/** The options, each of its type, and none that is unknown. */
export function options<T extends object>(types: Types<NoInfer<T>>, options: T): T {
  argument('an object', { options });
  for (const [name, value] of Object.entries(options)) {
    translated(() => native.checkField(name, Object.keys(types)));
    if (value !== undefined) {
      argument((types as Record<string, Type>)[name] as Type, { [name]: value });
    }
  }
  return options;
}

/** The options of an acquisition, which the native half checks, except for the signal. */
export function request<T extends { signal?: AbortSignal | undefined }>(options: T): T {
  const { signal } = argument('an object', { options });
  optional('an AbortSignal', { signal })?.throwIfAborted();
  return options;
}

/** The options of an acquisition as JSON; `undefined` if there are none. */
export function json(options: object): string | undefined {
  return Object.keys(options).length === 0 ? undefined : JSON.stringify(options, plain);
}

/** The value of an option. One that JSON cannot have becomes another that is refused, too. */
export function plain(name: string, value: unknown): unknown {
  switch (typeof value) {
    case 'number':
      return Number.isFinite(value) ? value : name === 'timeout' && value === Infinity ? undefined : String(value);
    case 'bigint':
      return `${value}n`;
    case 'function':
    case 'symbol':
      return [];
    default:
      return value;
  }
}

/** The error of an argument that is not as expected. It shows no contents of an object, which may be secret. */
export function invalid(name: string, expected: string, value: unknown): InvalidInputError {
  const isObject = typeof value === 'function' || (typeof value === 'object' && value !== null);
  const found = isObject ? Object.prototype.toString.call(value) : inspect(value, { maxStringLength: 40 });
  const kind = typeof value === 'string' ? 'the string ' : '';
  return new InvalidInputError('INVALID_INPUT', `${name} is ${expected}, not ${kind}${found}`, {});
}
