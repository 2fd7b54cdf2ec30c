// Tokens, but not the sites': the table, a new one, revocation.

import {question} from "./dialog.js";
import {byId, duration, element, fillRows, plain, words, write} from "./dom.js";

export class Tokens {
  constructor(connection, act) {
    this.connection = connection;
    this.act = act;
    byId("new-token").onsubmit = event => { event.preventDefault(); this.make(event.target); };
    byId("copy-token").onclick = () => {
      byId("made-token-text").select();
      navigator.clipboard?.writeText(byId("made-token-text").value).catch(() => {});
    };
    this.load();
  }

  end() {
    byId("made-token").hidden = true;
    byId("made-token-text").value = "";
  }

  async load() {
    let found;
    try {
      found = await this.connection.ask("GET", "v1/tokens");
    } catch {
      return;  // the page says already that the server does not answer
    }
    const make = row => {
      row.append(element("th", {scope: "row"}, element("span", {class: "name"}), element("small", {class: "quiet"})));
      for (const kind of ["", "", "number", ""]) row.append(element("td", kind ? {class: kind} : {}));
      const revoke = element("button", {type: "button"}, "Revoke");
      revoke.addEventListener("click", () => this.revoke(row.token));
      row.append(element("td", {class: "actions"}, revoke));
    };
    const order = token => (token.state === "valid" ? 0 : 1);
    const sorted = [...found.tokens].sort((one, other) => order(one) - order(other));
    fillRows(document.querySelector("#tokens tbody"), sorted, token => token.id, make, (row, token) => {
      row.token = token;
      row.className = token.state === "valid" ? "" : "revoked";
      write(row.cells[0].children[0], token.name || token.id);
      write(row.cells[0].children[1], token.name ? ` ${token.id}` : "");
      const expires = token.expires_seconds;
      const labels = token.labels.length ? ` for ${token.labels.join(", ")}` : "";
      const texts = [token.kind + labels, token.state, token.uses === null ? "any" : plain(token.uses),
        expires === null ? "never" : expires > 0 ? `in ${duration(expires)}` : `${duration(-expires)} ago`];
      texts.forEach((text, column) => write(row.cells[column + 1], text));
      const button = row.querySelector("button");
      button.disabled = token.state === "revoked";
      button.setAttribute("aria-label", `Revoke ${token.name || token.id}`);
    });
  }

  async make(form) {
    const {kind, name, uses, hours, labels} = Object.fromEntries(new FormData(form));
    const wanted = {kind, name, uses: uses ? Number(uses) : null, expires_seconds: hours ? Number(hours) * 3600 : null};
    if (labels) wanted.labels = words(labels);  // for the sites of a server of several runs
    const made = await this.act("v1/tokens", wanted, `A new ${kind} token`);
    if (!made) return;
    form.reset();
    byId("made-token-text").value = made.token;
    byId("made-token").hidden = false;
    byId("made-token-text").focus();
    await this.load();
  }

  async revoke(token) {
    const name = token.name || token.id;
    const yes = await question({
      title: `Revoke the token ${name}?`, yes: "Revoke", text: token.kind === "enrolment"
        ? "New sites cannot enrol with it; enrolled sites stay." : "Pages and programs that use it lose access.",
    });
    if (!yes) return;
    await this.act(`v1/tokens/${encodeURIComponent(token.id)}`, undefined, `The token ${name} is revoked`, "DELETE");
    await this.load();
  }
}
