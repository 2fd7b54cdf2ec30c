// The page of a run.

import {History} from "./history.js";
import {EventLog} from "./log.js";
import {Panels} from "./panels.js";
import {RunActions} from "./run.js";
import {open} from "./session.js";
import {Settings} from "./settings.js";
import {Sites} from "./sites.js";
import {Tokens} from "./tokens.js";

let panels = null;  // for all who sign in

open({
  path: last => `v1/admin/live?since=${last}`,
  begin: (connection, act, role) => {
    panels ??= new Panels(new History());
    const parts = [panels, new RunActions(connection, act), new Sites(connection, act), new Settings(connection)];
    if (role !== "viewer") parts.push(new EventLog(connection));
    if (role === "admin") parts.push(new Tokens(connection, act));
    return parts;
  },
});
