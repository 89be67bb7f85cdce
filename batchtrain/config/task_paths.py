"""The paths of a task's files on its node: reserved names, and paths that Batch can write to; no rules.

The rules and the planner ask the same functions, so that what is valid can be planned.
"""

from __future__ import annotations

import re

OURS = ".batchtrain"
"""The directory of the launcher's files in a task's directory."""
LINKED = ".batchtrain-linked"
"""A file in the working directory that is newer than the linked files of the source, and older than the results."""
NODES = ".batchtrain-nodes"
"""A directory in a task's directory on the primary: the results of the other nodes, of a detached gang."""
RESERVED = frozenset({"wd", "certs", "stdout.txt", "stderr.txt", "fileuploadout.txt", "fileuploaderr.txt", OURS, NODES})
"""Names in a task's directory that are reserved for Batch and the launcher."""

SHARED = "$AZ_BATCH_TASK_SHARED_DIR"
"""Where Batch puts the `resource_files` of `multi_instance`, on every node; commands start in another directory."""
JOB_INPUT = "$AZ_BATCH_JOB_PREP_WORKING_DIR"
"""Where the `input_data` of a job is on every node, each blob with its whole name in the container; as above."""

WILD = re.compile(r"[*?\[]")
"""A character that makes a path a pattern."""
_WORKING_DIRECTORY = re.compile(r"^\$(?:AZ_BATCH_TASK_WORKING_DIR|\{AZ_BATCH_TASK_WORKING_DIR\})(?:/|$)")


def below(path: str | None) -> str:
    """A path without the working directory's variable before it."""
    return _WORKING_DIRECTORY.sub("", path or "")


def beyond(path: str | None) -> str:
    """The path if Batch cannot write to it: absolute, with a variable, or upwards; empty if it can."""
    target = below(path)
    reachable = not target.startswith(("/", "~")) and "$" not in target and ".." not in target.split("/")
    return "" if reachable else target


STRIPS = re.compile(r"--strip-components[ =](\d{1,2})(?!\S)")


_BEGINS = re.compile(r"[^*?\[]*\*")
"""A pattern that means the same as a prefix."""


def filtered(include: tuple[str, ...], exclude: tuple[str, ...], options: str | None) -> bool:
    """Whether the node must filter or rename blobs; Batch itself supports only prefixes."""
    return bool(strips(options) or exclude) or not all(_BEGINS.fullmatch(pattern) for pattern in include)


def strips(options: str | None) -> int | None:
    """The number of `--strip-components`, the only supported option of Batch Shipyard's transfers."""
    option = STRIPS.search(options or "")
    return int(option[1]) if option else None
