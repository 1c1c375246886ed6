// A table that has elements for its visible rows only, however many rows there are.
//
// Rows above and below the visible ones are two gaps of their height. All rows have the height that the style sheet gives as
// `--row`. Each row keeps its element while it is visible, so that focus and hover survive updates. All texts are set with
// textContent. Several tables may lie in one scroller.

// Rows beside the visible ones, so that scrolling shows no gap.
const MARGIN = 8;

export class Table {
  // columns: [{ title, key?, className?, fill(cell, item) }]; a column with a key can be sorted. Widths are in the style sheet.
  // options: { caption, empty, id, keyOf(item), scroller?, onOpen?(item), onSort?(key), isTree?, onFold?(item, isOpen) }. The
  // scroller is the container unless there is one. The items of a tree have `level`, and `expanded` if they have members.
  constructor(container, columns, options) {
    Object.assign(this, { container, columns, options, scroller: options.scroller ?? container });
    this.items = [];
    this.rows = new Map();
    this.selected = null;
    this.table = make("table");
    this.table.setAttribute("role", options.isTree ? "treegrid" : "grid");
    this.table.createCaption().textContent = options.caption;
    container.setAttribute("aria-label", options.caption);
    this.head();
    this.body = this.table.createTBody();
    [this.above, this.below] = [0, 1].map(() => make("tr", { className: "gap", ariaHidden: "true" }, make("td")));
    this.body.append(this.above, this.below);
    this.empty = make("p", { className: "empty" });
    container.append(this.table, this.empty);
    container.tabIndex = 0;
    container.setAttribute("role", "group");
    container.classList.toggle("open", Boolean(options.onOpen));
    this.scroller.addEventListener("scroll", () => this.render(), { passive: true });
    container.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.render()).observe(this.scroller);
  }

  // Sets the head of the first column.
  setTitle(text) {
    setLong(this.heads[0], text);
  }

  head() {
    const row = this.table.createTHead().insertRow();
    this.heads = this.columns.map((column) => {
      const head = make("th", { scope: "col", className: column.className ?? "" });
      if (column.key) {
        head.append(makeButton(column.title, () => this.options.onSort(column.key)));
      } else {
        setLong(head, column.title);
      }
      row.append(head);
      return head;
    });
  }

  // Marks the sorted column.
  setSort(key, descending) {
    this.columns.forEach((column, index) => {
      if (column.key === key) this.heads[index].setAttribute("aria-sort", descending ? "descending" : "ascending");
      else this.heads[index].removeAttribute("aria-sort");
    });
  }

  setItems(items) {
    this.items = items;
    this.render();
  }

  // Renders the visible rows.
  render() {
    const { items, container, scroller } = this;
    this.height = parseFloat(getComputedStyle(this.table).getPropertyValue("--row")) || 30;
    setText(this.empty, items.length ? "" : this.options.empty());
    this.table.setAttribute("aria-rowcount", String(items.length + 1));
    const at = Math.floor(this.hidden() / this.height) - MARGIN;
    const first = Math.min(Math.max(0, at), items.length);
    const last = Math.min(items.length, Math.max(first, at + Math.ceil(scroller.clientHeight / this.height) + 2 * MARGIN));
    const wanted = new Set(items.slice(first, last).map(this.options.keyOf));
    for (const [key, row] of this.rows) {
      if (!wanted.has(key)) {
        row.remove();
        this.rows.delete(key);
      }
    }
    let before = this.above;
    for (let index = first; index < last; index += 1) {
      const row = this.row(items[index]);
      row.setAttribute("aria-rowindex", String(index + 2));
      if (before.nextSibling !== row) before.after(row);
      before = row;
    }
    this.above.style.height = `${first * this.height}px`;
    this.below.style.height = `${(items.length - last) * this.height}px`;
    const active = this.selected !== null && this.rows.get(this.selected);
    if (active) container.setAttribute("aria-activedescendant", active.id);
    else container.removeAttribute("aria-activedescendant");
  }

  row(item) {
    const key = this.options.keyOf(item);
    let row = this.rows.get(key);
    if (!row) {
      row = make("tr", { className: "row", id: `${this.options.id}-${(this.numbered = (this.numbered ?? 0) + 1)}` });
      for (const column of this.columns) {
        const cell = row.insertCell();
        cell.className = column.className ?? "";
      }
      row.addEventListener("click", () => this.choose(row.item, true));
      this.rows.set(key, row);
    }
    row.item = item;
    row.setAttribute("aria-selected", String(key === this.selected));
    if (this.options.isTree) {
      row.setAttribute("aria-level", String(item.level));
      if (item.expanded === undefined) row.removeAttribute("aria-expanded");
      else row.setAttribute("aria-expanded", String(item.expanded));
    }
    this.columns.forEach((column, index) => column.fill(row.cells[index], item));
    return row;
  }

  // Selects an item, and opens it.
  choose(item, open) {
    if (!item) return;
    this.selected = this.options.keyOf(item);
    this.render();
    if (open) this.options.onOpen?.(item);
  }

  // The height of the rows above the visible part; negative if there is something else above them.
  hidden() {
    return this.scroller.getBoundingClientRect().top - this.above.getBoundingClientRect().top;
  }

  // Scrolls until a row is visible below the head.
  reveal(index) {
    const { scroller } = this;
    const top = index * this.height - this.hidden();
    const [above, below] = [top - this.table.tHead.offsetHeight, top + this.height - scroller.clientHeight];
    if (above < 0) scroller.scrollTop += above;
    else if (below > 0) scroller.scrollTop += below;
  }

  onKey(event) {
    if (event.target !== this.container || event.ctrlKey || event.metaKey || event.altKey) return;
    const { items } = this;
    const at = items.findIndex((item) => this.options.keyOf(item) === this.selected);
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.height) - 2);
    const steps = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: items.length - 1 };
    if (event.key in steps) {
      event.preventDefault();
      const to = Math.min(Math.max(steps[event.key], 0), items.length - 1);
      if (to < 0) return;
      this.reveal(to);
      this.choose(items[to], false);
    } else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && at >= 0 && this.options.onFold) {
      event.preventDefault();
      this.options.onFold(items[at], event.key === "ArrowRight");
    } else if (event.key === "Enter" && at >= 0) {
      event.preventDefault();
      this.choose(items[at], true);
    }
  }
}

