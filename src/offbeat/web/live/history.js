// The run's history: versions over time, and evaluations.

const MOST = 4096;  // entries that are kept
const STATISTICS = /^client_(.+)_(mean|p10|p50|p90|worst)$/;

export class History {
  constructor() {
    this.versions = [[0, 0]];  // seconds, version
    this.evaluations = [];  // version, values by name
  }

  take(entries) {
    if (entries.whole) {
      this.versions = [[0, 0]];
      this.evaluations = [];
    }
    this.versions.push(...entries.versions);
    this.evaluations.push(...entries.evaluations);
    for (const name of ["versions", "evaluations"]) {
      if (this[name].length > MOST) this[name] = thinned(this[name], name === "versions" ? 1 : 0);
    }
    return entries.whole || entries.versions.length + entries.evaluations.length > 0;
  }

  // The names of metrics: those of the server, and the means of clients, weighted by examples.
  metrics() {
    const names = new Set();
    for (const [, values] of this.evaluations) for (const name of Object.keys(values)) {
      if (!STATISTICS.test(name)) names.add(name);
    }
    return [...names].sort((one, other) => rank(one) - rank(other) || one.localeCompare(other));
  }

  // The points of a metric over "seconds" or "version"; low and high are the clients' 10th and 90th percentile.
  series(metric, over) {
    const found = this.evaluations.filter(([, values]) => metric in values);
    const points = found.map(([version, values]) => ({
      x: over === "version" ? version : this.secondsOf(version),
      y: values[metric],
      low: values[`${metric}_p10`] ?? null,
      high: values[`${metric}_p90`] ?? null,
    }));
    return points.sort((one, other) => one.x - other.x);
  }

  // When a version was made, between the versions that are kept.
  secondsOf(version) {
    const {versions} = this;
    let low = 0, high = versions.length - 1;
    if (version >= versions[high][1]) return versions[high][0];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (versions[middle][1] <= version) low = middle; else high = middle;
    }
    const [[from, first], [to, last]] = [versions[low], versions[high]];
    return last === first ? to : from + (to - from) * (version - first) / (last - first);
  }
}

// At most half of the entries that are kept: those of every 2^k-th version, and the newest.
function thinned(all, column) {
  let kept = all;
  for (let stride = 2; kept.length > MOST / 2; stride *= 2) {
    kept = all.filter((entry, place) => entry[column] % stride === 0 || place === all.length - 1);
  }
  return kept;
}

function rank(name) {
  const place = ["accuracy", "client_accuracy"].indexOf(name);
  if (place >= 0) return place;
  return name.endsWith("loss") ? 4 : 2 + name.startsWith("client_");
}
