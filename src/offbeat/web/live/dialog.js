// One dialog for all questions.

import {byId, write} from "./dom.js";

// Returns the value that was entered, true without a field, or null if the admin cancels. An empty value is refused
// unless field.isOptional.
export function question({title, text, yes, field = null}) {
  const dialog = byId("ask"), input = byId("ask-value"), labelled = byId("ask-label");
  write(byId("ask-title"), title);
  write(byId("ask-text"), text);
  write(byId("ask-yes"), yes);
  labelled.hidden = input.disabled = !field;
  input.removeAttribute("min");
  input.removeAttribute("max");
  if (field) {
    write(labelled.firstElementChild, field.label);
    for (const [name, value] of Object.entries(field.attributes)) input.setAttribute(name, value);
    input.required = !field.isOptional;
    input.value = field.value;
  }
  dialog.returnValue = "no";
  byId("ask-no").onclick = () => dialog.close("no");
  dialog.showModal();
  if (field) input.select();
  return new Promise(done => dialog.addEventListener("close", () => {
    done(dialog.returnValue === "yes" ? (field ? input.value : true) : null);
  }, {once: true}));
}