// Escapes, as the command does, what has no width or changes the direction of a text.
export const shown = (text) => String(text).replace(/[\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (hidden) => `\\u{${hidden.charCodeAt().toString(16)}}`);

const setter = (property) => (element, text) => {
  const visible = shown(text);
  if (element[property] !== visible) element[property] = visible;
};
// Sets the text or the tooltip of an element, if it is another one.
export const [setText, setTip] = ["textContent", "title"].map(setter);

// Sets the text of a cell, and the same as its tooltip, because long texts are cut off.
export function setLong(cell, text) {
  setText(cell, text);
  setTip(cell, text);
}

// Sets the badges of a state: pairs of a class and a text.
export function setBadges(element, badges) {
  const key = JSON.stringify(badges);
  if (element.dataset.badges === key) return;
  element.dataset.badges = key;
  element.replaceChildren(...badges.map(([className, text]) => Object.assign(span(`badge ${className}`, text), { title: text })));
}

// Fills a cell with parts: pairs of a class and a text, or badges.
export function fillParts(cell, parts) {
  if (!cell.firstChild) cell.append(make("div", { className: "who" }, ...parts.map(([className]) => span(className, ""))));
  const who = cell.firstChild;
  parts.forEach(([, content], index) => (Array.isArray(content) ? setBadges : setLong)(who.children[index], content));
  return who;
}

// Makes an element of parts: safe texts, and elements.
export function make(tag, properties, ...parts) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...parts);
  return element;
}

export const span = (className, text) => make("span", { className }, shown(text));

export const makeButton = (text, onclick, className = "") => make("button", { type: "button", className, onclick }, text);

// The two largest units of a time, rounded down.
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "";
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  if (minutes === 0) return `${seconds} s`;
  if (hours === 0) return `${minutes} m ${seconds % 60} s`;
  if (days === 0) return `${hours} h ${minutes % 60} m`;
  return `${days} d ${hours % 24} h`;
}
