// Helpers of the tests: a server, other programs, conditions to wait for.

import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection, createServer, type Server as NetServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Semaphore } from 'permits';

/** The time in milliseconds after which what must come hangs: the limit of every wait, and of every test. */
export const LIMIT = 300_000;

/** The directory of the package: programs that run there import it by name. */
export const PACKAGE = dirname(require.resolve('permits/package.json'));

/** Waits until the condition holds. */
export async function until(condition: () => unknown): Promise<void> {
  const end = performance.now() + LIMIT;
  while (!(await condition())) {
    assert.ok(performance.now() < end, 'the condition never held');
    await sleep(2);
  }
}

/**
 * Repeats a story whose subject is real time until it comes to pass, at most ten times: on a slow machine the permit of a short
 * lease may end for another reason.
 */
export async function comesToPass(story: () => Promise<boolean>): Promise<void> {
  for (let told = 0; told < 10; told++) if (await story()) return;
  assert.fail('the story never comes to pass');
}

/** Waits until the line has so many waiters. */
export function waiters(semaphore: Semaphore, number: number): Promise<void> {
  return until(async () => (await semaphore.inspect()).waiting === number);
}

/** True if nothing is held and nothing waits. */
export async function isIdle(semaphore: Semaphore): Promise<boolean> {
  const { held, waiting, holders, waiters: queue } = await semaphore.inspect();
  return held + waiting + holders.length + queue.length === 0;
}

/**
 * Waits until nobody waits, and what is held only cools. The end of a block does not wait for its release, so another session
 * may see the permit for a moment longer.
 */
export async function comesToRest(semaphore: Semaphore): Promise<void> {
  for (const end = performance.now() + LIMIT; ; await sleep(2)) {
    const { waiting, holders } = await semaphore.inspect();
    const held = holders.filter(({ cooling }) => !cooling);
    if (waiting + held.length === 0) return;
    assert.ok(performance.now() < end, `${semaphore.name}: ${waiting} wait, held: ${JSON.stringify(held)}`);
  }
}

/** The server that is installed. */
const installed = spawnSync('redis-server', ['--version']).error ? 'valkey-server' : 'redis-server';

/** A redis-server of the tests, on a private port. While it runs it keeps this process alive. */
export class Server implements AsyncDisposable {
  readonly url: string;
  readonly #directory = mkdtempSync(join(tmpdir(), 'permits-node-'));
  readonly #process: ChildProcess;
  readonly #ended: Promise<unknown>;

  private constructor(readonly port: number) {
    this.url = `redis://127.0.0.1:${port}/`;
    const program = process.env.PERMITS_TEST_SERVER ?? installed;
    const options = ['--port', `${port}`, '--bind', '127.0.0.1', '--save', '', '--dir', this.#directory];
    this.#process = spawn(program, options, { stdio: 'ignore' });
    this.#ended = new Promise((resolve) => this.#process.once('exit', resolve));
  }

  static async start(): Promise<Server> {
    const server = new Server(await freePort());
    await until(() => server.#answers());
    return server;
  }

  #answers(): Promise<boolean> {
    return new Promise((resolve) => {
      const connection = createConnection(this.port, '127.0.0.1', () => connection.write('PING\r\n'));
      connection.once('data', () => {
        connection.destroy();
        resolve(true);
      });
      connection.once('error', () => resolve(false));
    });
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /** Stops it, unless it has been stopped. */
  async stop(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#ended;
    rmSync(this.#directory, { recursive: true, force: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

// The blocks of ports of the tests, in every language: `ports.rs` of the test kit says why.
const [FIRST_PORT, BLOCKS, BLOCK] = [11_000, 500, 20];
const left: number[] = [];

/** Listens on a port of loopback, unless the port is taken. */
function listener(port: number): Promise<NetServer | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}

/** A port that no other server of any test gets before this process ends. */
async function freePort(): Promise<number> {
  const start = Math.floor(Math.random() * BLOCKS);
  for (let step = 0; step < BLOCKS; step++) {
    for (let port = left.pop(); port !== undefined; port = left.pop()) {
      const free = await listener(port);
      if (free) {
        await new Promise((resolve) => free.close(resolve));
        return port;
      }
    }
    const first = FIRST_PORT + ((start + step) % BLOCKS) * BLOCK;
    // The lock of the block stays open until the process ends, and does not keep it from ending.
    if ((await listener(first))?.unref()) {
      left.push(...Array.from({ length: BLOCK - 1 }, (_, index) => first + 1 + index));
    }
  }
  throw new Error('no block of ports is free');
}

/** A program of a test: a module that prints lines, and ends. */
export class Program implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #ended: Promise<[number | null, NodeJS.Signals | null]>;
  output = '';
  errors = '';

  constructor(text: string, environment: Record<string, string> = {}, ...flags: string[]) {
    this.#process = spawn(process.execPath, [...flags, '--input-type=module', '-e', text], {
      cwd: PACKAGE,
      env: { ...process.env, NODE_TEST_CONTEXT: undefined, ...environment },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#process.stdout?.on('data', (data) => (this.output += data));
    this.#process.stderr?.on('data', (data) => (this.errors += data));
    this.#ended = new Promise((resolve) => this.#process.once('close', (code, signal) => resolve([code, signal])));
  }

  /** Waits until it has printed this. */
  async prints(text: string): Promise<void> {
    await until(() => this.output.includes(text) || this.#process.exitCode !== null);
    assert.ok(this.output.includes(text), this.errors);
  }

  kill(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /** Waits for its end: the exit code, or the signal that ended it. */
  async end(): Promise<number | NodeJS.Signals | null> {
    const late = setTimeout(() => this.kill('SIGKILL'), LIMIT);
    const [code, signal] = await this.#ended;
    clearTimeout(late);
    return code ?? signal;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill('SIGKILL');
    await this.#ended;
  }
}
