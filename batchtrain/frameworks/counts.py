"""The number of processes per node, as a recipe writes it.

The launchers and the rules of `config.check` ask the same functions, so that what is valid can be launched.
"""

import re

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def number(processes_per_node: int | str) -> int | None:
    """The number of processes; a quoted "2" is 2. None for `auto` and for a command."""
    text = str(processes_per_node).strip()
    return int(text) if _NUMBER.fullmatch(text) else None


def fault(processes_per_node: int | str) -> str:
    """Why a node cannot have this number of processes; empty if it can."""
    if not str(processes_per_node).strip():
        return "processes_per_node is empty; give a number, `auto`, or a command that prints one"
    processes = number(processes_per_node)
    is_wrong = processes is not None and processes < 1
    return f"processes_per_node is {processes}; it must be at least 1" if is_wrong else ""


def uneven(processes: int, instances: int) -> str:
    """Why processes do not divide among nodes; empty if they do."""
    if processes % instances == 0:
        return ""
    remedy = f"give a multiple of {instances}, or `processes_per_node`"
    return f"{processes} processes do not divide among {instances} nodes; {remedy}"
