"""What prepares a node: how long its commands may be, and names of ours; no rule, and no request."""

from __future__ import annotations

from batchtrain.config.types import PrepCommands

GIVEN = "BATCHTRAIN_GIVEN_"
"""Begins the names of the start task's variables that are placeholders until the request is sent."""
LARGEST = 32 * 1024
"""Maximum bytes of a variable for the service and the kernel."""
MOST_COMMANDS = LARGEST - 1024
"""Maximum bytes of the user's commands; the rest is for the commands of batchtrain between them."""
BETWEEN = len(" && ")


def overlong(commands: PrepCommands) -> str:
    """Why the commands cannot be sent; empty if they can."""
    size = sum(len(command.encode()) + BETWEEN for command in (*commands.pre, *commands.post))
    if size <= MOST_COMMANDS:
        return ""
    return (
        f"the commands have {size:,} bytes, and {MOST_COMMANDS:,} fit into a request; put them in a script, send it"
        " with `resource_files`, and call it"
    )
