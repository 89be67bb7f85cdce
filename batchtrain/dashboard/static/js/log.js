// Output of programs: live or from a file, by lines, with colours, ranks and a search. All of it is text.

import { part, url } from "./api.js";
import { spans } from "./ansi.js";
import { h } from "./dom.js";
import { bytes, clocks, moment } from "./format.js";
import { button, fileAt, quiet } from "./parts.js";

const MOST_LINES = 20000,
  BLOCK_LINES = 200,
  LIMIT = 256 * 1024,
  AROUND = 64 * 1024,
  SETTLED = 250,
  STAMP_PAUSE = 300,
  STAMP_AGAIN = 5000,
  STAMP_TRIES = 3;
const PREFIX = /^\[(\d+):(\d+|[A-Za-z]+(?: \d+)?)\] |^\[\d+,(\d+)\]<std(?:out|err)>: ?/;

/** The label of the process that wrote a line, and the line without it; of a redrawn line its last state. */
export function parse(text) {
  const match = PREFIX.exec(text);
  const rest = match ? text.slice(match[0].length) : text;
  return { who: match ? (match[2] ?? match[3]) : "", text: rest.replace(/\r+$/, "").split("\r").pop() };
}

/** The lines from one byte of a file to another. */
const blockOf = (start, end, text) => ({
  start,
  end,
  lines: text.replace(/\n$/, "").split("\n"),
  node: h("div.block"),
});

const size = (text) => new TextEncoder().encode(text).length;

/** Lines that grow at the end, and can be loaded at the beginning. */
class Lines {
  constructor(label, earlier, times) {
    this.earlier = earlier;
    this.times = times;
    this.options = { rank: "", find: "", only: false, wrap: true, follow: true, times: false };
    this.current = null;
    this.blocks = [];
    this.partial = "";
    this.button = button("Load earlier lines", () => this.load());
    this.before = h("div.before", this.button);
    this.after = h(
      "div.before",
      button("Load later lines", () => this.further()),
    );
    this.body = h("div.lines");
    this.tail = h("div.line");
    this.scroller = h(
      "div.log",
      { tabindex: "0", role: "region", "aria-label": label },
      this.before,
      this.body,
      this.tail,
      this.after,
    );
    this.scroller.addEventListener("scroll", () => this.scrolled());
    this.node = this.scroller;
    this.status();
  }

  get start() {
    return this.blocks[0]?.start ?? null;
  }

  get end() {
    return this.blocks.at(-1)?.end ?? null;
  }

  /** The line that begins at a byte, if it is loaded. */
  at(position) {
    const block = this.blocks.find((each) => !each.gap && each.start <= position && position < each.end);
    if (!block) return null;
    const number = block.lines.findIndex((_, each) => this.begin(block, each) >= position);
    return { block, number: number < 0 ? block.lines.length - 1 : number };
  }

  /** The byte at which a line begins; its number may be one too large. */
  begin(block, number) {
    block.begins ??= [block.start];
    for (let at = block.begins.length; at <= number; at++)
      block.begins.push(block.begins[at - 1] + size(block.lines[at - 1]) + 1);
    return block.begins[number];
  }

  /** Show the times of lines soon. What came last may get a better one later: its gang notes it every second or two. */
  stampSoon(tries = STAMP_TRIES) {
    if (!this.options.times) return;
    this.tries = tries;
    this.stamping ??= setTimeout(() => this.stamp(), tries === STAMP_TRIES ? STAMP_PAUSE : STAMP_AGAIN);
  }

  async stamp() {
    const waiting = [...this.body.querySelectorAll(".time:not(.sure)")];
    try {
      if (waiting.length) {
        const { at, time } = await this.times(waiting[0].begin, waiting.at(-1).end);
        this.settled = performance.now() + SETTLED;
        const texts = clocks(time);
        let index = -1;
        for (const node of waiting) {
          while (index + 1 < at.length && at[index + 1] < node.end) index += 1;
          if (index < 0) continue;
          node.textContent = texts[index];
          node.title = moment(time[index] * 1000);
          node.classList.toggle("sure", index + 1 < at.length);
        }
        if (this.options.follow) this.bottom();
      }
    } catch {
      /* the dashboard does not answer: it says so itself */
    }
    this.stamping = null;
    if (this.live && waiting.length && this.tries > 1) this.stampSoon(this.tries - 1);
  }

