// The page of a run, from its first node to its record: live data flows in, and the record takes over.

import { actions, disable, terminate } from "./actions.js";
import { Curves } from "./curves.js";
import { h } from "./dom.js";
import { bytes, count, duration, lasted, moment, money, plural, short } from "./format.js";
import { viewer } from "./log.js";
import { chosenFile, output, outputView } from "./output.js";
import * as ui from "./parts.js";
import { progress, ranks, stacks } from "./ranks.js";

const MOST_TASKS = 50,
  MOST_OVERLAYS = 8;

const base = (context) => ui.path("runs", context.params.run);
const over = (seen) => !seen.goes_on;
export const result = (run) => ui.state(run.outcome);
export const results = (run) => h("span", { class: run.diverged ? "bad" : null }, run.results);

/** The task that the page shows: that of the address, else the first that failed, else the first. */
function taskOf(context) {
  const seen = context.data.run;
  if (!seen) return "";
  const failed = seen.failure?.task?.split("/").pop();
  const ids = seen.task_ids.length ? seen.task_ids : (context.data.tasks?.rows ?? []).map((task) => task.id);
  return context.query.get("task") ?? (ids.includes(failed) ? failed : ids[0]) ?? "";
}

export const page = {
  title: (context) => context.data.run?.job ?? context.params.run,
  /** What the account has of a run that runs; at its end the record takes over. */
  silent: ["job", "tasks", "task", "samples"],
  topics(context) {
    const seen = context.data.run,
      topics = { run: ui.asked(context, base(context), "skip") };
    if (!seen) return topics;
    const task = taskOf(context),
      live = seen.live;
    if (live) {
      topics.job = ui.path("jobs", seen.job);
      Object.assign(topics, ui.waitsTopic(context.data.job));
      topics.tasks = `${ui.path("jobs", seen.job)}/tasks?limit=${MOST_TASKS}`;
    }
    if (!task) return topics;
    const at = `${base(context)}${ui.path("tasks", task)}`;
    topics.ranks = `${at}/ranks`;
    if (ui.view(context) === "output") topics.log = `${at}/logs?file=${encodeURIComponent(shownFile(context, seen))}`;
    if (["overview", "curves"].includes(ui.view(context)))
      topics.curves =
        seen.task_ids.length > 1 && !context.query.get("task") ? `${base(context)}/curves` : `${at}/metrics`;
    if (live && ["curves", "ranks"].includes(ui.view(context))) {
      topics.task = ui.path("jobs", seen.job, "tasks", task);
      topics.samples = `${topics.task}/samples`;
    }
    return topics;
  },
  news: {
    log(context, value) {
      subjectView(context).take(value);
    },
  },
  render(context) {
    const seen = context.data.run;
    if (!seen)
      return context.trouble.run
        ? ui.unknown(`There is no run ${context.params.run} here.`, context.trouble.run, ["/runs", "All runs"])
        : [ui.head(context.params.run), ui.quiet("Loading…")];
    return [
      ui.crumbs(ui.link("/runs", "Runs")),
      ui.head(seen.job, [
        result(seen),
        actions(
          context,
          [
            "Label",
            `Tags of ${seen.id}, with commas, and a note`,
            `${base(context)}/labels`,
            { tags: seen.tags, note: seen.note },
          ],
          ...(seen.live && context.data.job ? [terminate(seen.job), disable(seen.job)] : []),
        ),
      ]),
      ui.quiet(seen.id, ages(seen)),
      ui.tabs(context, "Views of the run", Object.keys(VIEW), { look: "" }, marked(context) ? ["ranks"] : []),
      ...(VIEW[ui.view(context)] ?? VIEW.overview)(context, seen),
    ];
  },
};

/** Whether the task that is shown made its run fail. */
function failed(context, seen) {
  const task = seen.failure?.task?.split("/").pop();
  return seen.state === "failed" && (!task || task === taskOf(context));
}
const marked = (context) => context.data.ranks?.rows.some((each) => each.condition === "stands");
const subjectView = (context) => {
  const seen = context.data.run;
  return outputView(context, `${base(context)}${ui.path("tasks", taskOf(context))}`, shownFile(context, seen));
};

