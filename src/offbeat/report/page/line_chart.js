// A chart of curves, each of a label: scales, zoom, hover, toggles.

const SHARE = " %";
const HOURS = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 6, 12, 24];  // between ticks, so that days begin at one

function plain(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace(/\.?0+e/, "e");
  return Number(value.toPrecision(size >= 1000 ? 6 : 3)).toLocaleString("en");
}

function interpolated(xs, ys, x) {
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  if (ys[low] === null || ys[high] === null) return ys[low];
  const span = xs[high] - xs[low];
  return span ? ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / span : ys[high];
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function sample(place) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("class", `sample line-${place}`);
  svg.setAttribute("viewBox", "0 0 28 8");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", "M0 4H28");
  path.setAttribute("stroke-dasharray", LABELS[place].dash.map(part => part * 2.5).join(" "));
  svg.append(path);
  return svg;
}

class LineChart {
  // view() returns {title, axis, hours, x, y, share, target, heading, curves}: x and y are "linear" or "log"; a curve has
  // label, x, y and may have low, high, reach, width, note, offScale, isBeside. Curves of one label are toggled together. It may have
  // available: edges and shares (%) of intervals of x, which the background shows.
  constructor(place, view) {
    this.view = view;
    this.hidden = new Set();
    this.readout = element("p", {class: "readout quiet"});
    this.legend = element("ul", {class: "legend"});
    this.plot = element("div", {class: "plot", tabindex: "0", role: "group"});
    this.reset = element("button", {type: "button", class: "reset", hidden: ""}, "Reset zoom");
    this.reset.addEventListener("click", () => this.draw());
    this.plot.addEventListener("keydown", event => this.move(event));
    this.together = element("p", {class: "note"});
    place.append(this.plot, element("div", {class: "side"}, this.readout, this.legend, this.together));
    new ResizeObserver(() => {
      const size = this.size();
      if (this.chart && this.chart.width !== size.width) this.chart.setSize(size);
    }).observe(this.plot);
    REDRAWS.push(() => this.draw(true));
    this.draw();
  }

  size() {
    const width = Math.max(200, Math.floor(this.plot.clientWidth));
    return {width, height: Math.round(Math.min(520, Math.max(270, width * 0.5)))};
  }

  draw(keep = false) {
    if (!keep) this.zoom = null;
    this.now = this.view();
    if (this.chart) this.chart.destroy();
    this.plot.replaceChildren(this.reset);
    this.reset.hidden = !this.zoom;
    this.shown = this.now.curves.map(curve => visible(curve, this.now));
    this.makeLegend();
    const tables = this.shown.map(curve => [curve.x, curve.y]);
    this.chart = new uPlot(this.options(), tables.length ? uPlot.join(tables) : [[]], this.plot);
    this.plot.setAttribute("aria-label", `Line chart: ${this.now.title} over ${this.now.axis}, for ` +
      `${this.labels().map(label => LABELS[label].name).join(", ")}. Left and right arrow keys read the values.`);
    takeTurns(this);
    this.read(null);
  }

  ownDash(curve) {
    return LABELS[curve.label].dash.map(part => part * (curve.width || 2.5));
  }

  zoomTo({left, top, width, height}) {
    if (width <= 0) return;
    const {chart} = this;
    this.zoom = {
      x: [chart.posToVal(left, "x"), chart.posToVal(left + width, "x")],
      y: [chart.posToVal(top + height, "y"), chart.posToVal(top, "y")],
    };
    this.reset.hidden = false;
    chart.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
    for (const [key, [min, max]] of Object.entries(this.zoom)) chart.setScale(key, {min, max});
  }

  labels() {
    return [...new Set(this.now.curves.map(curve => curve.label))];
  }

