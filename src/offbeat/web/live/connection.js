// Requests with a token, and the stream of events, which reconnects.

const FIRST_PAUSE = 500, LAST_PAUSE = 10000;  // milliseconds
const SILENCE = 40000;  // the server sends something every 15 seconds
const HIDDEN = 30000;  // after which a hidden tab stops listening

export class RefusedError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export class Connection {
  constructor(token) {
    this.token = token;
    this.ended = new AbortController();
  }

  end() {
    this.ended.abort();
  }

  request(path, options = {}) {
    const headers = {Authorization: `Bearer ${this.token}`, ...options.headers};
    return fetch(path, {cache: "no-store", credentials: "omit", signal: this.ended.signal, ...options, headers});
  }

  // Returns the answer; raises RefusedError with the server's message.
  async ask(method, path, value) {
    const options = {method};
    if (value !== undefined) {
      options.body = JSON.stringify(value);
      options.headers = {"Content-Type": "application/json"};
    }
    const answer = await this.request(path, options);
    if (!answer.ok) throw await refusal(answer);
    return answer.status === 204 ? null : answer.json();
  }

  async blob(path) {
    const answer = await this.request(path);
    if (!answer.ok) throw await refusal(answer);
    const name = /filename="([\w.-]+)"/.exec(answer.headers.get("Content-Disposition") ?? "");
    return {name: name ? name[1] : "model.safetensors", blob: await answer.blob()};
  }

  // Calls on.event(data) for each event, on.connected(role) and on.lost(seconds, problem); returns the
  // RefusedError that ends it. The problem is the server's, or null if it does not answer. A stream
  // that ends, as each one through a front, is not lost: only if there is no other.
  async follow(on) {
    let pause = FIRST_PAUSE, last = "";
    while (!this.ended.signal.aborted) {
      await untilVisible();
      const attempt = new AbortController();
      const giveUp = () => attempt.abort();
      this.ended.signal.addEventListener("abort", giveUp);
      const stopWatching = onceHidden(giveUp);
      let problem = null, hasEnded = false;
      let silence = setTimeout(giveUp, SILENCE);
      try {
        const headers = {Accept: "text/event-stream", ...(last ? {"Last-Event-ID": last} : {})};
        const answer = await this.request("v1/admin/events", {headers, signal: attempt.signal});
        if (answer.status === 401 || answer.status === 403) return await refusal(answer);
        if (!answer.ok) throw await refusal(answer);
        on.connected(answer.headers.get("Offbeat-Role"));
        pause = FIRST_PAUSE;
        for await (const block of blocks(answer.body)) {
          clearTimeout(silence);
          silence = setTimeout(giveUp, SILENCE);
          const {id, data} = parsed(block);
          if (data === null) continue;
          on.event(JSON.parse(data));
          last = id ?? last;
        }
        hasEnded = true;
      } catch (error) {
        if (error instanceof RefusedError) problem = error.message;
        else if (!(error instanceof TypeError) && error.name !== "AbortError") throw error;
      } finally {
        clearTimeout(silence);
        stopWatching();
        this.ended.signal.removeEventListener("abort", giveUp);
      }
      if (this.ended.signal.aborted) break;
      if (!hasEnded) on.lost(pause / 1000, problem);
      await new Promise(done => setTimeout(done, pause * (0.8 + 0.4 * Math.random())));
      pause = Math.min(2 * pause, LAST_PAUSE);
    }
    return null;
  }
}

// A browser allows six connections to a server, so a hidden tab gives its own up.
function onceHidden(act) {
  let timer = null;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(act, HIDDEN);
  };
  document.addEventListener("visibilitychange", look);
  look();
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", look);
  };
}

function untilVisible() {
  return new Promise(done => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      done();
    };
    document.addEventListener("visibilitychange", look);
    look();
  });
}

async function refusal(answer) {
  let text = `the server answers ${answer.status}`;
  try {
    text = (await answer.json()).detail ?? text;
  } catch { /* not the server's own answer */ }
  return new RefusedError(answer.status, text);
}

async function* blocks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      yield* parts;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  let id = null;
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) id = line.slice(4);
    if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  return {id, data: data.length ? data.join("\n") : null};
}