const shownFile = (context, seen) => chosenFile(context, failed(context, seen), outputFiles(context, seen));

/** The files with the output of the task of a run that has ended. */
const outputFiles = (context, seen) =>
  over(seen) ? (context.once(`${base(context)}${ui.path("tasks", taskOf(context))}/files`) ?? []) : [];

function ages(seen) {
  if (!over(seen)) return ` · running for ${duration(lasted(seen.started))}`;
  return seen.seconds === null ? "" : ` · ended after ${duration(seen.seconds)}`;
}

/** A choice between the tasks of a run that has several. */
function which(context, seen) {
  const ids = seen.task_ids;
  if (ids.length < 2) return null;
  const takesAll = ui.view(context) === "curves";
  const items = [...(takesAll ? [["", "all"]] : []), ...ids.map((each) => [each, each])];
  const chosen = takesAll ? (context.query.get("task") ?? "") : taskOf(context);
  const choice = ui.select("Task", chosen, items, (task) => context.set({ task, file: "", rank: "" }));
  return h("p", { class: "filters" }, choice);
}

/** What a fabric check measured beside the marks of the size, and the matrix of pairs of nodes. */
const fabric = ({ fabric: check }) => {
  if (!check) return null;
  const digits = (value) => (value === null ? "" : value.toPrecision(3));
  const pairs = check.matrix.map(([name, ...rates]) => ui.row(name, [name, ...rates.map((rate) => ui.right(rate))]));
  return h("section", null, [
    ui.section("Fabric", check.rows, {
      Metric: "metric",
      "#Value": ({ value }) => digits(value),
      "#Expected": ({ expected }) => digits(expected),
      Verdict: "verdict",
      Source: "source",
    }),
    check.slow_nodes.length ? ui.warned(`Slow: ${check.slow_nodes.map(short).join(", ")}`) : null,
    pairs.length > 1 ? ui.table(["GB/s", ...check.matrix.map(([name]) => name)], pairs, "Pairs of nodes") : null,
  ]);
};

