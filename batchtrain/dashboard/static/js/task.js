// One task: why it failed, its ranks, curves, live output and files.

import { url } from "./api.js";
import { Curves } from "./curves.js";
import { h } from "./dom.js";
import { bytes, duration, lasted, short } from "./format.js";
import { FileView, LogView } from "./log.js";
import { cause, crumbs, facts, head, link, outcome, path, right, row, table, trouble, when } from "./parts.js";

const QUIET_SECONDS = 30,
  MOST_RANKS = 12;
const base = ({ params }) => path("jobs", params.job, "tasks", params.task);
const file = (context) => context.query.get("file") ?? "stdout.txt";
const LOGS = ["stdout.txt", "stderr.txt"];

export const page = {
  title: (context) => context.params.task,
  topics: (context) => ({
    task: base(context),
    ranks: `${base(context)}/ranks`,
    curves: `${base(context)}/metrics`,
    log: `${base(context)}/logs?file=${encodeURIComponent(file(context))}`,
  }),
  news: {
    log(context, value) {
      log(context).take(value);
    },
    curves(context, value) {
      if (!Object.keys(value).length) return;
      context.component("curves", () => new Curves()).update(value);
      context.data.curves = true;
    },
  },
  render(context) {
    const seen = context.data.task,
      { job, task } = context.params;
    return [
      crumbs(link("/jobs", "Jobs"), link(path("jobs", job), job)),
      head(task, seen && outcome(seen)),
      trouble(context.trouble.task),
      seen &&
        cause(
          seen.cause,
          seen.cause &&
            seen.cause.rank !== null &&
            link(
              context.with({ rank: seen.cause.rank, file: "stderr.txt" }),
              `Show the stderr of rank ${seen.cause.rank}`,
            ),
        ),
      seen && !seen.cause && seen.failure && h("p", { class: "card bad" }, short(seen.failure)),
      seen &&
        facts({
          "Exit code": seen.exit_code,
          Time: duration(seen.seconds ?? lasted(seen.started)),
          Started: seen.started && when(seen.started),
          Ended: seen.ended && when(seen.ended),
          Nodes: seen.nodes?.length
            ? h(
                "span",
                null,
                seen.nodes
                  .slice(0, 8)
                  .map((node, at) => [
                    at ? ", " : "",
                    link(path("pools", node.pool, "nodes", node.id), `${node.name} ${short(node.id)}`),
                  ]),
                seen.nodes.length > 8 ? ` and ${seen.nodes.length - 8} more` : "",
              )
            : "",
          Retries: seen.retries || "",
          Requeues: seen.requeues || "",
        }),
      ranks(context),
      context.data.curves && h("div", { keep: "curves" }),
      output(context, seen),
      files(context, seen),
    ];
  },
};

function ranks(context) {
  const all = context.data.ranks ?? [];
  if (!all.length) return null;
  const running = context.data.task?.state === "running",
    now = Date.now() / 1000;
  const quiet = (each) => running && now - each.at > QUIET_SECONDS;
  const shown =
    all.length > MOST_RANKS
      ? [...all]
          .sort((a, b) => a.at - b.at)
          .slice(0, MOST_RANKS)
          .sort((a, b) => a.rank - b.rank)
      : all;
  return h(
    "section",
    { class: "ranks" },
    h("h2", null, "Ranks"),
    table(
      ["#Rank", "#Node", "#Lines", "Last line", ""],
      shown.map((each) =>
        row(`${each.rank}`, [
          right(
            link(
              context.with({ rank: context.query.get("rank") === String(each.rank) ? "" : each.rank }),
              String(each.rank),
            ),
          ),
          right(each.node),
          right(String(each.lines)),
          h("code", { class: "cut" }, each.last),
          quiet(each) ? h("span", { class: "state warn" }, `quiet for ${duration(now - each.at)}`) : "",
        ]),
      ),
      "Ranks",
    ),
    all.length > shown.length && h("p", { class: "quiet" }, `The ${shown.length} quietest of ${all.length} ranks.`),
  );
}

