// Sign-in, and the page of who has signed in. The token is kept in this tab only; the cookie of a login is the browser's.

import {Connection, RefusedError} from "./connection.js";
import {byId, write} from "./dom.js";
import {History} from "./history.js";
import {EventLog} from "./log.js";
import {Panels} from "./panels.js";
import {RunActions} from "./run.js";
import {Settings} from "./settings.js";
import {Sites} from "./sites.js";
import {Tokens} from "./tokens.js";

const KEY = `offbeat-token ${location.pathname}`;  // a host may have several servers
let connection = null, parts = [], panels = null;

// The address may end with #token=oba_…; this removes it from there.
function givenToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  return given || sessionStorage.getItem(KEY);
}

function askForToken(problem = "") {
  connection?.end();
  parts.forEach(part => part.end?.());
  connection = null;
  parts = [];
  sessionStorage.removeItem(KEY);
  document.title = "Offbeat";
  byId("page").hidden = true;
  byId("ask").close();
  byId("sign-in").hidden = false;
  byId("token").value = "";
  write(byId("sign-in-problem"), problem);
  byId("token").focus();
}

async function enter(token) {
  write(byId("sign-in-problem"), "");
  const mine = connection = new Connection(token);
  const refused = await mine.follow({
    query: () => parts.map(part => part.query?.() ?? "").join(""),
    data: data => {
      if (!parts.length) begin(token, data.role);
      connected(true, "Live");
      panels.take(data);
      for (const part of parts) part.take?.(data);
    },
    lost: problem => connected(false, `${problem ?? "The server does not answer"}; trying again every few seconds`),
  });
  if (refused && mine === connection) askForToken(refused.kind === "no-token" ? "" : refused.message);
}

// What the role may not do is hidden: the server would refuse it.
function begin(token, role) {
  if (token) sessionStorage.setItem(KEY, token);
  byId("sign-in").hidden = true;
  byId("page").dataset.role = role;
  byId("page").hidden = false;
  panels ??= new Panels(new History());
  parts = [new RunActions(connection, act), new Sites(connection, act), new Settings(connection)];
  if (role !== "viewer") parts.push(new EventLog(connection));
  if (role === "admin") parts.push(new Tokens(connection, act));
}

function connected(isConnected, text) {
  byId("connection").classList.toggle("lost", !isConnected);
  write(byId("connection"), text);
  if (parts.length) return;
  byId("sign-in").hidden = isConnected;  // else a page with a token that it knows would stay empty
  write(byId("sign-in-problem"), isConnected ? "" : text);
}

// Carries out an action and shows its outcome; returns the answer, or null if it failed.
async function act(path, value, done, method = "POST") {
  try {
    const answer = await connection.ask(method, path, value);
    write(byId("done"), done);
    connection.refresh();
    return answer ?? {};
  } catch (error) {
    write(byId("done"), error instanceof RefusedError ? `Refused: ${error.message}` : "The server does not answer");
    return null;
  }
}

byId("sign-in").addEventListener("submit", event => {
  event.preventDefault();
  connection?.end();
  enter(byId("token").value.trim());
});
byId("sign-out").addEventListener("click", async () => {
  if (!connection.token) await act("v1/logout", undefined, "");
  askForToken();
});
addEventListener("hashchange", () => {
  const token = givenToken();
  askForToken();
  if (token) enter(token);
});

// A page in the browser's back-forward cache must not keep its connection.
addEventListener("pagehide", () => connection?.end());
addEventListener("pageshow", event => event.persisted && location.reload());

const token = givenToken();
if (!token) askForToken();
if (token || byId("log-in").hasAttribute("href")) enter(token);
