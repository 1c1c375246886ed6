// Puts the parts of the page together: events, the list, one semaphore, the keyboard, the dialogs and the address.

import * as api from "./api.js";
import { List } from "./list.js";
import { Detail } from "./detail.js";
import { clock } from "./graph.js";
import { make, setText, setLong } from "./table.js";

const MESSAGE_MS = 6000;

const byId = (id) => document.getElementById(id);
// By id.
const elements = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));

let clearing;
function say(text) {
  setText(byId("message"), text);
  clearTimeout(clearing);
  clearing = setTimeout(() => setText(byId("message"), ""), MESSAGE_MS);
}

// Shows the state of the connection. With a problem, what else is shown is older.
function setState(text, problem) {
  setText(byId("state"), text);
  byId("state").className = problem === null ? "up" : "down";
  document.querySelector("main").classList.toggle("stale", problem !== null);
  setText(byId("problem"), problem ?? "");
}

// Asks a question. What takes something away `isDanger`. A field has `name` and `label`, and attributes of its input, or the
// `options` of a choice: values and words. `check(text)` returns what is wrong, and a checkbox is required unless
// `unless(answers)`. Returns the answers by name, or null if it was cancelled.
function ask({ title, text, done, fields = [], isDanger = false }) {
  const dialog = byId("confirm-dialog");
  setText(byId("confirm-title"), title);
  setText(byId("confirm-text"), text);
  setText(byId("confirm-done"), done);
  byId("confirm-done").classList.toggle("danger", isDanger);
  const inputs = fields.map(({ name, label, check, unless, options, type = "text", ...attributes }) => {
    const [element, input] = [make("label"), make(options ? "select" : "input")];
    if (options) input.append(...options.map(([value, words]) => new Option(words, value)));
    else Object.assign(input, { type, autocomplete: "off", required: type === "number" });
    Object.assign(input, { id: `confirm-${name}`, name, ...attributes });
    element.append(...(type === "checkbox" ? [input, label] : [label, input]));
    byId("confirm-fields").append(element);
    return { input, check, unless, element };
  });
  const answers = () => Object.fromEntries(inputs.map(({ input }) => [input.name, input.type === "checkbox" ? input.checked : input.value]));
  const validate = () => {
    for (const { input, check, unless, element } of inputs) {
      if (unless) [element.hidden, input.required] = [unless(answers()), !unless(answers())];
      input.setCustomValidity(check?.(input.value) ?? "");
    }
  };
  byId("confirm-fields").oninput = validate;
  validate();
  dialog.returnValue = "";
  dialog.showModal();
  (inputs[0]?.input ?? byId("confirm-done")).focus();
  return new Promise((resolve) => {
    const close = () => {
      const result = dialog.returnValue === "done" ? answers() : null;
      byId("confirm-fields").replaceChildren();
      resolve(result);
    };
    dialog.addEventListener("close", close, { once: true });
  });
}
byId("confirm-cancel").addEventListener("click", () => byId("confirm-dialog").close("cancel"));

// Asks for the token once.
let asking = null;
function askToken(reason) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("token-dialog");
    setText(byId("token-reason"), reason);
    byId("token").value = "";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      api.setToken(byId("token").value.trim());
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

const detail = new Detail(elements, { ask, say, onFailed, needOf: (name) => list.rows.get(name)?.need });
const list = new List(elements, (name) => (location.hash = `#/${encodeURIComponent(name)}`), (rows) => detail.acts.actOnAll(rows));

// The number of those in need comes first: a tab shows little.
function setTitle() {
  const { inNeed } = list;
  const title = `${inNeed ? `(${inNeed}) ` : ""}${detail.name === null ? "" : `${detail.name} – `}permits`;
  setText(document.querySelector("title"), title);
}

function close() {
  history.pushState(null, "", location.pathname + location.search);
  route();
  elements.semaphores.focus();
}

// Shows the semaphore that the address names.
function route() {
  let name = null;
  try {
    // Behind a slash, so that no name is that of an element.
    name = decodeURIComponent(location.hash.replace(/^#\/?/, "")) || null;
  } catch {
    // An address that was cut off.
  }
  byId("detail").hidden = name === null;
  document.querySelector("main").classList.toggle("split", name !== null);
  if (name === null) {
    detail.close();
    list.select(null);
  } else {
    list.select(name);
    detail.open(name);
    elements.name.focus({ preventScroll: true });
  }
  setTitle();
}
addEventListener("hashchange", route);
addEventListener("popstate", () => {
  list.readView();
  list.update();
});
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
    elements.semaphores.focus();
  } else if (event.key === "Escape" && detail.name !== null) {
    close();
  } else if (typing && (event.key === "ArrowDown" || event.key === "Enter")) {
    event.preventDefault();
    elements.semaphores.focus();
    list.table.choose(list.table.items[0], event.key === "Enter");
  }
});

function onEvent(name, data) {
  if (name === "all") {
    setLong(byId("store"), data.store);
    list.writable = detail.writable = data.writable;
  }
  const changed = list.apply(name, data);
  const since = data.at_ms ? ` since ${clock(data.at_ms)}, the time of these values` : "";
  if (data.error === null) setState("live", null);
  else setState("store unreachable", `The store cannot be read${since}: ${data.error}`);
  if (detail.name !== null && (name === "all" || changed.has(detail.name))) detail.refresh();
}

setInterval(() => {
  setTitle();
  if (document.hidden) return;
  list.update();
  detail.tick();
}, 1000);

route();
api.follow({
  event: onEvent,
  broken: async (failed) => {
    setState("disconnected", failed.status === 401 ? "" : `No data from this server: ${failed.message}. It is tried again.`);
    if (failed.status === 401) await askToken(failed.message);
  },
});