  /** Show the lines around a byte, and mark the one that begins there. `far`: loads them. */
  async reveal(position) {
    this.options.follow = false;
    if (!this.at(position)) {
      const before = position ? await this.earlier(position, AROUND) : null;
      const from = await this.earlier(position + LIMIT, LIMIT, position);
      this.clear();
      this.frozen = true;
      for (const found of [before, from]) if (found?.text) this.push(found);
    }
    this.current = position;
    this.again();
    const line = this.body.querySelector(".line.current");
    line?.scrollIntoView({ block: "center" });
    this.settled = performance.now() + SETTLED;
    this.changed?.();
  }

  push({ start, end, text }) {
    this.fill(this.add(blockOf(start, end, text)));
  }

  async further() {
    const found = await this.earlier(this.end + LIMIT, LIMIT, this.end);
    if (found.text) this.push(found);
    if (found.end >= found.size) this.resume();
    this.status();
  }

  clear() {
    this.blocks = [];
    this.current = null;
    this.frozen = false;
    this.partial = "";
    this.body.replaceChildren();
    this.tail.replaceChildren();
    this.status();
  }

  /** Text from byte `start` to `end` of the file. */
  append({ start, end, text, skipped }) {
    if (skipped) this.gap(start - skipped, start);
    const all = this.partial + text;
    const lines = all.split("\n");
    const fresh = !this.partial;
    this.partial = lines.pop().slice(-200000);
    let block = this.blocks.at(-1);
    if (!block || block.gap || (fresh && block.lines.length >= BLOCK_LINES))
      block = this.add({ ...blockOf(start, start, ""), lines: [] });
    for (const line of lines) this.put(block, line, block.lines.push(line) - 1);
    block.end = end;
    this.tail.replaceChildren(
      ...(this.partial && this.shows(parse(this.partial)) ? this.line(this.partial).childNodes : []),
    );
    this.drop();
    this.status();
    if (this.options.follow) this.bottom();
  }

  add(block) {
    this.blocks.push(block);
    this.body.append(block.node);
    return block;
  }

  /** Bytes that came too fast to be shown; they can be loaded. */
  gap(start, end) {
    const node = h(
      "div.gap",
      button(`${bytes(end - start)} came too fast and are not shown; load them`, async () => {
        const found = await this.earlier(end, Math.min(end - start, 4 * LIMIT), start);
        const block = blockOf(found.start, end, found.text);
        this.fill(block);
        node.replaceWith(block.node);
        this.blocks[this.blocks.findIndex((each) => each.node === node)] = block;
      }),
    );
    this.add({ start, end, lines: [], node, gap: true });
  }

  drop() {
    let lines = this.blocks.reduce((sum, block) => sum + block.lines.length, 0);
    while (lines > MOST_LINES && this.blocks.length > 1 && this.options.follow) {
      const block = this.blocks.shift();
      lines -= block.lines.length;
      block.node.remove();
    }
  }

  shows({ who, text }) {
    const { rank, find, only } = this.options;
    return (
      (!rank || who === rank || who.endsWith(` ${rank}`)) &&
      (!find || !only || text.toLowerCase().includes(find.toLowerCase()))
    );
  }

  fill(block) {
    const current = this.current !== null && this.at(this.current);
    block.lines.forEach((line, number) => {
      this.put(block, line, number, current && current.block === block && current.number === number);
    });
  }

  put(block, line, number, current) {
    if (!this.shows(parse(line))) return;
    const node = this.line(line);
    if (this.options.times) {
      const [begin, end] = [this.begin(block, number), this.begin(block, number + 1)];
      node.prepend(Object.assign(h("span.time"), { begin, end }));
      this.stampSoon();
    }
    if (current) node.classList.add("current");
    block.node.append(node);
  }

  line(raw) {
    const { who, text } = parse(raw);
    const number = Number(who.match(/\d+$/)?.[0] ?? NaN);
    return h(
      "div.line",
      who && h("span", { class: `who r${Number.isNaN(number) ? 0 : number % 8}` }, /^\d+$/.test(who) ? `r${who}` : who),
      spans(text, this.options.find),
    );
  }

  set(options) {
    const before = this.options;
    this.options = { ...before, ...options };
    this.scroller.classList.toggle("wrap", this.options.wrap);
    if (["rank", "find", "only", "times"].some((name) => before[name] !== this.options[name])) this.again();
    if (this.options.follow && this.frozen) this.resume();
    if (this.options.follow && (!before.follow || !this.shown)) this.bottom();
    this.shown = this.scroller.isConnected;
  }

