// Pools, the heat map of the nodes of a pool, and one node.

import { actions } from "./actions.js";
import { h } from "./dom.js";
import { count, duration, lasted, moment, money, plural, short } from "./format.js";
import * as ui from "./parts.js";

const LETTERS = { waitingforstarttask: "w", starttaskfailed: "f", leavingpool: "l" };
const letter = (word) => (LETTERS[word] ?? word[0] ?? "?").toUpperCase();

export const list = {
  title: () => "Pools",
  topics: (context) => (context.account.endpoint ? { pools: "/pools" } : {}),
  render(context) {
    const pools = context.data.pools ?? (context.account.endpoint ? null : []);
    return [
      ui.head("Pools"),
      ui.trouble(context.trouble.pools),
      !pools
        ? ui.quiet("Loading…")
        : pools.length
          ? ui.records("Pools", pools, COLUMNS)
          : ui.empty("There are no pools. A run creates one:", ...context.account.start),
    ];
  },
};

const target = (now, wanted) => (now === wanted ? count(now) : `${count(now)} of ${count(wanted)}`);

const COLUMNS = {
  Pool: ({ id }) => ui.toPool(id),
  State: (pool) => [state(pool), pool.resize_errors.length ? h("strong", { class: "bad" }, " resize failed") : null],
  Nodes: (pool) => h("span", { class: "tasks" }, ui.bar(Object.entries(pool.node_states))),
  Size: "vm_size",
  "#Dedicated": (pool) => target(pool.dedicated, pool.target_dedicated),
  "#Spot": (pool) => target(pool.spot, pool.target_spot),
  "#Slots": ({ slots }) => count(slots),
};

const state = (pool) => ui.state(pool.state === "active" ? pool.allocation : pool.state);

export const pool = {
  title: (context) => context.params.pool,
  topics: ({ params }) => ({ pool: ui.path("pools", params.pool), nodes: `${ui.path("pools", params.pool)}/nodes` }),
  render(context) {
    const { pool: seen, nodes } = context.data;
    const name = context.params.pool;
    return [
      ui.crumbs(ui.link("/pools", "Pools")),
      ui.head(name, [
        seen && state(seen),
        actions(
          context,
          [
            "Resize",
            `How many nodes shall pool ${name} have?`,
            `${ui.path("pools", name)}/resize`,
            seen ? { dedicated: seen.target_dedicated, spot: seen.target_spot } : {},
          ],
          ["Delete", `Delete pool ${name} with all its nodes?`, `${ui.path("pools", name)}/delete`],
        ),
      ]),
      ui.trouble(context.trouble.pool || context.trouble.nodes),
      seen?.resize_errors.map((text) => h("p", { class: "card bad" }, text)),
      seen &&
        ui.facts({
          Size: seen.vm_size,
          Dedicated: target(seen.dedicated, seen.target_dedicated),
          Spot: target(seen.spot, seen.target_spot),
          "Slots per node": seen.slots,
          "Inter-node communication": seen.inter_node ? "yes" : "no",
          "Node hours": nodes && nodes.reduce((sum, node) => sum + (node.node_hours ?? 0), 0).toFixed(2),
          Cost: seen.price && nodes && spent(seen.price, nodes),
        }),
      ui.tabs(context, "Views of the pool", Object.keys(VIEW), { state: "" }),
      (VIEW[ui.view(context, "nodes")] ?? VIEW.nodes)(context, seen),
    ];
  },
};

const loaded = (context, show) => (context.data.nodes ? show(context.data.nodes) : ui.quiet("Loading…"));

const VIEW = {
  nodes: (context, seen) => loaded(context, (nodes) => heat(context, nodes, seen?.slots ?? 1)),
  timeline: (context) => loaded(context, timeline),
  request,
};

// What the nodes have cost, and what an hour of them costs; empty if a price is unknown.
function spent(price, nodes) {
  const of = (node) => (node.dedicated ? price.dedicated : price.spot);
  if (nodes.some((node) => of(node) === null)) return "";
  const sum = (value) => nodes.reduce((total, node) => total + value(node), 0);
  return `${money(
    sum((node) => of(node) * (node.node_hours ?? 0)),
    price.currency,
  )} (${money(sum(of), price.currency)} an hour in ${price.region})`;
}

function request(context) {
  const document = context.once(`${ui.path("pools", context.params.pool)}/plan`);
  return document
    ? ui.document_("The pool as the service keeps it; secrets are masked", document)
    : ui.quiet("Loading…");
}

const MOST_CHANGES = 200,
  NAMED = 3;

