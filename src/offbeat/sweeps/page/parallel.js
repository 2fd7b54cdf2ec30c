// Parallel coordinates: an axis a setting, the last one the measure, a line a trial. Dragging along an axis keeps the
// trials that pass there, in the chart and in the table below.

const SVG = "http://www.w3.org/2000/svg";
const TOP = 34, HEIGHT = 300, LEAST = 104; // pixels

function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

class Parallel {
  constructor(section, {label, axes, trials}) {
    Object.assign(this, {label, axes, kept: new Map()});
    this.trials = [...trials].sort((a, b) => b.places.at(-1) - a.places.at(-1) || a.number - b.number);
    this.rows = new Map([...section.querySelectorAll("tr[data-trial]")].map(row => [Number(row.dataset.trial), row]));
    this.place = section.querySelector(".parallel");
    this.readout = section.querySelector(".readout");
    this.reset = section.querySelector(".all");
    this.reset.addEventListener("click", () => { this.kept.clear(); this.draw(); });
    section.querySelector(".parallel-part").hidden = false;
    for (const [number, row] of this.rows) {
      row.addEventListener("pointerenter", () => this.point(number));
      row.addEventListener("pointerleave", () => this.point(null));
    }
    new ResizeObserver(() => { if (this.place.clientWidth !== this.seen) this.draw(); }).observe(this.place);
  }

  x(axis) {
    const last = this.axes.length - 1;
    return 50 + (this.width - 130) * (last ? axis / last : 0);
  }

  y(place) {
    return TOP + HEIGHT * (1 - place);
  }

  passes(trial) {
    return [...this.kept].every(([axis, [low, high]]) => low <= trial.places[axis] && trial.places[axis] <= high);
  }

  draw() {
    this.seen = this.place.clientWidth;
    this.width = Math.max(this.seen, this.axes.length * LEAST);
    const svg = shape("svg", {width: this.width, height: TOP + HEIGHT + 14, role: "img", "aria-label":
      `Parallel coordinates of ${this.trials.length} trials of ${this.label}: ${this.axes.map(axis => axis.name).join(", ")}.`});
    this.lines = new Map();
    const kept = this.trials.filter(trial => this.passes(trial));
    for (const trial of [...this.trials].reverse()) { // the best on top
      const points = trial.places.map((place, axis) => `${this.x(axis).toFixed(1)},${this.y(place).toFixed(1)}`);
      const state = this.passes(trial) ? (trial === this.trials[0] ? "best" : `fifth-${trial.fifth}`) : "left-out";
      const line = shape("polyline", {class: `trial ${state}`, points: points.join(" ")});
      this.lines.set(trial.number, line);
      svg.append(line);
    }
    this.axes.forEach((axis, i) => svg.append(this.axis(axis, i)));
    svg.addEventListener("pointermove", event => this.nearest(event, svg));
    svg.addEventListener("pointerleave", () => this.point(null));
    this.place.replaceChildren(svg);
    for (const trial of this.trials) {
      const row = this.rows.get(trial.number);
      if (row) row.hidden = !this.passes(trial);
    }
    this.reset.hidden = !this.kept.size;
    this.summary = this.kept.size ? `${kept.length} of ${this.trials.length} trials` :
      `${this.trials.length} trials; drag along an axis to keep the trials that pass there`;
    this.point(null);
  }

  axis(axis, i) {
    const x = this.x(i), group = shape("g", {class: "axis-of-setting"});
    const anchor = i === 0 ? "start" : i === this.axes.length - 1 ? "end" : "middle";
    const shift = i === 0 ? -45 : i === this.axes.length - 1 ? 75 : 0;
    const most = Math.floor((this.width - 130) / Math.max(1, this.axes.length - 1) / 7.2);
    const name = axis.name.length > most ? `…${axis.name.slice(1 - most)}` : axis.name;
    group.append(shape("text", {class: "name", x: x + shift, y: 14, "text-anchor": anchor}, name, shape("title", {}, axis.name)));
    group.append(shape("line", {x1: x, x2: x, y1: TOP, y2: TOP + HEIGHT}));
    let above = -Infinity;
    for (const {at, text} of [...axis.ticks].sort((a, b) => (b.at % 1 === 0) - (a.at % 1 === 0) || a.at - b.at)) {
      const y = this.y(at);
      if (this.taken?.some(other => Math.abs(other - y) < 13) && above !== -Infinity) continue;
      above = y;
      (this.taken ??= []).push(y);
      group.append(shape("line", {x1: x - 4, x2: x, y1: y, y2: y}));
      group.append(shape("text", {class: "tick", x: x + 6, y: y + 4}, text.length > 14 ? `${text.slice(0, 13)}…` : text,
        shape("title", {}, text)));
    }
    this.taken = undefined;
    const range = this.kept.get(i);
    if (range) {
      group.append(shape("rect", {class: "kept", x: x - 7, width: 14, y: this.y(range[1]), height: this.y(range[0]) - this.y(range[1])}));
    }
    const handle = shape("rect", {class: "handle", x: x - 12, width: 24, y: TOP - 6, height: HEIGHT + 12});
    handle.addEventListener("pointerdown", event => this.drag(event, i, handle));
    group.append(handle);
    return group;
  }

  at(event) {
    const {top} = this.place.getBoundingClientRect();
    return Math.min(1, Math.max(0, 1 - (event.clientY - top - TOP) / HEIGHT));
  }

  drag(event, axis, handle) {
    event.preventDefault();
    const from = this.at(event);
    const mark = shape("rect", {class: "kept", x: this.x(axis) - 7, width: 14});
    handle.before(mark);
    handle.setPointerCapture(event.pointerId);
    const range = event => [Math.min(from, this.at(event)), Math.max(from, this.at(event))];
    handle.addEventListener("pointermove", event => {
      const [low, high] = range(event);
      mark.setAttribute("y", this.y(high));
      mark.setAttribute("height", this.y(low) - this.y(high));
    });
    handle.addEventListener("pointerup", event => {
      const [low, high] = range(event);
      if (high - low < 0.015) this.kept.delete(axis); else this.kept.set(axis, [low, high]);
      this.draw();
    }, {once: true});
  }

  nearest(event, svg) {
    const box = svg.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = 14;
    for (const trial of this.trials) {
      if (!this.passes(trial)) continue;
      for (let axis = 0; axis + 1 < this.axes.length; axis += 1) {
        const from = this.x(axis), to = this.x(axis + 1);
        if (x < from - 6 || x > to + 6) continue;
        const share = Math.min(1, Math.max(0, (x - from) / (to - from)));
        const distance = Math.abs(this.y(trial.places[axis] + share * (trial.places[axis + 1] - trial.places[axis])) - y);
        if (distance < least) [best, least] = [trial.number, distance];
      }
    }
    this.point(best);
  }

  point(number) {
    for (const [own, line] of this.lines) line.classList.toggle("pointed", own === number);
    for (const [own, row] of this.rows) row.classList.toggle("pointed", own === number);
    const trial = this.trials.find(one => one.number === number);
    if (trial) this.lines.get(number).parentNode.querySelector(".axis-of-setting").before(this.lines.get(number));
    this.readout.textContent = trial ?
      `trial ${number}: ${this.axes.map((axis, i) => `${axis.name} ${trial.texts[i]}`).join(", ")}` : this.summary;
  }
}

const {charts: CHARTS} = JSON.parse(document.getElementById("data").textContent);
document.querySelectorAll("table").forEach(sortable);
document.querySelectorAll(".csv").forEach(saveable);
document.querySelectorAll(".label").forEach((section, i) => CHARTS[i].trials.length && new Parallel(section, CHARTS[i]));
