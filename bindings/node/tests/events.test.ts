// Events of the library reach the program.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { connect, events, type LibraryEvent } from 'permits';
import { LIMIT, Program, until } from './support.js';

test('a limit that another program declares is a warning', { timeout: LIMIT }, async () => {
  const heard: LibraryEvent[] = [];
  events.on('warning', (event) => heard.push(event));
  await using client = await connect(`memory:${randomUUID()}`);
  for (const limit of [2, 3]) {
    await client.semaphore('s', limit).run(() => {});
  }
  await until(() => heard.length > 0);
  const { event, level, fields } = heard[0]!;
  assert.deepEqual([event, level, fields], ['limit_replaced', 'warn', { semaphore: 's', from: 2, to: 3 }]);
});

test('an exception of a listener is uncaught, and the next event is reported', { timeout: LIMIT }, async () => {
  const other = new Program(`
    import { connect, events } from 'permits';
    let heard = 0;
    process.on('uncaughtException', (error) => console.log(error.message));
    events.on('warning', () => {
      if (++heard === 2) process.exit(0);
      throw new Error('a bug');
    });
    const client = await connect('memory:');
    setInterval(() => {}, 1000);
    for (const limit of [2, 3]) await client.semaphore('s', limit).run(() => {});
    for (const limit of [2, 3]) await client.semaphore('t', limit).run(() => {});
  `);
  assert.deepEqual([await other.end(), other.output], [0, 'a bug\n']);
});

test('without a listener it is a warning of the process, and the process ends', { timeout: LIMIT }, async () => {
  const other = new Program(
    `
    import { connect } from 'permits';
    const warned = new Promise((resolve) => process.once('warning', resolve));
    // Events keep no process alive.
    const alive = setInterval(() => {}, 1000);
    const client = await connect('memory:');
    for (const limit of [2, 3]) await client.semaphore('s', limit).run(() => {});
    const { name, code, message } = await warned;
    clearInterval(alive);
    console.log(name, code, message);
    `,
    {},
    '--no-warnings',
  );
  const message = 'the limit declared here has replaced the stored one semaphore="s" from=2 to=3';
  assert.deepEqual([await other.end(), other.output], [0, `PermitsWarning limit_replaced ${message}\n`]);
});
