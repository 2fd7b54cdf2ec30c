// The panels that show the newest data.

import {Histogram, LineChart} from "./charts.js";
import {byId, duration, element, fillRows, fillTexts, plain, showProblems, siteName, unitOf, write} from "./dom.js";
import {showFacts, showTiles} from "./facts.js";

const BARS = 24;

export class Panels {
  constructor(history) {
    this.history = history;
    this.quality = new LineChart(byId("quality"));
    this.versions = new LineChart(byId("versions"));
    this.participation = new LineChart(byId("participation"));
    this.histogram = new Histogram(document.querySelector("#staleness .histogram-place"));
    for (const id of ["metric", "over"]) byId(id).addEventListener("change", () => this.showQuality());
    setInterval(() => this.state && this.showVisits(), 1000);
  }

  take({seconds, state, history}) {
    const hasChanged = this.history.take(history);
    this.state = state;
    this.seconds = seconds;
    this.at = performance.now();
    byId("panels").hidden = false;
    const {problems, finished, version, stop_versions: stop} = state.status;
    const end = `The run has ended.${version >= (stop ?? Infinity) ? " Extend it to continue." : ""}`;
    showProblems(problems, finished ? end : "Nothing needs attention.");
    this.showTiles();
    this.showStaleness();
    this.showParticipation();
    this.showWork();
    this.showRefusals();
    this.showPrivacy();
    if (hasChanged) this.showQuality();
    this.showVersions();
  }

  showTiles() {
    const {status, visits} = this.state, stop = status.stop_versions;
    write(byId("title"), `Offbeat · ${status.algorithm}`);
    write(byId("about"), `Run ${this.state.run}, ${duration(this.seconds)} so far`);
    document.title = `${status.algorithm}, version ${plain(status.version)} · Offbeat`;
    showTiles([
      ["Version", plain(status.version), stop === null ? "" : `of ${plain(stop)}`],
      ["Counted updates", plain(status.counted), status.unused ? `${plain(status.unused)} unused` : ""],
      ["At work", plain(visits.total), `${plain(status.waiting)} wait for work`],
      ["Enrolled", plain(status.enrolled), `of ${plain(status.clients)}`],
      ["Lost visits", plain(status.lost), `of ${plain(status.assigned)}`],
      ["Mean staleness", plain(status.mean_staleness), `largest ${plain(status.max_staleness)}`],
      ...status.best ? [this.best(status.best)] : [],
    ]);
  }

  best({metric, value, version}) {
    const newest = this.history.series(metric, "version").at(-1);
    return [`Best ${label(metric)}`, plain(value), `version ${plain(version)}${newest ? `; newest ${plain(newest.y)}` : ""}`];
  }

  showQuality() {
    const names = this.history.metrics(), select = byId("metric");
    if (names.join("\n") !== [...select.options].map(option => option.value).join("\n")) {
      const chosen = select.value;
      select.replaceChildren(...names.map(name => element("option", {value: name}, label(name))));
      if (names.includes(chosen)) select.value = chosen;
    }
    document.querySelector("#quality .controls").hidden = !names.length;
    const metric = select.value, over = byId("over").value;
    const points = metric ? this.history.series(metric, over) : [];
    const unit = unitOf(points.length ? points[points.length - 1].x : 0);
    const last = points[points.length - 1];
    this.quality.show({
      x: points.map(point => over === "version" ? point.x : point.x / unit.size), y: points.map(point => point.y),
      low: points.map(point => point.low), high: points.map(point => point.high),
      isWhole: over === "version", xTitle: over === "version" ? "Version" : `Time (${unit.name})`, yTitle: label(metric),
      label: last ? `Line chart of ${label(metric)}: ${plain(last.y)} at the end, ${points.length} evaluations.` : "",
    });
  }

  showVersions() {
    const {status} = this.state, stop = status.stop_versions;
    const points = [...this.history.versions];
    if (points[points.length - 1][0] < this.seconds) points.push([this.seconds, status.version]);
    const unit = unitOf(this.seconds);
    this.versions.show({
      x: status.version ? points.map(([seconds]) => seconds / unit.size) : [], y: points.map(([, version]) => version),
      xTitle: `Time (${unit.name})`, yTitle: "Version", isCount: true, isStepped: points.length < 200, target: stop,
      targetText: `the run ends at ${plain(stop)}`,
      label: `Line chart of versions over time: ${plain(status.version)} after ${duration(this.seconds)}.`,
    });
  }

  showStaleness() {
    const {staleness, allowed_staleness: allowed, status} = this.state;
    const bars = barsOf(staleness, allowed);
    const limit = allowed === null ? "no limit is set" : `at most ${plain(allowed)} counts (max_staleness)`;
    const text = `Of counted updates: mean ${plain(status.mean_staleness)}, largest ${plain(status.max_staleness)}; ${limit}`;
    write(document.querySelector("#staleness .summary"), text);
    this.histogram.show(bars, `Histogram. ${text}`);
  }

