// Metric curves, drawn by uPlot, which is loaded when the first curve is.

import { h } from "./dom.js";
import { number } from "./format.js";

const COLORS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const MOST_SERIES = 16,
  MOST_CHARTS = 24,
  HEIGHT = 190;
const FIRST = ["loss", "val_loss", "accuracy", "val_accuracy", "test_accuracy", "throughput"];
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

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A grid of charts: one for each metric, one line for each rank or run. */
export class Curves {
  constructor() {
    this.node = h("section", { class: "curves", "aria-label": "Metrics" });
    this.charts = new Map();
    this.data = {};
    this.x = new URLSearchParams(location.search).get("x") === "time" ? "t" : "step";
    this.switch = h("button", { type: "button", class: "small", onclick: () => this.turn() });
    this.more = h("p", { class: "quiet" });
    this.grid = h("div", { class: "charts" });
    this.node.append(h("div", { class: "head" }, h("h2", null, "Metrics"), this.switch), this.grid, this.more);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.restyle = () => {
      for (const chart of this.charts.values()) chart.node.remove();
      this.charts.clear();
      this.draw();
    };
    this.dark.addEventListener("change", this.restyle);
    this.resize = new ResizeObserver(() => {
      for (const chart of this.charts.values()) chart.fit();
    });
    this.resize.observe(this.grid);
  }

  close() {
    this.dark.removeEventListener("change", this.restyle);
    this.resize.disconnect();
  }

  turn() {
    this.x = this.x === "t" ? "step" : "t";
    const query = new URLSearchParams(location.search);
    if (this.x === "t") query.set("x", "time");
    else query.delete("x");
    history.replaceState(null, "", location.pathname + (query.toString() ? `?${query}` : ""));
    this.draw();
  }

  /** Data by metric and name of the line; `names`: all lines, so that each has one colour in every chart. */
  update(data, names) {
    this.data = data;
    this.names = names;
    this.draw();
  }

  async draw() {
    const metrics = Object.keys(this.data).sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
    this.node.hidden = !metrics.length;
    this.switch.textContent = this.x === "t" ? "By step" : "By time";
    this.more.textContent =
      metrics.length > MOST_CHARTS ? `${metrics.length - MOST_CHARTS} more metrics are not drawn.` : "";
    if (!metrics.length) return;
    const uPlot = await load();
    for (const metric of metrics.slice(0, MOST_CHARTS)) {
      if (!this.charts.has(metric)) {
        const chart = new Chart(uPlot, metric);
        this.charts.set(metric, chart);
        this.grid.append(chart.node);
      }
      this.charts.get(metric).update(this.data[metric], this.x, this.names);
    }
  }
}

const rank = (metric) => {
  const at = FIRST.indexOf(metric.split("/").pop());
  return at < 0 ? FIRST.length : at;
};

class Chart {
  constructor(uPlot, metric) {
    this.uPlot = uPlot;
    this.metric = metric;
    this.last = h("span", { class: "number" });
    this.canvas = h("div", { class: "plot", role: "img" });
    this.keys = h("ul", { class: "keys" });
    this.node = h("figure", null, h("figcaption", null, h("span", null, metric), this.last), this.canvas, this.keys);
    this.shape = "";
  }

  update(series, x, names) {
    const keys = Object.keys(series)
      .sort((a, b) => a.localeCompare(b, undefined, { numeric: true }))
      .slice(0, MOST_SERIES);
    const columns = keys.map((key) => places(series[key], x));
    const xs = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
    const data = [xs, ...columns.map((column) => xs.map((at) => column.get(at) ?? null))];
    const shape = JSON.stringify([keys, x]);
    if (shape !== this.shape) {
      this.make(keys, x, data, names);
      this.shape = shape;
    } else this.plot.setData(data);
    this.describe(keys, series);
  }

  make(keys, x, data, names) {
    this.plot?.destroy();
    this.canvas.replaceChildren();
    const line = color("--line"),
      text = color("--muted");
    const axis = {
      stroke: text,
      grid: { stroke: line, width: 1 },
      ticks: { stroke: line, width: 1, size: 4 },
      font: "11px system-ui, sans-serif",
    };
    this.colors = keys.map((key, at) => color(COLORS[(names ? Math.max(names.indexOf(key), 0) : at) % COLORS.length]));
    this.plot = new this.uPlot(
      {
        width: this.width(),
        height: HEIGHT,
        legend: { show: false },
        cursor: { points: { size: 6 }, drag: { x: true, y: false } },
        scales: { x: { time: x === "t" } },
        axes: [
          { ...axis, size: 28 },
          { ...axis, size: 52, values: (_, ticks) => ticks.map(number) },
        ],
        series: [
          {},
          ...keys.map((key, at) => ({
            label: key,
            stroke: this.colors[at],
            width: 1.5,
            spanGaps: true,
            points: { show: data[0].length < 3 },
          })),
        ],
      },
      data,
      this.canvas,
    );
  }

  describe(keys, series) {
    const last = (key) => series[key].value.at(-1);
    this.last.textContent = number(last(keys[0]));
    const span = (key) => `${key || "value"} from ${number(series[key].value[0])} to ${number(last(key))}`;
    this.canvas.setAttribute("aria-label", `${this.metric}: ${keys.map(span).join("; ")}`);
    this.keys.replaceChildren(
      ...(keys.length > 1
        ? keys.map((key, at) => {
            const mark = h("span", { class: "mark" });
            mark.style.background = this.colors[at];
            return h(
              "li",
              null,
              mark,
              /^\d+$/.test(key) ? `rank ${key}` : key || "value",
              h("span", { class: "quiet number" }, ` ${number(last(key))}`),
            );
          })
        : []),
    );
  }

  width() {
    return Math.max(200, Math.floor(this.canvas.clientWidth || 320));
  }

  fit() {
    if (this.plot && this.plot.width !== this.width()) this.plot.setSize({ width: this.width(), height: HEIGHT });
  }
}

/** A line as a map of x to value; without steps, the order counts. */
function places(column, x) {
  const map = new Map();
  const stepless = x === "step" && column.step.every((step) => step === null);
  column.value.forEach((value, at) =>
    map.set(x === "t" ? column.t[at] : stepless ? at : (column.step[at] ?? at), value),
  );
  return map;
}
