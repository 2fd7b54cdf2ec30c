// The page: reads its data, and draws again when colours change.

const FAMILY = getComputedStyle(document.body).fontFamily;
const FONT = `13px ${FAMILY}`;
const REDRAWS = [];
const {labels: LABELS, curves: CURVES, timeline: TIMELINE, participation, clients} =
  JSON.parse(document.getElementById("data").textContent);

mainChart();
sortedChart("on-clients", clients);
sortedChart("participation", participation);
timelines();
document.querySelectorAll("table").forEach(sortable);
document.querySelectorAll(".csv").forEach(saveable);
for (const query of ["(prefers-color-scheme: dark)", "print"]) {
  matchMedia(query).addEventListener("change", () => REDRAWS.forEach(redraw => redraw()));
}
