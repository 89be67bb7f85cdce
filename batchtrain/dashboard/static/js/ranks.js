// The ranks of a gang beside one another: a strip for each, or a heat map by node and the ranks that matter.

import { h } from "./dom.js";
import { bar, button, document_, link, progressLine, quiet, tile, trouble } from "./parts.js";
import { count, duration, number, plural } from "./format.js";

/** By condition, its look and its letter in a heat map. */
const CONDITIONS = {
  failed: ["bad", "f"],
  stands: ["bad", "!"],
  slow: ["warn", "s"],
  quiet: ["warn", "q"],
  waits: ["wait", "w"],
  ended: ["idle", "e"],
  unjudged: ["idle", "n"],
};
const SYSTEM = [
  ["memory_gib", "memory", (value) => `${number(value)} GiB`],
  ["gpu_percent", "GPU", (value) => `${Math.round(value)} %`],
  ["gpu_memory_gib", "GPU memory", (value) => `${number(value)} GiB`],
  ["cpu_percent", "CPU", (value) => `${Math.round(value)} %`],
];

export const label = (rank) => `r${rank}`;

/** How far the slowest rank is. `running`: whether the remaining time is estimated. */
export function progress(data, running) {
  if (!data?.progress) return null;
  const { unit, at, of } = data.progress;
  const goesOn = running && data.rows.every((row) => !["stands", "quiet"].includes(row.condition));
  const left = goesOn && unit === "step" && data.step_seconds ? (of - at) * data.step_seconds : null;
  const parts = [
    ["running", at],
    ["active", of - at],
  ];
  const slowest = data.count > 1 ? " · the slowest rank" : "",
    time = left ? ` · about ${duration(left)} left` : "";
  return progressLine(bar(parts), `${unit} ${count(at)} of ${count(of)}`, h("span", { class: "quiet" }, slowest, time));
}

/** `to`: the address of the output of a rank. */
export function ranks(data, to) {
  if (!data?.count)
    return quiet(data && data.end !== null ? "The output names no rank." : "No rank has printed a line yet.");
  const most = Math.max(...data.rows.flatMap((row) => row.step_seconds), 0);
  return [
    data.warning && h("p", { class: "card warned", role: "status" }, data.warning),
    h("ul", { class: "ranks", "aria-label": "Ranks" }, [data.rows.map((row) => strip(row, data, to, most))]),
    data.tiles.length
      ? [
          h(
            "p",
            { class: "quiet" },
            `The ${data.rows.length} ranks that matter most of ${count(data.count)}, and all ranks by node.`,
          ),
          heat(data, to),
        ]
      : null,
  ];
}

function strip(row, data, to, most) {
  const [kind] = CONDITIONS[row.condition] ?? [""];
  const system = data.nodes[row.node] ?? {};
  return h("li", { key: String(row.rank), class: kind && `is-${kind}` }, [
    h("strong", null, link(to(row.rank), label(row.rank)), " ", h("span", { class: "quiet" }, row.node)),
    h("span", { class: "number" }, [
      row.step && `step ${row.step}`,
      row.behind ? h("span", { class: "quiet" }, ` −${count(row.behind)}`) : null,
    ]),
    h("span", { class: "number", title: "time since its last line" }, row.at ? since(data.end, row.at) : ""),
    steps(row.step_seconds, most),
    h("span", { class: "quiet number" }, [
      SYSTEM.filter(([name]) => name in system)
        .map(([name, word, text]) => `${word} ${text(system[name])}`)
        .join(" · "),
    ]),
    kind ? h("span", { class: `state ${kind}` }, row.words) : h("span"),
    h("code", { class: "cut", title: row.last }, row.last),
  ]);
}

const since = (end, at) =>
  `${duration(Math.max(0, (end ?? Date.now() / 1000) - at))} ${end === null ? "ago" : "before the end"}`;

/** The last step times as a band of bars. */
function steps(seconds, most) {
  if (!seconds.length) return h("span", { class: "steps" });
  const last = seconds.at(-1);
  const text = `${plural(seconds.length, "step")}, the last in ${duration(last)}`;
  return h("span", { class: "steps", role: "img", "aria-label": text, title: text }, [
    seconds.map((each) => h("span", { style: { height: `${Math.max(8, (100 * each) / (most || 1))}%` } })),
    h("span", { class: "last quiet" }, last < 10 ? `${number(last)} s` : duration(last)),
  ]);
}

function heat(data, to) {
  const nodes = new Map();
  for (const tile of data.tiles) nodes.set(tile[1], [...(nodes.get(tile[1]) ?? []), tile]);
  const spread = Math.max(data.leader - data.slowest, 1);
  return h("ul", { class: "nodes", "aria-label": "Ranks by node" }, [
    [...nodes].map(([node, tiles]) =>
      h("li", { key: node }, [
        h("span", { class: "lane" }, node || "?"),
        h("span", { class: "heat" }, [
          tiles.map(([rank, , place, , condition]) => {
            const behind = place === null ? 0 : data.leader - place;
            const words = `${label(rank)}${place === null ? "" : `, step ${place}`}${
              condition ? `, ${condition}` : ""
            }`;
            const look = `micro ${CONDITIONS[condition]?.[0] ?? ""}`;
            return tile(to(rank), look, words, 100 - (100 * behind) / spread, CONDITIONS[condition]?.[1] ?? "");
          }),
        ]),
      ]),
    ),
  ]);
}

/** Where the ranks stand: of a live task when a button is pressed, else when a stall ended it. task: its address. */
export function stacks(context, task, live) {
  const path = `${task}/stacks`;
  const read = () => {
    delete context.loaded[path];
    context.trouble[path] = "";
    context.once(path);
  };
  const text = (live ? context.loaded[path] : context.once(path))?.text;
  return [live && button("Show stacks", read), trouble(context.trouble[path]), text && document_("Stacks", text)];
}
