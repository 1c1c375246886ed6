// Requests to the server with the token, and the stream of events, by `fetch`: an EventSource cannot send the token.

const KEY = "permits.token";
const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 10000;

// A failed request. `status` is 0 without a reply.
class Failed extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

function headers(more) {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function request(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  let reply;
  try {
    reply = await fetch(path, { ...options, headers: headers(options.headers ?? {}), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, "the server cannot be reached");
  }
  if (reply.ok) return reply;
  // The token was given meanwhile.
  if (reply.status === 401 && token !== sessionStorage.getItem(KEY)) return request(path, options);
  let reason = `${reply.status} ${reply.statusText}`;
  try {
    reason = (await reply.json()).detail;
  } catch {
    // A proxy's reply has no JSON.
  }
  throw new Failed(reply.status, reason);
}

const of = (name) => `api/v1/semaphores/${encodeURIComponent(name)}`;

const json = async (path, options) => (await request(path, options)).json();

export const status = (name, signal) => json(of(name), { signal });

// The last `window` milliseconds of a semaphore, or of the store if there is no name.
export const history = (name, window, signal) => json(`${name === null ? "api/v1" : of(name)}/history?window_ms=${window}`, { signal });

// Makes a change of a semaphore. Returns its state after it.
export const change = (name, change) =>
  json(`${of(name)}/change`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(change) });

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// Follows the events for ever. `on.event(name, data)` gets each, `on.broken(failed)` each end of a connection; the next
// attempt begins when the promise that it returns is fulfilled, and after a pause.
export async function follow(on) {
  let pause = FIRST_PAUSE_MS;
  for (;;) {
    try {
      await read(on, () => (pause = FIRST_PAUSE_MS));
      await on.broken(new Failed(0, "the server has ended the connection"));
    } catch (error) {
      await on.broken(error instanceof Failed ? error : new Failed(0, "the connection is broken"));
    }
    await sleep(pause);
    pause = Math.min(pause * 2, LAST_PAUSE_MS);
  }
}

async function read(on, connected) {
  const stop = new AbortController();
  // Without any byte for so long, heartbeats included, the connection is broken.
  let silenceMs = 30000;
  let watchdog;
  const watch = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => stop.abort(), silenceMs);
  };
  watch();
  try {
    const reply = await request("api/v1/events", { signal: stop.signal });
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      watch();
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) {
        const line = (field) => event.split("\n").find((line) => line.startsWith(`${field}: `))?.slice(field.length + 2);
        if (!line("event")) continue;
        const data = JSON.parse(line("data"));
        if (data.heartbeat_ms) silenceMs = 3 * data.heartbeat_ms;
        connected();
        on.event(line("event"), data);
      }
    }
  } finally {
    clearTimeout(watchdog);
    stop.abort();
  }
}
