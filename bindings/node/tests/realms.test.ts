// The package in a realm of its own, as test runners load it. Errors and answers must belong to the realm.
// Other tests run in Jest and Vitest, by ../runners; this test needs neither.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { test } from 'node:test';
import { createContext, runInContext } from 'node:vm';
import { PACKAGE } from './support.js';

type Package = typeof import('permits');

/** The package, loaded in a new realm, and the `Error` of that realm. */
function inAnotherRealm(): Package & { Error: ErrorConstructor } {
  const realm = createContext({ process, console, setTimeout, AbortController, AbortSignal, EventTarget });
  const modules = new Map<string, { exports: object }>();
  const load = (file: string): object => {
    const known = modules.get(file);
    if (known) return known.exports;
    const module = { exports: {} };
    modules.set(file, module);
    const from = (id: string): object =>
      !id.startsWith('.') && !id.startsWith('/') ? require(id) : id.endsWith('.node') ? require(id) : load(resolve(dirname(file), id));
    const body = `(function (exports, require, module, __dirname) {${readFileSync(file, 'utf8')}\n})`;
    runInContext(body, realm, { filename: file })(module.exports, from, module, dirname(file));
    return module.exports;
  };
  const loaded = load(join(PACKAGE, 'dist/lib/index.js')) as Package;
  return { ...loaded, Error: runInContext('Error', realm) };
}

test('errors are those of the realm that has loaded the package', async () => {
  const other = inAnotherRealm();
  assert.notEqual(other.Error, Error);
  const client = await other.connect('memory:realm');
  const semaphore = client.semaphore('realm', 1);
  const permit = await semaphore.acquire({ holder: 'h' });
  assert.equal(await semaphore.tryAcquire(), null);
  const ends = async (call: () => unknown) => Promise.resolve().then(call).then((value) => assert.fail(`${value}`), (error: unknown) => error);
  for (const [kind, code, call] of [
    [other.NotNowError, 'NO_PERMITS', () => semaphore.acquire({ timeout: 0 })],
    [other.NotNowError, 'TIMED_OUT', () => semaphore.acquire({ timeout: 1 })],
    [other.InvalidInputError, 'INVALID_INPUT', () => client.semaphore('realm', 0)],
    [other.InvalidInputError, 'INVALID_INPUT', () => semaphore.acquire({ ['{"x"' as 'weight']: Number.NaN })],
    [other.InvalidInputError, 'INVALID_URL', () => other.connect('http://127.0.0.1/')],
    [other.StoreError, 'UNREACHABLE', () => other.connect('redis://127.0.0.1:1/', { storeTimeout: 1 })],
    [other.PermitsError, 'EXCEEDS_LIMIT', () => semaphore.acquire({ weight: 2 })],
  ] as const) {
    const error = await ends(call);
    assert.ok(error instanceof kind && error instanceof other.Error, `${code}: ${error}`);
    assert.equal(error.code, code);
  }
  await semaphore.revoke('h', 'maintenance');
  // A wait for `lost` does not keep the process alive.
  const alive = setInterval(() => {}, 1000);
  assert.ok((await permit.lost) instanceof other.LostError);
  clearInterval(alive);
  const error = await ends(() => permit.release());
  assert.ok(error instanceof other.LostError && error.reason === 'maintenance', `${error}`);
  await client.close();
});
