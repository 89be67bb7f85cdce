// Metric curves with their controls. uPlot is loaded when the first curve is.

import { first, groups, named, save } from "./chart.js";
import { h } from "./dom.js";
import { button, checkbox, here, search, select } from "./parts.js";

const AXES = { step: "step", elapsed: "time since the start", time: "time", epoch: "epoch" };
let library = null;

function load() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/static/uplot/uPlot.iife.min.js";
    script.onload = () => resolve(window.uPlot);
    script.onerror = reject;
    document.head.append(script);
  });
  return library;
}

/** Charts in two groups: what the programs measure, and what their nodes do. */
export class Curves {
  /** main: only the chart of the main metric, without controls. */
  constructor({ main = false } = {}) {
    this.data = {};
    this.main = main;
    const query = new URLSearchParams(location.search);
    this.options = {
      x: query.get("x") ?? "step",
      smooth: Number(query.get("smooth") ?? 0),
      log: query.get("y") === "log",
      name: query.get("chart") ?? "",
    };
    this.groups = groups();
    const { x, smooth, log, name } = this.options;
    const smoothing = { type: "range", min: "0", max: "0.99", step: "0.01", value: String(smooth) };
    smoothing.oninput = (event) => this.choose({ smooth: Number(event.target.value) });
    this.controls = h("div", { class: "filters", hidden: main }, [
      search("Charts", "chart", name, "name contains…", (text) => this.choose({ name: text })),
      select("By", x, Object.entries(AXES), (key) => this.choose({ x: key })),
      h("label", { class: "box" }, "Smoothing ", h("input", smoothing)),
      checkbox("Logarithmic", log, (checked) => this.choose({ log: checked })),
      button("Save as CSV", () => this.csv()),
    ]);
    this.node = h("section", { class: "curves", "aria-label": "Curves" }, [
      this.controls,
      ...this.groups.map((group) => group.node),
    ]);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.restyle = () => {
      for (const group of this.groups) group.clear();
      this.draw();
    };
    this.dark.addEventListener("change", this.restyle);
  }

  close() {
    this.dark.removeEventListener("change", this.restyle);
    for (const group of this.groups) group.close();
  }

  choose(options) {
    this.options = { ...this.options, ...options };
    const { x, smooth, log, name } = this.options;
    const values = { x: x === "step" ? "" : x, smooth: smooth ? String(smooth) : "", y: log ? "log" : "", chart: name };
    history.replaceState(null, "", here(values));
    this.draw();
  }

  csv() {
    const quoted = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const rows = [["metric", "line", "step", "epoch", "t", "value", "low", "high"]];
    for (const [metric, lines] of Object.entries(this.data))
      for (const [key, columns] of Object.entries(lines))
        columns.value.forEach((value, at) =>
          rows.push([
            quoted(metric),
            quoted(named(key)),
            columns.step[at] ?? "",
            columns.epoch?.[at] ?? "",
            columns.t[at],
            value,
            columns.low?.[at] ?? "",
            columns.high?.[at] ?? "",
          ]),
        );
    save(new Blob([rows.map((row) => row.join(",")).join("\n"), "\n"], { type: "text/csv" }), "curves.csv");
  }

  // --- drawing ------------------------------------------------------------------------------------------------------

  /** Data by metric and name of the line; `names`: all lines, so that each has one colour in every chart. */
  update(data, names) {
    this.data = data;
    this.names = names;
    this.draw();
  }

  /** The same, if the data is new. */
  show(data) {
    if (this.data !== data) this.update(data);
  }

  /** The data of the charts that are drawn. */
  get chosen() {
    if (this.main) return first(this.data);
    const names = Object.keys(this.data).filter((metric) => metric.includes(this.options.name));
    return Object.fromEntries(names.map((metric) => [metric, this.data[metric]]));
  }

  async draw() {
    this.node.hidden = !Object.keys(this.data).length;
    if (this.node.hidden) return;
    const uPlot = await load();
    for (const group of this.groups) group.draw(uPlot, this.chosen, this.options, this.names);
  }
}
