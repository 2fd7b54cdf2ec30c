// Actions on the run: pause, extend, download.

import {question} from "./dialog.js";
import {byId, element, plain, write} from "./dom.js";

export class RunActions {
  constructor(connection, act) {
    this.connection = connection;
    this.act = act;
    byId("pause").onclick = () => this.pause();
    byId("extend").onclick = () => this.extend();
    byId("download").onclick = () => this.download();
  }

  take({state}) {
    this.state = state;
    write(byId("pause"), state.status.paused ? "Resume" : "Pause");
    byId("extend").hidden = state.status.stop_versions === null;
  }

  async pause() {
    if (!this.state) return;  // the button may still say what held before the sign-in
    const isPaused = this.state.status.paused;
    await this.act(isPaused ? "v1/admin/resume" : "v1/admin/pause", undefined, isPaused ? "The run is resumed" : "The run is paused");
  }

  async extend() {
    if (!this.state) return;
    const stop = this.state.status.stop_versions;
    const versions = await question({
      title: "Extend the run", text: `The run ends at version ${plain(stop)}. Only a later version is possible.`, yes: "Extend",
      field: {label: "Ends at version", value: 2 * stop, attributes: {type: "number", min: stop + 1, max: 2 ** 53 - 1, step: 1}},
    });
    if (versions === null) return;
    await this.act("v1/admin/extend", {versions: Number(versions)}, `The run ends at version ${plain(Number(versions))}`);
  }

  async download() {
    const button = byId("download");
    button.disabled = true;
    write(byId("done"), "Downloading the model …");
    try {
      const {name, blob} = await this.connection.blob("v1/admin/model");
      const url = URL.createObjectURL(blob);
      element("a", {href: url, download: name}).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      write(byId("done"), `Downloaded ${name}`);
    } catch (error) {
      write(byId("done"), `The download failed: ${error.message}`);
    } finally {
      button.disabled = false;
    }
  }
}