/** What the service tells of the past of the nodes, the newest first; equal changes of one second are one line. */
function timeline(nodes) {
  const changes = new Map();
  nodes.forEach((node, at) => {
    for (const [time, what] of [
      [node.allocated, "allocated"],
      [node.booted, "booted"],
      [node.since, node.state],
    ]) {
      if (!time) continue;
      const key = `${time.slice(0, 19)} ${what}`;
      if (!changes.has(key)) changes.set(key, { time, what, names: [] });
      changes.get(key).names.push(`n${at}`);
    }
  });
  const rows = [...changes.values()].sort((a, b) => Date.parse(b.time) - Date.parse(a.time));
  const named = (names) =>
    names.length > NAMED
      ? `${names.slice(0, NAMED).join(", ")} and ${count(names.length - NAMED)} more`
      : names.join(", ");
  return rows.length
    ? [
        ui.records("Changes of the nodes", rows.slice(0, MOST_CHANGES), {
          Time: ({ time }) => moment(time),
          Change: ({ what }) => ui.state(what),
          "#Nodes": ({ names }) => count(names.length),
          Names: ({ names }) => named(names),
        }),
        rows.length > MOST_CHANGES && ui.quiet(`${count(rows.length - MOST_CHANGES)} older changes are not shown.`),
      ]
    : ui.quiet("No node has been allocated yet.");
}

function heat(context, nodes, slots) {
  if (!nodes.length)
    return ui.empty(
      "This pool has no nodes. Give it some:",
      `${context.account.program} pool resize ${context.params.pool} --dedicated 2${context.account.option}`,
    );
  const states = new Map();
  for (const node of nodes) states.set(node.state, (states.get(node.state) ?? 0) + 1);
  const chosen = context.query.get("state");
  const broken = nodes.filter((node) => node.errors.length || ["unusable", "starttaskfailed"].includes(node.state));
  return [
    h("p", { class: "legend" }, [
      [...states]
        .sort((a, b) => b[1] - a[1])
        .map(([word, amount]) =>
          ui.chip(context.with({ state: chosen === word ? "" : word }), chosen === word, null, [
            h("span", { class: `tile mini ${ui.kind(word)}`, "aria-hidden": "true" }, letter(word)),
            `${word} ${count(amount)}`,
          ]),
        ),
    ]),
    h("ul", { class: "heat", "aria-label": "Nodes" }, [
      nodes
        .map((node, at) => [node, at])
        .filter(([node]) => !chosen || node.state === chosen)
        .map(([node, at]) => nodeTile(context, node, at, slots)),
    ]),
    ui.section("Nodes with errors", broken.slice(0, 50), {
      Node: ({ id }) => ui.toNode(context.params.pool, id),
      State: (node) => ui.state(node.state),
      Errors: (node) => node.errors.map(short).join("; ") || `start task: ${node.start_task}`,
    }),
  ];
}

function nodeTile(context, node, at, slots) {
  const full = Math.round(Math.min(1, node.running_slots / slots) * 100);
  const tasks = node.running_tasks ? `, ${plural(node.running_tasks, "task")}` : "";
  const text = `n${at}: ${node.state}${tasks}, ${short(node.id)}`;
  const href = ui.path("pools", context.params.pool, "nodes", node.id);
  return h("li", { key: node.id }, ui.tile(href, ui.kind(node.state), text, full, letter(node.state)));
}

export const node = {
  title: (context) => short(context.params.node),
  topics: ({ params }) => ({ node: ui.path("pools", params.pool, "nodes", params.node) }),
  render(context) {
    const seen = context.data.node,
      { pool: poolId, node: nodeId } = context.params;
    return [
      ui.crumbs(ui.link("/pools", "Pools"), ui.toPool(poolId)),
      ui.head(ui.id(nodeId), [
        seen && ui.state(seen.state),
        ui.copy(nodeId),
        actions(context, [
          "Reboot",
          `Reboot node ${short(nodeId)}? Its tasks are requeued.`,
          `${ui.path("pools", poolId, "nodes", nodeId)}/reboot`,
        ]),
      ]),
      ui.trouble(context.trouble.node),
      seen?.errors.map((text) => h("p", { class: "card bad" }, text)),
      !seen
        ? ui.quiet("Loading…")
        : [
            ui.facts({
              "In this state": h("span", null, duration(lasted(seen.since))),
              Size: seen.size,
              Kind: seen.dedicated ? "dedicated" : "spot",
              Address: seen.address,
              "Start task": seen.start_task,
              Allocated: ui.when(seen.allocated),
              Booted: ui.when(seen.booted),
              "Running tasks": count(seen.running_tasks),
              "Tasks run": count(seen.total_run),
              "Node hours": seen.node_hours?.toFixed(2),
            }),
            h("h2", null, "Recent tasks"),
            seen.recent?.length
              ? ui.records("Recent tasks", seen.recent, {
                  Task: (each) => [
                    ui.toTask(each.jobId, each.taskId),
                    each.subtaskId ? ` (subtask ${each.subtaskId})` : "",
                  ],
                  Job: ({ jobId }) => ui.toJob(jobId),
                  State: ({ taskState }) => ui.state(taskState),
                })
              : ui.quiet("No task has run on this node yet."),
          ],
    ];
  },
};
