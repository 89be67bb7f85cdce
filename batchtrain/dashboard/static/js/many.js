// A job of many tasks at a glance: throughput, durations, the slowest tasks, and the failures by cause.

import { actions } from "./actions.js";
import { h } from "./dom.js";
import { count, duration, plural, short } from "./format.js";
import * as ui from "./parts.js";

const seconds = (number) => (number < 0.1 ? `${(number * 1000).toFixed(1)} ms` : `${number.toFixed(2)} s`);
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();

function histogram(title, bars, name) {
  const most = Math.max(...bars.map((bar) => bar.count), 1);
  const words = (bar) => `${name(bar.from)} to ${name(bar.to)}: ${plural(bar.count, "task")}`;
  return h("section", null, [
    h("h2", null, title),
    h("div", { class: "columns", role: "img", "aria-label": bars.map(words).join("; ") }, [
      bars.map((bar) => h("span", { title: words(bar), style: { height: `${(100 * bar.count) / most}%` } })),
    ]),
    ui.axis(name(bars[0].from), `at most ${plural(most, "task")}`, name(bars[bars.length - 1].to)),
  ]);
}

export function numbers(context) {
  const found = context.data.numbers;
  if (!found) return ui.awaited(context.trouble.numbers);
  const { job } = context.params;
  return [
    ui.section("Failures by cause", found.failures, {
      "#Tasks": ({ tasks }) => count(tasks),
      Cause: "cause",
      Example: ({ example }) => ui.toTask(job, example),
      "": ({ cause, example }) =>
        actions(context, [
          "Retry these",
          `Run all failed tasks again that ended with ${cause}?`,
          ui.path("jobs", job, "tasks", example, "retry-alike"),
        ]),
    }),
    found.tasks
      ? [
          ui.quiet(`From the ${count(found.tasks)} tasks that ended last.`),
          histogram("Ended tasks over time", found.throughput, clock),
          histogram("Duration of a task", found.durations, seconds),
          ui.section("The slowest tasks", found.slowest, {
            Task: ({ id }) => ui.toTask(job, id),
            "#Time": (slow) => duration(slow.seconds),
            Node: ({ node }) => short(node),
          }),
        ]
      : ui.quiet("No task has ended yet."),
  ];
}
