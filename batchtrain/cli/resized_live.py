"""A live display that leaves no copy of itself when the terminal is made narrower."""

from __future__ import annotations

from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment


class _Wrapping:
    """Whether the terminal continues a line that is too long in the next row."""

    def __init__(self, *, on: bool) -> None:
        self._code = f"\x1b[?7{'h' if on else 'l'}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._code, None, [(ControlType.CARRIAGE_RETURN,)])


class ResizedLive(Live):
    """A terminal that becomes narrower breaks the lines that are on it, so that the display covers more rows than rich
    has drawn. Those rows are erased first. Until the program knows the new width, its lines are cut, not continued."""

    _drawn: tuple[int, ...] = ()
    """The columns of each line that was drawn last."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Put what erases the additional rows before what is printed."""
        width = max(self.console.width, 1)
        additional_rows = sum(max(columns - 1, 0) // width for columns in self._drawn)
        processed = super().process_renderables(renderables)
        lines = self.console.render_lines(self.renderable, pad=False)
        self._drawn = tuple(sum(segment.cell_length for segment in line) for line in lines)
        up: list[Any] = [ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)]
        for _ in range(additional_rows):
            up += [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)]
        *printed, display = processed
        cut_display = [_Wrapping(on=False), display, _Wrapping(on=True)]
        return [*([Control(*up)] if additional_rows else []), *printed, *cut_display]
