// Sign-in, and a page of who has signed in. The token is kept in this tab only; the cookie of a login is the browser's.

import {Connection, RefusedError} from "./connection.js";
import {byId, write} from "./dom.js";

const root = byId("all-runs")?.href || location.href;  // the server's own page; its token is valid in all runs
const KEYS = [...new Set([location.pathname, new URL(root).pathname])].map(path => `offbeat-token ${path}`);  // a host may have several servers
let connection = null, parts = [];

// Opens a page: page.path(last) is what it asks for, with the id of the last answer; page.begin(connection, act, role)
// returns its parts once somebody has signed in. A part may have query(), take(answer), end().
export function open(page) {
  byId("sign-in").addEventListener("submit", event => {
    event.preventDefault();
    connection?.end();
    enter(page, byId("token").value.trim());
  });
  byId("sign-out").addEventListener("click", async () => {
    if (!connection.token) await act(new URL("v1/logout", root).href, undefined, "");
    askForToken();
  });
  addEventListener("hashchange", () => {
    const token = givenToken();
    askForToken();
    if (token) enter(page, token);
  });
  // A page in the browser's back-forward cache must not keep its connection.
  addEventListener("pagehide", () => connection?.end());
  addEventListener("pageshow", event => event.persisted && location.reload());
  const token = givenToken();
  if (!token) askForToken();
  if (token || byId("log-in").hasAttribute("href")) enter(page, token);
}

// The address may end with #token=oba_…; this removes it from there.
function givenToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  return given || KEYS.map(key => sessionStorage.getItem(key)).find(token => token);
}

function askForToken(problem = "") {
  connection?.end();
  parts.forEach(part => part.end?.());
  connection = null;
  parts = [];
  KEYS.forEach(key => sessionStorage.removeItem(key));
  document.title = "Offbeat";
  byId("page").hidden = true;
  byId("ask").close();
  byId("sign-in").hidden = false;
  byId("token").value = "";
  write(byId("sign-in-problem"), problem);
  byId("token").focus();
}

async function enter(page, token) {
  write(byId("sign-in-problem"), "");
  const mine = connection = new Connection(token);
  const refused = await mine.follow({
    path: last => page.path(last) + parts.map(part => part.query?.() ?? "").join(""),
    data: data => {
      if (!parts.length) begin(page, token, data.role);
      connected(true, "Live");
      for (const part of parts) part.take?.(data);
    },
    lost: problem => connected(false, `${problem ?? "The server does not answer"}; trying again every few seconds`),
  });
  if (refused && mine === connection) askForToken(refused.kind === "no-token" ? "" : refused.message);
}

// What the role may not do is hidden: the server would refuse it.
function begin(page, token, role) {
  if (token && !KEYS.some(key => sessionStorage.getItem(key) === token)) sessionStorage.setItem(KEYS[0], token);
  byId("sign-in").hidden = true;
  byId("page").dataset.role = role;
  byId("page").hidden = false;
  parts = page.begin(connection, act, role);
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
