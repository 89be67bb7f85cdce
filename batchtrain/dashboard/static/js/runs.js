// The list of recorded runs, and several beside one another.

import { Curves } from "./curves.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import * as ui from "./parts.js";
import { result } from "./run.js";

export const list = {
  title: () => "Runs",
  topics: (context) => ({ runs: ui.asked(context, "/runs", "skip") }),
  render(context) {
    const runs = context.data.runs;
    const chosen = context.query.getAll("id");
    return [
      ui.head("Runs"),
      ui.trouble(context.trouble.runs),
      !runs
        ? ui.quiet("Loading…")
        : !runs.rows.length
          ? ui.empty(
              `No run is recorded in ${context.account.runs_dir}. Start one:`,
              ...context.account.start,
              `${context.account.program} dashboard --runs-dir DIR`,
            )
          : [
              h(
                "p",
                { class: "filters" },
                chosen.length > 1
                  ? h("a", { class: "button", href: comparison(chosen) }, `Compare ${chosen.length} runs`)
                  : h("span", { class: "quiet" }, "Choose two or more runs to compare them."),
              ),
              ui.table(
                ["", "Run", "Outcome", "#Time", "#Cost", "Started", "Nodes", "Results", "Settings"],
                runs.rows.map((run) => runRow(context, run, chosen)),
                "Runs",
              ),
              ui.more(context, runs.next, runs.rows.length),
            ],
    ];
  },
};

const comparison = (names) => `/runs/compare?${names.map((name) => `id=${encodeURIComponent(name)}`).join("&")}`;

const runRow = (context, run, chosen) =>
  ui.row(run.id, [
    h("td", { class: "check" }, [
      h("input", {
        type: "checkbox",
        "aria-label": `Compare ${run.id}`,
        checked: chosen.includes(run.id),
        onchange: () => context.toggle("id", run.id),
      }),
    ]),
    ui.link(ui.path("runs", run.id), run.id),
    result(run),
    ui.right(duration(run.seconds)),
    ui.right(run.cost || (run.node_hours === null ? "" : `${run.node_hours.toFixed(2)} h`)),
    ui.when(run.started),
    h("span", { class: "line1" }, run.nodes ? `${run.nodes} × ${run.vm_size}` : ""),
    run.results.map((each) => each.text).join(", "),
    h("span", { class: "cut" }, [
      Object.entries(run.settings)
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ]),
  ]);

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
                ...each.values.map((value) =>
                  each.values.every((other) => other === value) ? value : h("strong", null, value),
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
