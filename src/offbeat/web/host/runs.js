// The table of runs, with the actions on each, and the form that begins one.

import {question} from "../live/dialog.js";
import {byId, element, fillRows, plain, write} from "../live/dom.js";

export class Runs {
  constructor(act) {
    this.act = act;
  }

  take({state}) {
    const isOver = run => run.state === "over";
    const runs = [...state.runs].sort((one, other) => isOver(one) - isOver(other));  // those that are over last, else by age
    document.querySelector("#runs .empty").hidden = runs.length > 0;
    document.querySelector("#runs table").hidden = !runs.length;
    const make = (row, {name}) => {
      row.append(element("th", {scope: "row"}, element("a", {href: `runs/${name}/`}, name)), element("td"));
      const actions = element("td", {class: "actions for-operators"});
      for (const action of ["pause", "extend", "end"]) {
        const button = element("button", {type: "button"}, {pause: "Pause", extend: "Extend …", end: "End …"}[action]);
        button.addEventListener("click", () => this[action](row.run));
        actions.append(button);
      }
      row.append(element("td"));
      for (let column = 0; column < 5; column++) row.append(element("td", {class: "number"}));
      row.append(actions);
    };
    fillRows(document.querySelector("#runs tbody"), runs, run => run.name, make, (row, run) => {
      row.run = run;
      row.className = isOver(run) ? "revoked" : "";
      const of = limit => limit === null ? "" : ` of ${plain(limit)}`;
      const texts = [run.state, run.algorithm ?? "–", plain(run.version) + of(run.stop_versions), plain(run.enrolled) + of(run.clients),
        plain(run.at_work), plain(run.waiting), plain(run.counted)];
      texts.forEach((text, column) => write(row.cells[column + 1], text));
      const buttons = [...row.cells[8].children], [pause, extend, end] = buttons, goesOn = ["at work", "paused"].includes(run.state);
      write(pause, run.state === "paused" ? "Resume" : "Pause");
      pause.disabled = end.disabled = !goesOn;
      extend.disabled = !(isOver(run) || goesOn && run.stop_versions !== null);
      for (const button of buttons) {
        button.setAttribute("aria-label", `${button.textContent.replace(" …", "")} ${run.name}`);
      }
    });
  }

  async pause({name, state}) {
    const isPaused = state === "paused";
    await this.act(`runs/${name}/v1/admin/${isPaused ? "resume" : "pause"}`, undefined, `${name} is ${isPaused ? "resumed" : "paused"}`);
  }

  async extend({name}) {
    const now = await this.act(`runs/${name}/v1/status`, undefined, "", "GET");  // the run may be over, and not open
    if (!now) return;
    const stop = now.stop_versions;
    const versions = await question({
      title: `Extend ${name}`, text: `The run ends at version ${plain(stop)}. Only a later version is possible.`, yes: "Extend",
      field: {label: "Ends at version", value: 2 * stop, attributes: {type: "number", min: stop + 1, max: 2 ** 53 - 1, step: 1}},
    });
    if (versions === null) return;
    await this.act(`runs/${name}/v1/admin/extend`, {versions: Number(versions)}, `${name} ends at version ${plain(Number(versions))}`);
  }

  async end({name}) {
    const text = "It ends at its newest version, and gives out no more work. Extend it to continue.";
    if (!await question({title: `End ${name}?`, text, yes: "End the run"})) return;
    await this.act(`runs/${name}/v1/admin/end`, undefined, `${name} has ended`);
  }
}

export class NewRun {
  constructor(act) {
    this.act = act;
    const form = byId("new-run");
    form.elements.file.onchange = () => {
      const [file] = form.elements.file.files;
      if (file && !form.elements.name.value) form.elements.name.value = runName(file.name);
    };
    form.onsubmit = event => { event.preventDefault(); this.begin(form); };
  }

  async begin(form) {
    const name = form.elements.name.value, file = await form.elements.file.files[0].text();
    if (await this.act("v1/runs", {name, file}, `${name} has begun`)) form.reset();
  }
}

// A run's name like that of its file.
function runName(file) {
  return file.replace(/\.toml$/i, "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
}
