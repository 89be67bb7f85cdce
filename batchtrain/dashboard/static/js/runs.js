// The list of recorded runs, and several beside one another.

import { Curves } from "./curves.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import * as ui from "./parts.js";
import { result, results } from "./run.js";

export const list = {
  title: () => "Runs",
  topics: (context) => ({ runs: ui.asked(context, "/runs", "skip", "text", "sort") }),
  render(context) {
    const runs = context.data.runs,
      sort = context.query.get("sort") ?? "";
    const chosen = context.query.getAll("id");
    return [
      ui.head("Runs"),
      ui.trouble(context.trouble.runs),
      !runs
        ? ui.quiet("Loading…")
        : !runs.rows.length && !context.query.get("text")
          ? ui.empty(
              `No run is recorded in ${context.account.runs_dir}. Start one:`,
              ...context.account.start,
              `${context.account.program} dashboard --runs-dir DIR`,
            )
          : [
              h(
                "p",
                { class: "filters" },
                ui.search("Filter", "text", context.query.get("text") ?? "", "name, state, tag, note", (text) =>
                  context.set({ text, skip: "" }),
                ),
                ui.select("Sort by", sort, sorts(runs.rows, sort), (key) => context.set({ sort: key, skip: "" })),
                chosen.length > 1
                  ? h("a", { class: "button", href: comparison(chosen) }, `Compare ${chosen.length} runs`)
                  : h("span", { class: "quiet" }, "Choose two or more runs to compare them."),
              ),
              ui.records("Runs", runs.rows, columns(context, chosen)),
              ui.more(context, runs.next, runs.rows.length),
            ],
    ];
  },
};

/** The orders of the list: by time, or by a main metric that a run has. */
const sorts = (rows, chosen) => [
  ["", "time"],
  ...[...new Set([chosen, ...rows.flatMap((run) => run.metrics)])].filter(Boolean).map((name) => [name, name]),
];

const comparison = (names) => `/runs/compare?${names.map((name) => `id=${encodeURIComponent(name)}`).join("&")}`;

const columns = (context, chosen) => ({
  "": ({ id }) => {
    const choice = { "aria-label": `Compare ${id}`, checked: chosen.includes(id) };
    choice.onchange = () => context.toggle("id", id);
    return h("td", { class: "check" }, h("input", { type: "checkbox", ...choice }));
  },
  Run: ({ id }) => ui.toRun(id),
  Outcome: result,
  "#Time": ({ seconds }) => duration(seconds),
  "#Cost": "cost",
  "#Node hours": (run) => run.node_hours?.toFixed(2),
  Started: ({ started }) => ui.when(started),
  Nodes: (run) => h("span", { class: "line1" }, run.nodes ? `${run.nodes} × ${run.vm_size}` : ""),
  Results: (run) => h("td", { class: "results" }, results(run)),
  Labels: "labels",
  Settings: (run) => h("span", { class: "cut" }, ui.settings(run)),
});

export const compare = {
  title: () => "Compare runs",
  topics: (context) => ({ all: comparison(context.query.getAll("id")) }),
  news: {
    all(context, value) {
      context
        .component("curves", () => new Curves())
        .update(
          value.curves,
          value.runs.map((each) => each.id),
        );
      context.data.all = value;
    },
  },
  render(context) {
    const all = context.data.all;
    if (!all)
      return [
        ui.crumbs(ui.link("/runs", "Runs")),
        ui.head("Compare runs"),
        ui.trouble(context.trouble.all) ||
          (context.query.getAll("id").length < 2
            ? h("p", null, "Choose two or more runs in the ", ui.link("/runs", "list of runs"), ".")
            : ui.quiet("Loading…")),
      ];
    return [
      ui.crumbs(ui.link("/runs", "Runs")),
      ui.head("Compare runs"),
      ui.table(
        ["", ...all.runs.map((each) => each.id)],
        [
          ui.row("outcome", ["outcome", ...all.runs.map(result)]),
          ...all.rows
            .filter((each) => each.name !== "state")
            .map((each) =>
              ui.row(each.name, [
                each.name,
                ...each.values.map((value, at) =>
                  each.values.every((other) => other === value) && !each.diverged[at]
                    ? value
                    : h("strong", { class: each.diverged[at] ? "bad" : null }, value),
                ),
              ]),
            ),
        ],
        "Comparison",
      ),
      h("div", { keep: "curves" }),
    ];
  },
};
