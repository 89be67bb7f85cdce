// What runs now, and what ended last.

import { h } from "./dom.js";
import { count, duration, lasted, number, plural } from "./format.js";
import * as ui from "./parts.js";

export const page = {
  title: () => "Overview",
  topics: () => ({ all: "/overview" }),
  render(context) {
    const all = context.data.all;
    const body = all ? sections(context, all) : [ui.quiet("Loading…")];
    return [ui.head("Overview"), ui.trouble(context.trouble.all), ...body];
  },
};

function sections(context, { pools, jobs, runs }) {
  if (!context.account.endpoint) return [noAccount(context), ...recent(context, runs)];
  return [...now(context, jobs), ...pooled(context, pools), ...recent(context, runs)];
}

const noAccount = ({ account }) =>
  ui.empty(
    "No account is configured, so only recorded runs are shown. To see those of the emulator, or of an account:",
    `${account.program} dashboard --local`,
    `${account.program} dashboard --configdir DIR`,
  );

function now(context, jobs) {
  const open = jobs.filter((job) => job.state !== "completed"),
    ended = jobs.filter((job) => job.state === "completed").slice(0, 5);
  return [
    h("h2", "Jobs"),
    jobs.length
      ? ui.table(["Job", "State", "Tasks", "Pool", "Time"], [...open, ...ended].map(jobRow), "Jobs")
      : ui.empty("There are no jobs. Start one:", ...context.account.start),
    jobs.length ? h("p.more", ui.link("/jobs", "All jobs")) : null,
  ];
}

export function jobRow(job) {
  const counted = job.active !== null && job.active !== undefined;
  const { done, all } = ui.counts(job);
  return ui.row(job.id, [
    ui.link(ui.path("jobs", job.id), job.id),
    ui.state(job.state),
    counted
      ? h(
          "span.tasks",
          ui.taskBar(job),
          h("span.quiet", `${count(done)}/${count(all)}`),
          job.failed ? h("strong.bad", ` ${count(job.failed)} failed`) : null,
        )
      : h("span.quiet", { title: job.reason }, "–"),
    job.pool ? ui.link(ui.path("pools", job.pool), job.pool) : "–",
    h(
      "span",
      job.ended ? duration(lasted(job.created, job.ended)) : "",
      " ",
      h("span.quiet", ui.when(job.ended ?? job.created)),
    ),
  ]);
}

function pooled(context, pools) {
  return [
    h("h2", "Pools"),
    pools.length
      ? h("ul.strips", pools.map(strip))
      : ui.empty("There are no pools. A run creates one:", ...context.account.start),
  ];
}

function strip(pool) {
  const states = Object.entries(pool.node_states ?? {});
  return h(
    "li",
    { key: pool.id },
    ui.link(ui.path("pools", pool.id), pool.id),
    ui.bar(states),
    h(
      "span.quiet",
      plural(pool.dedicated + pool.spot, "node"),
      states.length ? ` · ${states.map(([name, amount]) => `${amount} ${name}`).join(", ")}` : "",
      pool.resize_errors.length ? " · " : "",
      pool.resize_errors.length ? h("strong.bad", "resize failed") : null,
    ),
  );
}

function recent(context, runs) {
  return [
    h("h2", "Recorded runs"),
    runs.length
      ? ui.table(["Run", "Outcome", "Results", "Time"], runs.map(runRow), "Recorded runs")
      : ui.empty("No run is recorded here yet. A run leaves its directory below ./runs:", ...context.account.start),
    runs.length ? h("p.more", ui.link("/runs", "All runs")) : null,
  ];
}

const runRow = (run) =>
  ui.row(run.id, [
    ui.link(ui.path("runs", run.id), run.id),
    run.state === "completed" ? ui.outcome(run) : ui.state(run.state),
    run.results
      .map((result) => `${result.name} ${number(result.last)}${result.unit ? ` ${result.unit}` : ""}`)
      .join(", ") || h("span.quiet.cut", { title: run.failure }, run.failure || "–"),
    h("span", duration(run.seconds), " ", h("span.quiet", ui.when(run.started))),
  ]);
