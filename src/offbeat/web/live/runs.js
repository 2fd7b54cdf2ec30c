// The page of a server of several runs: its runs, with links to their pages, and its sites.

import {byId, element, fillRows, plain, showProblems, write} from "./dom.js";
import {Pages} from "./pages.js";
import {open} from "./session.js";

class Runs {
  take({runs, sites, problem}) {
    write(byId("about"), `${plain(runs.length)} ${runs.length === 1 ? "run" : "runs"}, ${plain(sites)} ${sites === 1 ? "site" : "sites"}`);
    const problems = runs.filter(run => run.problem).map(run => `${run.name}: ${run.problem}`);
    showProblems(problem ? [problem, ...problems] : problems, "Nothing needs attention.");
    const make = row => {
      row.append(element("th", {scope: "row"}, element("a")), element("td"), element("td"));
      for (let column = 3; column < 7; column++) row.append(element("td", {class: "number"}));
    };
    fillRows(byId("runs").tBodies[0], runs, run => run.name, make, (row, run) => {
      row.cells[0].firstElementChild.href = `runs/${run.name}/`;
      write(row.cells[0].firstElementChild, run.name);
      const of = (value, most) => value === null ? "" : most === null ? plain(value) : `${plain(value)} of ${plain(most)}`;
      const texts = [run.state, run.algorithm ?? "", of(run.version, run.stop_versions), of(run.counted, null), of(run.at_work, null),
        of(run.enrolled, run.clients)];
      texts.forEach((text, column) => write(row.cells[column + 1], text));
    });
  }
}

class Sites {
  constructor(connection) {
    this.connection = connection;
    this.pages = new Pages("sites", () => this.take());
  }

  async take() {
    const {start} = this.pages;
    let found;
    try {
      found = await this.connection.ask("GET", `v1/sites?limit=50${start === null ? "" : `&after=${start}`}`);
    } catch {
      return;  // the page says already that the server does not answer
    }
    if (start !== this.pages.start) return;
    const make = row => row.append(element("th", {scope: "row"}), element("td"), element("td", {class: "long"}));
    fillRows(byId("sites").tBodies[0], found.sites, site => site.site, make, (row, site) => {
      row.className = site.revoked === null ? "" : "revoked";
      const texts = [site.name || `site ${site.site}`, site.labels.join(", "), site.revoked === null ? site.runs.join(", ") : "revoked"];
      texts.forEach((text, column) => write(row.cells[column], text));
    });
    this.pages.take(found.next);
  }
}

open({path: () => "v1/status", begin: connection => [new Runs(), new Sites(connection)]});
