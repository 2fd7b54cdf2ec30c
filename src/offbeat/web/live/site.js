// The curves of one site: its updates, their staleness, its evaluations.

import {LineChart} from "./charts.js";
import {byId, element, plain, siteName, unitOf, write} from "./dom.js";

let chart = null;  // one for all who sign in

export class SiteCurves {
  constructor(connection) {
    this.connection = connection;
    chart ??= new LineChart(byId("site"));
    byId("site-show").onchange = () => this.show();
    byId("site-close").onclick = () => this.select(null);
    this.select(null);
  }

  // Shows a site that was chosen by a button; null for none.
  select(site, button = null) {
    if (site === null && byId("site").contains(document.activeElement)) this.button.focus();
    this.button = button;
    this.site = site;
    this.history = null;
    byId("site").hidden = site === null;
    if (site !== null) this.load();
  }

  // Loads the curves again if the site has done something since.
  take(sites) {
    const now = sites.find(({client}) => client === this.site?.client);
    if (!now || ["counted", "refused", "lost"].every(name => now[name] === this.site[name])) return;
    this.site = now;
    this.load();
  }

  async load() {
    const {site} = this;
    let found;
    try {
      found = await this.connection.ask("GET", `v1/admin/clients/${site.client}/history`);
    } catch {
      return;  // the page says already that the server does not answer
    }
    if (site !== this.site) return;
    this.history = found;
    const metrics = [...new Set(found.evaluations.flatMap(([, values]) => Object.keys(values)))];
    const choices = [["updates", "counted updates"], ["staleness", "staleness"], ...metrics.map(name => [`metric ${name}`, `${name} on its data`])];
    const select = byId("site-show"), chosen = select.value;
    if (choices.map(([value]) => value).join("\n") !== [...select.options].map(option => option.value).join("\n")) {
      select.replaceChildren(...choices.map(([value, text]) => element("option", {value}, text)));
      if (choices.some(([value]) => value === chosen)) select.value = chosen;
    }
    this.show();
  }

  show() {
    if (!this.history) return;
    const name = siteName(this.site), chosen = byId("site-show").value, shown = this.curve(chosen);
    write(byId("site-title"), name);
    const last = shown.y.length ? `: ${plain(shown.y[shown.y.length - 1])} at the end` : "";
    chart.show({...shown, label: `Line chart of ${shown.yTitle} of ${name}${last}.`});
  }

  curve(chosen) {
    const {updates, evaluations} = this.history;
    if (chosen.startsWith("metric ")) {
      const metric = chosen.slice(7), found = evaluations.filter(([, values]) => metric in values);
      return {x: found.map(([version]) => version), y: found.map(([, values]) => values[metric]), xTitle: "Version", isWhole: true, yTitle: metric};
    }
    const counted = updates.filter(([, isCounted]) => isCounted), before = this.site.counted - counted.length;
    const unit = unitOf(counted.length ? counted[counted.length - 1][0] : 0);
    const over = {x: counted.map(([seconds]) => seconds / unit.size), xTitle: `Time (${unit.name})`, isCount: true};
    return chosen === "staleness"
      ? {...over, y: counted.map(([, , staleness]) => staleness), yTitle: "Staleness"}
      : {...over, y: counted.map((_, place) => before + place + 1), yTitle: "Counted updates", isStepped: true};
  }
}
