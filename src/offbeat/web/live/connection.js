// Requests with a token or the cookie of a login, and the page's data again and again.

const PAUSE = 2000, PATIENCE = 15000;  // milliseconds

export class RefusedError extends Error {
  constructor(status, text, kind) {
    super(text);
    this.status = status;
    this.kind = kind;
  }
}

export class Connection {
  // Without a token the browser's cookie is asked for, which the server takes only with the page's own header.
  constructor(token) {
    this.token = token;
    this.ended = new AbortController();
  }

  end() {
    this.ended.abort();
  }

  request(path, options = {}) {
    const own = this.token ? {Authorization: `Bearer ${this.token}`} : {"Offbeat-Page": "1"};
    const credentials = this.token ? "omit" : "same-origin";
    return fetch(path, {cache: "no-store", credentials, signal: this.ended.signal, ...options, headers: {...own, ...options.headers}});
  }

  // Returns the answer; raises RefusedError with the server's message.
  async ask(method, path, value, patience = null) {
    const options = {method};
    if (patience !== null) options.signal = AbortSignal.any([this.ended.signal, AbortSignal.timeout(patience)]);
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

  // Asks every two seconds for on.path(last), where last is the id of the last answer; calls on.data(data), and
  // on.lost(problem) if there is none: the server's problem, or null if it does not answer. Returns the
  // RefusedError that ends it.
  async follow(on) {
    let last = "";
    while (!this.ended.signal.aborted) {
      await untilVisible();
      this.isDue = false;
      try {
        const data = await this.ask("GET", on.path(last), undefined, PATIENCE);
        last = data.id ?? "";
        on.data(data);
      } catch (error) {
        if (this.ended.signal.aborted) break;
        if (error.status === 401 || error.status === 403) return error;
        if (!(error instanceof RefusedError || error instanceof TypeError || error.name === "TimeoutError")) throw error;
        on.lost(error instanceof RefusedError ? error.message : null);
      }
      if (!this.isDue) await new Promise(done => { this.wake = done; setTimeout(done, PAUSE); });
    }
    return null;
  }

  // Asks for the data now.
  refresh() {
    this.isDue = true;
    this.wake?.();
  }
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
  let problem = {};
  try {
    problem = await answer.json();
  } catch { /* not the server's own answer */ }
  return new RefusedError(answer.status, problem?.detail ?? `the server answers ${answer.status}`, problem?.kind);
}
