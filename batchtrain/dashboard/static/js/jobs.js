// Jobs, and one job with its tasks, its timeline and its requests.

import { actions, disable, terminate } from "./actions.js";
import { h } from "./dom.js";
import { count, duration, lasted, short } from "./format.js";
import { numbers } from "./many.js";
import { jobTable } from "./overview.js";
import * as ui from "./parts.js";

/** Tasks of a job whose page is that of its run, also while it runs. */
const FEW = 20;

const idSearch = (context, label) =>
  ui.search(label, "prefix", context.query.get("prefix") ?? "", "begins with…", (prefix) =>
    context.set({ prefix, skip: "" }),
  );

const chips = (context, label, items) =>
  h("nav", { class: "chips", "aria-label": label }, [
    items.map(([text, value, number, chosen]) =>
      ui.chip(
        context.with({ state: value, skip: "" }),
        chosen,
        { class: `chip${value === "failed" && number ? " bad" : ""}` },
        [text, number === null || number === undefined ? null : h("span", { class: "quiet" }, ` ${count(number)}`)],
      ),
    ),
  ]);

export const list = {
  title: () => "Jobs",
  topics: (context) =>
    context.account.endpoint ? { jobs: ui.asked(context, "/jobs", "state", "prefix", "skip") } : {},
  render(context) {
    const jobs = context.data.jobs ?? (context.account.endpoint ? null : { rows: [] });
    const chosen = context.query.get("state") ?? "",
      filtered = chosen || context.query.get("prefix");
    return [
      ui.head("Jobs"),
      ui.trouble(context.trouble.jobs),
      h("div", { class: "filters" }, [
        chips(context, "State", [
          ["All", "", null, !chosen],
          ["Active", "active", null, chosen === "active"],
          ["Disabled", "disabled", null, chosen === "disabled"],
          ["Completed", "completed", null, chosen === "completed"],
        ]),
        idSearch(context, "Id"),
      ]),
      !jobs
        ? ui.quiet("Loading…")
        : jobs.rows.length
          ? [jobTable(jobs.rows), ui.more(context, jobs.next, jobs.rows.length)]
          : filtered
            ? ui.quiet("No job matches.")
            : ui.empty("There are no jobs. Start one:", ...context.account.start),
    ];
  },
};

export const job = {
  title: (context) => context.params.job,
  topics(context) {
    const base = ui.path("jobs", context.params.job),
      chosen = ui.view(context, "tasks");
    const topics = { job: base, ...ui.waitsTopic(context.data.job) };
    if (chosen === "tasks") topics.tasks = ui.asked(context, `${base}/tasks`, "state", "prefix", "skip");
    if (["timeline", "numbers"].includes(chosen)) topics[chosen] = `${base}/${chosen}`;
    return topics;
  },
  render(context) {
    const seen = context.data.job,
      name = context.params.job;
    const ofRun = context.query.has("view") ? null : (seen?.run ?? gone(context));
    if (ofRun && (!seen || context.trouble.job || seen.state === "completed" || ui.counts(seen).all <= FEW))
      context.hand(ui.path("runs", ofRun));
    if (!seen && context.trouble.job)
      return ui.unknown(`There is no job ${name} in this account.`, context.trouble.job, ["/jobs", "All jobs"]);
    const base = ui.path("jobs", name);
    return [
      ui.crumbs(ui.link("/jobs", "Jobs")),
      ui.head(name, [
        seen && ui.state(seen.state),
        actions(
          context,
          seen?.state === "disabled" ? ["Enable", `Enable job ${name}?`, `${base}/enable`] : disable(name),
          terminate(name),
          ["Delete", `Delete job ${name} with its tasks and their files?`, `${base}/delete`],
        ),
      ]),
      ui.trouble(context.trouble.job),
      ui.waits(context),
      seen && summary(seen),
      ui.tabs(context, "Views of the job", Object.keys(VIEW), { state: "", prefix: "", skip: "" }),
      (VIEW[ui.view(context, "tasks")] ?? tasks)(context, seen),
    ];
  },
};

const VIEW = { tasks, numbers, timeline, request };

/** The run of a job that is not here any more. */
const gone = (context) => (context.trouble.job ? context.once(`${ui.path("jobs", context.params.job)}/run`)?.run : "");

function summary(seen) {
  const { done, all } = ui.counts(seen);
  return [
    ui.progressLine(ui.taskBar(seen), `${count(done)} of ${count(all)} tasks done`),
    ui.facts({
      Pool: seen.pool && ui.toPool(seen.pool),
      Created: ui.when(seen.created),
      Time: duration(lasted(seen.created, seen.ended)),
      Ended: seen.ended && ui.when(seen.ended),
      Reason: seen.reason,
      "Recorded run": seen.run && ui.toRun(seen.run),
    }),
  ];
}

