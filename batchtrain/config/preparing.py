"""How long the commands may be that prepare a node; no rule, and no request."""

from __future__ import annotations

from batchtrain.config.types import PrepCommands

LARGEST = 32 * 1024
"""Bytes of a variable: the service and the kernel take no longer value."""
MOST_COMMANDS = LARGEST - 1024
"""Bytes of a person's commands; the rest is for what runs between them."""
BETWEEN = len(" && ")


def overlong(commands: PrepCommands) -> str:
    """Why the commands cannot be sent; empty where they can."""
    size = sum(len(one.encode()) + BETWEEN for one in (*commands.pre, *commands.post))
    if size <= MOST_COMMANDS:
        return ""
    return (
        f"the commands have {size:,} bytes, and {MOST_COMMANDS:,} fit into a request; put them in a script, bring it"
        " with `resource_files`, and call it"
    )