const VIEW = {
  overview(context, seen) {
    const data = context.data.ranks,
      text = data?.warning,
      curves = context.data.curves;
    if (curves) context.component("curve", () => new Curves({ main: true })).show(curves);
    return [
      ui.trouble(context.trouble.run),
      ui.cause(
        seen.failure && { message: seen.failure.message, card: seen.card, ended: seen.state === "interrupted" },
        seen.failure && [
          ui.link(context.with({ view: "output", file: "stderr.txt", look: "" }), "Show the output at the cause"),
          text && [" · ", ui.link(context.with({ view: "ranks" }), "Show the ranks")],
        ],
      ),
      seen.diverged && h("p", { class: "card bad" }, `Diverged: ${seen.diverged}.`),
      seen.warnings?.map((warning) => ui.warned(short(warning))),
      seen.live && ui.waits(context),
      text && !seen.failure && ui.warned(text, " ", ui.link(context.with({ view: "ranks" }), "Show the ranks")),
      seen.live ? (counted(context) ?? (data && progress(data, true))) : null,
      ui.facts(Object.fromEntries(seen.facts.map(fact))),
      curves && h("div", { keep: "curve" }),
      ui.facts({
        Started: moment(seen.started),
        Time: duration(seen.seconds ?? (over(seen) ? null : lasted(seen.started))),
        Labels: seen.labels,
        Account: seen.account,
        Pool: seen.pool && (seen.live ? ui.link(ui.path("pools", seen.pool), nodes(seen)) : nodes(seen)),
        "Node hours": seen.node_hours?.toFixed(2),
        Cost: over(seen) ? "" : cost(seen),
        Commit: seen.commit && `${seen.commit.id.slice(0, 12)}${seen.commit.dirty ? " with changes" : ""}`,
        Command: seen.command.length ? ui.command(seen.command.join(" ")) : "",
        Settings: ui.settings(seen),
      }),
      fabric(seen),
      metrics(seen),
      continued(seen),
      placements(seen),
      phases(seen),
      bands(context, seen),
      tasks(context, seen),
      events(seen),
    ];
  },
  ranks(context, seen) {
    const data = context.data.ranks,
      task = taskOf(context),
      at = `${base(context)}${ui.path("tasks", task)}`;
    const to = (rank) => context.with({ view: "output", rank, split: "" });
    return [
      which(context, seen),
      ui.trouble(context.trouble.ranks),
      data && !over(seen) ? progress(data, true) : null,
      data
        ? ranks({ ...data, nodes: byName(context, { ...data.nodes, ...newest(context.data.samples) }) }, to)
        : ui.quiet(taskOf(context) ? "Loading…" : waiting(seen)),
      data && stacks(context, seen.live ? ui.path("jobs", seen.job, "tasks", task) : at, seen.live),
    ];
  },
  output(context, seen) {
    const task = taskOf(context);
    if (!task) return [ui.quiet(waiting(seen))];
    const at = `${base(context)}${ui.path("tasks", task)}`,
      row_ = [...seen.tasks, ...(context.data.tasks?.rows ?? [])].find((each) => each.id === task);
    return [
      which(context, seen),
      output(context, {
        base: at,
        name: task,
        state: row_?.state ?? (over(seen) ? "completed" : "running"),
        failed: failed(context, seen),
        cause: failed(context, seen) && seen.failure ? proof(seen.failure) : null,
        files: outputFiles(context, seen),
        raw: (file) => ui.fileAt(base(context), `${seen.log_folders[task] ?? `logs/${task}`}/${file}`),
      }),
    ];
  },
  curves(context, seen) {
    const data = context.data.curves;
    if (data) overlaid(context, data);
    const empty = data && !Object.keys(data).length && !Object.keys(context.data.samples ?? {}).length;
    return [
      which(context, seen),
      ui.trouble(context.trouble.curves),
      data ? overlays(context, seen) : ui.quiet(taskOf(context) ? "Loading…" : waiting(seen)),
      empty && ui.quiet(over(seen) ? "Nothing was measured." : "Nothing was measured yet."),
      data && h("div", { keep: "curves" }),
    ];
  },
  files(context, seen) {
    const look = context.query.get("look"),
      task = taskOf(context);
    return [
      seen.files.length
        ? ui.fileTable(context, seen.files, base(context))
        : ui.quiet("The results are fetched when the tasks have ended."),
      look && viewer(context, base(context), look),
      seen.live &&
        task &&
        h("p", null, [
          ui.link(`${ui.path("jobs", seen.job, "tasks", task)}?view=files`, "The files on the node, while it runs"),
        ]),
    ];
  },
  configuration(context, seen) {
    const at = `${base(context)}/configuration`,
      all = context.once(at);
    if (!all) return [ui.awaited(context.trouble[at])];
    return [
      h("h2", null, all.previous ? ["Differences to ", ui.toRun(all.previous)] : "Differences"),
      !all.previous
        ? ui.quiet("No earlier run of this job is recorded here.")
        : all.differences.length
          ? ui.records("Differences", all.differences, {
              "": ({ name }) => h("code", null, name),
              Before: ({ values }) => h("code", null, values[0]),
              "This run": ({ values }) => h("code", null, values[1]),
            })
          : ui.quiet("No setting differs."),
      all.source_difference && ui.document_("Difference of the source", all.source_difference),
      ui.section("Source", all.source, { File: "path", "#Size": ({ size }) => bytes(size) }),
      all.settings && ui.document_("Settings", all.settings),
      all.plan && ui.document_("Plan", all.plan),
      seen.live &&
        h("p", null, ui.link(`${ui.path("jobs", seen.job)}?view=request`, "The requests as the service keeps them")),
    ];
  },
};

const waiting = (seen) => (over(seen) ? "No task ran." : "No task has started yet.");
const nodes = (seen) => `${seen.pool} (${seen.nodes} × ${seen.vm_size})`;

/** What to look for in the output: the exception, or the line that proves the cause. */
function proof({ cause: exception, finding, rank }) {
  const text = exception || finding?.evidence?.split("\n").pop().trim();
  return text ? { text, rank } : null;
}

