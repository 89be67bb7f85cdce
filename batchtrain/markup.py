"""HTML for notebooks and reports: tables, folds, curves as inline SVG. Escapes every text, and needs no script."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

Point = tuple[float, float]
WIDTH, HEIGHT, LEFT, RIGHT, EDGE = 640, 200, 56, 16, 24
MOST_POINTS = 1000
LONG_CELL = 40
"""Characters of a cell from which on it may break within a word."""
COLORS = ("#2f81d6", "#d9730d", "#1a9c74", "#c2519b", "#8a7420", "#7a6fd0")
"""Of curves that share a figure; each is readable on white and on black."""
GREEN, YELLOW, RED, GREY = "#1a9c5b", "#b98000", "#d6453d", "#8a8a8a"
Tone = Literal["good", "run", "done", "idle", "wait", "warn", "bad"]
_COLORS: Mapping[Tone, str] = {
    "good": GREEN, "run": GREEN, "done": GREEN, "idle": GREEN, "wait": GREY, "warn": YELLOW, "bad": RED,
}  # fmt: skip
_STATES: Mapping[Tone, tuple[str, ...]] = {
    "good": ("succeeded", "success", "good"),
    "run": ("running", "detached", "left"),
    "done": ("completed", "done", "fetched"),
    "idle": ("idle", "steady"),
    "wait": ("active", "preparing", "starting", "creating", "waitingforstarttask", "rebooting", "reimaging", "resizing",
             "enabling", "upgradingos"),
    "warn": ("interrupted", "disabled", "disabling", "terminating", "deleting", "offline", "preempted", "leavingpool",
             "deallocating", "deallocated", "stopping", "stopped", "slow", "lost"),
    "bad": ("failed", "failure", "starttaskfailed", "unusable", "unknown", "fault"),
}  # fmt: skip


def in_words(state: str, *, has_diverged: bool) -> str:
    """A state, and whether a last value is not finite."""
    return f"{state}, diverged" if has_diverged else state


TONES: Mapping[str, Tone] = {state: tone for tone, states in _STATES.items() for state in states} | {
    in_words(state, has_diverged=True): "bad" for states in _STATES.values() for state in states
}
"""How each state is shown; one that is not in it has no tone."""
AS_IT_IS = 'class="mathjax_ignore tex2jax_ignore"'
"""Notebooks typeset what is between two `$`, such as variables of a command, except in elements of these classes."""
CARD = (
    "font:13px/1.5 system-ui,sans-serif;max-width:50rem;border:1px solid rgba(128,128,128,.35);border-radius:8px;"
    "padding:.6rem .9rem;margin:.3rem 0;overflow-x:auto"
)
PRE = (
    "font:12px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:rgba(128,128,128,.1);"
    "color:inherit;border-radius:6px;padding:.5rem .7rem;margin:.4rem 0;overflow:auto;max-height:24rem;white-space:pre"
)


def text(value: object) -> str:
    """A text in which nothing is markup."""
    return html.escape(str(value))


def card(*parts: str) -> str:
    """Parts in a frame."""
    return f'<div {AS_IT_IS} style="{CARD}">{"".join(parts)}</div>'


def head(title: str, state: str = "", note: str = "", time: str = "") -> str:
    """A title with a state at its right and a note below. time: how long the state lasts, or when it came."""
    shown = f'<span style="float:right">{badge(state)}{text(time)}</span>' if state else ""
    below = f'<div style="opacity:.75">{text(note)}</div>' if note else ""
    return f"<div>{shown}<b>{text(title)}</b></div>{below}"


def badge(state: str) -> str:
    """A state with a dot in its colour."""
    color = _COLORS[TONES[state]] if state in TONES else GREY
    return f'<span style="color:{color}">●</span> {text(state)}'


def pre(value: str) -> str:
    """A text as it is."""
    return f'<pre style="{PRE}">{text(value)}</pre>'


def page(title: str, body: str, head: str = "") -> str:
    """A page of its own that needs no network. The body is markup, and so is what its head has, too."""
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;"
        "background:#fff}table{border-collapse:collapse;margin:.5rem 0}"
        "td,th{text-align:left;padding:.15rem .8rem .15rem 0;vertical-align:top}main{overflow-x:auto}"
        "@media(prefers-color-scheme:dark){body{background:#161616;color:#eee}}"
    )
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{head}'
    return (
        f"<!doctype html><html lang=en><head>{head}<title>{text(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


_SHELL = re.compile(
    r"""(?P<grey>(?:^|(?<=\s))\#[^\n]*)|(?P<green>"(?:[^"\\]|\\.)*"|'[^']*')|(?P<blue>\$\{?[\w@\#?*-]+\}?)"""
    r"""|(?P<violet>\b(?:if|then|elif|else|fi|for|while|do|done|case|esac|export|exec|trap|set)\b)""",
    re.M,
)
_SHADES = {"grey": GREY, "green": GREEN, "blue": COLORS[0], "violet": COLORS[5]}


def shell(value: str) -> str:
    """A shell script with comments, strings, variables and keywords in colours."""
    parts, end = [], 0
    for match in _SHELL.finditer(value):
        shade = _SHADES[match.lastgroup or "grey"]
        parts += [text(value[end : match.start()]), f'<span style="color:{shade}">{text(match[0])}</span>']
        end = match.end()
    return f'<pre style="{PRE}">{"".join(parts)}{text(value[end:])}</pre>'


def columns(figures: str) -> str:
    """Figures beside each other, where there is room."""
    grid = "display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:0 1rem"
    return f'<div style="{grid}">{figures}</div>' if figures else ""


