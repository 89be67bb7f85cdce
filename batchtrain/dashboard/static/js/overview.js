// What runs now, and what ended last.

import { h } from "./dom.js";
import { count, duration, lasted, plural } from "./format.js";
import * as ui from "./parts.js";
import { results } from "./run.js";

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
    h("h2", null, "Jobs"),
    jobs.length ? jobTable([...open, ...ended]) : ui.empty("There are no jobs. Start one:", ...context.account.start),
    jobs.length ? h("p", { class: "more" }, ui.link("/jobs", "All jobs")) : null,
  ];
}

export const jobTable = (jobs) =>
  ui.records("Jobs", jobs, {
    Job: ({ id }) => ui.toJob(id),
    State: ({ state }) => ui.state(state),
    Tasks: tasksOf,
    Pool: ({ pool }) => (pool ? ui.toPool(pool) : "–"),
    Time: ({ created, ended }) => took(ended && lasted(created, ended), ended ?? created),
  });

function tasksOf(job) {
  if (job.active === null || job.active === undefined) return h("span", { class: "quiet", title: job.reason }, "–");
  const { done, all } = ui.counts(job);
  return h("span", { class: "tasks" }, [
    ui.taskBar(job),
    h("span", { class: "quiet" }, `${count(done)}/${count(all)}`),
    job.failed ? h("strong", { class: "bad" }, ` ${count(job.failed)} failed`) : null,
  ]);
}

/** How long something took, and when it was. */
const took = (seconds, at) => h("span", null, duration(seconds), " ", h("span", { class: "quiet" }, ui.when(at)));

function pooled(context, pools) {
  return [
    h("h2", null, "Pools"),
    pools.length ? h("ul", { class: "strips" }, pools.map(strip)) : ui.quiet("There are no pools. A run creates one."),
  ];
}

function strip(pool) {
  const states = Object.entries(pool.node_states ?? {});
  return h("li", { key: pool.id }, [
    ui.toPool(pool.id),
    ui.bar(states),
    h("span", { class: "quiet" }, [
      plural(pool.dedicated + pool.spot, "node"),
      states.length ? ` · ${states.map(([name, amount]) => `${amount} ${name}`).join(", ")}` : "",
      pool.resize_errors.length ? " · " : "",
      pool.resize_errors.length ? h("strong", { class: "bad" }, "resize failed") : null,
    ]),
  ]);
}

function recent(context, runs) {
  return [
    h("h2", null, "Recorded runs"),
    runs.length
      ? ui.records("Recorded runs", runs, {
          Run: ({ id }) => ui.toRun(id),
          Outcome: ({ outcome }) => ui.state(outcome),
          Results: resultsOf,
          Time: ({ seconds, started }) => took(seconds, started),
        })
      : ui.quiet("No run is recorded here yet. A run leaves its directory below ./runs."),
    runs.length ? h("p", { class: "more" }, ui.link("/runs", "All runs")) : null,
  ];
}

const resultsOf = (run) =>
  h("td", { class: "results" }, [
    run.results ? results(run) : h("span", { class: "quiet cut", title: run.failure }, run.failure || "–"),
  ]);