function log(context) {
  const name = file(context);
  const view = context.component(
    `log ${name}`,
    () => new LogView(base(context), name, () => context.set({ follow: view.options.follow ? "" : "off" })),
  );
  return view;
}

function output(context, seen) {
  const query = context.query,
    view = log(context);
  view.waiting =
    seen?.state === "active"
      ? "The task has not started yet."
      : seen?.state === "completed"
        ? "No output."
        : "No output yet.";
  view.set({
    rank: query.get("rank") ?? "",
    find: query.get("find") ?? "",
    wrap: query.get("wrap") !== "off",
    follow: query.get("follow") !== "off",
  });
  const box = (name, text) =>
    h(
      "label",
      { class: "box" },
      h("input", {
        type: "checkbox",
        checked: query.get(name) !== "off",
        onchange: (event) => context.set({ [name]: event.target.checked ? "" : "off" }),
      }),
      text,
    );
  const known = context.data.ranks ?? [];
  return h(
    "section",
    { class: "output" },
    h(
      "div",
      { class: "head" },
      h("h2", null, "Output"),
      h(
        "nav",
        { class: "chips", "aria-label": "Stream" },
        LOGS.map((name) =>
          h(
            "a",
            {
              class: "chip",
              href: context.with({ file: name === "stdout.txt" ? "" : name }),
              "aria-current": file(context) === name ? "true" : null,
            },
            name.replace(".txt", ""),
          ),
        ),
      ),
    ),
    h(
      "div",
      { class: "filters" },
      known.length || query.get("rank")
        ? h(
            "label",
            null,
            "Rank ",
            h(
              "select",
              { onchange: (event) => context.set({ rank: event.target.value }) },
              h("option", { value: "" }, "all"),
              known.map((each) =>
                h(
                  "option",
                  { value: String(each.rank), selected: query.get("rank") === String(each.rank) },
                  String(each.rank),
                ),
              ),
            ),
          )
        : null,
      h(
        "label",
        { class: "search" },
        "Find ",
        h("input", {
          type: "search",
          name: "find",
          value: query.get("find") ?? "",
          oninput: (event) => context.set({ find: event.target.value }),
        }),
      ),
      box("follow", "Follow"),
      box("wrap", "Wrap"),
      h(
        "a",
        {
          href: url(`${base(context)}/file?path=${encodeURIComponent(file(context))}`),
          download: `${context.params.task}-${file(context)}`,
        },
        "Raw",
      ),
    ),
    trouble(context.trouble.log),
    h("div", { keep: `log ${file(context)}` }),
  );
}

function files(context, seen) {
  if (!seen?.node) return null;
  const at = `${base(context)}/files`,
    opened = context.query.get("files") === "on",
    found = opened ? context.once(at) : null;
  const chosen = context.query.get("look");
  if (chosen)
    context.component(
      `file ${chosen}`,
      () => new FileView(chosen, `${base(context)}/file?path=${encodeURIComponent(chosen)}`),
    );
  return h(
    "section",
    { class: "files" },
    h(
      "div",
      { class: "head" },
      h("h2", null, "Files"),
      h(
        "a",
        {
          class: "button small",
          href: context.with({ files: opened ? "" : "on", look: "" }),
          onclick: () => {
            delete context.loaded[at];
          },
        },
        opened ? "Hide" : "List the files",
      ),
    ),
    trouble(context.trouble[at]),
    found &&
      (found.length
        ? table(
            ["File", "#Size", ""],
            found
              .filter((each) => !each.path.startsWith(".batchtrain/"))
              .slice(0, 500)
              .map((each) =>
                row(each.path, [
                  link(context.with({ look: each.path }), each.path),
                  right(bytes(each.size)),
                  h(
                    "a",
                    {
                      href: url(`${base(context)}/file?path=${encodeURIComponent(each.path)}`),
                      download: each.path.split("/").pop(),
                      "aria-label": `Download ${each.path}`,
                    },
                    "Download",
                  ),
                ]),
              ),
            "Files",
          )
        : h("p", { class: "quiet" }, "The task has no files.")),
    chosen && h("div", { keep: `file ${chosen}` }),
  );
}
