// Curves that coincide: which they are, and dashes by which each is seen in turn.

const NEAR = 0.01;  // of the height of the chart
const MOSTLY = 0.8;  // of the width that two curves share
const TURN = 9;  // pixels

// Groups of places in curves: of two or more that lie upon each other nearly everywhere.
function coinciding(curves, isLog) {
  const scaled = curves.map(({x, y}) => ({x, y: isLog ? y.map(value => value && Math.log(value)) : y}));
  const values = scaled.flatMap(({y}) => y).filter(value => value !== null);
  const height = values.reduce((high, y) => Math.max(high, y), -Infinity) - values.reduce((low, y) => Math.min(low, y), Infinity);
  const groups = [];
  scaled.forEach((curve, i) => {
    const group = height > 0 && groups.find(([first]) => lieTogether(scaled[first], curve, NEAR * height));
    if (group) group.push(i); else groups.push([i]);
  });
  return groups.filter(group => group.length > 1);
}

function lieTogether(one, other, near) {
  const begin = Math.max(one.x[0], other.x[0]), end = Math.min(one.x.at(-1), other.x.at(-1));
  if (!(begin < end)) return false;
  let close = 0, known = 0;
  for (let i = 0; i <= 100; i += 1) {
    const x = begin + (end - begin) * i / 100;
    const [a, b] = [interpolated(one.x, one.y, x), interpolated(other.x, other.y, x)];
    if (a === null || b === null) continue;
    known += 1;
    close += Math.abs(a - b) <= near;
  }
  return known > 0 && close >= MOSTLY * known;
}

// Dash the curves of a LineChart that coincide with another label's, and name them.
function takeTurns(line) {
  const {shown, chart} = line;
  const visible = shown.map((_, i) => i).filter(i => !line.hidden.has(shown[i].label));
  const groups = coinciding(visible.map(i => shown[i]), line.now.y === "log")
    .map(group => group.map(i => visible[i]))
    .filter(group => new Set(group.map(i => shown[i].label)).size > 1);
  shown.forEach((curve, i) => { chart.series[i + 1].dash = line.ownDash(curve); });
  for (const group of groups) {
    group.forEach((i, place) => { chart.series[i + 1].dash = turn(place, group.length); });
  }
  const names = groups.map(group => [...new Set(group.map(i => LABELS[shown[i].label].name))].join(", "));
  line.together.textContent = `Curves that coincide take turns: ${names.join("; ")}.`;
  line.together.hidden = !names.length;
  chart.redraw(false);
}

// The dashes of one of several curves: it is drawn where none of the others is.
function turn(place, number) {
  return [0, place * TURN, TURN, (number - 1 - place) * TURN];
}
