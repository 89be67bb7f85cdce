"""The preparation of a node: the maximum length of its commands, and reserved names. No rules, no requests."""

from __future__ import annotations

from batchtrain.config.types.pool import PrepCommands

GIVEN = "BATCHTRAIN_GIVEN_"
"""The prefix of the start task's variables whose values are filled in when the request is sent."""
PACKED = "BATCHTRAIN_FILES_"
"""The prefix of a task's variables in which its files travel."""
LARGEST = 32 * 1024
"""Maximum bytes of a variable that both the service and the kernel accept."""
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