function tasks(context, seen) {
  const page = context.data.tasks,
    chosen = context.query.get("state") ?? "";
  const all = seen && seen.active + seen.running + seen.succeeded + seen.failed;
  const rows = page?.rows;
  return [
    h("div", { class: "filters" }, [
      chips(context, "State", [
        ["All", "", all, !chosen],
        ["Failed", "failed", seen?.failed, chosen === "failed"],
        ["Running", "running", seen?.running, chosen === "running"],
        ["Active", "active", seen?.active, chosen === "active"],
        ["Succeeded", "succeeded", seen?.succeeded, chosen === "succeeded"],
      ]),
      idSearch(context, "Task"),
    ]),
    ui.trouble(context.trouble.tasks),
    !page
      ? ui.quiet("Loading…")
      : rows.length
        ? [
            ui.records("Tasks", rows, {
              Task: ({ id }) => ui.toTask(context.params.job, id),
              State: ({ outcome }) => ui.state(outcome),
              "#Exit code": "exit_code",
              "#Time": (task) => duration(task.seconds ?? lasted(task.started)),
              Node: (task) => task.node && ui.toNode(task.pool, task.node),
              Failure: ({ failure }) => h("span", { class: "cut", title: failure ?? "" }, failure),
            }),
            ui.more(context, page.next, rows.length),
          ]
        : ui.quiet(all ? "No task matches." : "This job has no tasks yet."),
  ];
}

function request(context) {
  const at = `${ui.path("jobs", context.params.job)}/plan`,
    found = context.once(at);
  if (!found) return ui.awaited(context.trouble[at]);
  return [
    ui.quiet("What the service keeps of the requests; secrets are masked."),
    ui.document_("Job", found.job),
    found.tasks.map((task) => [
      ui.document_(`Task ${task.id}`, task),
      task.commandLine ? ui.document_(`Command of ${task.id}`, task.commandLine) : null,
    ]),
    found.more && ui.quiet(`Only the first ${found.tasks.length} tasks are shown.`),
  ];
}

// --- node × time ----------------------------------------------------------------------------------------------------

const MOST_NODES = 60;

/** Give tasks that run at the same time on a node lanes of their own; returns the number of lanes. */
function stacked(items) {
  const ends = [];
  for (const task of items.sort((a, b) => Date.parse(a.started) - Date.parse(b.started))) {
    const begin = Date.parse(task.started),
      free = ends.findIndex((end) => end <= begin);
    task.lane = free < 0 ? ends.length : free;
    ends[task.lane] = task.ended ? Date.parse(task.ended) : Infinity;
  }
  return ends.length;
}

function timeline(context) {
  const found = context.data.timeline;
  if (!found) return ui.awaited(context.trouble.timeline);
  const ran = found.tasks.filter((task) => task.started && task.node);
  if (!ran.length) return ui.quiet("No task has started yet.");
  const begin = Math.min(...ran.map((task) => Date.parse(task.started)));
  const end = Math.max(...ran.map((task) => (task.ended ? Date.parse(task.ended) : Date.now())), begin + 1000);
  const nodes = new Map();
  for (const task of ran) nodes.set(task.node, [...(nodes.get(task.node) ?? []), task]);
  const share = (time) => ((time - begin) / (end - begin)) * 100;
  return [
    h("ul", { class: "timeline", "aria-label": "Tasks by node and time" }, [
      [...nodes].slice(0, MOST_NODES).map(([node, items], at) => {
        const height = `${Math.max(1, stacked(items)) * 16}px`;
        const blocks = items.map((task) => {
          const text = `${task.id}: ${duration(lasted(task.started, task.ended))}, ${task.outcome}`;
          const start = share(Date.parse(task.started)),
            stop = share(task.ended ? Date.parse(task.ended) : Date.now()),
            href = ui.path("jobs", context.params.job, "tasks", task.id);
          return ui.block(ui.kind(task.outcome), text, start, stop, 0.4, { key: task.id, href }, task.lane * 16 + 1);
        });
        return ui.lane(node, `n${at} ${short(node)}`, blocks, { height });
      }),
    ]),
    ui.axis(new Date(begin).toLocaleTimeString(), duration((end - begin) / 1000), new Date(end).toLocaleTimeString()),
    nodes.size > MOST_NODES && ui.quiet(`${count(nodes.size - MOST_NODES)} more nodes are not shown.`),
    found.more && ui.quiet("The 1,000 tasks are shown whose state changed last."),
  ];
}
