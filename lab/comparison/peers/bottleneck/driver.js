// The driver of Bottleneck with its datastore in Redis, for `scripts/lab rates`; the commands are described in
// ../README.md. Every client is a limiter with a connection of its own.
'use strict';

const readline = require('node:readline');
const Redis = require('ioredis');
const Bottleneck = require('bottleneck');

const [url] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);

// The documentation requires this step: a heartbeat fills the reservoir in a cluster of clients.
const REFRESH_STEP_MS = 5000;

const limiters = new Map();

// The time by the clock that all processes share.
const nowUs = () => Number(process.hrtime.bigint()) / 1e3;

function settings(limit, windowMs) {
  if (limit === 1) return { minTime: windowMs };
  if (windowMs % REFRESH_STEP_MS !== 0) return null;
  return { reservoir: limit, reservoirRefreshAmount: limit, reservoirRefreshInterval: windowMs };
}

async function open(name, limited, clients) {
  const key = (number) => `${name} ${number}`;
  for (let number = 0; number < clients; number++) {
    if (limiters.has(key(number))) continue;
    const options = { id: name, datastore: 'ioredis', Redis, clientOptions: { host, port: Number(port) } };
    const limiter = new Bottleneck({ ...options, ...limited });
    limiter.on('error', (error) => console.error(error));
    await limiter.ready();
    limiters.set(key(number), limiter);
  }
  return Array.from({ length: clients }, (_, number) => limiters.get(key(number)));
}

async function admit(name, limit, windowMs, clients, seconds) {
  const limited = settings(limit, windowMs);
  if (limited === null) {
    return { cannot: 'in a cluster, the interval of its reservoir is a multiple of 5 s' };
  }
  const all = await open(name, limited, clients);
  const until = nowUs() + seconds * 1e6;
  const events = [];
  const task = async (limiter) => {
    for (let asked = nowUs(); asked < until; asked = nowUs()) {
      const got = await limiter.schedule(async () => nowUs());
      events.push([asked, got, got]);
    }
  };
  await Promise.all(all.map(task));
  return { events };
}

const commands = {
  hello: () => ({ version: require('bottleneck/package.json').version }),
  admit: (name, ...numbers) => admit(name, ...numbers.map(Number)),
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ');
    console.log(JSON.stringify(await commands[command](...words)));
  }
  process.exit(0);
})();