  showParticipation() {
    const {participation, status} = this.state;
    const hasAny = Boolean(participation && participation.gini !== null);
    const text = hasAny ? `Gini coefficient ${participation.gini.toFixed(3)}: 0 if all sites have the same number, near 1 if one has all. ` +
      `${plain(participation.without)} of ${plain(status.enrolled)} have no counted update.` : "";
    write(document.querySelector("#participation .summary"), text);
    const curve = hasAny ? participation.curve : [];
    this.participation.show({
      x: curve.map(([place]) => place + 1), y: curve.map(([, count]) => count),
      begin: 1, isWhole: true, isCount: true, xName: "Rank", xTitle: "Sites, most counted updates first", yTitle: "Counted updates", label: `Line chart. ${text}`,
    });
  }

  showWork() {
    const {buffer} = this.state, progress = byId("buffer");
    const of = buffer.size === null ? "" : ` of ${plain(buffer.size)}`;
    if (buffer.size === null) progress.removeAttribute("value");
    progress.hidden = buffer.size === null;
    if (buffer.size !== null) {
      progress.max = buffer.size;
      progress.value = Math.min(buffer.count, buffer.size);
    }
    const sealed = buffer.sealed ? `; ${plain(buffer.sealed)} ${buffer.sealed === 1 ? "sum waits" : "sums wait"} for the helper` : "";
    write(byId("buffer-text"), `${plain(buffer.count)}${of} updates${sealed}`);
    this.showVisits();
  }

  // Runs every second, too, since leases grow older.
  showVisits() {
    const {visits, lease_seconds: lease} = this.state, now = this.seconds + (performance.now() - this.at) / 1000;
    const more = visits.total > visits.first.length ? `; the ${visits.first.length} whose leases end first` : "";
    write(byId("visits-caption"), `${plain(visits.total)} ${visits.total === 1 ? "visit" : "visits"} in flight${more}`);
    byId("visits").tHead.hidden = !visits.first.length;
    const make = row => row.append(element("th", {scope: "row"}), element("td", {class: "number"}),
      element("td", {class: "number"}), element("td", {class: "number"}), element("td", {}, element("meter", {min: 0, "aria-hidden": "true"}), element("span")));
    fillRows(byId("visits").tBodies[0], visits.first, one => `${one.client}-${one.visit}`, make, (row, one) => {
      write(row.cells[0], siteName(one));
      write(row.cells[1], plain(one.visit));
      write(row.cells[2], plain(one.staleness));
      write(row.cells[3], one.lease_from === null ? "–" : duration(Math.max(0, now - one.lease_from)));
      const [meter, text] = row.cells[4].children;
      const left = one.lease_until === null ? null : Math.max(0, one.lease_until - now);
      meter.hidden = left === null || lease === null;
      if (!meter.hidden) {
        Object.assign(meter, {max: lease, low: lease / 10, high: lease / 4, optimum: lease, value: left});
      }
      write(text, left === null ? "no limit" : duration(left));
    });
  }

  showRefusals() {
    const rows = Object.entries(this.state.refusals).sort((one, other) => other[1] - one[1]);
    const place = byId("refusals"), table = place.querySelector("table");
    place.querySelector(".empty").hidden = rows.length > 0;
    table.hidden = !rows.length;
    fillTexts(table.tBodies[0], rows.map(([kind, count]) => [kind, plain(count)]));
  }

  showPrivacy() {
    const {privacy} = this.state.status;
    byId("privacy").hidden = !privacy;
    if (!privacy) return;
    const spent = value => value === null ? "unbounded, without noise" : `largest ${plain(value.largest)}, median ${plain(value.median)}`;
    const facts = [
      ["ε spent", `${spent(privacy.epsilon)} (δ = ${plain(privacy.delta)})`],
      ["ε, replace-one", spent(privacy.epsilon_replace_one)],
      ["Sums", `${plain(privacy.sums_opened)} opened, ${plain(privacy.sums_waiting)} waiting, ${plain(privacy.sums_discarded)} discarded`],
      ["Suspended sites", plain(privacy.suspended_clients)],
      ["Helper", privacy.helper ?? "none"],
    ];
    showFacts(document.querySelector("#privacy dl"), facts);
  }
}

function label(name) {
  return name.startsWith("client_") ? `${name.slice(7)} on clients` : name;
}

// Bars of equal width from 0 to the largest staleness, or to the largest that counts.
function barsOf(counts, allowed) {
  const largest = Math.max(allowed ?? 0, 9, ...counts.map(([staleness]) => staleness));
  const width = Math.ceil((largest + 1) / BARS);
  const bars = Array.from({length: Math.ceil((largest + 1) / width)}, (_, place) => (
    {from: place * width, to: (place + 1) * width - 1, value: 0, isBeyond: allowed !== null && place * width > allowed}));
  for (const [staleness, count] of counts) bars[Math.floor(staleness / width)].value += count;
  return bars;
}