  options() {
    const {now} = this;
    const axis = (title, format) => ({
      stroke: css("--quiet"), label: title, labelFont: FONT, font: FONT, labelSize: 26, labelGap: 4,
      grid: {stroke: css("--grid"), width: 1}, ticks: {show: false}, values: (_, splits) => splits.map(format),
    });
    const scale = (name, range) => ({time: false, distr: now[name] === "log" ? 3 : 1, range});
    const width = this.plot.clientWidth;
    return {
      ...this.size(),
      padding: [12, 14, 0, 0],
      legend: {show: false},
      cursor: {
        drag: {x: true, y: true, uni: 20, dist: 5, setScale: false}, points: {show: false}, y: false,
        bind: {dblclick: () => () => { this.draw(); return null; }},
      },
      scales: {x: scale("x", chart => this.limits(chart, "x")), y: scale("y", chart => this.limits(chart, "y"))},
      axes: [
        {...axis(now.axis, tick()), size: 30, space: width < 500 ? 60 : 80, ...(now.hours && now.x === "linear" && {incrs: HOURS})},
        {...axis(now.title, tick(now.share ? SHARE : "")), size: 62, space: 34},
      ],
      series: [{}, ...this.shown.map(curve => ({
        show: !this.hidden.has(curve.label), stroke: colour(curve.label), width: curve.width || 2.5, spanGaps: true,
        dash: this.ownDash(curve), points: {show: curve.x.length === 1},
      }))],
      hooks: {
        drawAxes: [chart => { this.drawAvailable(chart); this.drawBands(chart); }],
        draw: [chart => this.drawTarget(chart)],
        setCursor: [chart => this.read(chart.cursor.left >= 0 ? chart.posToVal(chart.cursor.left, "x") : null)],
        setSelect: [chart => this.zoomTo(chart.select)],
      },
    };
  }

  limits(chart, key) {
    if (this.zoom) return this.zoom[key];
    // Of all labels that are shown: seeds are seen, and what of a band lies beyond them is cut off.
    let low = Infinity, high = -Infinity;
    const take = value => {
      if (value === null || value === undefined || (this.now[key] === "log" && value <= 0)) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    const shown = this.shown.filter(curve => !this.hidden.has(curve.label));
    for (const curve of shown) {
      if (key !== "y" || !curve.offScale) curve[key].forEach(take);
      if (key === "y" && curve.reach) curve.reach.forEach(take);
    }
    if (low > high) shown.forEach(curve => curve[key].forEach(take)); // all have diverged
    if (key === "y") take(this.now.target);
    if (low > high) return [this.now[key] === "log" ? 0.1 : 0, 1];
    if (this.now[key] === "log") return key === "x" && low < high ? [low, high] : [low / 1.1, high * 1.1];
    if (key === "x") return [Math.min(0, low), high > Math.min(0, low) ? high : 1];
    const space = (high - low || Math.abs(high) || 1) * 0.06;
    if (this.now.share) return [Math.max(low - space, -1), Math.min(high + space, 101)];
    return [low >= 0 && low < space * 3 ? -space / 4 : low - space, high + space];
  }

  drawAvailable(chart) {
    const {ctx, bbox} = chart, {available} = this.now;
    if (!available) return;
    const at = x => Math.min(bbox.left + bbox.width, Math.max(bbox.left, Math.round(chart.valToPos(x, "x", true))));
    ctx.save();
    ctx.fillStyle = css("--ink");
    available.shares.forEach((share, i) => {
      const from = this.now.x === "log" && available.edges[i] <= 0 ? bbox.left : at(available.edges[i]);
      ctx.globalAlpha = 0.0013 * share;
      ctx.fillRect(from, bbox.top, at(available.edges[i + 1]) - from, bbox.height);
    });
    ctx.restore();
  }

  drawBands(chart) {
    const {ctx, bbox} = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const curve of this.shown) {
      if (!curve.low || this.hidden.has(curve.label)) continue;
      const floor = chart.scales.y.min;
      const points = curve.x.map((x, i) => [x, curve.low[i], curve.high[i]]).filter(point => point[2] !== null);
      const at = (x, y) => [chart.valToPos(x, "x", true), chart.valToPos(this.now.y === "log" ? Math.max(y, floor) : y, "y", true)];
      ctx.beginPath();
      for (const [x, , high] of points) ctx.lineTo(...at(x, high));
      for (const [x, low] of points.reverse()) ctx.lineTo(...at(x, low));
      ctx.fillStyle = colour(curve.label);
      ctx.globalAlpha = 0.15;
      ctx.fill();
    }
    ctx.restore();
  }

