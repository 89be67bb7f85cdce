// Recorded runs: the list, one run, and several beside one another.

import { url } from "./api.js";
import { Curves } from "./curves.js";
import { h } from "./dom.js";
import { bytes, count, duration, moment, money, number, short } from "./format.js";
import { FileView } from "./log.js";
import {
  cause,
  command,
  crumbs,
  empty,
  facts,
  head,
  id,
  kind,
  link,
  more,
  outcome,
  path,
  right,
  row,
  state,
  table,
  trouble,
  when,
} from "./parts.js";

const cost = (known) =>
  known &&
  [
    known.run !== null && money(known.run, known.currency),
    known.hour !== null && `${money(known.hour, known.currency)} an hour in ${known.region}`,
  ]
    .filter(Boolean)
    .join("; ");

const result = (run) => (run.state === "completed" ? state("succeeded") : state(run.state));

export const list = {
  title: () => "Runs",
  topics: (context) => ({
    runs: `/runs${context.query.get("skip") ? `?skip=${encodeURIComponent(context.query.get("skip"))}` : ""}`,
  }),
  render(context) {
    const runs = context.data.runs;
    const chosen = context.query.getAll("id");
    return [
      head("Runs"),
      trouble(context.trouble.runs),
      !runs
        ? h("p", { class: "quiet" }, "Loading…")
        : !runs.rows.length
          ? empty(
              `No run is recorded in ${context.account.runs_dir}. Start one:`,
              ...context.account.start,
              `${context.account.program} dashboard --runs-dir DIR`,
            )
          : [
              h(
                "p",
                { class: "filters" },
                chosen.length > 1
                  ? h(
                      "a",
                      {
                        class: "button",
                        href: `/runs/compare?${chosen.map((name) => `id=${encodeURIComponent(name)}`).join("&")}`,
                      },
                      `Compare ${chosen.length} runs`,
                    )
                  : h("span", { class: "quiet" }, "Choose two or more runs to compare them."),
              ),
              table(
                ["", "Run", "Outcome", "#Time", "#Cost", "Started", "Nodes", "Results", "Settings"],
                runs.rows.map((run) => runRow(context, run, chosen)),
                "Runs",
              ),
              more(context, runs.next, runs.rows.length),
            ],
    ];
  },
};

function choose(context, chosen, name) {
  const ids = chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name];
  const query = context.query;
  query.delete("id");
  for (const each of ids) query.append("id", each);
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
  context.set({});
}

const runRow = (context, run, chosen) =>
  row(run.id, [
    h(
      "td",
      { class: "check" },
      h("input", {
        type: "checkbox",
        "aria-label": `Compare ${run.id}`,
        checked: chosen.includes(run.id),
        onchange: () => choose(context, chosen, run.id),
      }),
    ),
    link(path("runs", run.id), run.id),
    result(run),
    right(duration(run.seconds)),
    right(run.cost || (run.node_hours === null ? "" : `${run.node_hours.toFixed(2)} h`)),
    when(run.started),
    h("span", { class: "line1" }, run.nodes ? `${run.nodes} × ${run.vm_size}` : ""),
    run.results.map((each) => `${each.name} ${number(each.last)}`).join(", "),
    h(
      "span",
      { class: "cut" },
      Object.entries(run.settings)
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ),
  ]);

