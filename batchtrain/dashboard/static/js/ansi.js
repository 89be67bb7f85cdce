// Lines of programs as elements: all colours of a terminal, and nothing else that its sequences could do.

import { h } from "./dom.js";
import { count } from "./format.js";

const LONGEST = 5000;
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])/g;
const SGR = /(\x1b\[[0-9;:]*m)/;
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f]|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const FLAGS = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike" };
const ENDS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["reverse"], 29: ["strike"] };

const PLAIN = { ink: null, paper: null, flags: [] };

/** A style after the codes of a sequence. A colour is a number of the palette of 16, or a text for CSS. */
export function styled(style, sequence) {
  const codes = sequence.split(/[;:]/).map((code) => Number(code || 0));
  let { ink, paper, flags } = style;
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) ({ ink, paper, flags } = PLAIN);
    else if (FLAGS[code]) flags = [...new Set([...flags, FLAGS[code]])];
    else if (code === 21) flags = [...new Set([...flags, "underline"])];
    else if (ENDS[code]) flags = flags.filter((flag) => !ENDS[code].includes(flag));
    else if (code >= 30 && code <= 37) ink = code - 30;
    else if (code >= 90 && code <= 97) ink = code - 82;
    else if (code >= 40 && code <= 47) paper = code - 40;
    else if (code >= 100 && code <= 107) paper = code - 92;
    else if (code === 39) ink = null;
    else if (code === 49) paper = null;
    else if (code === 38 || code === 48) {
      const [color, used] = extended(codes.slice(at + 1), sequence.includes(":"));
      if (code === 38) ink = color;
      else paper = color;
      at += used;
    }
  }
  return { ink, paper, flags };
}

/** A colour of 256 or of 16 million, and how many codes it took. */
function extended(codes, colons) {
  if (codes[0] === 5) return [indexed(codes[1]), 2];
  if (codes[0] !== 2) return [null, codes.length];
  const at = colons && codes.length > 4 ? 2 : 1; // 38:2::R:G:B names a colour space
  const channels = codes.slice(at, at + 3);
  const valid = channels.length === 3 && channels.every((channel) => channel >= 0 && channel <= 255);
  return [valid ? `rgb(${channels.join(" ")})` : null, at + 2 + (at === 2 ? codes.length : 1)];
}

function indexed(number) {
  if (!(number >= 0 && number <= 255)) return null;
  if (number < 16) return number;
  if (number >= 232)
    return `rgb(${Array(3)
      .fill(8 + (number - 232) * 10)
      .join(" ")})`;
  const cube = number - 16;
  const channel = (digit) => (digit ? 55 + digit * 40 : 0);
  return `rgb(${[Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(channel).join(" ")})`;
}

/** A line as nodes. `find`: a text that is marked. */
export function spans(text, find) {
  const nodes = [];
  let style = PLAIN;
  const cut = text.length > LONGEST ? text.slice(0, LONGEST) : text;
  for (const piece of cut.split(SGR)) {
    const sequence = /^\x1b\[([0-9;:]*)m$/.exec(piece);
    if (sequence) style = styled(style, sequence[1]);
    else if (piece) nodes.push(...marked(piece.replace(ESCAPES, ""), find, style));
  }
  if (cut !== text) nodes.push(h("span.quiet", ` … ${count(text.length - LONGEST)} more characters`));
  return nodes;
}

function marked(text, find, style) {
  if (!find) return visible(text, style);
  const nodes = [],
    lower = text.toLowerCase(),
    needle = find.toLowerCase();
  let at = 0;
  for (let hit = lower.indexOf(needle); hit >= 0; hit = lower.indexOf(needle, at)) {
    if (hit > at) nodes.push(...visible(text.slice(at, hit), style));
    nodes.push(h("mark", visible(text.slice(hit, hit + needle.length), PLAIN)));
    at = hit + needle.length;
  }
  if (at < text.length) nodes.push(...visible(text.slice(at), style));
  return nodes;
}

/** Text in a style; what would be invisible, or would turn the direction of the line, is written out. */
function visible(text, style) {
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > at) nodes.push(piece(text.slice(at, match.index), style));
    nodes.push(h("span.control", written(match[0].codePointAt(0))));
    at = match.index + match[0].length;
  }
  if (at < text.length) nodes.push(piece(text.slice(at), style));
  return nodes;
}

/** Whether a colour needs light text on it. */
function isDark(color) {
  const [red, green, blue] = color.match(/\d+/g).map(Number);
  return red * 0.3 + green * 0.59 + blue * 0.11 < 140;
}

const written = (code) =>
  code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "␡" : `\\u${code.toString(16).padStart(4, "0")}`;

function piece(text, style) {
  const { ink, paper, flags } = style;
  if (ink === null && paper === null && !flags.length) return document.createTextNode(text);
  const classes = [...flags],
    values = {};
  for (const [name, color] of [
    ["ink", ink],
    ["paper", paper],
  ])
    if (typeof color === "number") classes.push(`${name}${color}`);
    else if (color) {
      classes.push(name);
      values[`--${name}`] = color;
    }
  if (paper !== null || flags.includes("reverse")) classes.push("painted");
  if (typeof paper === "string" && ink === null) classes.push(isDark(paper) ? "ondark" : "onlight");
  return h("span", { class: classes.join(" "), style: values }, text);
}