  drawTarget(chart) {
    const {target, share} = this.now;
    if (target === null || target === undefined || (this.now.y === "log" && target <= 0)) return;
    const {ctx, bbox} = chart, y = chart.valToPos(target, "y", true);
    if (y < bbox.top || y > bbox.top + bbox.height) return;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = css("--quiet");
    ctx.lineWidth = 1.5 * uPlot.pxRatio;
    ctx.setLineDash([3 * uPlot.pxRatio, 4 * uPlot.pxRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.font = `${13 * uPlot.pxRatio}px ${FAMILY}`;
    ctx.textAlign = "right";  // curves cross the target near the left end
    ctx.textBaseline = "top";
    const words = `target ${plain(target)}${share ? SHARE : ""}`;
    const corner = [bbox.left + bbox.width - 6 * uPlot.pxRatio, y + 4 * uPlot.pxRatio];
    ctx.setLineDash([]);
    ctx.lineWidth = 4 * uPlot.pxRatio;
    ctx.lineJoin = "round";
    ctx.strokeStyle = css("--page");  // so that it can be read upon curves
    ctx.strokeText(words, ...corner);
    ctx.fillText(words, ...corner);
    ctx.restore();
  }

  makeLegend() {
    const last = label => {
      const ends = this.shown.filter(curve => curve.label === label).map(curve => curve.y[curve.y.length - 1] ?? -Infinity);
      return ends.reduce((sum, end) => sum + end, 0) / ends.length;
    };
    this.values = new Map();
    const items = this.labels().sort((one, other) => last(other) - last(one) || one - other).map(label => {
      const button = element("button", {type: "button", "aria-pressed": String(!this.hidden.has(label))});
      const value = element("small");
      this.values.set(label, value);
      button.append(sample(label), element("b", {}, LABELS[label].name), value);
      button.addEventListener("click", () => this.toggle(label, button));
      return element("li", {}, button);
    });
    this.legend.replaceChildren(...items);
  }

  toggle(label, button) {
    const show = this.hidden.delete(label);
    if (!show) this.hidden.add(label);
    button.setAttribute("aria-pressed", String(show));
    this.chart.batch(() => this.shown.forEach((curve, i) => {
      if (curve.label === label) this.chart.setSeries(i + 1, {show});
    }));
    takeTurns(this);
  }

  read(x) {
    const {share, axis, heading} = this.now;
    const digits = value => share && value !== null ? value.toFixed(1) : plain(value);
    this.readout.textContent = x === null ? heading : `${axis}: ${plain(x)}`;
    for (const [label, place] of this.values) {
      const texts = this.shown.filter(curve => curve.label === label && !curve.isBeside).map(curve => {
        if (x === null && curve.note !== undefined) return curve.note;
        const at = x ?? curve.x[curve.x.length - 1];
        const low = curve.low ? interpolated(curve.x, curve.low, at) : null;
        const high = curve.low ? interpolated(curve.x, curve.high, at) : null;
        const interval = low === null ? "" : ` (${digits(low)} … ${digits(high)})`;
        const value = interpolated(curve.x, curve.y, at);
        return digits(value) + (share && value !== null ? SHARE : "") + interval;
      });
      place.textContent = texts.slice(0, 5).join(" · ") + (texts.length > 5 ? " …" : "");
    }
  }

  move(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (event.key === "Escape") this.draw();
    if (!step || event.target !== this.plot) return;
    event.preventDefault();
    const width = this.chart.over.clientWidth, left = this.chart.cursor.left;
    const next = left < 0 ? (step > 0 ? 0 : width) : Math.min(width, Math.max(0, left + step * width / 50));
    this.chart.setCursor({left: next, top: this.chart.over.clientHeight / 2});
  }
}

// The points that a logarithmic axis can show.
function visible(curve, now) {
  const keep = curve.x.map((x, i) => x !== null && (now.x !== "log" || x > 0) && (now.y !== "log" || curve.y[i] === null || curve.y[i] > 0));
  const chosen = values => values && values.filter((_, i) => keep[i]);
  return {...curve, x: chosen(curve.x), y: chosen(curve.y), low: chosen(curve.low), high: chosen(curve.high)};
}

function tick(unit = "") {
  return value => value === null ? "" : plain(value) + unit;
}

function colour(place) {
  return getComputedStyle(document.querySelector(`.line-${place}`)).color;
}
