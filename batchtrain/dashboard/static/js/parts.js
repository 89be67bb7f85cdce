// The parts that pages are made of.

import { url } from "./api.js";
import { h } from "./dom.js";
import { ago, bytes, moment, plural, short } from "./format.js";

const KINDS = {
  running: "run",
  active: "wait",
  completed: "done",
  succeeded: "good",
  failed: "bad",
  interrupted: "warn",
  fetched: "done",
  preparing: "wait",
  disabled: "warn",
  disabling: "warn",
  terminating: "warn",
  deleting: "warn",
  idle: "idle",
  starting: "wait",
  creating: "wait",
  waitingforstarttask: "wait",
  rebooting: "wait",
  reimaging: "wait",
  starttaskfailed: "bad",
  unusable: "bad",
  unknown: "bad",
  offline: "warn",
  preempted: "warn",
  leavingpool: "warn",
  steady: "idle",
  resizing: "wait",
  stopping: "warn",
};

export const kind = (state) => KINDS[state] ?? "idle";

/** A state as a mark and a word. */
export const state = (word) => h("span", { class: `state ${kind(word)}` }, word);

/** The state of a task or run: a completed one succeeded or failed. */
export function outcome(row) {
  if (row.state !== "completed") return state(row.state);
  return state(row.result === "failure" || row.exit_code ? "failed" : "succeeded");
}

export const link = (to, ...text) => h("a", { href: to }, ...text);
export const path = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;
export const when = (time) => h("time", { datetime: time ?? "", title: moment(time) }, ago(time));
export const id = (text) => h("span", { class: "id", title: text }, short(text));
export const command = (text) => h("code", { class: "command" }, text);

/** What to do where nothing is. */
export const empty = (text, ...commands) =>
  h(
    "div",
    { class: "empty" },
    h("p", null, text),
    commands.map((each) => h("p", null, command(each))),
  );

/** Names and values; empty values are left out. */
export const facts = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    Object.entries(pairs)
      .filter(([, value]) => value !== "" && value !== null && value !== undefined)
      .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );

export function table(heads, rows, label) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          heads.map((head) =>
            head
              ? h("th", { scope: "col", class: head.startsWith("#") ? "number" : null }, head.replace("#", ""))
              : h("td"),
          ),
        ),
      ),
      h("tbody", null, rows),
    ),
  );
}

export const row = (key, cells) =>
  h(
    "tr",
    { key },
    cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : h("td", null, cell))),
  );
export const right = (...text) => h("td", { class: "number" }, ...text);

/** Files to look at and to download. `base`: the address of what has them. */
export const fileTable = (context, files, base) =>
  table(
    ["File", "#Size", ""],
    files.map((file) =>
      row(file.path, [
        link(context.with({ look: file.path }), file.path),
        right(bytes(file.size)),
        h(
          "a",
          {
            href: url(`${base}/file?path=${encodeURIComponent(file.path)}`),
            download: file.path.split("/").pop(),
            "aria-label": `Download ${file.path}`,
          },
          "Download",
        ),
      ]),
    ),
    "Files",
  );

/** Parts of a whole as a bar, and in words for those who do not see it. */
export function bar(parts) {
  const total = parts.reduce((sum, [, amount]) => sum + amount, 0);
  const text = parts
    .filter(([, amount]) => amount)
    .map(([name, amount]) => `${amount} ${name}`)
    .join(", ");
  return h(
    "span",
    { class: "bar", role: "img", "aria-label": text || "nothing", title: text },
    parts
      .filter(([, amount]) => amount)
      .map(([name, amount]) => h("span", { class: kind(name), style: { "flex-grow": String(amount / total) } })),
  );
}

export const taskBar = (job) =>
  bar([
    ["succeeded", job.succeeded ?? 0],
    ["failed", job.failed ?? 0],
    ["running", job.running ?? 0],
    ["active", job.active ?? 0],
  ]);

/** The chosen view of a page. first: the default. */
export const view = (context, first = "overview") => context.query.get("view") ?? first;

/** The views of a page as tabs; the first is the default. forget: parts of the address that another view does not need.
 *  marked: views to look at. */
export function tabs(context, label, names, forget, marked = []) {
  const chosen = view(context, names[0]);
  return h(
    "nav",
    { class: "tabs", "aria-label": label },
    names.map((name) =>
      h(
        "a",
        {
          href: context.with({ ...forget, view: name === names[0] ? "" : name }),
          "aria-current": chosen === name ? "page" : null,
        },
        name[0].toUpperCase() + name.slice(1),
        marked.includes(name) && [" ", h("span", { class: "bad" }, "●")],
      ),
    ),
  );
}

/** Why something could not be read, with what is still shown. */
export const trouble = (text) => text && h("p", { class: "card bad", role: "alert" }, text);

export function cause(found, to) {
  if (!found) return null;
  return h(
    "section",
    { class: "card bad cause", "aria-label": "Why it failed" },
    h("h2", null, "Why it failed"),
    h("p", null, short(found.message)),
    found.card?.length ? h("pre", { tabindex: "0", class: "finding" }, short(found.card.join("\n"))) : null,
    found.raised && h("p", { class: "quiet" }, "raised at ", h("code", null, found.raised)),
    found.lines?.length ? h("pre", { tabindex: "0" }, found.lines.slice(-8).join("\n")) : null,
    to && h("p", null, to),
  );
}

/** A page for what does not exist: what was asked for, why it is not here, and where to go on. */
export const unknown = (text, reason, ...links) => [
  head(text),
  reason && h("p", { class: "quiet" }, reason),
  h(
    "ul",
    { class: "ways" },
    [...links, ["/", "Overview"], ["/jobs", "Jobs"], ["/runs", "Runs"], ["/pools", "Pools"]]
      .filter(([to], at, all) => all.findIndex(([other]) => other === to) === at)
      .map(([to, name]) => h("li", null, link(to, name))),
  ),
];

/** Until data comes: nothing if it cannot. */
export const loading = (troubles) => (troubles ? null : h("p", { class: "quiet" }, "Loading…"));

export const head = (title, ...more) => h("div", { class: "head" }, h("h1", null, title), ...more);

export const crumbs = (...items) => h("nav", { class: "crumbs", "aria-label": "Path" }, items);

export function more(context, next, shown) {
  return (
    next &&
    h(
      "p",
      { class: "more" },
      h("a", { href: context.with({ skip: next }) }, `Next page`),
      h("span", { class: "quiet" }, ` after ${plural(shown, "row")}`),
    )
  );
}

/** A text to read, and to copy. */
export function document_(title, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return h(
    "section",
    { class: "document" },
    h("div", { class: "head" }, h("h2", null, title), copy(text)),
    h("pre", { tabindex: "0", "aria-label": title }, text),
  );
}

export const copy = (text) =>
  h(
    "button",
    {
      type: "button",
      class: "small",
      onclick: (event) => {
        navigator.clipboard.writeText(text).then(() => {
          event.target.textContent = "Copied";
          setTimeout(() => {
            event.target.textContent = "Copy";
          }, 1500);
        });
      },
    },
    "Copy",
  );
