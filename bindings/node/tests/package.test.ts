// The package as it is loaded: its version, its library, and what it leaves in a process that loads it again.

import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import * as permits from 'permits';
import { connect } from 'permits';
import { PACKAGE, Program } from './support.js';

test('the version is that of the package', () => {
  const { version } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8'));
  assert.equal(permits.version, version);
});

test('the stack of an error has the functions that wait', async () => {
  await using client = await connect('memory:stack');
  const semaphore = client.semaphore('stack', 1);
  await using _held = await semaphore.acquire();
  async function nightly(): Promise<void> {
    await semaphore.acquire({ timeout: 10 });
  }
  await assert.rejects(nightly(), { code: 'TIMED_OUT', stack: /at async nightly/ });
});

test('a package without a library for this platform says which it has and how to build one', (context) => {
  const copy = mkdtempSync(join(tmpdir(), 'permits-node-'));
  context.after(() => rmSync(copy, { recursive: true }));
  cpSync(join(PACKAGE, 'dist/lib'), join(copy, 'dist/lib'), { recursive: true });
  cpSync(join(PACKAGE, 'package.json'), join(copy, 'package.json'));
  const load = (): unknown => require(join(copy, 'dist/lib/index.js'));
  const platform = `${process.platform}-${process.arch}`;

  writeFileSync(join(copy, 'permits.beos-ppc.node'), '');
  assert.throws(load, new RegExp(`no library for ${platform}, only for beos-ppc: .*npm run build`));

  // The library of another libc, for example.
  writeFileSync(join(copy, `permits.${platform}.node`), '');
  assert.throws(load, new RegExp(`library for ${platform} cannot be loaded: .*Install the package again.*npm run build`));
});

test('a package that was bundled says so', (context) => {
  const application = mkdtempSync(join(tmpdir(), 'permits-node-'));
  context.after(() => rmSync(application, { recursive: true }));
  const bundle = join(application, 'out/dist/lib');
  const load = (): unknown => require(join(bundle, 'index.js'));
  cpSync(join(PACKAGE, 'dist/lib'), bundle, { recursive: true });
  const bundled = (error: unknown): boolean => {
    assert.ok(error instanceof Error && error.cause instanceof Error, `${error}`);
    assert.match(error.message, /Was it bundled\? Then mark it external, .*--external:permits/);
    assert.doesNotMatch(error.message, /Rust/);
    return true;
  };
  assert.throws(load, bundled);
  // The bundle is part of another package.
  writeFileSync(join(application, 'out/package.json'), '{ "name": "application" }');
  assert.throws(load, bundled);
});

test('a cause that is neither absence nor damage has its own remedy', async () => {
  await using program = new Program(`import 'permits'`, {}, '--no-addons');
  assert.equal(await program.end(), 1);
  assert.match(program.errors, /may not load its library: .*Start Node without --no-addons/);
  assert.doesNotMatch(program.errors, /Rust/);
});

test('a directory that cannot be listed does not hide the cause', (context) => {
  const copy = mkdtempSync(join(tmpdir(), 'permits-node-'));
  context.after(() => rmSync(copy, { recursive: true }));
  cpSync(join(PACKAGE, 'dist/lib'), join(copy, 'dist/lib'), { recursive: true });
  // Neither file can be read. A manifest that cannot be read (here it is a directory) counts as this
  // package's.
  mkdirSync(join(copy, 'package.json'));
  const fs = require('node:fs') as typeof import('node:fs');
  const { readdirSync } = fs;
  context.after(() => (fs.readdirSync = readdirSync));
  fs.readdirSync = (() => {
    throw new Error('no directory may be listed');
  }) as unknown as typeof readdirSync;
  assert.throws(
    () => require(join(copy, 'dist/lib/index.js')),
    (error) => {
      assert.ok(error instanceof Error && error.cause instanceof Error, `${error}`);
      assert.match(error.message, /cannot be loaded: Cannot find module/);
      return true;
    },
  );
});

test('a process that loads the package again and again closes its clients by one listener', async () => {
  await using program = new Program(`
    import { createRequire } from 'node:module';
    const require = createRequire(process.cwd() + '/program.js');
    const packages = [], before = process.listenerCount('exit');
    for (let load = 0; load < 14; load++) {
      for (const file of Object.keys(require.cache)) if (file.includes('/dist/lib/')) delete require.cache[file];
      packages.push(require('permits'));
    }
    const clients = await Promise.all(packages.map(({ connect }) => connect('memory:loads')));
    const [first, last] = [clients[0].semaphore('first', 1), clients[13].semaphore('last', 1)];
    const both = await clients[13].acquireAll([first, last]);
    console.log(new Set(packages).size, process.listenerCount('exit') - before, both.permits.length);
  `);
  assert.equal(await program.end(), 0, program.errors);
  assert.deepEqual([program.output, program.errors], ['14 1 2\n', '']);
});
