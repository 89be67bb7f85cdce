// The parts that pages are made of.

import { url } from "./api.js";
import { button, h } from "./dom.js";
import { ago, bytes, moment, plural, short } from "./format.js";

/** The looks of states by their words, as the account document has them. */
const looks = {};
export const learn = (tones) => Object.assign(looks, tones);
export const kind = (state) => looks[state] ?? "idle";

/** A state as a mark and a word. */
export const state = (word) => h("span", { class: `state ${kind(word)}` }, word);

export const link = (to, ...text) => h("a", { href: to }, ...text);
export const path = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;
export const when = (time) => h("time", { datetime: time ?? "", title: moment(time) }, ago(time));
export const id = (text) => h("span", { class: "id", title: text }, short(text));
export const command = (text) => h("code", { class: "command" }, text);
export const quiet = (...text) => h("p", { class: "quiet" }, ...text);
export const warned = (...text) => h("p", { class: "card warned" }, ...text);
/** What a page subscribes to while the tasks of a job wait, and why they do. */
export const waitsTopic = (job) => (job?.active && !job.running ? { waits: path("jobs", job.id, "waits") } : {});
export const waits = ({ data: { job, waits } }) =>
  job?.active && !job.running && waits?.text ? warned(waits.text, "; ", waits.next_step) : null;

export { button };

/** A field of a form that is on or off. */
export const checkbox = (text, checked, set) =>
  h("label", { class: "box" }, [
    h("input", { type: "checkbox", checked, onchange: (event) => set(event.target.checked) }),
    text,
  ]);

/** A choice of one of several. items: each with the text that is shown. */
export const select = (label, value, items, set) =>
  h("label", null, [
    `${label} `,
    h("select", { onchange: (event) => set(event.target.value) }, [
      items.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
    ]),
  ]);

/** A field that searches while it is written. */
export const search = (label, name, value, placeholder, set, attributes) =>
  h("label", { class: "search" }, [
    `${label} `,
    h("input", {
      type: "search",
      name,
      value,
      placeholder,
      oninput: (event) => set(event.target.value),
      ...attributes,
    }),
  ]);

/** A link that chooses what is shown. */
export const chip = (to, chosen, attributes, ...text) =>
  h("a", { class: "chip", href: to, "aria-current": chosen ? "true" : null, ...attributes }, ...text);

/** The address of a file. base: the address of what has it. */
export const fileAt = (base, file) => `${base}/file?path=${encodeURIComponent(file)}`;

/** The address of this page with a query. */
export const address = (query) => location.pathname + (String(query) ? `?${query}` : "");

/** The address of this page with other values in its query. */
export function here(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values))
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  return address(query);
}

/** An address with those values of the query of the page that it takes. */
export function asked(context, path_, ...names) {
  const values = names.map((name) => [name, context.query.get(name) ?? ""]).filter(([, value]) => value);
  return path_ + (values.length ? `?${new URLSearchParams(values)}` : "");
}

/** What to do where nothing is. */
export const empty = (text, ...commands) =>
  h("div", { class: "empty" }, [h("p", null, text), commands.map((each) => h("p", null, command(each)))]);

/** Names and values; empty values are left out. */
export const facts = (pairs) =>
  h("dl", { class: "facts" }, [
    Object.entries(pairs)
      .filter(([, value]) => value !== "" && value !== null && value !== undefined)
      .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  ]);

/** A table without the columns that are empty in all rows. */
export function table(heads, rows, label) {
  const cells = heads.map((head) =>
    head ? h("th", { scope: "col", class: head.startsWith("#") ? "number" : null }, head.replace("#", "")) : h("td"),
  );
  const node = h("table", null, h("thead", null, h("tr", null, cells)), h("tbody", null, rows));
  const [, ...others] = node.rows;
  const isEmpty = (cell) => !cell?.textContent && !cell?.querySelector("input, [role=img]");
  for (let at = heads.length - 1; at >= 0 && others.length; at -= 1)
    if (others.every((each) => isEmpty(each.cells[at]))) for (const each of node.rows) each.cells[at]?.remove();
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, node);
}

export const row = (key, cells) =>
  h("tr", { key }, [cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : h("td", null, cell)))]);
export const right = (...text) => h("td", { class: "number" }, ...text);

/** A table of records. columns: by head, the name of a value, or what makes a cell; `#` aligns at the right. */
export function records(label, all, columns) {
  const cell = (record, head) => {
    const content = typeof columns[head] === "string" ? record[columns[head]] : columns[head](record);
    return head.startsWith("#") ? right(content ?? "") : content;
  };
  const heads = Object.keys(columns);
  const rows = all.map((record, at) =>
    row(
      record.id ?? `${at}`,
      heads.map((head) => cell(record, head)),
    ),
  );
  return table(heads, rows, label);
}

/** The same below its title; nothing without records. */
export const section = (title, all, columns) => all.length > 0 && [h("h2", null, title), records(title, all, columns)];

/** The values of `--set` of a run. */
export const settings = (run) =>
  Object.entries(run.settings)
    .map(([name, value]) => `${name}=${value}`)
    .join(", ");

/** Links to things of the API by their ids. */
export const toRun = (run) => link(path("runs", run), run);
export const toJob = (job) => link(path("jobs", job), job);
export const toTask = (job, task) => link(path("jobs", job, "tasks", task), task);
export const toPool = (pool) => link(path("pools", pool), pool);
export const toNode = (pool, node) => link(path("pools", pool, "nodes", node), short(node));

