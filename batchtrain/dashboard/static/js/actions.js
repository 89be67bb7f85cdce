// Changes: only where the dashboard allows them, and only after a question.

import { post } from "./api.js";
import { h } from "./dom.js";
import { button, path } from "./parts.js";

const NUMBER = { type: "number", min: "0", required: true };

export const terminate = (job) => change("Terminate", job, "Its running tasks end.");
export const disable = (job) => change("Disable", job, "Its running tasks are requeued.");
const change = (label, job, effect) => [
  label,
  `${label} job ${job}? ${effect}`,
  `${path("jobs", job)}/${label.toLowerCase()}`,
];

/** Buttons that ask first; nothing where the dashboard is read-only. */
export function actions(context, ...items) {
  if (!context.account.changes) return null;
  return h("div", { class: "actions" }, [
    items.map(([label, question, path, fields]) => button(label, () => ask(label, question, path, fields ?? {}))),
  ]);
}

function ask(label, question, path, fields) {
  const inputs = Object.entries(fields).map(([name, value]) =>
    h("input", { ...(typeof value === "number" ? NUMBER : {}), name, value: String(value), "aria-label": name }),
  );
  const answer = h("p", { role: "alert" });
  const dialog = h("dialog", { "aria-label": label });
  const send = async () => {
    if (!inputs.every((input) => input.reportValidity())) return;
    const content = (input) => (input.type === "number" ? input.valueAsNumber : input.value);
    const body = Object.fromEntries(inputs.map((input) => [input.name, content(input)]));
    try {
      await post(path, body);
      dialog.close();
    } catch (error) {
      answer.textContent = error.message;
    }
  };
  dialog.append(
    h("h2", null, label),
    h("p", null, question),
    ...inputs.map((input) =>
      h("p", null, h("label", null, `${input.name}${input.type === "number" ? " nodes" : ""} `, input)),
    ),
    answer,
    h("p", { class: "actions" }, [
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      h("button", { type: "button", class: "danger", onclick: send }, label),
    ]),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
