// All experiments and sweeps of a folder: filtered, selected, compared; with a server, up to date.

const SECONDS = 2;
const CHOSEN = new Set();
const id = name => document.getElementById(name);
let {entries, connects} = JSON.parse(id("data").textContent);
let drawn = "";

function plural(number, one) {
  return `${number} ${one}${number === 1 ? "" : "s"}`;
}

function matches(entry) {
  const text = [entry.folder, entry.name, entry.world, entry.finding, entry.algorithms.join(" "),
    ...Object.entries(entry.settings).map(([key, value]) => `${key} = ${value}`)].join("\n").toLowerCase();
  const words = id("search").value.toLowerCase().split(/\s+/).filter(word => word);
  const algorithm = id("algorithm").value, kind = id("kind").value;
  return words.every(word => text.includes(word)) && (!algorithm || entry.algorithms.includes(algorithm)) &&
    (!kind || entry.kind === kind);
}

function stateOf({running, done, runs, share}) {
  const text = `${running ? "running" : "stopped"}: ${runs === null ? plural(done, "run") : `${done} of ${plural(runs, "run")}`} done`;
  const bar = element("progress", {max: 1, value: share, "aria-label": "share that is done"});
  return element("div", {class: "state"}, ...(runs === null ? [] : [bar]), text + (runs === null ? "" : `, ${Math.floor(100 * share)} %`));
}

function item(entry, place) {
  const box = element("input", {type: "checkbox", id: `box-${place}`});
  box.checked = CHOSEN.has(entry.folder);
  box.addEventListener("change", () => {
    if (box.checked) CHOSEN.add(entry.folder); else CHOSEN.delete(entry.folder);
    compare_chosen();
  });
  const body = element("div", {}, element("label", {for: `box-${place}`}, element("b", {}, entry.folder)),
    element("span", {class: "tag"}, entry.kind), element("p", {}, entry.finding.replaceAll(" %", "\u00a0%")));
  if (entry.problem) body.append(element("p", {class: "problem"}, entry.problem));
  body.append(element("p", {class: "quiet"}, [entry.world, entry.kind === "sweep" ? "" : entry.algorithms.join(", ")].filter(part => part).join(" · ")));
  if (entry.progress) body.append(stateOf(entry.progress));
  if (entry.report) {
    const path = [entry.folder, entry.report].map(part => encodeURIComponent(part.replace(/\p{Cs}/gu, "?"))).join("/");
    body.append(element("p", {}, element("a", {href: path, "aria-label": `Report of ${entry.folder}`}, "Report")));
  }
  const [day, time] = entry.finished.split("T");
  return element("li", {}, box, body, element("span", {class: "date"}, entry.finished ? `${day} ${time.slice(0, 5)} UTC` : ""));
}

function draw() {
  const shown = entries.filter(matches);
  const text = JSON.stringify([shown, [...CHOSEN]]);
  if (text === drawn) return;
  drawn = text;
  const focused = document.activeElement?.id;
  id("entries").replaceChildren(...shown.map(entry => item(entry, entries.indexOf(entry))));
  if (focused?.startsWith("box-")) id(focused)?.focus();
  const kinds = ["experiment", "sweep"].map(kind => [shown.filter(one => one.kind === kind).length, kind]);
  const named = kinds.filter(([number]) => number).map(([number, kind]) => plural(number, kind)).join(" and ");
  const running = shown.filter(one => one.progress?.running).length;
  id("count").textContent = (named || (entries.length ? "None matches" : "No experiments yet")) +
    (running ? `, ${running} running` : "");
  compare_chosen();
}

function fill(table, first, columns, rows) {
  const head = table.tHead.rows[0];
  head.replaceChildren(...[first, ...columns].map(name => element("th", {scope: "col"}, name)));
  table.tBodies[0].replaceChildren(...rows.map(([name, ...cells]) =>
    element("tr", {}, element("th", {scope: "row"}, name), ...cells.map(cell => element("td", {}, cell ?? "–")))));
}

function compare_chosen() {
  const chosen = entries.filter(entry => CHOSEN.has(entry.folder));
  id("none").hidden = !chosen.length;
  id("compared").hidden = chosen.length < 2;
  id("hint").textContent = chosen.length < 2 && entries.length > 1 ? "Select two or more to compare their settings and results." : "";
  if (chosen.length < 2) return;
  const names = chosen.map(entry => entry.folder);
  id("compared-title").textContent = `${plural(chosen.length, "folder")} compared`;
  const results = new Map();
  chosen.forEach((entry, place) => {
    for (const {name, values} of entry.results) {
      for (const [label, text] of Object.entries(values)) {
        const key = `${label}: ${name}`;
        if (!results.has(key)) results.set(key, Array(chosen.length).fill(null));
        results.get(key)[place] = text;
      }
    }
  });
  fill(id("results"), "Result", names, [...results].filter(([, cells]) => cells.some(cell => cell && cell !== "–"))
    .map(([key, cells]) => [key, ...cells]));
  const read = chosen.map(entry => Object.keys(entry.settings).length > 0);
  const keys = [...new Set(chosen.flatMap(entry => Object.keys(entry.settings)))];
  const rows = keys.map(key => [key, ...chosen.map(entry => entry.settings[key] ?? null)]);
  const different = rows.filter(([, ...values]) => new Set(values.filter((_, place) => read[place])).size > 1);
  fill(id("differences"), "Setting", names, different);
  id("same").textContent = `${plural(rows.length - different.length, "other setting")} the same.`;
}

async function follow() {
  try {
    const answer = await fetch("entries.json");
    if (answer.ok) entries = await answer.json();
    id("lost").hidden = true;
    algorithms();
    draw();
  } catch {
    id("lost").hidden = false;
  }
  setTimeout(follow, 1000 * SECONDS);
}

function algorithms() {
  const known = new Set([...id("algorithm").options].map(option => option.value));
  for (const name of [...new Set(entries.flatMap(entry => entry.algorithms))].sort()) {
    if (!known.has(name)) id("algorithm").append(element("option", {value: name}, name));
  }
}

for (const name of ["search", "algorithm", "kind"]) id(name).addEventListener("input", draw);
id("none").addEventListener("click", () => { CHOSEN.clear(); draw(); });
algorithms();
draw();
if (connects) setTimeout(follow, 1000 * SECONDS);
