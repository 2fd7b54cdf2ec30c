// Names with values.

import {byId, element, write} from "./dom.js";

// The page's tiles, from [name, value, note].
export function showTiles(facts) {
  showFacts(byId("tiles"), facts);
  facts.forEach(([, , note], place) => {
    const node = byId("tiles").children[place];
    if (!node.querySelector("small")) node.append(element("dd", {class: "note"}, element("small")));
    write(node.querySelector("small"), note);
  });
}

// A list of [name, value].
export function showFacts(node, facts) {
  facts.forEach(([name, value], place) => {
    const group = node.children[place] ?? node.appendChild(element("div", {}, element("dt"), element("dd")));
    write(group.children[0], name);
    write(group.children[1], value);
  });
}