  again() {
    for (const block of this.blocks.filter((each) => !each.gap)) {
      block.node.replaceChildren();
      this.fill(block);
    }
    this.status();
    if (this.options.follow) this.bottom();
  }

  async load() {
    this.button.disabled = true;
    try {
      const found = await this.earlier(this.start ?? 0, LIMIT);
      const height = this.scroller.scrollHeight;
      this.options.follow = false;
      const block = blockOf(found.start, found.end, found.text);
      this.fill(block);
      this.blocks.unshift(block);
      this.body.prepend(block.node);
      this.scroller.scrollTop += this.scroller.scrollHeight - height;
      this.changed?.();
    } finally {
      this.button.disabled = false;
      this.status();
    }
  }

  status() {
    this.before.hidden = !this.start;
    this.after.hidden = !this.frozen;
    const shown = this.body.querySelectorAll(".line").length;
    this.empty ??= this.scroller.appendChild(quiet());
    this.empty.textContent =
      shown || this.partial
        ? ""
        : this.options.rank || (this.options.find && this.options.only)
          ? "No line that is loaded matches."
          : (this.waiting ?? "No output yet.");
  }

  /** Show the end, when it has been laid out. */
  bottom() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      this.settled = performance.now() + SETTLED;
      this.scroller.scrollTop = this.scroller.scrollHeight;
      this.frame = requestAnimationFrame(() => {
        this.scroller.scrollTop = this.scroller.scrollHeight;
      });
    });
  }

  scrolled() {
    if (performance.now() < (this.settled ?? 0)) return; // not by the user
    const atEnd = this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 30;
    if (this.live && !this.frozen && atEnd !== this.options.follow) {
      this.options.follow = atEnd;
      this.changed?.();
    }
  }
}

/** The live output of a task, or of one of its ranks. `fetch`: reads a part of the file; `times`: when it was printed;
 * `changed`: called when scrolling turns following on or off; `newest`: the end of the file as it was last sent. */
export class LogView extends Lines {
  constructor(label, fetch, times, changed, newest) {
    super(label, (end, limit, start) => fetch({ end, limit, ...(start === undefined ? {} : { start }) }), times);
    this.live = true;
    this.changed = changed;
    this.newest = newest;
    if (newest()) this.append(newest());
  }

  take(value) {
    if (value.again) this.clear();
    else if (!this.frozen) this.append(value);
  }

  /** Go back from the middle of the file to its end. */
  resume() {
    this.clear();
    if (this.newest()) this.append(this.newest());
  }
}

/** A file: its end as text, or the first bytes of a binary one. */
export class FileView extends Lines {
  constructor(name, path) {
    super(name, async (end, limit) => {
      const start = Math.max(0, end - limit);
      return { start, end, text: await (await part(path, start, end)).text() };
    });
    this.waiting = "Loading…";
    this.lines = this.node;
    this.node = h("section.file", h("h2", name), this.lines);
    this.options.follow = false;
    this.read(path);
  }

  async read(path) {
    try {
      const answer = await fetch(url(path), { headers: { Range: `bytes=-${LIMIT}` } });
      const content = new Uint8Array(await answer.arrayBuffer());
      this.waiting = "The file is empty.";
      if (!answer.ok)
        this.waiting = answer.status === 416 ? this.waiting : JSON.parse(new TextDecoder().decode(content)).error;
      else if (content.includes(0)) this.append({ start: 0, end: 0, text: `${hex(content.slice(0, 512))}\n` });
      else {
        const size = Number(answer.headers.get("Content-Range")?.split("/")[1] ?? content.length);
        this.append({ start: size - content.length, end: size, text: `${new TextDecoder().decode(content)}\n` });
      }
    } catch (error) {
      this.waiting = error.message;
    }
    this.status();
  }
}

/** A file in a component of a page. base: the address of what has it. */
export function viewer(context, base, file) {
  context.component(`file ${file}`, () => new FileView(file, fileAt(base, file)));
  return h("div", { keep: `file ${file}` });
}

function hex(content) {
  const rows = [];
  for (let at = 0; at < content.length; at += 16) {
    const row = [...content.slice(at, at + 16)];
    const text = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(
      `${at.toString(16).padStart(6, "0")}  ${row
        .map((byte) => byte.toString(16).padStart(2, "0"))
        .join(" ")
        .padEnd(48)}  ${text}`,
    );
  }
  return rows.join("\n");
}
