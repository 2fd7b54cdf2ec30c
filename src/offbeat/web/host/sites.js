// The table of sites, a page at a time, with the actions on each.

import {question} from "../live/dialog.js";
import {ago, byId, element, fillRows, plain, words, write} from "../live/dom.js";
import {Pages} from "../live/pages.js";

const MOST_RUNS = 5;  // in a row

export class Sites {
  constructor(connection, act) {
    this.act = act;
    this.pages = new Pages("sites", () => connection.refresh());
  }

  query() {
    return this.pages.start === null ? "" : `after=${this.pages.start}`;
  }

  take({sites: page}) {
    const {sites} = page;
    document.querySelector("#sites .empty").hidden = page.total > 0;
    document.querySelector("#sites table").hidden = !page.total;
    const make = row => {
      row.append(element("th", {scope: "row"}, element("span", {class: "name"}), element("small", {class: "quiet"})), element("td"));
      const actions = element("td", {class: "actions for-operators"});
      for (const action of ["label", "rename", "revoke"]) {
        const button = element("button", {type: "button"}, {label: "Label", rename: "Rename", revoke: "Revoke"}[action]);
        button.addEventListener("click", () => this[action](row.site));
        actions.append(button);
      }
      row.append(element("td", {class: "texts"}), element("td", {class: "texts"}), actions);
    };
    fillRows(document.querySelector("#sites tbody"), sites, site => site.site, make, (row, site) => {
      row.site = site;
      const isRevoked = site.revoked !== null, name = nameOf(site), more = site.runs.length - MOST_RUNS;
      row.className = isRevoked ? "revoked" : "";
      write(row.cells[0].children[0], name);
      write(row.cells[0].children[1], site.name ? ` site-${site.site}` : "");
      write(row.cells[1], isRevoked ? `revoked ${ago(site.revoked)}` : `enrolled ${ago(site.enrolled)}`);
      write(row.cells[2], site.labels.join(", ") || "–");
      write(row.cells[3], (site.runs.slice(0, MOST_RUNS).join(", ") || "–") + (more > 0 ? ` and ${more} more` : ""));
      for (const button of row.querySelectorAll("button")) {
        button.setAttribute("aria-label", `${button.textContent} ${name}`);
        button.disabled = isRevoked && button.textContent !== "Rename";
      }
    });
    const first = sites.length ? sites[0].site + 1 : 0;
    write(byId("sites-range"), `${plain(first)} to ${plain(first + sites.length - (first ? 1 : 0))} of ${plain(page.total)}`);
    this.pages.take(page.next);
  }

  async label(site) {
    const text = "Runs admit the site by them from now on; it stays in the runs that it takes part in.";
    const labels = await question({
      title: `Labels of ${nameOf(site)}`, text, yes: "Label",
      field: {label: "Labels, with spaces between", value: site.labels.join(" "), attributes: {type: "text", maxlength: 2100}, isOptional: true},
    });
    if (labels === null) return;
    await this.act(`v1/sites/${site.site}/labels`, {labels: words(labels)}, `${nameOf(site)} has other labels`);
  }

  async rename(site) {
    const name = await question({
      title: `Rename ${nameOf(site)}`, text: "The site keeps its number, its token and its runs.",
      yes: "Rename", field: {label: "Name", value: site.name, attributes: {type: "text", maxlength: 100}},
    });
    if (name === null) return;
    await this.act(`v1/sites/${site.site}/rename`, {name}, `Renamed to ${name}`);
  }

  async revoke(site) {
    const name = nameOf(site);
    const yes = await question({
      title: `Revoke ${name} in all runs?`, text: "Its token is invalid and its visits lost at once. This cannot be undone; " +
        "updates that have counted stay in the models.", yes: "Revoke",
    });
    if (!yes) return;
    await this.act(`v1/sites/${site.site}`, undefined, `${name} is revoked`, "DELETE");
  }
}

function nameOf({site, name}) {
  return name || `site-${site}`;
}
