// The driver of redis-semaphore; the commands are described in ../README.md. Every task has a Semaphore of its
// own, as the library asks for, with the default interval of 10 ms between attempts.
'use strict';

const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');
const Redis = require('ioredis');
const { Semaphore } = require('redis-semaphore');

const [url, leaseMs] = process.argv.slice(2);
const options = { acquireTimeout: Number.POSITIVE_INFINITY, onLockLost: () => {} };
if (Number(leaseMs) > 0) options.lockTimeout = Number(leaseMs);

const redis = new Redis(url);
const hoarded = [];
let queueing = false;
let grants = 0;

// The time by the clock that all processes share.
const nowUs = () => Number(process.hrtime.bigint()) / 1e3;
const open = (name, limit, client = redis) => new Semaphore(client, name, limit, options);

function summary(taken, began) {
  taken.sort((left, right) => left - right);
  const at = (part) => taken[Math.floor((taken.length - 1) * part)];
  const seconds = (nowUs() - began) / 1e6;
  return { cycles: taken.length, seconds, p50_us: at(0.5), p99_us: at(0.99), max_us: at(1) };
}

async function cycle(name, limit, tasks, seconds) {
  const began = nowUs();
  const until = began + seconds * 1e6;
  const taken = [];
  const task = async () => {
    const semaphore = open(name, limit);
    for (let last = nowUs(); last < until;) {
      await semaphore.acquire();
      await semaphore.release();
      const now = nowUs();
      taken.push(now - last);
      last = now;
    }
  };
  await Promise.all(Array.from({ length: tasks }, task));
  return summary(taken, began);
}

async function turn(name, count) {
  const began = nowUs();
  const taken = [];
  for (let number = 0; number < count; number++) {
    const one = nowUs();
    const semaphore = open(`${name}:${number}`, 4);
    await semaphore.acquire();
    await semaphore.release();
    taken.push(nowUs() - one);
  }
  return summary(taken, began);
}

async function contend(name, limit, tasks, holdUs, pauseUs, seconds) {
  const until = nowUs() + seconds * 1e6;
  const events = [];
  const task = async () => {
    const semaphore = open(name, limit);
    for (let asked = nowUs(); asked < until; asked = nowUs()) {
      await semaphore.acquire();
      const got = nowUs();
      if (holdUs > 0) await sleep(holdUs / 1e3);
      const freed = nowUs();
      await semaphore.release();
      events.push([asked, got, freed]);
      if (pauseUs > 0) await sleep(pauseUs / 1e3);
    }
  };
  await Promise.all(Array.from({ length: tasks }, task));
  return { events };
}

async function start(name, limit) {
  const began = nowUs();
  const client = new Redis(url);
  const semaphore = open(name, limit, client);
  await semaphore.acquire();
  const us = nowUs() - began;
  await semaphore.release();
  client.disconnect();
  return { us };
}

async function hoard(name, count) {
  const all = Array.from({ length: count }, () => open(name, count));
  await Promise.all(all.map((semaphore) => semaphore.acquire()));
  hoarded.push(...all);
  return { held: all.length };
}

function queue(name, count) {
  queueing = true;
  const task = async () => {
    const semaphore = open(name, 1);
    while (queueing) {
      await semaphore.acquire();
      grants += 1;
      await semaphore.release();
    }
  };
  if (count > 1000) return { cannot: 'each waiter asks every 10 ms' };
  for (let number = 0; number < count; number++) task();
  return { queued: count };
}

async function wait(name) {
  const semaphore = open(name, 1);
  const asked = nowUs();
  await semaphore.acquire();
  const got = nowUs();
  await semaphore.release();
  return { asked, got };
}

async function free() {
  queueing = false;
  await Promise.all(hoarded.splice(0).map((semaphore) => semaphore.release()));
  return {};
}

const commands = {
  hello: () => ({ version: require('redis-semaphore/package.json').version }),
  start: (name, limit) => start(name, +limit),
  cycle: (name, limit, tasks, seconds) => cycle(name, +limit, +tasks, +seconds),
  turn: (name, count) => turn(name, +count),
  contend: (name, ...numbers) => contend(name, ...numbers.map(Number)),
  hoard: (name, count) => hoard(name, +count),
  queue: (name, count) => queue(name, +count),
  count: () => ({ grants }),
  wait,
  free,
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ');
    console.log(JSON.stringify(await commands[command](...words)));
  }
  process.exit(0);
})();
