// The buttons below a table that is shown a page at a time.

import {byId} from "./dom.js";

export class Pages {
  constructor(prefix, load) {
    this.prefix = prefix;
    this.starts = [null];  // what each page up to this one begins behind
    this.next = null;
    byId(`${prefix}-before`).onclick = () => { this.starts.pop(); load(); };
    byId(`${prefix}-after`).onclick = () => { this.starts.push(this.next); load(); };
  }

  get start() {
    return this.starts[this.starts.length - 1];
  }

  // Takes the start of the page behind this one; null if this is the last.
  take(next) {
    this.next = next;
    byId(`${this.prefix}-before`).disabled = this.starts.length === 1;
    byId(`${this.prefix}-after`).disabled = next === null;
    byId(`${this.prefix}-before`).parentElement.hidden = this.starts.length === 1 && next === null;
  }
}
