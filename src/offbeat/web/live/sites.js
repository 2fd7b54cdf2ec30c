// The table of sites, a page at a time, with the actions on each.

import {question} from "./dialog.js";
import {ago, byId, element, fillRows, plain, write} from "./dom.js";

const PAGE = 50, REFRESH = 10000;  // milliseconds

export class Sites {
  constructor(connection, act) {
    this.connection = connection;
    this.act = act;
    this.names = new Map();
    this.starts = [null];  // "after" of each page up to this one
    this.next = null;
    byId("sites-before").onclick = () => { this.starts.pop(); this.load(); };
    byId("sites-after").onclick = () => { this.starts.push(this.next); this.load(); };
    this.timer = setInterval(() => document.hidden || this.load(), REFRESH);
    this.load();
  }

  end() {
    clearInterval(this.timer);
  }

  nameOf(client, name) {
    return name || this.names.get(client) || `client ${client}`;
  }

  async load() {
    const after = this.starts[this.starts.length - 1];
    const query = `limit=${PAGE}${after === null ? "" : `&after=${after}`}`;
    let found;
    try {
      found = await this.connection.ask("GET", `v1/admin/clients?${query}`);
    } catch {
      return;  // the stream of events says that the server does not answer
    }
    this.next = found.next;
    for (const site of found.clients) this.names.set(site.client, site.name);
    this.show(found);
  }

  show({clients, total}) {
    const make = (row, site) => {
      row.append(element("th", {scope: "row"}, element("span", {class: "name"}), element("small", {class: "quiet"})));
      for (const kind of ["", "", "number", "number", "number", "number"]) row.append(element("td", kind ? {class: kind} : {}));
      const rename = element("button", {type: "button", "data-act": "rename"}, "Rename");
      const revoke = element("button", {type: "button", "data-act": "revoke"}, "Revoke");
      rename.addEventListener("click", () => this.rename(row.site));
      revoke.addEventListener("click", () => this.revoke(row.site));
      row.append(element("td", {class: "actions for-operators"}, rename, revoke));
    };
    fillRows(document.querySelector("#sites tbody"), clients, site => site.client, make, (row, site) => {
      row.site = site;
      const isRevoked = site.revoked !== null, name = this.nameOf(site.client, site.name);
      row.className = isRevoked ? "revoked" : "";
      write(row.cells[0].children[0], name);
      write(row.cells[0].children[1], site.name ? ` client ${site.client}` : "");
      const texts = [ago(site.last_seen), isRevoked ? "revoked" : site.working ? "at work" : "idle",
        ...[site.counted, site.refused, site.lost].map(plain), site.mean_staleness === null ? "–" : site.mean_staleness.toFixed(2)];
      texts.forEach((text, column) => write(row.cells[column + 1], text));
      for (const button of row.querySelectorAll("button")) {
        button.setAttribute("aria-label", `${button.textContent} ${name}`);
        if (button.dataset.act === "revoke") button.disabled = isRevoked;
      }
    });
    const first = clients.length ? (this.starts.length - 1) * PAGE + 1 : 0;
    write(byId("sites-range"), `${plain(first)} to ${plain(first + clients.length - (first ? 1 : 0))} of ${plain(total)}`);
    byId("sites-before").disabled = this.starts.length === 1;
    byId("sites-after").disabled = this.next === null;
    document.querySelector("#sites .pages").hidden = total <= PAGE;
  }

  async rename(site) {
    const name = await question({
      title: `Rename ${this.nameOf(site.client, site.name)}`, text: "The site keeps its number, its token and its counts.",
      yes: "Rename", field: {label: "Name", value: site.name, attributes: {type: "text", maxlength: 100}},
    });
    if (name === null) return;
    await this.act(`v1/admin/clients/${site.client}/rename`, {name}, `Renamed to ${name}`);
    await this.load();
  }

  async revoke(site) {
    const name = this.nameOf(site.client, site.name);
    const yes = await question({
      title: `Revoke ${name}?`, text: "Its token is invalid and its visit lost at once. This cannot be undone; updates that " +
        "have counted stay in the model.", yes: "Revoke",
    });
    if (!yes) return;
    await this.act(`v1/clients/${site.client}`, undefined, `${name} is revoked`, "DELETE");
    await this.load();
  }
}
