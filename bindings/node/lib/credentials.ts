// Credentials from a function of the program, for `connect(url, { credentials })`.
//
// The native half cannot call JavaScript. So the event loop waits for its questions in the background, calls
// the function, and hands the answer down, until the client is gone.

import { clearTimeout, setTimeout } from 'node:timers';

import { invalid, json } from './arguments.js';
import { native } from './library.js';
import type * as Native from './native.js';
import { result } from './waiting.js';

/** A password or a token, and perhaps more. */
export interface Credentials {
  password: string;
  /** The user, in place of the one in the URL. */
  user?: string | undefined;
  /**
   * The time for which they are valid, in milliseconds. Open connections log in again when three quarters of it have
   * passed.
   */
  expiresIn?: number | undefined;
}

type Provide = () => string | Credentials | Promise<string | Credentials>;

/** The questions for a client that is about to connect, which are answered from now on. */
export function asked(provide: Provide | null | undefined): Native.Asked | undefined {
  if (provide === undefined || provide === null) {
    return undefined;
  }
  if (typeof provide !== 'function') {
    throw invalid('credentials', 'a function that returns a password', provide);
  }
  const questions = new native.Asked();
  void answerAll(questions, provide);
  return questions;
}

async function answerAll(questions: Native.Asked, provide: Provide): Promise<void> {
  while (await result<boolean>(questions.next(), { background: true })) {
    questions.answer(await answerInTime(provide));
  }
}

/** The client asks again after this time, so the next question must not wait for this answer. */
async function answerInTime(provide: Provide): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(JSON.stringify({ error: 'it has not answered within 10 s' })), 10_000).unref();
  });
  try {
    return await Promise.race([answer(provide), late]);
  } finally {
    clearTimeout(timer);
  }
}

async function answer(provide: Provide): Promise<string> {
  try {
    const returned = await provide();
    const given: Credentials = typeof returned === 'string' ? { password: returned } : returned;
    // If it is no text, do not show it: it may be a password.
    const password = given.password === undefined || typeof given.password === 'string' ? given.password : [];
    return json({ password, user: given.user, expiresIn: given.expiresIn }) as string;
  } catch (error) {
    return JSON.stringify({ error: described(error) });
  }
}

function described(error: unknown): string {
  try {
    return String(error);
  } catch {
    return 'it has thrown what has no text';
  }
}