/** Files to look at and to download; the empty ones are folded. `base`: the address of what has them. */
export function fileTable(context, files, base) {
  const download = ({ path }) => {
    const name = path.split("/").pop();
    return h("a", { href: url(fileAt(base, path)), download: name, "aria-label": `Download ${path}` }, "Download");
  };
  const look = ({ path }) => link(context.with({ look: path }), path);
  const shown = (some) => records("Files", some, { File: look, "#Size": ({ size }) => bytes(size), "": download });
  const empty = files.filter(({ size }) => !size);
  return [
    shown(files.filter(({ size }) => size)),
    empty.length > 0 &&
      h("details", { key: "empty" }, h("summary", null, plural(empty.length, "empty file")), shown(empty)),
  ];
}

/** Parts of a whole as a bar, and in words for those who do not see it. */
export function bar(parts) {
  const total = parts.reduce((sum, [, amount]) => sum + amount, 0);
  const text = parts
    .filter(([, amount]) => amount)
    .map(([name, amount]) => `${amount} ${name}`)
    .join(", ");
  return h("span", { class: "bar", role: "img", "aria-label": text || "nothing", title: text }, [
    parts
      .filter(([, amount]) => amount)
      .map(([name, amount]) => h("span", { class: kind(name), style: { "flex-grow": String(amount / total) } })),
  ]);
}

/** The numbers of tasks of a job: those that have ended, and all. */
export function counts(job) {
  const done = (job.succeeded ?? 0) + (job.failed ?? 0);
  return { done, all: done + (job.running ?? 0) + (job.active ?? 0) };
}

/** How far something is, as a bar and in words. */
export const progressLine = (bar, ...words) => h("p", { class: "progress" }, bar, h("span", null, ...words));

/** The ends of an axis, and what stands between them. */
export const axis = (...texts) => h("p", { class: "axis quiet" }, [texts.map((text) => h("span", null, text))]);

/** A lane of a timeline with its blocks. */
export const lane = (key, name, blocks, style) =>
  h("li", { key }, h("span", { class: "lane", title: key }, name), h("span", { class: "track", style }, blocks));

/** A block from one share of its lane to another, in percent. */
export const block = (look, text, start, end, least, attributes, top = 1) =>
  h(attributes.href ? "a" : "span", {
    class: `block ${look}`,
    title: text,
    "aria-label": text,
    style: { top: `${top}px`, left: `${start}%`, width: `${Math.max(end - start, least)}%` },
    ...attributes,
  });

/** A node or rank of a heat map, filled as far as `full`, in percent. */
export const tile = (href, look, text, full, letter) =>
  h("a", { href, class: `tile ${look}`, title: text, "aria-label": text }, [
    h("span", { class: "fill", style: { height: `${full}%` } }),
    h("span", { class: "letter" }, letter),
  ]);

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
  return h("nav", { class: "tabs", "aria-label": label }, [
    names.map((name) =>
      h(
        "a",
        {
          href: context.with({ ...forget, view: name === names[0] ? "" : name }),
          "aria-current": chosen === name ? "page" : null,
        },
        [name[0].toUpperCase() + name.slice(1), marked.includes(name) && [" ", h("span", { class: "bad" }, "●")]],
      ),
    ),
  ]);
}

/** Why something could not be read, with what is still shown. */
export const trouble = (text) => text && h("p", { class: "card bad", role: "alert" }, text);

export function cause(found, to) {
  if (!found) return null;
  const title = found.ended ? "Why it ended" : "Why it failed";
  return h("section", { class: "card bad cause", "aria-label": title }, [
    h("h2", null, title),
    h("p", null, short(found.message)),
    found.card?.length ? h("pre", { tabindex: "0", class: "finding" }, short(found.card.join("\n"))) : null,
    found.raised && quiet("raised at ", h("code", null, found.raised)),
    found.lines?.length ? h("pre", { tabindex: "0" }, found.lines.slice(-8).join("\n")) : null,
    to && h("p", null, to),
  ]);
}

/** A page for what does not exist: what was asked for, why it is not here, and where to go on. */
export const unknown = (text, reason, ...links) => [
  head(text),
  reason && quiet(reason),
  h("ul", { class: "ways" }, [
    [...links, ["/", "Overview"], ["/jobs", "Jobs"], ["/runs", "Runs"], ["/pools", "Pools"]]
      .filter(([to], at, all) => all.findIndex(([other]) => other === to) === at)
      .map(([to, name]) => h("li", null, link(to, name))),
  ]),
];

/** Until data comes: nothing if it cannot. */
export const loading = (troubles) => (troubles ? null : quiet("Loading…"));

/** In place of data: why it cannot be read, or that it comes. */
export const awaited = (troubles) => trouble(troubles) || quiet("Loading…");

export const head = (title, ...more) => h("div", { class: "head" }, h("h1", null, title), ...more);

export const crumbs = (...items) => h("nav", { class: "crumbs", "aria-label": "Path" }, items);

export function more(context, next, shown) {
  return (
    next &&
    h("p", { class: "more" }, [
      h("a", { href: context.with({ skip: next }) }, `Next page`),
      h("span", { class: "quiet" }, ` after ${plural(shown, "row")}`),
    ])
  );
}

/** A text to read, and to copy. */
export function document_(title, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return h("section", { class: "document" }, [
    h("div", { class: "head" }, h("h2", null, title), copy(text)),
    h("pre", { tabindex: "0", "aria-label": title }, text),
  ]);
}

export const copy = (text) =>
  button("Copy", (event) =>
    navigator.clipboard.writeText(text).then(() => {
      event.target.textContent = "Copied";
      setTimeout(() => {
        event.target.textContent = "Copy";
      }, 1500);
    }),
  );