/** What the nodes cost: at the end, or so far, and an hour of all of them. */
function cost({ cost: known, started, ended }) {
  if (!known) return "";
  const soFar = !ended && known.hour !== null ? (known.hour * lasted(started)) / 3600 : null;
  return [
    known.run !== null && money(known.run, known.currency),
    soFar !== null && `at most ${money(soFar, known.currency)} so far`,
    known.hour !== null && `${money(known.hour, known.currency)} an hour in ${known.region}`,
  ]
    .filter(Boolean)
    .join("; ");
}

function counted(context) {
  const job = context.data.job;
  if (!job || ui.counts(job).all < 2) return null;
  const { done, all } = ui.counts(job);
  return ui.progressLine(ui.taskBar(job), [
    `${count(done)} of ${plural(all, "task")} done `,
    job.run && ui.link(`${ui.path("jobs", job.id)}?view=tasks`, "All tasks"),
  ]);
}

/** A main result, as the end of a run names it; the model is a file to look at. */
const fact = ({ name, text, diverged }) => [name, diverged ? h("span", { class: "bad" }, text) : text];

const time = ({ seconds }) => duration(seconds);

const phases = (seen) => ui.section("Phases", seen.phases, { Phase: "phase", "#Time": time, What: "content" });

const continued = (seen) =>
  ui.section("Continues", seen.continues, {
    Task: "task",
    Run: ({ continues: run }) => ui.toRun(run),
    "#Step": "step",
    Commit: "commit",
    Changed: "changed",
  });

/** The last values; of many tasks one click away. */
function metrics(seen) {
  if (!seen.metrics.length) return null;
  const last = (metric) => (metric.finite ? metric.last : h("span", { class: "bad" }, metric.last));
  const columns = { Metric: "metric", "#Last": last, "#Best": "best", "#Step": "step", Unit: "unit" };
  const table = ui.records("Results", seen.metrics, columns);
  const fold = h("details", { key: "results" }, h("summary", null, seen.results), table);
  return [h("h2", null, "Results"), seen.metrics.length > MOST_TASKS ? fold : table];
}

/** Where the nodes of the pool were looked for. */
const placements = (seen) =>
  ui.section("Candidates", seen.candidates, { Candidate: "candidate", Result: "result", "#Time": time });

/** Attempts as bands over the time of the run. */
function bands(context, seen) {
  const rows = context.data.tasks?.rows ?? [];
  const running = new Set(rows.filter(({ state }) => state === "running").map(({ id }) => id));
  const started = seen.attempts.filter((attempt) => attempt.started);
  if (started.length < 2) return null;
  const begin = Date.parse(seen.started);
  const end = Math.max(seen.ended ? Date.parse(seen.ended) : Date.now(), begin + 1000);
  const share = (time) => (100 * (Date.parse(time) - begin)) / (end - begin);
  const tasks_ = [...new Set(started.map((attempt) => attempt.task))];
  return [
    h("h2", null, "Attempts"),
    h("ul", { class: "timeline", "aria-label": "Attempts over time" }, [
      tasks_.slice(0, MOST_TASKS).map((task) =>
        ui.lane(
          task,
          task,
          started
            .filter((attempt) => attempt.task === task)
            .map((attempt) => {
              const runs = !attempt.ended_by && !over(seen) && running.has(task);
              const look = { completed: "good", "": runs ? "run" : "idle" }[attempt.reason] ?? "bad";
              const time = duration(attempt.seconds ?? (runs ? lasted(attempt.started) : null));
              const start = Math.max(0, share(attempt.started)),
                stop = attempt.ended ? share(attempt.ended) : runs || over(seen) ? 100 : start;
              const text = [`attempt ${attempt.attempt}`, time, runs ? "running" : attempt.ended_by].filter(Boolean);
              return ui.block(look, text.join(", "), start, stop, 0.6, { role: "img" });
            }),
        ),
      ),
    ]),
    ui.records("Attempts", seen.attempts, {
      Task: "task",
      "#Attempt": "attempt",
      "Ended by": "ended_by",
      "#Time": time,
      "#Last step": "last_step",
      "Next from": "next_from",
      "#Node hours": (attempt) => attempt.node_hours?.toFixed(2),
      "#Cost": "cost",
    }),
  ];
}

