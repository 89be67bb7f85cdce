"""Where a task's files lie on its node: names that are taken, and places that Batch itself can write to; no rule.

The rules and the planner ask the same functions, so that what is valid can be planned.
"""

from __future__ import annotations

import re

OURS = ".batchtrain"
"""The directory of the launch's own files in a task's directory."""
RESERVED = frozenset({"wd", "certs", "stdout.txt", "stderr.txt", "fileuploadout.txt", "fileuploaderr.txt", OURS})
"""Names in a task's directory that Batch or the launcher uses, and no file of a person's may take."""

_WORKING_DIRECTORY = re.compile(r"^\$(?:AZ_BATCH_TASK_WORKING_DIR|\{AZ_BATCH_TASK_WORKING_DIR\})(?:/|$)")


def below(path: str | None) -> str:
    """A path without the working directory's variable before it."""
    return _WORKING_DIRECTORY.sub("", path or "")


def beyond(path: str | None) -> str:
    """A path that Batch cannot write to: absolute, with a variable, or upwards; empty where it can."""
    wanted = below(path)
    reachable = not wanted.startswith(("/", "~")) and "$" not in wanted and ".." not in wanted.split("/")
    return "" if reachable else wanted
