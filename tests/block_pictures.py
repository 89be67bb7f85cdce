"""`python -m tests.block_pictures`: pictures of the live block at 80 and 40 columns for the documentation."""

from __future__ import annotations

import io
import re
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from rich.text import Text

from batchtrain.display.live_view import View
from batchtrain.metrics.stream import MetricStream
from batchtrain.records import Node
from batchtrain.records.events import NodesSeen, Stdout

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTHS = (80, 40)
BEGAN = 1_800_000_000.0


def training() -> View:
    """A training of three ranks on two nodes, one of which is quiet."""
    view = View("digits", "pool gpu2 · Azure westeurope", BEGAN, ranks=3)
    allocated = datetime.fromtimestamp(BEGAN, timezone.utc)
    nodes = tuple(Node(f"tvmps_{number}", "running", "", allocated=allocated) for number in range(2))
    view.note(NodesSeen("gpu2", target=2, nodes=nodes), BEGAN + 60)
    stream = MetricStream()
    for step in range(1, 13):
        for rank in range(3 if step < 3 else 2):
            line = f"[{rank * 2 // 3}:{rank}] step {step}/30 loss {2.0 / step:.4f} 303.0 images/sec"
            at = BEGAN + 60 + 10 * step
            view.note(stream.event("digits", "train", stream.output([line], at)), at)
            view.note(Stdout("train", line), at)
    return view


def picture(width: int) -> str:
    """The block as an SVG."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in training().lines(width, BEGAN + 185):
        console.print(Text.assemble(*line), no_wrap=True)
    svg = console.export_svg(title="batchtrain run", unique_id=f"block-{width}")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # the site loads nothing from elsewhere


def write(folder: Path) -> None:
    """Write the pictures."""
    for width in WIDTHS:
        (folder / f"live-block-{width}.svg").write_text(picture(width), encoding="utf-8")


if __name__ == "__main__":
    write(IMAGES)
