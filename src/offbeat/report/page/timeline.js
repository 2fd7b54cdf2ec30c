// The time line: a bar for each visit, a row for each client.

class Timeline {
  constructor(place, label, visits) {
    this.visits = visits;
    this.label = label;
    this.read = element("span", {class: "quiet"});
    this.plot = element("div", {class: "plot", role: "img", "aria-label":
      `Time lines of ${visits.row.length} visits of ${LABELS[label].name}: when each client worked, and the outcome.`});
    place.append(element("figure", {},
      element("figcaption", {}, sample(label), element("b", {}, LABELS[label].name), " ", this.read), this.plot));
    new ResizeObserver(() => {
      const width = this.plot.clientWidth;
      if (this.chart && this.chart.width !== width) this.chart.setSize({width, height: 210});
    }).observe(this.plot);
    REDRAWS.push(() => this.draw());
    this.draw();
  }

  draw() {
    if (this.chart) this.chart.destroy();
    const rows = Math.max(1, TIMELINE.clients.length);
    const axis = {stroke: css("--quiet"), font: FONT, ticks: {show: false}};
    this.chart = new uPlot({
      width: Math.max(200, this.plot.clientWidth), height: 210, padding: [6, 10, 0, 0], legend: {show: false},
      cursor: {drag: {x: true, y: false, dist: 5}, sync: {key: "timeline"}, points: {show: false}, y: false},
      scales: {x: {time: false, range: (_, low, high) => high > low ? [low, high] : [0, TIMELINE.end]}, y: {range: [-0.7, rows - 0.3]}},
      axes: [
        {...axis, grid: {stroke: css("--grid"), width: 1}, values: (_, splits) => splits.map(tick()), size: 28, space: 70},
        {...axis, grid: {show: false}, size: 62, splits: rows > 1 ? [0, rows - 1] : [0], filter: (_, splits) => splits,
          values: () => ["fastest", "slowest"].slice(0, rows)},
      ],
      series: [{}, {show: true, paths: () => null, points: {show: false}}],
      hooks: {draw: [chart => this.bars(chart)], setCursor: [chart => this.say(chart)]},
    }, [[0, TIMELINE.end], [0, rows - 1]], this.plot);
  }

  bars(chart) {
    const {ctx, bbox} = chart, {row, begin, end, outcome} = this.visits;
    const rows = Math.max(1, TIMELINE.clients.length);
    const height = Math.max(1, Math.min(6 * uPlot.pxRatio, 0.82 * bbox.height / rows));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const colours = TIMELINE.outcomes.map(name => css(`--${name}`));
    row.forEach((place, i) => {
      const from = chart.valToPos(begin[i], "x", true), to = chart.valToPos(end[i], "x", true);
      ctx.fillStyle = colours[outcome[i]];
      ctx.fillRect(from, chart.valToPos(place, "y", true) - height / 2, Math.max(to - from - 1, 1), height);
    });
    ctx.restore();
  }

  say(chart) {
    const {left, top} = chart.cursor;
    this.read.textContent = "";
    if (left < 0) return;
    const x = chart.posToVal(left, "x"), place = Math.round(chart.posToVal(top, "y"));
    const {row, begin, end, outcome, staleness} = this.visits;
    const i = row.findIndex((one, i) => one === place && begin[i] <= x && x <= end[i]);
    if (i < 0) return;
    const stale = staleness[i] === null ? "" : `, staleness ${staleness[i]}`;
    this.read.textContent = `client ${TIMELINE.clients[place]}, ${plain(begin[i])} to ${plain(end[i])}: ` +
      `${TIMELINE.outcomes[outcome[i]]}${stale}`;
  }
}

function timelines() {
  const place = document.getElementById("timeline");
  place.hidden = false;
  place.querySelector(".axis").textContent = `${TIMELINE.title}; a row for each of ${TIMELINE.rows}. ${TIMELINE.note}`;
  for (const name of TIMELINE.outcomes) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("class", `swatch ${name}`);
    svg.append(document.createElementNS("http://www.w3.org/2000/svg", "rect"));
    place.querySelector(".outcomes").append(element("li", {}, svg, name));
  }
  TIMELINE.visits.forEach((visits, label) => new Timeline(place.querySelector(".panels"), label, visits));
}
