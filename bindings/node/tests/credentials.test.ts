// Passwords from a function: it is asked for each connection, and again before they end.

import assert from 'node:assert/strict';
import { createConnection } from 'node:net';
import { after, before, test } from 'node:test';
import { type Credentials, connect, diagnose } from 'permits';
import { Server, until } from './support.js';

let server: Server;
let url: string;

before(async () => {
  server = await Server.start();
  await command('ACL SETUSER app on >one >two ~* &* +@all');
  url = server.url.replace('redis://', 'redis://app@');
});

after(() => server[Symbol.asyncDispose]());

/** The reply to a command, as text. */
function command(line: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createConnection(server.port, '127.0.0.1', () => socket.end(`${line}\r\n`));
    let reply = '';
    socket.on('data', (bytes) => (reply += bytes)).on('end', () => resolve(reply)).on('error', reject);
  });
}

async function logins(): Promise<number> {
  return Number(/cmdstat_auth:calls=(\d+)/.exec(await command('INFO commandstats'))?.[1] ?? 0);
}

test('the function is asked for a password, and again before it ends', async () => {
  let calls = 0;
  const earlier = await logins();
  const credentials = async (): Promise<Credentials> => ({ password: ++calls === 1 ? 'one' : 'two', expiresIn: 400 });
  await using client = await connect(url, { recovery: 'off', credentials });
  await using _permit = await client.semaphore('exports', 1).acquire();
  await until(async () => (await logins()) >= earlier + 3);
  assert.ok(calls >= 3, `${calls} calls`);
});

test('a text is a password, and a diagnosis asks, too', async () => {
  assert.ok((await diagnose(url, { credentials: () => 'one' })).isHealthy);
});

test('a function that fails is the reason', async () => {
  const fails = () => Promise.reject(new Error('the issuer is down'));
  for (const [credentials, reason] of [
    [fails, /the function for credentials: Error: the issuer is down/],
    [() => Promise.reject(Object.create(null)), /it has thrown what has no text/],
    [() => 5, /it has returned no password/],
    [() => ({ password: 's3cret', expiresIn: 'soon' }), /expiresIn/],
    [() => ({ password: 123456n }), /password is no string/],
  ] as const) {
    await assert.rejects(connect(url, { storeTimeout: 0, credentials: credentials as never }), (error: Error) => {
      assert.match(error.message, reason);
      assert.doesNotMatch(error.message, /s3cret/);
      return true;
    });
  }
});

test('two passwords are refused', async () => {
  const twice = connect(url.replace('app@', ':s3cret@'), { credentials: () => 'one' });
  await assert.rejects(twice, /a password itself, and another password is to come from the function/);
  await assert.rejects(connect(url, { credentials: 'one' as never }), /credentials is a function that returns a password/);
});
