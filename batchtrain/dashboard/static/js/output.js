// The output of a task: one stream or all, ranks merged, split or one, and a search over the whole file.

import { get, url } from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { LogView } from "./log.js";
import { button, checkbox, chip, quiet, search, select, trouble } from "./parts.js";

const BUFFERED = 256 * 1024,
  MOST_PANES = 8,
  PAUSE = 250;
const STREAMS = ["stdout.txt", "stderr.txt"];

/** The stream that a task is shown with first; it stays so when the task fails while it is shown. */
function firstStream(context, failed) {
  context.streams ??= new Map();
  const task = context.query.get("task");
  if (!context.streams.has(task)) context.streams.set(task, failed ? "stderr.txt" : "stdout.txt");
  return context.streams.get(task);
}

/** The file that a page shows: that of the address, and of a task that had failed before it was opened its errors. Of a
 * rank it is its own file, if there is one: a merged file may not tell which rank wrote a line. */
export function chosenFile(context, failed, files = []) {
  const file = context.query.get("file") ?? firstStream(context, failed),
    own = `ranks/${context.query.get("rank")}.${file}`;
  return files.includes(own) && context.query.get("split") !== "on" ? own : file;
}

/** A file of a task as it grows, in one pane or in one for each rank. */
class OutputView {
  constructor(context, base, file) {
    this.context = context;
    this.base = base;
    this.file = file;
    this.node = h("div", { class: "panes" });
    this.panes = new Map();
    this.buffer = null;
    this.found = null;
    this.index = -1;
  }

  close() {
    clearTimeout(this.timer);
  }

  fetch(path, values) {
    const query = new URLSearchParams({ file: this.file, ...values });
    return get(`${this.base}/${path}?${query}`);
  }

  async times(start, end) {
    const times = await this.fetch("times", { start, end }),
      hadTimes = this.hasTimes;
    this.hasTimes = hadTimes || times.at.length > 0;
    if (this.hasTimes !== hadTimes) this.context.draw();
    return times;
  }

  take(sent) {
    const value = this.fresh(sent);
    if (!value) return;
    const skipped = value.again || value.skipped || !this.buffer;
    this.buffer = skipped
      ? { start: value.start, end: value.end, text: value.text }
      : { start: this.buffer.start, end: value.end, text: this.buffer.text + value.text };
    const excess = this.buffer.text.length - BUFFERED;
    if (excess > 0) {
      const cut = this.buffer.text.indexOf("\n", excess) + 1 || excess;
      this.buffer.start += new TextEncoder().encode(this.buffer.text.slice(0, cut)).length;
      this.buffer.text = this.buffer.text.slice(cut);
    }
    for (const pane of this.panes.values()) pane.take(value);
  }

  /** What is new in it: a stream that was opened again begins with the end of the file. */
  fresh(value) {
    const end = this.buffer?.end ?? null;
    if (value.again || end === null || value.start === end) return value;
    if (value.start > end) return { ...value, skipped: value.start - end };
    if (value.end <= end) return null;
    const content = new TextEncoder().encode(value.text).slice(end - value.start);
    return { start: end, end: value.end, text: new TextDecoder().decode(content) };
  }

  show(ranks, options, waiting) {
    for (const key of [...this.panes.keys()])
      if (!ranks.includes(key)) {
        this.panes.get(key).box.remove();
        this.panes.delete(key);
      }
    for (const rank of ranks) {
      if (!this.panes.has(rank)) {
        const label = `Output in ${this.file}${rank ? ` of rank ${rank}` : ""}`;
        const pane = new LogView(
          label,
          (values) => this.fetch("logs", values),
          (start, end) => this.times(start, end),
          () => this.context.set({ follow: pane.options.follow ? "" : "off" }),
          () => this.buffer,
        );
        pane.box = h("div", null, ranks.length > 1 ? h("h3", null, `r${rank}`) : null, pane.node);
        this.panes.set(rank, pane);
      }
      const pane = this.panes.get(rank);
      this.node.append(...(pane.box.isConnected ? [] : [pane.box]));
      pane.waiting = waiting;
      pane.set({ ...options, rank });
    }
    this.node.classList.toggle("split", ranks.length > 1);
  }

  /** Search the whole file. `last`: go to the last match. */
  search(find, rank, last) {
    if (find === this.sought?.find && rank === this.sought.rank) return;
    const opens = !this.sought;
    this.sought = { find, rank };
    this.found = null;
    this.index = -1;
    clearTimeout(this.timer);
    if (!find) return this.context.draw();
    this.timer = setTimeout(() => this.look(last, 0, opens), PAUSE);
  }

  /** `opens`: the address of the page has the text, so its first match is shown. */
  async look(last, skip = 0, opens = false) {
    const { find, rank } = this.sought;
    try {
      const found = await this.fetch("search", { find, skip, ...(rank ? { rank } : {}) });
      if (find !== this.sought.find || rank !== this.sought.rank) return;
      this.found = found;
      if (last && rank !== "" && !found.matches) return this.search(find, "", true);
      if (last && found.matches > skip + found.lines.length)
        return this.look(last, found.matches - Math.min(found.matches, found.lines.length));
      if (last && found.matches) await this.go(found.matches - 1);
      else if (opens && found.matches) await this.go(0);
    } catch (error) {
      this.found = { error: error.message, matches: 0, lines: [], skip: 0 };
    }
    this.context.draw();
  }

