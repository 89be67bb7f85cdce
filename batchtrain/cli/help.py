"""How help looks: rich on a terminal, plain text in a pipe, where rich would cost 70 ms and draw boxes for programs."""

from __future__ import annotations

import sys

if sys.stdout is not None and sys.stdout.isatty():
    from rich_click import RichCommand as Command
    from rich_click import RichGroup as Group
else:
    from click import Command, Group  # type: ignore[assignment]  # the plain twins of the two above

__all__ = ["Command", "Group"]
