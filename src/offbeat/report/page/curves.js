// The main chart: a measure over a cost.

function smooth(values, reach) {
  // The mean of each value and of up to `reach` neighbours on either side.
  return values && values.map((value, i) => {
    if (value === null) return null;
    const near = Math.min(reach, i, values.length - 1 - i);
    const part = values.slice(i - near, i + near + 1).filter(one => one !== null);
    return part.reduce((sum, one) => sum + one, 0) / part.length;
  });
}

function curvesOf(over, measure, mode, reach) {
  const seeds = CURVES.seeds.filter(run => run.x[over]);
  const number = label => seeds.filter(run => run.label === label).length, single = label => number(label) === 1;
  const of = (curve, x) => ({label: curve.label, x, y: smooth(curve.y[measure], reach)});
  // Of a few seeds, each is drawn beside the mean, in place of a band. The legend reads the mean.
  const lines = seeds.filter(run => mode === "seeds" || number(run.label) < CURVES.band).map(run => ({
    ...of(run, run.x[over]), width: single(run.label) ? 2.5 : 1.2, offScale: run.diverged,
    isBeside: mode !== "seeds" && !single(run.label),
  }));
  if (mode === "seeds") return lines;
  const means = CURVES.means.filter(mean => mean.axis === over).map(mean => {
    const runs = seeds.filter(run => run.label === mean.label), offScale = runs.some(run => run.diverged);
    const own = runs.filter(run => !run.diverged).flatMap(run => run.y[measure]).filter(y => y !== null);
    const lowest = own.reduce((low, y) => Math.min(low, y), Infinity);
    const highest = own.reduce((high, y) => Math.max(high, y), -Infinity);
    const low = smooth(mean.low[measure], reach), high = smooth(mean.high[measure], reach);
    return {
      ...of(mean, mean.x), low, high, offScale,
      reach: offScale ? own : [...low, ...high].filter(y => y !== null).map(y => Math.min(highest, Math.max(lowest, y))),
    };
  });
  return [...lines, ...means].filter(curve => curve.y.some(y => y !== null)).sort((one, other) => one.label - other.label);
}

function switches(place, name, choices, change) {
  const field = place.querySelector(`[data-name="${name}"]`);
  const group = `${place.id}-${name}`;
  choices.forEach(([value, text], i) => {
    const input = element("input", {type: "radio", name: group, value});
    input.checked = i === 0;
    input.addEventListener("change", change);
    field.append(element("label", {}, input, element("span", {}, text)));
  });
  field.hidden = choices.length < 2;
  return () => field.querySelector("input:checked").value;
}

const SCALES = [["linear", "linear"], ["log", "log"]];

function mainChart() {
  const place = document.getElementById("curves");
  place.hidden = false;
  const redraw = () => chart.draw();
  const axes = Object.fromEntries(CURVES.axes.map(axis => [axis.key, axis]));
  const over = switches(place, "over", CURVES.axes.map(axis => [axis.key, axis.name]), redraw);
  const x = switches(place, "x", SCALES, redraw), y = switches(place, "y", SCALES, redraw);
  const several = CURVES.means.length > 0;
  const hasBands = CURVES.means.some(mean => Object.values(mean.low).some(low => low.some(y => y !== null)));
  const means = hasBands ? "mean with its 95 % interval" : "mean and seeds";
  const lines = switches(place, "lines", several ? [["mean", means], ["seeds", "each seed"]] : [["mean", ""]], redraw);
  const select = document.getElementById("measure"), range = document.getElementById("smoothing");
  CURVES.measures.forEach((measure, i) => select.append(element("option", {value: i}, measure.title)));
  select.parentElement.hidden = CURVES.measures.length < 2;
  select.addEventListener("change", redraw);
  range.addEventListener("input", () => {
    document.getElementById("smoothed").textContent = +range.value ? `over ${2 * range.value + 1} points` : "off";
    chart.draw(true);
  });
  const chart = new LineChart(place.querySelector(".chart"), () => {
    const measure = CURVES.measures[select.value], axis = axes[over()];
    document.getElementById("curves-title").textContent =
      `${measure.title[0].toUpperCase()}${measure.title.slice(1)} over ${axis.name}`;
    return {
      title: measure.title, axis: axis.title, hours: axis.hours, x: x(), y: y(), share: measure.share, target: measure.target,
      heading: "At the end:", available: over() === "seconds" ? CURVES.available : null,
      curves: curvesOf(over(), measure.key, lines(), +range.value),
    };
  });
  if (CURVES.available) {
    const {shares} = CURVES.available;
    place.append(element("p", {class: "note"},
      `Grey bands: the share of clients that are available, from ${Math.min(...shares)} to ${Math.max(...shares)} %; the more, the stronger.`));
  }
  if (CURVES.note) place.append(element("p", {class: "note"}, CURVES.note));
}

function sortedChart(id, data) {
  if (!data) return;
  const place = document.getElementById(id);
  place.hidden = false;
  const redraw = () => chart.draw();
  const x = place.querySelector('[data-name="x"]') ? switches(place, "x", SCALES, redraw) : () => "linear";
  const y = switches(place, "y", SCALES, redraw);
  const chart = new LineChart(place.querySelector(".chart"), () => ({
    title: data.title, axis: data.axis, x: x(), y: y(), share: data.share, target: null,
    heading: data.heading, curves: data.curves,
  }));
}