def fold(title: str, body: str, *, note: str = "", open_: bool = False) -> str:
    """A body that opens by a click."""
    small = f' <span style="opacity:.65">{text(note)}</span>' if note else ""
    summary = f'<summary style="cursor:pointer">{text(title)}{small}</summary>'
    return f"<details{' open' if open_ else ''}>{summary}{body}</details>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, or nothing without rows. A column named `state` has dots."""
    states = {number for number, name in enumerate(heads) if name == "state"}
    body = "".join(f"<tr>{''.join(_cell(cell, n in states) for n, cell in enumerate(row))}</tr>" for row in rows)
    top = "".join(f'<th style="text-align:left">{text(cell)}</th>' for cell in heads)
    return (
        f"<table {AS_IT_IS}>{f'<thead><tr>{top}</tr></thead>' if top else ''}<tbody>{body}</tbody></table>"
        if body
        else ""
    )


def _cell(value: str, state: bool) -> str:
    if state and value:
        return f'<td style="text-align:left;white-space:nowrap">{badge(value)}</td>'
    wrap = ";overflow-wrap:anywhere" if len(value) > LONG_CELL else ""
    return f'<td style="text-align:left;white-space:pre-wrap{wrap}">{text(value)}</td>'


# --- curves ---------------------------------------------------------------------------------------------------------


def figure(
    title: str,
    curves: Mapping[str, Sequence[Point]],
    height: int = HEIGHT,
    *,
    after: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Curves over each other as SVG, with the lowest and the highest value. A curve needs a point. after: by curve,
    what follows its last point, such as `NaN since epoch 4`: a cross marks the point."""
    kept = {
        name: [*points[: -1 : max(len(points) // MOST_POINTS, 1)], points[-1]]
        for name, points in curves.items()
        if points
    }
    every = [point for points in kept.values() for point in points]
    if not every:
        return ""
    xs, ys = [x for x, _ in every], [y for _, y in every]
    ends = {name: f", then {after[name]}" if name in after else "" for name in kept}
    label = "; ".join(
        f"{name}: from {short(points[0][1])} to {short(points[-1][1])}{ends[name]}" for name, points in kept.items()
    )
    frame = _Frame(min(xs), max(xs), min(ys), max(ys), height)
    lines = [
        frame.line(points, COLORS[n % len(COLORS)]) + (frame.cross(points[-1]) if name in after else "")
        for n, (name, points) in enumerate(kept.items())
    ]
    legend = "".join(
        f' <span style="color:{COLORS[n % len(COLORS)]}">━</span> {text(name)}{text(ends[name])}'
        for n, name in enumerate(kept)
    )
    alone = text("".join(ends.values()))
    return (
        f'<figure style="margin:.6rem 0"><figcaption>{text(title)}{legend if len(kept) > 1 else alone}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" style="max-width:100%;height:auto" role="img"'
        f' aria-label="{text(f"{title}: {label}" if len(kept) > 1 else label)}">{frame.axes()}{"".join(lines)}</svg>'
        "</figure>"
    )


class _Frame:
    """The part of the plane that a figure shows."""

    def __init__(self, left: float, right: float, low: float, high: float, height: int) -> None:
        self.left, self.right, self.low, self.high, self.height = left, right, low, high, height
        self._across = (WIDTH - LEFT - RIGHT) / ((right - left) or 1)
        self._up = (height - 2 * EDGE) / ((high - low) or 1)
        self._x = LEFT if right > left else (LEFT + WIDTH - RIGHT) / 2
        self._y = height - EDGE if high > low else height / 2
        """Where the left end and the low end are; of a single place or value, the middle."""

    def line(self, points: Sequence[Point], color: str) -> str:
        """One curve; a single point is a dot."""
        at = [f"{x:.1f},{y:.1f}" for x, y in map(self._at, points)]
        if len(at) == 1:
            x, _, y = at[0].partition(",")
            return f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>'
        return f'<polyline fill="none" stroke="{color}" stroke-width="1.8" points="{" ".join(at)}"/>'

    def cross(self, point: Point) -> str:
        """The mark of a point after which the values are not finite."""
        x, y = self._at(point)
        return f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" fill="none" stroke="{RED}" stroke-width="2"/>'

    def _at(self, point: Point) -> Point:
        """Where a point is in the figure."""
        return self._x + (point[0] - self.left) * self._across, self._y - (point[1] - self.low) * self._up

    def axes(self) -> str:
        """Three lines of a grid, and the ends of both axes."""
        grid = "".join(
            f'<path d="M{LEFT} {y:g}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity=".15"/>'
            for y in (EDGE, self.height / 2, self.height - EDGE)
        )
        style = 'font-size="11" fill="currentColor" opacity=".7"'
        ends = [
            (LEFT - 6, self._y + 4, "end", self.low),
            (self._x, self.height - 6, "start" if self._x == LEFT else "middle", self.left),
        ]
        ends += [(LEFT - 6, EDGE + 4, "end", self.high)] if self.high > self.low else []
        ends += [(WIDTH - RIGHT, self.height - 6, "end", self.right)] if self.right > self.left else []
        return grid + "".join(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {style}>{_label(value)}</text>'
            for x, y, anchor, value in ends
        )


def _label(value: float) -> str:
    """A number at an axis: an integer with all its digits, as long as they have room."""
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e7 else f"{value:.3g}"


def short(value: float) -> str:
    """A number in at most six digits."""
    return f"{value:.6g}"