  async step(by) {
    if (!this.found?.matches) return;
    const from = this.index < 0 ? (by > 0 ? -1 : 0) : this.index;
    await this.go((from + by + this.found.matches) % this.found.matches);
  }

  async go(index) {
    const { find, rank } = this.sought;
    if (index < this.found.skip || index >= this.found.skip + this.found.lines.length) {
      const skip = Math.max(0, index - 500);
      this.found = await this.fetch("search", { find, skip, ...(rank ? { rank } : {}) });
    }
    this.index = index;
    const position = this.found.lines[index - this.found.skip];
    if (position !== undefined) await this.panes.values().next().value?.reveal(position);
    this.context.draw();
  }

  get summary() {
    if (!this.sought?.find) return "";
    if (!this.found) return "searching…";
    if (this.found.error) return this.found.error;
    if (!this.found.matches) return "no match in the file";
    return this.index < 0
      ? plural(this.found.matches, "match", "matches")
      : `${count(this.index + 1)} of ${plural(this.found.matches, "match", "matches")}`;
  }
}

export const outputView = (context, base, file) =>
  context.component(`output ${base} ${file}`, () => new OutputView(context, base, file));

/** `subject`: base, name, state, failed, cause (a text of the line that proves it, and its rank), files,
 * raw (of a file). */
export function output(context, subject) {
  const { query } = context,
    file = chosenFile(context, subject.failed, subject.files),
    stream = file.split(".").slice(-2).join("."),
    view = outputView(context, subject.base, file),
    find = query.get("find") ?? "",
    one = query.get("rank") ?? "",
    rank = file.startsWith("ranks/") ? "" : one,
    isSplit = query.get("split") === "on";
  const numbers = (context.data.ranks?.rows ?? []).map((each) => each.rank).sort((a, b) => a - b);
  const panes = isSplit ? numbers.slice(0, MOST_PANES).map(String) : [rank];
  view.show(
    panes.length ? panes : [""],
    {
      find,
      only: query.get("only") === "on",
      wrap: query.get("wrap") !== "off",
      follow: query.get("follow") !== "off",
      times: query.get("times") === "on",
    },
    { active: "The task has not started yet.", completed: "No output." }[subject.state] ?? "No output yet.",
  );
  if (find || !view.atCause) view.search(find, isSplit ? "" : rank, false);
  if (subject.cause?.text && stream === "stderr.txt" && !find && !view.atCause && !query.has("follow") && view.buffer) {
    view.atCause = true;
    view.search(subject.cause.text, subject.cause.rank ?? "", true);
  }
  const choices = [
    ["", "merged"],
    ["split", "side by side"],
    ...numbers.map((number) => [String(number), `only r${number}`]),
  ];
  const earlier = subject.files.filter((name) => name.startsWith("attempt-"));
  return h("section", { class: "output" }, [
    h("h2", { class: "unseen" }, "Output"),
    h("div", { class: "filters" }, [
      h("nav", { class: "chips", "aria-label": "Stream" }, [
        STREAMS.map((name) =>
          chip(
            context.with({ file: name === firstStream(context, subject.failed) ? "" : name }),
            stream === name,
            null,
            name.replace(".txt", ""),
          ),
        ),
      ]),
      earlier.length
        ? select("Attempt", file, [["", "last"], ...earlier.map((name) => [name, name])], (name) =>
            context.set({ file: name }),
          )
        : null,
      numbers.length > 1
        ? select("Ranks", isSplit ? "split" : one, choices, (chosen) =>
            context.set({ rank: chosen === "split" ? "" : chosen, split: chosen === "split" ? "on" : "" }),
          )
        : null,
      box(context, "follow", "Follow", true),
      box(context, "wrap", "Wrap", true),
      box(context, "times", "Times", false),
      query.get("times") === "on" && view.hasTimes === false
        ? h("span", { class: "quiet" }, "No times were recorded.")
        : null,
      h("a", { href: url(subject.raw(file)), download: `${subject.name}-${file.replaceAll("/", "-")}` }, "Raw"),
    ]),
    h("div", { class: "filters" }, [
      search("Find", "find", find, "in the whole file", (text) => context.set({ find: text }), {
        onkeydown: (event) => event.key === "Enter" && view.step(event.shiftKey ? -1 : 1),
      }),
      find &&
        h("span", { class: "actions hits" }, [
          step(view, -1, "Previous"),
          step(view, 1, "Next"),
          h("span", { role: "status", class: "quiet" }, view.summary),
        ]),
      find && box(context, "only", "Only lines that match", false),
    ]),
    trouble(context.trouble.log),
    h("div", { keep: `output ${subject.base} ${file}` }),
    isSplit && numbers.length > MOST_PANES ? quiet(`The first ${MOST_PANES} of ${count(numbers.length)} ranks.`) : null,
  ]);
}

const step = (view, by, text) => button(text, () => view.step(by), { disabled: !view.found?.matches });

const box = (context, name, text, isDefault) =>
  checkbox(text, isDefault ? context.query.get(name) !== "off" : context.query.get(name) === "on", (checked) =>
    context.set({ [name]: checked === isDefault ? "" : isDefault ? "off" : "on" }),
  );
