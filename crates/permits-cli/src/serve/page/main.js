// Puts the parts of the page together: events, the list, one semaphore, the keyboard, the dialogs and the address.

import * as api from "./api.js";
import { List } from "./list.js";
import { Detail } from "./detail.js";
import { setText } from "./table.js";

const MESSAGE_MS = 6000;

const byId = (id) => document.getElementById(id);
const elements = {
  table: byId("semaphores"), search: byId("search"), busy: byId("busy"), count: byId("count"),
  detail: byId("detail"), name: byId("name"), badges: byId("badges"), facts: byId("facts"), actions: byId("actions"), pause: byId("pause"), limit: byId("limit"),
  unpin: byId("unpin"), holders: byId("holders"), waiters: byId("waiters"), lanes: byId("lanes"), changes: byId("changes"),
  heldGraph: byId("held-graph"), waitingGraph: byId("waiting-graph"), grantsGraph: byId("grants-graph"), heldNow: byId("held-now"),
  waitingNow: byId("waiting-now"), grantsNow: byId("grants-now"),
};

let clearing;
function say(text) {
  setText(byId("message"), text);
  clearTimeout(clearing);
  clearing = setTimeout(() => setText(byId("message"), ""), MESSAGE_MS);
}

function setState(text, className) {
  setText(byId("state"), text);
  byId("state").className = className;
}

function setProblem(text) {
  byId("problem").hidden = !text;
  setText(byId("problem"), text ?? "");
}

// Asks a question with one input. Returns the input, or null if it was cancelled.
function ask({ title, text, prompt, done, value, number }) {
  const [dialog, input] = [byId("confirm-dialog"), byId("confirm-input")];
  setText(byId("confirm-title"), title);
  setText(byId("confirm-text"), text);
  setText(byId("confirm-prompt"), prompt);
  setText(byId("confirm-done"), done);
  Object.assign(input, { type: number ? "number" : "text", min: "1", required: Boolean(number), maxLength: 1000, value });
  dialog.returnValue = "";
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "done" ? input.value : null), { once: true });
  });
}
byId("confirm-cancel").addEventListener("click", () => byId("confirm-dialog").close("cancel"));
byId("confirm-done").value = "done";

// Asks for the token once, however many requests need it.
let asking = null;
function askToken(reason) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("token-dialog");
    setText(byId("token-reason"), reason);
    byId("token").value = "";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      api.setToken(byId("token").value);
      byId("token").value = "";
      asking = null;
      resolve();
    }, { once: true });
  });
  return asking;
}
byId("token-dialog").addEventListener("cancel", (event) => event.preventDefault());

function onFailed(error, wasAsked) {
  if (error.status === 401) askToken(error.message);
  else if (wasAsked || error.status !== 0) say(error.message);
}

const detail = new Detail(elements, { ask, say, onFailed });
const list = new List(elements, (name) => (location.hash = `#${encodeURIComponent(name)}`));

function close() {
  history.pushState(null, "", location.pathname);
  route();
  elements.table.focus();
}

// Shows the semaphore that the address names.
function route() {
  let name = null;
  try {
    name = decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    // An address that was cut off.
  }
  byId("detail").hidden = name === null;
  document.querySelector("main").classList.toggle("split", name !== null);
  document.title = name === null ? "permits" : `${name} – permits`;
  if (name === null) {
    detail.close();
    list.table.clearSelection();
  } else {
    list.table.selected = name;
    list.table.render();
    detail.open(name);
    elements.name.focus({ preventScroll: true });
  }
}
addEventListener("hashchange", route);
byId("back").addEventListener("click", close);

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
  if (event.key === "/" && !typing) {
    event.preventDefault();
    if (byId("list").offsetParent === null) close();
    elements.search.focus();
    elements.search.select();
  } else if (event.key === "Escape" && typing) {
    elements.search.value = "";
    list.update();
    elements.table.focus();
  } else if (event.key === "Escape" && detail.name !== null) {
    close();
  } else if (typing && (event.key === "ArrowDown" || event.key === "Enter")) {
    event.preventDefault();
    elements.table.focus();
    list.table.choose(list.table.items[0], event.key === "Enter");
  }
});

function onEvent(name, data) {
  if (name === "all") {
    setText(byId("store"), data.store);
    detail.writable = data.writable;
  }
  const changed = list.apply(name, data);
  setState(data.error === null ? "live" : "store unreachable", data.error === null ? "up" : "down");
  const at = new Date(data.at_ms).toLocaleTimeString();
  setProblem(data.error && `The store cannot be read since ${at}, and the values are older: ${data.error}`);
  if (detail.name !== null && (name === "all" || changed.has(detail.name))) detail.refresh();
}

setInterval(() => {
  if (document.hidden) return;
  list.table.render();
  detail.tick();
}, 1000);

route();
api.follow({
  event: onEvent,
  broken: async (failed) => {
    setState("disconnected", "down");
    if (failed.status === 401) await askToken(failed.message);
    else setProblem(`No data from this server: ${failed.message}. It is tried again.`);
  },
});
