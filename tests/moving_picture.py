"""`python -m tests.moving_picture [FILE]`: a moving picture (SVG) of a real run on the emulator, in a terminal of 80
columns, on an emulator of its own with the MPICH of the tests. It needs tmux.

The frames are what the terminal showed. Pauses of more than a second are shortened; nothing else is changed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

from batchtrain.emulator import mapped_images, server
from tests.conftest import mpi_prefix

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "first-run.svg"
COMMAND, IMAGE = "batchtrain run recipes/mpi4py-MPICH --local", "example/mpich:digits"
WIDTH, HEIGHT = 80, 24
EVERY, LONGEST_PAUSE, LAST_SECONDS, GUARD = 0.25, 1.0, 6.0, 120.0
MOST_FRAMES = 60
COLUMN, LINE, EDGE, TOP = 8.43, 18.0, 16, 44
CONSOLE = Console(width=WIDTH, force_terminal=True, color_system="truecolor")
INK, PAPER = "#d9d9d9", "#1c1c1f"


class Frame(NamedTuple):
    """What the terminal showed, as the parts of SVG texts, and for how many seconds."""

    lines: tuple[str, ...]
    seconds: float


def recorded(command: str, directory: Path, home: Path, width: int = WIDTH) -> list[Frame]:
    """The frames of a command, from its start to its end. home: the directory of the emulator."""
    server = f"batchtrain-{uuid.uuid4().hex[:8]}"
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "BATCHTRAIN_EMULATOR_DIR": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for name in ("TMUX", "CI", "NO_COLOR"):
        environment.pop(name, None)

    def tmux(*words: str) -> str:
        line = ["tmux", "-L", server, "-f", "/dev/null", *words]
        return subprocess.run(
            line, check=True, capture_output=True, text=True, cwd=directory, env=environment, timeout=GUARD
        ).stdout

    shell = f"{command}; touch ended; sleep 1d"
    tmux("new-session", "-d", "-x", str(width), "-y", str(HEIGHT), f"bash -c {shlex.quote(shell)}")
    shown: list[tuple[float, tuple[str, ...]]] = []
    began, is_over = time.monotonic(), False
    try:
        while not is_over and time.monotonic() - began < GUARD:
            is_over = (directory / "ended").exists()
            screen = tmux("capture-pane", "-p", "-e").rstrip("\n")
            lines = tuple("".join(_spans(line)) for line in AnsiDecoder().decode(screen))
            if any(lines) and (not shown or shown[-1][1] != lines):  # who opens the page sees text at once
                shown.append((time.monotonic(), lines))
            time.sleep(EVERY)
    finally:
        subprocess.run(["tmux", "-L", server, "kill-server"], check=False, capture_output=True)
    step = -(-len(shown) // MOST_FRAMES)
    chosen = [*shown[:-1:step], shown[-1]]
    ends = [at for at, _ in chosen[1:]]
    seconds = [min(end - at, LONGEST_PAUSE) for (at, _), end in zip(chosen, ends, strict=False)]
    return [Frame(lines, pause) for (_, lines), pause in zip(chosen, [*seconds, LAST_SECONDS], strict=True)]


def picture(frames: list[Frame], title: str, columns: int = WIDTH, rows: int = HEIGHT) -> str:
    """The frames as an SVG that moves by CSS, from the last one on: the first look is not an empty terminal. Who wants
    less motion sees the last one."""
    texts = {
        line: f"l{number}"
        for number, line in enumerate(dict.fromkeys(line for frame in frames for line in frame.lines if line))
    }
    width, height = round(columns * COLUMN + 2 * EDGE), round(TOP + rows * LINE + EDGE)
    last = len(frames) - 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{escape(title)}">',
        f"<style>{''.join(_rules(frames))}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
        *(f'<circle cx="{EDGE + 6 + 18 * n}" cy="20" r="5.5" fill="#55555c"/>' for n in range(3)),
        f'<text x="{width / 2}" y="24" text-anchor="middle" fill="#9a9aa2">{escape(title)}</text><defs>',
        *(f'<text id="{name}">{line}</text>' for line, name in texts.items()),
        "</defs>",
    ]
    for number, frame in enumerate(frames):
        lines = (
            f'<use href="#{texts[line]}" x="{EDGE}" y="{TOP + LINE * (row + 0.8):g}"/>'
            for row, line in enumerate(frame.lines)
            if line
        )
        name = ' class="last"' if number == last else ""
        parts.append(f'<g id="f{number}"{name}>{"".join(lines)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _rules(frames: list[Frame]) -> Iterator[str]:
    total, at = sum(frame.seconds for frame in frames), 0.0
    yield "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}g{visibility:hidden}"
    for number, frame in enumerate(frames):
        start, end = 100 * at / total, 100 * (at + frame.seconds) / total
        at += frame.seconds
        hidden = "" if number == 0 else "0%{visibility:hidden}"
        rest = "" if number == len(frames) - 1 else f"{end:.2f}%{{visibility:hidden}}"
        yield f"@keyframes k{number}{{{hidden}{start:.2f}%{{visibility:visible}}{rest}100%{{}}}}"
        yield f"#f{number}{{animation:k{number} {total:.1f}s step-end {frames[-1].seconds - total:.1f}s infinite}}"
    yield "@media(prefers-reduced-motion){g{animation:none!important}g.last{visibility:visible}}"


def _spans(line: Text) -> Iterator[str]:
    """The parts of a line, each at its columns, so that the picture does not depend on the width of a font."""
    at = 0
    for segment in line.render(CONSOLE):
        if segment.text == "\n":
            continue
        if segment.text.strip():
            length = len(segment.text) * COLUMN
            style = "".join(_style(segment.style or Style()))
            yield (
                f'<tspan x="{at * COLUMN:.1f}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"{style}>'
                f"{escape(segment.text)}</tspan>"
            )
        at += len(segment.text)


def _style(style: Style) -> Iterable[str]:
    color = style.color.get_truecolor(MONOKAI).hex if style.color and not style.color.is_default else INK
    yield f' fill="{color}"'
    if style.bold:
        yield ' font-weight="bold"'
    if style.dim:
        yield ' fill-opacity="0.65"'


def write(file: Path = PICTURE) -> None:
    """Run the recipe and write its picture."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "emulator"
        (Path(folder) / "recipes").symlink_to(ROOT / "recipes")
        mapped_images.map_image(home, IMAGE, mpi_prefix("mpich"))
        try:
            frames = recorded(COMMAND, Path(folder), home)
        finally:
            server.stop(home)
    if not any("results:" in line for line in frames[-1].lines):
        raise SystemExit("the run did not succeed:\n" + "\n".join(frames[-1].lines))
    file.write_text(picture(frames, COMMAND), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
