// Elements, tables and numbers. All text goes in as text, never as HTML.

export function byId(id) {
  return document.getElementById(id);
}

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function drawn(tag, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// Changes nothing that is right already, so that a selection or a screen reader is not disturbed.
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Rows that stay in place, so that the focus does: make(row, item) fills a new one, update(row, item) any.
export function fillRows(body, items, key, make, update) {
  const known = new Map([...body.rows].map(row => [row.dataset.key, row]));
  items.forEach((item, place) => {
    const name = String(key(item));
    let row = known.get(name);
    known.delete(name);
    if (!row) {
      row = element("tr");
      row.dataset.key = name;
      make(row, item);
    }
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] ?? null);
    update(row, item);
  });
  for (const row of known.values()) row.remove();
}

// Rows of text only; the first cell of each is its header.
export function fillTexts(body, rows, isNumber = () => true) {
  const make = (row, cells) => cells.forEach((_, column) => row.append(
    column ? element("td", isNumber(column) ? {class: "number"} : {}) : element("th", {scope: "row"})));
  const update = (row, cells) => cells.forEach((text, column) => write(row.cells[column], text));
  fillRows(body, rows, cells => cells[0], make, update);
}

export function plain(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e9)) return value.toExponential(2).replace(/\.?0+e/, "e");
  return Number(value.toPrecision(size >= 1000 ? 9 : 3)).toLocaleString("en");
}

// The words of a text, which spaces or commas part.
export function words(text) {
  return text.split(/[\s,]+/).filter(word => word);
}

export function siteName({client, name}) {
  return name || `client ${client}`;
}

// What needs a person, or a calm line.
export function showProblems(problems, calm) {
  const place = byId("problems"), list = place.lastElementChild;
  place.className = problems.length ? "notice bad" : "notice calm";
  write(place.firstElementChild, problems.length ? "" : calm);
  while (list.children.length > problems.length) list.lastElementChild.remove();
  problems.forEach((problem, row) => write(list.children[row] ?? list.appendChild(element("li")), problem));
}

// Facts in a line; nested ones are left out.
export function facts(values) {
  const shown = Object.entries(values).filter(([, value]) => typeof value !== "object" || Array.isArray(value));
  return shown.map(([name, value]) => `${name}: ${typeof value === "number" ? plain(value) : typeof value === "string" ? value : JSON.stringify(value)}`).join(" · ");
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [name, size] = UNITS.find(([, size]) => Math.abs(seconds) >= 1.5 * size) ?? UNITS[3];
  const amount = seconds / size;
  return `${amount < 10 && size > 1 ? Math.round(amount * 10) / 10 : Math.round(amount)} ${name}`;
}

// The unit for the axis of times up to so many seconds.
export function unitOf(seconds) {
  const [name, size] = UNITS.find(([, size]) => seconds >= 2 * size) ?? UNITS[3];
  return {name, size};
}

export function ago(unix) {
  if (unix === null || unix === undefined) return "never";
  const seconds = Date.now() / 1000 - unix;
  return seconds < 10 ? "just now" : `${duration(seconds)} ago`;
}
