// The blocks of the documents: scripts/test-node has made a module of each, which tsc has checked.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { connect } from 'permits';
import { isIdle, LIMIT, PACKAGE, Server } from './support.js';

const BLOCKS = join(__dirname, 'blocks');

let server: Server;
before(async () => {
  server = await Server.start();
});
after(() => server.stop());

test('the blocks of the documents run', { timeout: LIMIT }, async () => {
  const blocks = readdirSync(BLOCKS).filter((name) => name.endsWith('.mjs'));
  assert.ok(blocks.length >= 10, 'the documents have blocks');
  await using client = await connect(server.url, { recovery: 'off' });
  for (const block of blocks) {
    const environment = { ...process.env, TEST_URL: `${server.url}?recovery=off`, NODE_TEST_CONTEXT: undefined };
    await promisify(execFile)(process.execPath, [join(BLOCKS, block)], { cwd: PACKAGE, env: environment });
    for (const name of await client.list()) {
      assert.ok(await isIdle(client.semaphore(name)), block);
    }
  }
});
