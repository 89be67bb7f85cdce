// Charts of metrics, drawn by uPlot: of the page, and of report.html, which contains this file.

import { button, h } from "./dom.js";
import { duration, number } from "./format.js";

const COLORS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
const MOST_SERIES = 16,
  MOST_CHARTS = 24,
  MOST_RAW = 4,
  HEIGHT = 190;
/** The distances of labels of steps. */
const WHOLE = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((first) => first * 10 ** power));
/** The usual metrics in the order of all views, as the account document and the report have them. */
const main = [];
export const order = (names) => main.splice(0, main.length, ...names);

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The name of a line: r5 for a rank, n0 for a node. */
export const named = (key) => key.replace(/(^| )(\d+)$/, "$1r$2") || "value";

export function save(blob, name) {
  const anchor = h("a", { href: URL.createObjectURL(blob), download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
}

/** Charts in two groups: what the programs measure, and what their nodes do. */
export const groups = () => [
  new Group("Metrics", "metrics", (columns) => !columns.system),
  new Group("System", "system", (columns) => columns.system),
];

/** All charts of a report. data: by metric and name of the line. */
export function report(node, uPlot, data) {
  for (const group of groups()) {
    node.append(group.node);
    group.draw(uPlot, data, { x: "step", smooth: 0, log: false });
  }
}

const rank = (metric) => {
  const at = main.indexOf(metric.split("/").pop());
  return at < 0 ? main.length : at;
};

const inOrder = (a, b) => rank(a) - rank(b) || a.localeCompare(b, undefined, { numeric: true });

/** The data of the main metric alone. */
export function first(data) {
  const programs = Object.keys(data).filter((metric) => Object.values(data[metric]).some((columns) => !columns.system));
  const [metric] = programs.sort(inOrder);
  return metric ? { [metric]: data[metric] } : {};
}

/** Charts with one pointer and one zoom. */
class Group {
  constructor(title, name, takes) {
    this.name = name;
    this.takes = takes;
    this.charts = new Map();
    this.grid = h("div", { class: "charts" });
    this.most = MOST_CHARTS;
    this.more = button("", () => this.redraw(Infinity));
    this.node = h("section", { "aria-label": title }, h("h2", null, title), this.grid, this.more);
    this.resize = new ResizeObserver(() => {
      for (const chart of this.charts.values()) chart.fit();
    });
    this.resize.observe(this.grid);
  }

  close() {
    this.resize.disconnect();
    this.clear();
  }

  clear() {
    for (const chart of this.charts.values()) chart.remove();
    this.charts.clear();
  }

  draw(uPlot, data, options, names) {
    const ofGroup = (lines) =>
      Object.fromEntries(
        Object.entries(lines).filter(
          ([, columns]) => this.takes(columns) && (columns.value.length || columns.undefined),
        ),
      );
    const metrics = Object.keys(data)
      .filter((metric) => Object.keys(ofGroup(data[metric])).length)
      .sort(inOrder);
    this.node.hidden = !metrics.length;
    this.redraw = (most) => {
      this.most = most;
      this.draw(uPlot, data, options, names);
    };
    this.more.textContent = `Show all ${metrics.length} metrics`;
    this.more.hidden = metrics.length <= this.most;
    const chosen = this.name === "system" ? { x: "time", smooth: 0, log: false } : options;
    const drawn = metrics.slice(0, this.most);
    for (const [metric, chart] of this.charts) {
      if (drawn.includes(metric)) continue;
      chart.remove();
      this.charts.delete(metric);
    }
    for (const metric of drawn) {
      if (!this.charts.has(metric)) {
        const chart = new Chart(uPlot, metric, this);
        this.charts.set(metric, chart);
        this.grid.append(chart.node);
      }
      this.charts.get(metric).update(ofGroup(data[metric]), chosen, names);
    }
  }
}

class Chart {
  constructor(uPlot, metric, group) {
    this.uPlot = uPlot;
    this.metric = metric;
    this.group = group;
    this.last = h("span", { class: "number" });
    this.canvas = h("div", { class: "plot", role: "img" });
    this.keys = h("ul", { class: "keys" });
    this.undefined = h("p", { class: "undefined" });
    const picture = button("PNG", () => this.png(), { "aria-label": `Save ${metric} as PNG` });
    this.node = h("figure", null, [
      h("figcaption", null, h("span", null, metric), this.last, picture),
      this.canvas,
      this.undefined,
      this.keys,
    ]);
    this.shape = "";
    this.zoomed = false;
  }

  remove() {
    this.plot?.destroy();
    this.node.remove();
  }

  png() {
    this.plot?.ctx.canvas.toBlob((blob) => save(blob, `${this.metric.replaceAll("/", "-")}.png`));
  }

  update(series, options, names) {
    const byName = (a, b) => a.localeCompare(b, undefined, { numeric: true });
    const keys = Object.keys(series).sort((a, b) => byPlace(series[a], series[b]) || byName(a, b));
    this.more = keys.length > MOST_SERIES;
    this.lines = keys
      .slice(0, MOST_SERIES)
      .flatMap((key, at) => drawnLines(key, series[key], options, at, names, keys.length));
    this.marks = keys.flatMap((key) =>
      (series[key].undefined ?? []).map(
        ([step, t]) => ({ time: t, step, elapsed: t - begin(series[key]) })[options.x] ?? null,
      ),
    );
    const drawn = [...this.lines.flatMap((line) => [...line.places.keys()]), ...this.marks];
    const xs = [...new Set(drawn)].filter((x) => x !== null).sort((a, b) => a - b);
    const data = [xs, ...this.lines.map((line) => xs.map((at) => line.places.get(at) ?? null))];
    const log = options.log && data.slice(1).some((column) => column.some((value) => value !== null));
    const shape = JSON.stringify([this.lines.map((line) => line.shape), options.x, log]);
    if (shape !== this.shape) {
      this.make(options.x, log, data);
      this.shape = shape;
    } else {
      this.plot.setData(data, !this.zoomed);
      if (this.zoomed) this.plot.redraw();
    }
    this.describe(keys, series);
  }

  make(x, log, data) {
    this.plot?.destroy();
    this.zoomed = false;
    this.canvas.replaceChildren();
    const line = color("--line");
    const axis = {
      stroke: color("--muted"),
      grid: { stroke: line, width: 1 },
      ticks: { stroke: line, width: 1, size: 4 },
      font: "11px system-ui, sans-serif",
    };
    const at = (key) => this.lines.findIndex((each) => each.shape === key) + 1;
    this.plot = new this.uPlot(
      {
        width: this.width(),
        height: HEIGHT,
        padding: [null, x === "step" ? 28 : null, null, null],
        legend: { show: false },
        cursor: {
          points: { size: 6 },
          drag: { x: true, y: false },
          sync: { key: `${this.group.name} ${x}`, scales: ["x", null] },
        },
        scales: {
          x: {
            time: x === "time",
            range: (plot, low, high) => spanned(plot.data[0], low, high, x === "time" ? 60 : 1),
          },
          y: { distr: log ? 3 : 1, ...(log || !this.metric.endsWith("_percent") ? {} : { range: share }) },
        },
        axes: [
          {
            ...axis,
            size: x === "time" ? 40 : 28,
            ...(x === "step" ? { incrs: WHOLE, space: room } : {}),
            ...(x === "elapsed" ? { values: (_, seconds) => seconds.map(duration) } : {}),
          },
          { ...axis, size: (_, values) => 14 + 7 * Math.max(2, ...(values ?? []).map((text) => text.length)) },
        ],
        series: [
          {},
          ...this.lines.map((each) => ({
            label: each.name,
            stroke: each.faint ? `${each.stroke}55` : each.stroke,
            width: each.faint ? 1 : each.edge ? 0 : 1.5,
            spanGaps: true,
            points: { show: !each.edge && !each.faint && data[0].length < 3 },
          })),
        ],
        bands: this.lines
          .filter((each) => each.edge === "high")
          .map((each) => ({ series: [at(each.shape), at(each.shape) + 1], fill: `${each.stroke}33` })),
        hooks: {
          setCursor: [(plot) => this.point(plot.cursor.idx)],
          setSelect: [(plot) => plot.select.width > 0 && this.zoom(true)],
          draw: [(plot) => this.mark(plot)],
        },
      },
      data,
      this.canvas,
    );
    this.plot.over.addEventListener("dblclick", () => this.zoom(false));
  }

  /** The charts of a group zoom together. */
  zoom(on) {
    for (const chart of this.group.charts.values()) chart.zoomed = on;
  }

  /** Values under the pointer of any chart of the group; without one, the last. */
  point(index) {
    for (const line of this.lines ?? [])
      if (line.text) {
        const value = index === null || index === undefined ? null : near(this.plot.data, index, line.at);
        line.text.textContent = ` ${number(value ?? line.last)}`;
      }
  }

  /** Where a value was NaN or infinite: a mark at the bottom. */
  mark(plot) {
    const { ctx, bbox } = plot;
    ctx.fillStyle = color("--bad");
    for (const x of this.marks ?? []) {
      if (x === null) continue;
      const left = plot.valToPos(x, "x", true);
      if (left < bbox.left || left > bbox.left + bbox.width) continue;
      const bottom = bbox.top + bbox.height,
        size = 5 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(left - size, bottom);
      ctx.lineTo(left + size, bottom);
      ctx.lineTo(left, bottom - size * 1.6);
      ctx.fill();
    }
  }

  describe(keys, series) {
    const shown = this.lines.filter((line) => !line.edge && !line.faint);
    this.last.textContent = shown.length === 1 ? number(shown[0].last) : "";
    this.last.classList.toggle("bad", shown.length === 1 && Number.isNaN(shown[0].last));
    this.canvas.setAttribute("aria-label", `${this.metric}: ${shown.map(span).join("; ")}`);
    const lost = keys.filter((key) => series[key].undefined);
    const marks = lost.flatMap((key) => series[key].undefined);
    const times = marks.length === 1 ? "once" : `${marks.length} times`;
    const of = keys.length === 1 ? "" : lost.length === 1 ? ` in ${named(lost[0])}` : ` in ${lost.length} lines`;
    this.undefined.textContent = marks.length
      ? `▲ NaN or infinite ${times}${of}${marks[0][0] === null ? "" : `, first at step ${marks[0][0]}`}`
      : "";
    const order_ = series[keys[0]].place ? ", the failed first, then the best" : "";
    this.keys.replaceChildren(
      ...shown.map((line) => {
        line.at = this.lines.indexOf(line) + 1;
        line.text = h(
          "span",
          { class: `${Number.isNaN(line.last) ? "bad" : "quiet"} number` },
          ` ${number(line.last)}`,
        );
        return h("li", null, h("span", { class: "mark", style: { background: line.stroke } }), line.name, line.text);
      }),
      ...(this.more ? [h("li", { class: "quiet" }, `${MOST_SERIES} of ${keys.length} lines${order_}`)] : []),
    );
    this.keys.hidden = shown.length === 1 && shown[0].name === "value" && !this.more;
  }

  width() {
    return Math.max(200, Math.floor(this.canvas.clientWidth || 320));
  }

  fit() {
    if (this.plot && this.plot.width !== this.width()) this.plot.setSize({ width: this.width(), height: HEIGHT });
  }
}

/** The order of lines of several tasks: by the first number of their places that differs. */
const byPlace = ({ place: a = [] }, { place: b = [] }) => a.map((value, at) => value - b[at]).find(Boolean) ?? 0;

const span = (line) => `${line.name} from ${number(line.first)} to ${number(line.last)}`;

/** The lines that draw one series: itself, smoothed with its raw values behind it, or a mean with a band. */
function drawnLines(key, columns, options, at, names, lines) {
  const index = names ? Math.max(names.indexOf(key), 0) : at;
  const stroke = color(COLORS[index % COLORS.length]);
  const line = (values, more) => ({
    places: places(columns, values, options),
    stroke,
    name: columns.ranks ? mean(key, columns) : named(key),
    shape: `${key} ${more.faint ? "raw" : (more.edge ?? "")}`,
    first: columns.value[0],
    last: columns.diverged ? Number.NaN : columns.value.at(-1),
    ...more,
  });
  const smooth = options.smooth > 0 ? smoothed(columns.value, options.smooth) : columns.value;
  const drawn = [line(smooth, {})];
  if (options.smooth > 0 && lines <= MOST_RAW) drawn.unshift(line(columns.value, { faint: true }));
  if (columns.low) drawn.push(line(columns.high, { edge: "high" }), line(columns.low, { edge: "low" }));
  return drawn;
}

const mean = (key, { ranks, system }) =>
  `${key ? `${named(key)}: ` : ""}mean of ${ranks} ${system ? "nodes" : "ranks"}`;

/** A moving average that forgets, without the bias of its start. */
function smoothed(values, weight) {
  let sum = 0,
    total = 0;
  return values.map((value) => {
    sum = sum * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

/** A line as a map of x to value; without steps, the order counts. */
function places(columns, values, { x, log }) {
  const map = new Map();
  const stepless = x === "step" && columns.step.every((step) => step === null);
  values.forEach((value, at) => {
    const { step, t, epoch } = columns;
    const own = { time: t[at], elapsed: t[at] - begin(columns), epoch: epoch?.[at] ?? null };
    const place = x in own ? own[x] : stepless ? at : step[at];
    if (place !== null && !(log && value <= 0)) map.set(place, value);
  });
  return map;
}

/** When a line has its first value. */
const begin = ({ t, undefined: marks = [] }) => Math.min(t[0] ?? Infinity, marks[0]?.[1] ?? Infinity);

/** The value of a line at a place, or at the nearest one before it. */
function near(data, index, at) {
  for (let place = index; place >= 0; place -= 1) if (data[at]?.[place] !== null) return data[at][place];
  return null;
}

/** The range of percents: the whole, unless there are more (of several cores, for example). */
const share = (_, __, high) => [0, Math.max(100, high ?? 0)];

/** The pixels between two labels of steps: those of the longest, and a gap. */
const room = (_, __, ___, high) => 24 + 7 * high.toFixed(0).length;

/** The range of an axis; around a single place, as wide as `least`. */
const spanned = (places, low, high, least) =>
  places.length === 1 ? [places[0] - least / 2, places[0] + least / 2] : [low, high];
