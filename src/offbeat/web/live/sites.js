// The table of sites, a page at a time, with the actions on each.

import {question} from "./dialog.js";
import {ago, byId, element, fillRows, plain, siteName, write} from "./dom.js";
import {Pages} from "./pages.js";
import {SiteCurves} from "./site.js";

export class Sites {
  constructor(connection, act) {
    this.connection = connection;
    this.act = act;
    this.pages = new Pages("sites", () => connection.refresh());
    this.curves = new SiteCurves(connection);
  }

  query() {
    return this.pages.start === null ? "" : `&after=${this.pages.start}`;
  }

  take({sites}) {
    this.show(sites);
    this.pages.take(sites.next);
    this.curves.take(sites.clients);
  }

  show({clients, total}) {
    const make = (row, site) => {
      row.append(element("th", {scope: "row"}, element("button", {type: "button", class: "name"}), element("small", {class: "quiet"})));
      for (const kind of ["", "", "number", "number", "number", "number"]) row.append(element("td", kind ? {class: kind} : {}));
      const rename = element("button", {type: "button", "data-act": "rename"}, "Rename");
      const revoke = element("button", {type: "button", "data-act": "revoke"}, "Revoke");
      const name = row.querySelector(".name");
      name.addEventListener("click", () => this.curves.select(row.site.client === this.curves.site?.client ? null : row.site, name));
      rename.addEventListener("click", () => this.rename(row.site));
      revoke.addEventListener("click", () => this.revoke(row.site));
      row.append(element("td", {class: "actions for-operators"}, rename, revoke));
    };
    fillRows(document.querySelector("#sites tbody"), clients, site => site.client, make, (row, site) => {
      row.site = site;
      const isRevoked = site.revoked !== null, name = siteName(site);
      row.className = isRevoked ? "revoked" : "";
      write(row.cells[0].children[0], name);
      write(row.cells[0].children[1], site.name ? ` client ${site.client}` : "");
      const texts = [ago(site.last_seen), isRevoked ? "revoked" : site.working ? "at work" : "idle",
        ...[site.counted, site.refused, site.lost].map(plain), site.mean_staleness === null ? "–" : site.mean_staleness.toFixed(2)];
      texts.forEach((text, column) => write(row.cells[column + 1], text));
      row.querySelector(".name").setAttribute("aria-label", `Curves of ${name}`);
      for (const button of row.querySelectorAll("[data-act]")) {
        button.setAttribute("aria-label", `${button.textContent} ${name}`);
        if (button.dataset.act === "revoke") button.disabled = isRevoked;
      }
    });
    const first = clients.length ? clients[0].client + 1 : 0;
    write(byId("sites-range"), `${plain(first)} to ${plain(first + clients.length - (first ? 1 : 0))} of ${plain(total)}`);
  }

  async rename(site) {
    const name = await question({
      title: `Rename ${siteName(site)}`, text: "The site keeps its number, its token and its counts.",
      yes: "Rename", field: {label: "Name", value: site.name, attributes: {type: "text", maxlength: 100}},
    });
    if (name === null) return;
    await this.act(`v1/admin/clients/${site.client}/rename`, {name}, `Renamed to ${name}`);
  }

  async revoke(site) {
    const name = siteName(site);
    const yes = await question({
      title: `Revoke ${name}?`, text: "Its token is invalid and its visit lost at once. This cannot be undone; updates that " +
        "have counted stay in the model.", yes: "Revoke",
    });
    if (!yes) return;
    await this.act(`v1/clients/${site.client}`, undefined, `${name} is revoked`, "DELETE");
  }
}