/** The tasks: live ones from the service, and at the end those of the record. */
function tasks(context, seen) {
  const rows = seen.tasks.length ? seen.tasks : seen.live ? (context.data.tasks?.rows ?? []) : [];
  if (!rows.length) return null;
  const of =
    seen.task_count > rows.length ? ` (${count(rows.length)} of ${count(seen.task_count)}, the failed first)` : "";
  const table = ui.section(`Tasks${of}`, rows, {
    Task: ({ id }) => ui.link(context.with({ view: "output", task: id }), id),
    Outcome: ({ outcome }) => ui.state(outcome),
    "#Exit code": "exit_code",
    "#Time": (task) => duration(task.seconds ?? (over(seen) ? null : lasted(task.started))),
    Node: ({ node }) => ui.id(node ?? ""),
  });
  return [table, ui.more(context, seen.next, rows.length)];
}

// --- curves ---------------------------------------------------------------------------------------------------------

const newest = (samples) =>
  Object.entries(samples ?? {}).reduce((all, [metric, lines]) => {
    for (const [node, columns] of Object.entries(lines))
      if (columns.system && columns.value.length) (all[node] ??= {})[metric] = columns.value.at(-1);
    return all;
  }, {});

/** Values by node with the names of the nodes, n0 for the first, in place of their ids. */
function byName(context, values) {
  const nodes_ = [...(context.data.run.node_records ?? []), ...(context.data.task?.nodes ?? [])];
  const names = new Map(nodes_.map((node) => [node.id, node.name]));
  return Object.fromEntries(Object.entries(values).map(([id_, value]) => [names.get(id_) ?? short(id_), value]));
}

const isSystem = (lines) => Object.values(lines).some((columns) => columns.system);

const chosenOverlays = (context) => context.query.getAll("with").slice(0, MOST_OVERLAYS);

/** The curves with those of other runs, whose lines begin with the name of the run. */
function overlaid(context, data) {
  const all = Object.create(null);
  const system = Object.entries(context.data.samples ?? {}).filter(([, lines]) => isSystem(lines));
  for (const [metric, lines] of Object.entries({ ...Object.fromEntries(system), ...data }))
    all[metric] = isSystem(lines) ? byName(context, lines) : { ...lines };
  for (const run of chosenOverlays(context))
    for (const [metric, lines] of Object.entries(context.once(`${ui.path("runs", run)}/curves`) ?? {}))
      if (all[metric])
        for (const [key, columns] of Object.entries(lines)) if (!columns.system) all[metric][`${run} ${key}`] = columns;
  const drawn = JSON.stringify(
    chosenOverlays(context).map((run) => Boolean(context.loaded[`${ui.path("runs", run)}/curves`])),
  );
  const curves = context.component("curves", () => new Curves());
  const sources = [data, drawn, context.data.samples, Boolean(context.data.task)];
  if (curves.sources?.every((source, at) => source === sources[at])) return;
  curves.sources = sources;
  curves.update(all);
}

/** A choice of runs to lay over this one. */
function overlays(context, seen) {
  const runs = (context.once("/runs") ?? []).filter((run) => run.id !== seen.id && run.job === seen.job).slice(0, 20);
  const chosen = chosenOverlays(context);
  if (!runs.length) return null;
  return h("details", { key: "overlays", open: chosen.length > 0 }, [
    h("summary", null, "Lay other runs over this one"),
    h("p", { class: "filters" }, [
      runs.map((run) =>
        ui.checkbox([run.id, " ", h("span", { class: "quiet" }, results(run))], chosen.includes(run.id), () =>
          context.toggle("with", run.id),
        ),
      ),
    ]),
  ]);
}

// --- events ---------------------------------------------------------------------------------------------------------

function events(seen) {
  const start = Date.parse(seen.started);
  const told = seen.events.filter((event) => !["stdout", "stderr"].includes(event.kind));
  const items = told.map((event) =>
    h("li", null, [
      h("span", { class: "number quiet" }, `+${duration(Math.max(0, (Date.parse(event.t) - start) / 1000))}`),
      h("span", null, short(event.text)),
    ]),
  );
  return items.length ? [h("h2", null, "Events"), h("ol", { class: "events" }, items)] : null;
}
