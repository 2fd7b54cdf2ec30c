// Charts, each with a table of its values.

import {css, drawn, element, fillTexts, plain, write} from "./dom.js";

const FONT = '12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif';
const MOST_ROWS = 40;
const WHOLE = [...Array(15).keys()].flatMap(power => [1, 2, 5].map(digit => digit * 10 ** power));  // steps of an axis

// The table below a chart; rows() is called only while it is open.
class ChartTable {
  constructor(titles, rows) {
    this.rows = rows;
    this.body = element("tbody");
    this.heads = titles.map((title, column) => element("th", {scope: "col", ...(column ? {class: "number"} : {})}, title));
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.node = element("details", {}, element("summary", {}, "As a table"), element("div", {class: "wide"}, table));
    this.node.addEventListener("toggle", () => this.update());
  }

  update() {
    if (this.node.open) fillTexts(this.body, sampled(this.rows()));
  }
}

function sampled(rows) {
  const step = Math.max(1, Math.ceil(rows.length / MOST_ROWS));
  return rows.filter((_, place) => (rows.length - 1 - place) % step === 0);
}

// A curve; show({x, y, low, high, xTitle, yTitle, label, isStepped, target}) draws it.
export class LineChart {
  constructor(place) {
    this.empty = place.querySelector(".empty");
    this.readout = element("p", {class: "readout quiet", "aria-live": "off"});
    this.plot = element("div", {class: "plot", tabindex: "0", role: "img"});
    this.table = new ChartTable(["", ""], () => this.now.x.map((x, i) => [plain(x), plain(this.now.y[i])]));
    this.figure = element("figure", {hidden: ""}, this.plot, this.readout, this.table.node);
    place.append(this.figure);
    this.plot.addEventListener("keydown", event => this.move(event));
    new ResizeObserver(() => {
      const width = this.width();
      if (this.chart && width && this.chart.width !== width) this.chart.setSize({width, height: this.height(width)});
    }).observe(this.plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(now) {
    this.now = now;
    this.empty.hidden = now.x.length > 0;
    this.figure.hidden = !now.x.length;
    if (!now.x.length) return;
    this.plot.setAttribute("aria-label", `${now.label} The arrow keys read single values.`);
    const titles = [now.xTitle, now.yTitle];
    this.table.heads.forEach((head, column) => write(head, titles[column]));
    this.table.update();
    const form = [...titles, now.isStepped, now.low?.some(value => value !== null)].join("\n");
    if (this.chart && this.form === form) this.chart.setData(this.data()); else this.draw();
    this.form = form;
    this.read(this.chart.cursor.idx);
  }

  data() {
    const {x, y, low, high} = this.now;
    return [x, y, low ?? x.map(() => null), high ?? x.map(() => null)];
  }

  width() {
    return Math.floor(this.plot.clientWidth);
  }

  height(width) {
    return Math.round(Math.min(300, Math.max(190, width * 0.45)));
  }

  draw() {
    if (!this.now?.x.length) return;
    this.chart?.destroy();
    const width = Math.max(200, this.width()), line = css("--line");
    const axis = (label, size, isWhole) => ({
      label, size, ...(isWhole ? {incrs: WHOLE} : {}), stroke: css("--quiet"), font: FONT, labelFont: FONT, labelSize: 20, labelGap: 2,
      grid: {stroke: css("--grid"), width: 1}, ticks: {show: false}, values: (_, splits) => splits.map(plain),
    });
    const edge = {stroke: "transparent", width: 0, points: {show: false}, spanGaps: true};
    this.chart = new uPlot({
      width, height: this.height(width), padding: [10, 12, 0, 0], legend: {show: false},
      cursor: {drag: {x: false, y: false, setScale: false}, y: false},
      scales: {x: {time: false, range: (_, low, high) => [this.now.begin ?? Math.min(0, low), high || 1]},
        y: {range: (_, low, high) => limits(this.now.isCount ? 0 : low, high, this.now.target)}},
      axes: [{...axis(this.now.xTitle, 26, this.now.isWhole), space: 60}, {...axis(this.now.yTitle, 52, this.now.isCount), space: 30}],
      bands: [{series: [3, 2], fill: css("--band")}],
      series: [{}, {
        stroke: line, width: 2, spanGaps: true, points: {show: () => this.now.x.length < 30, size: 5, fill: line},
        ...(this.now.isStepped ? {paths: uPlot.paths.stepped({align: 1})} : {}),
      }, edge, edge],
      hooks: {draw: [chart => this.drawTarget(chart)], setCursor: [chart => this.read(chart.cursor.idx)]},
    }, this.data(), this.plot);
  }

  drawTarget(chart) {
    const {target, targetText} = this.now;
    if (target === null || target === undefined) return;
    const {ctx, bbox} = chart, y = chart.valToPos(target, "y", true), pixel = uPlot.pxRatio;
    if (y < bbox.top || y > bbox.top + bbox.height) return;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = css("--quiet");
    ctx.setLineDash([4 * pixel, 4 * pixel]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.font = `${12 * pixel}px sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "top";
    ctx.fillText(targetText, bbox.left + 6 * pixel, y + 3 * pixel);
    ctx.restore();
  }

  read(place) {
    const {x, y, low, high, xTitle, yTitle, xName = xTitle} = this.now;
    const at = place ?? x.length - 1;
    const range = low && low[at] !== null ? ` (10th to 90th percentile: ${plain(low[at])} … ${plain(high[at])})` : "";
    write(this.readout, `${xName} ${plain(x[at])}: ${yTitle} ${plain(y[at])}${range}`);
  }

  move(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    this.readout.setAttribute("aria-live", "polite");
    const last = this.now.x.length - 1, at = this.chart.cursor.idx ?? (step > 0 ? -1 : last + 1);
    const place = Math.min(last, Math.max(0, at + step));
    this.chart.setCursor({left: this.chart.valToPos(this.now.x[place], "x"), top: 10});
  }
}

function limits(low, high, target) {
  if (low === null || high === null) return [0, 1];
  const top = target !== null && target !== undefined && target < 3 * high ? Math.max(high, target) : high;
  const space = (top - low || Math.abs(top) || 1) * 0.06;
  return [low >= 0 && low < 3 * space ? 0 : low - space, top + space];
}

// Bars; show({bars: [{from, to, value, isBeyond}], titles, label}) draws them.
export class Histogram {
  constructor(place) {
    this.svg = drawn("svg", {class: "histogram", preserveAspectRatio: "none", role: "img"});
    this.ends = element("div", {class: "ends quiet"});
    this.table = new ChartTable(["Staleness", "Updates"], () => this.bars.map(bar => [name(bar), plain(bar.value)]));
    place.append(element("figure", {}, this.svg, this.ends, this.table.node));
  }

  show(bars, label) {
    this.bars = bars;
    const most = Math.max(1, ...bars.map(bar => bar.value));
    this.svg.setAttribute("viewBox", `0 0 ${bars.length} 100`);
    this.svg.setAttribute("aria-label", label);
    this.svg.replaceChildren(...bars.map((bar, place) => {
      const height = bar.value ? Math.max(1, 100 * bar.value / most) : 0;
      const group = drawn("g", {class: bar.isBeyond ? "beyond" : ""});
      const title = drawn("title");
      title.textContent = `Staleness ${name(bar)}: ${plain(bar.value)} updates`;
      if (bar.isBeyond && !bars[place - 1]?.isBeyond) group.append(drawn("path", {class: "limit", d: `M${place} 0V100`}));
      group.append(title, drawn("rect", {class: "hit", x: place, y: 0, width: 1, height: 100}),
        drawn("rect", {x: place + 0.08, y: 100 - height, width: 0.84, height}));
      return group;
    }));
    const texts = [name(bars[0]), "versions made during the visit", name(bars[bars.length - 1])];
    this.ends.replaceChildren(...texts.map(text => element("span", {}, text)));
    this.table.update();
  }
}

function name({from, to}) {
  return from === to ? plain(from) : `${plain(from)} to ${plain(to)}`;
}
