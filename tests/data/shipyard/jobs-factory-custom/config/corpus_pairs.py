"""A task factory of a user's own, as Batch Shipyard's `custom` imported it: `generate` yields what fills a command."""

from collections.abc import Iterator


def generate(*names: str, suffix: str = "") -> Iterator[tuple[str, str]]:
    """A pair for each name."""
    for name in names:
        yield name, name + suffix
