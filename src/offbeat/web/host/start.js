// The page of all runs and sites.

import {plain, showProblems} from "../live/dom.js";
import {showTiles} from "../live/facts.js";
import {open} from "../live/session.js";
import {Tokens} from "../live/tokens.js";
import {NewRun, Runs} from "./runs.js";
import {Sites} from "./sites.js";

const server = {
  take({state}) {
    const {problems, runs, sites, revoked_sites: revoked} = state;
    const sum = name => runs.reduce((all, run) => all + (run[name] ?? 0), 0);
    const atWork = runs.filter(run => run.state === "at work").length;
    showProblems(problems, "Nothing needs attention.");
    document.title = `${plain(runs.length)} ${runs.length === 1 ? "run" : "runs"} · Offbeat`;
    showTiles([
      ["Runs", plain(runs.length), `${plain(atWork)} at work`],
      ["Sites", plain(sites), revoked ? `${plain(revoked)} revoked` : ""],
      ["Visits at work", plain(sum("at_work")), `${plain(sum("waiting"))} wait for work`],
      ["Counted updates", plain(sum("counted")), ""],
    ]);
  },
};

open({
  path: () => "v1/admin/live?",
  begin: (connection, act, role) => {
    const parts = [server, new Runs(act), new Sites(connection, act)];
    if (role === "admin") parts.push(new NewRun(act), new Tokens(connection, act));
    return parts;
  },
});
