// The run's settings, as the server has read them.

import {byId, fillTexts, write} from "./dom.js";

export class Settings {
  constructor(connection) {
    byId("settings").ontoggle = async () => {
      if (!byId("settings").open) return;
      let found;
      try {
        found = await connection.ask("GET", "v1/admin/settings");
      } catch {
        return;  // the page says already that the server does not answer
      }
      write(byId("settings-version"), `Offbeat ${found.version}`);
      const {service = {}, ...config} = found.config;
      const rows = [...flat({...config, service: {...service, ...found.settings}})];
      fillTexts(document.querySelector("#settings tbody"), rows, () => false);
    };
  }
}

function* flat(table, prefix = "") {
  for (const [key, value] of Object.entries(table)) {
    if (value === null) continue;
    if (typeof value === "object" && !Array.isArray(value)) yield* flat(value, `${prefix}${key}.`);
    else yield [`${prefix}${key}`, typeof value === "string" ? value : JSON.stringify(value)];
  }
}
