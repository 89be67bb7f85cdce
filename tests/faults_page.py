"""`docs/reference/faults.md`, made of the table of faults: `python -m tests.generated_files`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from batchtrain.emulator import injection

HEAD = f"""\
# The faults of the emulator

`batchtrain emulator fault add KIND` injects a fault, and so does `batch_service.faults.add(kind, ...)` in
[tests](../how-to/test-code-that-uses-azure-batch.md).

{textwrap.fill(injection.LIFE, 120)}

`rate` is a probability, and `seed` the seed of its random numbers. In a command, parameters are options:
`--exit-code 3` is `exit_code=3`. `emulator fault clear` and `faults.remove()` remove faults.
`python -m tests.generated_files` generates this page; a test fails if it is stale.
"""
TITLES: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("Faults of requests", injection.ANSWERS),
    ("Faults of pools", injection.ALLOCATION),
    ("Faults of nodes", injection.NODES),
)


def page() -> str:
    """The whole page as Markdown."""
    return HEAD + "".join(line for title, effects in TITLES for line in _table(title, effects))


def _table(title: str, effects: Mapping[str, str]) -> Iterator[str]:
    yield f"\n## {title}\n\n| kind | what happens |\n|---|---|\n"
    yield from (f"| `{kind}` | {effect} |\n" for kind, effect in effects.items())
