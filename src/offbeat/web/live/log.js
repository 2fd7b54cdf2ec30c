// What has happened: lines of the server's log, and its audit log.

import {byId, element, facts, fillRows, write} from "./dom.js";
import {Pages} from "./pages.js";

const PAUSE = 10000;  // milliseconds

export class EventLog {
  constructor(connection) {
    this.connection = connection;
    this.at = 0;  // when it was loaded
    this.place = byId("log");
    this.place.ontoggle = () => this.load();
    byId("log-kind").onchange = () => this.begin();
    this.begin();
  }

  begin() {
    this.pages = new Pages("log", () => this.load());
    this.load();
  }

  // The newest page is kept up to date.
  take() {
    if (this.pages.start === null && performance.now() - this.at > PAUSE) this.load();
  }

  async load() {
    if (!this.place.open) return;
    this.at = performance.now();
    const {pages} = this, {start} = pages, kind = byId("log-kind").value;
    let found;
    try {
      found = await this.connection.ask("GET", `v1/admin/${kind}${start === null ? "" : `?before=${start}`}`);
    } catch {
      return;  // the page says already that the server does not answer
    }
    if (pages !== this.pages || start !== pages.start) return;
    const make = row => row.append(element("th", {scope: "row"}), element("td"), element("td", {class: "long"}));
    fillRows(this.place.querySelector("tbody"), found.entries, entry => `${kind} ${entry.number}`, make, (row, entry) => {
      row.className = entry.level;
      const texts = [new Date(entry.at * 1000).toLocaleString("en-GB"), entry.kind, facts(entry.facts)];
      texts.forEach((text, column) => write(row.cells[column], text));
    });
    pages.take(found.next);
  }
}
