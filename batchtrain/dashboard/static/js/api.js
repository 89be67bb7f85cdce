// The API: documents, changes, and the stream of what is watched.

export class Failed extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function checked(answer) {
  if (answer.ok) return answer;
  let message = `the dashboard answers ${answer.status}`;
  try {
    message = (await answer.json()).error ?? message;
  } catch {
    /* no JSON: the status says enough */
  }
  throw new Failed(answer.status, message);
}

export const url = (path) => `/api/v1${path}`;
export const get = async (path) => (await checked(await fetch(url(path)))).json();
export const part = async (path, start, end) =>
  checked(await fetch(url(path), { headers: { Range: `bytes=${start}-${end - 1}` } }));
export const post = async (path, body) =>
  checked(await fetch(url(path), { method: "POST", body: JSON.stringify(body ?? {}) }));

const FIRST_PAUSE = 300,
  LONGEST_PAUSE = 5000;

/** One event stream. It is closed while the page is hidden, and goes on where it stopped. */
export class Stream {
  constructor(topics, handlers) {
    this.topics = topics;
    this.handlers = handlers;
    this.position = "";
    this.pause = FIRST_PAUSE;
    this.visible = () => (document.hidden ? this.stop() : this.start());
    document.addEventListener("visibilitychange", this.visible);
    if (!document.hidden) this.start();
  }

  close() {
    document.removeEventListener("visibilitychange", this.visible);
    this.stop();
  }

  stop() {
    this.running?.abort();
    this.running = null;
    clearTimeout(this.timer);
  }

  start() {
    if (this.running || !this.topics.length) return;
    this.running = new AbortController();
    this.read(this.running.signal).catch((error) => this.failed(error));
  }

  failed(error) {
    if (!this.running || this.running.signal.aborted) return;
    this.running = null;
    this.handlers.lost(error);
    if (error.status === 401 || error.status === 400) return;
    this.timer = setTimeout(() => this.start(), this.pause);
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
  }

  async read(signal) {
    const query = this.topics.map((topic) => `watch=${encodeURIComponent(topic)}`).join("&");
    const headers = this.position ? { "Last-Event-ID": this.position } : {};
    const answer = await checked(await fetch(url(`/events?${query}`), { headers, signal }));
    this.pause = FIRST_PAUSE;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Failed(0, "the dashboard has ended");
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) this.take(event);
    }
  }

  take(event) {
    const fields = Object.fromEntries(
      event.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
    );
    if (fields.id) this.position = fields.id;
    if (fields.data) this.handlers[fields.event](JSON.parse(fields.data));
  }
}