export const run = {
  title: (context) => context.params.run,
  topics: ({ params }) => ({ run: path("runs", params.run), curves: `${path("runs", params.run)}/curves` }),
  news: {
    curves(context, value) {
      context.component("curves", () => new Curves()).update(value);
      context.data.curves = true;
    },
  },
  render(context) {
    const seen = context.data.run;
    if (!seen)
      return [head(context.params.run), trouble(context.trouble.run) || h("p", { class: "quiet" }, "Loading…")];
    const shown = context.query.get("file");
    return [
      crumbs(link("/runs", "Runs")),
      head(seen.job, result(seen)),
      h("p", { class: "quiet" }, seen.id),
      cause(seen.failure && { message: seen.failure.message, card: seen.card }),
      facts({
        Started: moment(seen.started),
        Time: duration(seen.seconds),
        Account: seen.account,
        Pool: seen.pool && `${seen.pool} (${seen.nodes} × ${seen.vm_size})`,
        "Node hours": seen.node_hours?.toFixed(2),
        Cost: cost(seen.cost),
        Commit: seen.commit && `${seen.commit.id.slice(0, 12)}${seen.commit.dirty ? " with changes" : ""}`,
        Command: command(seen.command.join(" ")),
        Settings: Object.entries(seen.settings)
          .map(([name, value]) => `${name}=${value}`)
          .join(", "),
      }),
      seen.metrics.length
        ? [
            h("h2", null, "Results"),
            table(
              ["Metric", "#Last", "#Best", "#Step", "Unit"],
              seen.metrics.map((metric) =>
                row(metric.metric, [
                  metric.metric,
                  right(metric.last),
                  right(metric.best),
                  right(metric.step ?? ""),
                  metric.unit,
                ]),
              ),
              "Results",
            ),
          ]
        : null,
      context.data.curves && h("div", { keep: "curves" }),
      seen.tasks.length
        ? [
            h("h2", null, "Tasks"),
            table(
              ["Task", "Outcome", "#Exit code", "#Time", "Node"],
              seen.tasks.map((task) =>
                row(task.id, [
                  task.id,
                  outcome(task),
                  right(task.exit_code ?? ""),
                  right(duration(task.seconds)),
                  id(task.node ?? ""),
                ]),
              ),
              "Tasks",
            ),
          ]
        : null,
      seen.attempts.length
        ? [
            h("h2", null, "Attempts"),
            table(
              ["Task", "#Attempt", "Ended by", "#Time", "#Last step", "Next from", "#Node hours", "#Cost"],
              seen.attempts.map((attempt) =>
                row(`${attempt.task} ${attempt.attempt}`, [
                  attempt.task,
                  right(attempt.attempt),
                  attempt.ended_by,
                  right(duration(attempt.seconds)),
                  right(attempt.last_step ?? ""),
                  attempt.next_from,
                  right(attempt.node_hours?.toFixed(2) ?? ""),
                  right(attempt.cost),
                ]),
              ),
              "Attempts",
            ),
          ]
        : null,
      seen.files.length ? [h("h2", null, "Files"), files(context, seen), shown && viewer(context, shown)] : null,
      h("h2", null, "Events"),
      events(seen),
    ];
  },
};

function files(context, seen) {
  return table(
    ["File", "#Size", ""],
    seen.files.map((file) =>
      row(file.path, [
        link(context.with({ file: file.path }), file.path),
        right(bytes(file.size)),
        h(
          "a",
          {
            href: url(`${path("runs", seen.id)}/file?path=${encodeURIComponent(file.path)}`),
            download: file.path.split("/").pop(),
          },
          "Download",
        ),
      ]),
    ),
    "Files",
  );
}

function viewer(context, file) {
  context.component(
    `file ${file}`,
    () => new FileView(file, `${path("runs", context.params.run)}/file?path=${encodeURIComponent(file)}`),
  );
  return h("div", { keep: `file ${file}` });
}

function events(seen) {
  const start = Date.parse(seen.started);
  return h(
    "ol",
    { class: "events" },
    seen.events
      .filter((event) => !["stdout", "stderr"].includes(event.kind))
      .map((event) =>
        h(
          "li",
          null,
          h("span", { class: "number quiet" }, `+${duration(Math.max(0, (Date.parse(event.t) - start) / 1000))}`),
          h("span", null, short(event.text)),
        ),
      ),
  );
}

export const compare = {
  title: () => "Compare runs",
  topics: (context) => ({
    all: `/runs/compare?${context.query
      .getAll("id")
      .map((name) => `id=${encodeURIComponent(name)}`)
      .join("&")}`,
  }),
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
        crumbs(link("/runs", "Runs")),
        head("Compare runs"),
        trouble(context.trouble.all) ||
          (context.query.getAll("id").length < 2
            ? h("p", null, "Choose two or more runs in the ", link("/runs", "list of runs"), ".")
            : h("p", { class: "quiet" }, "Loading…")),
      ];
    return [
      crumbs(link("/runs", "Runs")),
      head("Compare runs"),
      table(
        ["", ...all.runs.map((each) => each.id)],
        [
          row("outcome", ["outcome", ...all.runs.map(result)]),
          ...all.rows
            .filter((each) => each.name !== "state")
            .map((each) =>
              row(each.name, [
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
