// One task of a job that no run here records: why it failed, its ranks, curves, live output and files.

import { Curves } from "./curves.js";
import { h } from "./dom.js";
import { duration, lasted, short } from "./format.js";
import { viewer } from "./log.js";
import { chosenFile, output, outputView } from "./output.js";
import * as ui from "./parts.js";
import { progress, ranks, stacks } from "./ranks.js";

const base = ({ params }) => ui.path("jobs", params.job, "tasks", params.task);
const failed = (context) => Boolean(context.data.task?.cause);

export const page = {
  title: (context) => context.params.task,
  topics(context) {
    const topics = { task: base(context), ranks: `${base(context)}/ranks` };
    if (ui.view(context) === "curves") topics.curves = `${base(context)}/metrics`;
    if (ui.view(context) === "output" && (context.data.task || context.trouble.task))
      topics.log = `${base(context)}/logs?file=${encodeURIComponent(chosenFile(context, failed(context)))}`;
    return topics;
  },
  news: {
    log(context, value) {
      outputView(context, base(context), chosenFile(context, failed(context))).take(value);
    },
    curves(context, value) {
      context.component("curves", () => new Curves()).update(value);
      context.data.curves = value;
    },
  },
  render(context) {
    const seen = context.data.task,
      { job, task } = context.params,
      at = `${ui.path("jobs", job)}/run`;
    const run = ui.view(context) === "files" ? null : context.once(at);
    if (run?.run) context.hand(`${ui.path("runs", run.run)}?${new URLSearchParams({ ...query(context), task })}`);
    if (!seen && context.trouble.task)
      return ui.unknown(`There is no task ${task} of job ${job}.`, context.trouble.task, [
        ui.path("jobs", job),
        `Job ${job}`,
      ]);
    return [
      ui.crumbs(ui.link("/jobs", "Jobs"), ui.toJob(job)),
      ui.head(task, seen && ui.state(seen.outcome)),
      ui.trouble(context.trouble.task),
      ui.tabs(context, "Views of the task", Object.keys(VIEW), { look: "" }),
      ...(seen ? (VIEW[ui.view(context)] ?? VIEW.overview)(context, seen) : [ui.loading(context.trouble.task)]),
    ];
  },
};

const query = (context) => Object.fromEntries(context.query);

const VIEW = {
  overview: (context, seen) => [
    ui.cause(
      seen.cause,
      seen.cause && ui.link(context.with({ view: "output", file: "stderr.txt" }), "Show the output at the cause"),
    ),
    !seen.cause && seen.failure && h("p", { class: "card bad" }, short(seen.failure)),
    seen.state === "running" ? progress(context.data.ranks, true) : null,
    ui.facts({
      "Exit code": seen.exit_code,
      Time: duration(seen.seconds ?? lasted(seen.started)),
      Started: seen.started && ui.when(seen.started),
      Ended: seen.ended && ui.when(seen.ended),
      Nodes: seen.nodes?.length ? nodes(seen) : "",
      Retries: seen.retries || "",
      Requeues: seen.requeues || "",
      Command: seen.command && h("code", { class: "command" }, seen.command),
    }),
  ],
  ranks: (context, seen) => [
    ui.trouble(context.trouble.ranks),
    context.data.ranks
      ? ranks(context.data.ranks, (rank) => context.with({ view: "output", rank }))
      : ui.loading(context.trouble.ranks),
    seen.state === "running" && stacks(context, base(context), true),
  ],
  output: (context, seen) => [
    output(context, {
      base: base(context),
      name: context.params.task,
      state: seen.state,
      failed: failed(context),
      cause: seen.cause && { text: seen.cause.exception || seen.cause.lines.at(-1)?.trim(), rank: seen.cause.rank },
      files: [],
      raw: (file) => ui.fileAt(base(context), file),
    }),
  ],
  curves: (context) => [
    ui.trouble(context.trouble.curves),
    !context.data.curves
      ? ui.loading(context.trouble.curves)
      : Object.keys(context.data.curves).length
        ? null
        : ui.quiet("Nothing was measured yet."),
    context.data.curves && h("div", { keep: "curves" }),
  ],
  files(context, seen) {
    if (!seen.node) return [ui.quiet("The task has not started yet.")];
    const at = `${base(context)}/files`,
      all = context.once(at),
      look = context.query.get("look");
    return [
      ui.trouble(context.trouble[at]),
      !all
        ? ui.loading(context.trouble[at])
        : all.length
          ? ui.fileTable(
              context,
              all.filter((each) => !each.path.startsWith(".batchtrain/")).slice(0, 500),
              base(context),
            )
          : ui.quiet("The task has no files."),
      look && viewer(context, base(context), look),
    ];
  },
};

const nodes = (seen) =>
  h("span", null, [
    seen.nodes
      .slice(0, 8)
      .map((node, at) => [
        at ? ", " : "",
        ui.link(ui.path("pools", node.pool, "nodes", node.id), `${node.name} ${short(node.id)}`),
      ]),
    seen.nodes.length > 8 ? ` and ${seen.nodes.length - 8} more` : "",
  ]);
