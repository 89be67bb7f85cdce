"""Only `rooted_path.py` and `walk.py` touch what lies below a node's directory, where a task may have put a link.

A new function of these files that opens, writes, moves or deletes something by its path makes this test fail. If the
path may be below a node's directory, use `RootedPath`. If it cannot be, add the function to TRUSTED with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import modules

EMULATOR = Path(__file__).resolve().parents[3] / "batchtrain" / "emulator"
METHODS = frozenset((
    "write_text", "write_bytes", "read_text", "read_bytes", "mkdir", "chmod", "rename", "unlink", "rmdir", "symlink_to",
    "hardlink_to", "touch", "glob", "rglob", "iterdir", "stat", "lstat",
))  # fmt: skip
"""Of a `Path`. A `RootedPath` has some names in common: what is called on one is told by the receiver's name."""
OF_OS = frozenset((
    "open", "scandir", "listdir", "mkdir", "makedirs", "chmod", "chown", "rename", "replace", "unlink", "remove",
    "rmdir", "symlink", "link", "walk", "stat", "lstat",
))  # fmt: skip
MODULES = frozenset(("shutil", "tempfile", "glob"))
ROOTED = frozenset(("node", "files", "RootedPath"))
"""Names that hold a `RootedPath`."""

TRUSTED = {
    "drive.py": {},
    "files.py": {},
    "machine/agent.py": {
        "View.__init__": "the node's own directory and its mounts, before there is a task",
        "_show_entries": "mount points in an empty file system",
        "_make_read_only": "/proc",
        "_listen": "the pool's folder of log-in sockets",
        "_open_files": "/proc",
        "_parent": "/proc",
        "_is_of_a_session": "/proc",
        "_write": "/proc",
        "children": "/proc",
        "descendants": "/proc",
        "enter_network": "a network namespace",
        "Supervisor._start": "/dev/null",
    },
    "machine/contained.py": {"has_device": "/dev"},
    "machine/marked_processes.py": {"_processes_with": "/proc"},
    "machine/node_mounts.py": {"_on_machine": "the folder of a node's volumes, in the data directory"},
    "machine/docker.py": {
        "ContainerNodes._set_up": "the program that holds a node's network, in the data directory",
        "ContainerNodes._hold_network": "the engine's resolv.conf",
        "ContainerNodes.ready": "looks for the docker command",
        "ContainerNodes._create": "a new empty directory of the machine's",
    },
    "machine/resource_files.py": {},
    "machine/handover.py": {},
    "machine/container_output.py": {},
    "machine/mounted_containers.py": {
        "MountedContainer.copy": "what was copied last, in the data directory",
        "MountedContainer._send": "opens a descriptor of a RootedPath",
    },
    "machine/packages.py": {
        "installed": "the packages, in the data directory",
        "_application": "the packages, in the data directory",
        "_unpack": "copies between open files",
    },
    "machine/pool_key.py": {
        "install": "the pool's keys, in the data directory",
        "_make": "the pool's keys, in the data directory",
    },
    "machine/process.py": {
        "open_machine": "the data directory",
        "ProcessMachine._join": "a node's directory itself",
        "ProcessMachine._lay_out": "a node's directory itself",
        "ProcessMachine.remove": "looks for nodes' directories by id",
        "_Node._come_up": "the agent's log, in the data directory",
        "_delete_each": "directories of pools and nodes themselves",
        "_renamed": "directories of pools and nodes themselves",
        "_says": "/proc",
        "_unknown": "looks for directories of pools and nodes",
        "_Pool.__init__": "the pool's folder, in the data directory",
        "_Pool.admit": "the pool's folder, in the data directory",
        "_Pool.dismiss": "the pool's folder, in the data directory",
        "_Pool.user": "the pool's folder, in the data directory",
        "_Pool.resolver": "the pool's folder, in the data directory",
        "_Pool._write_hosts": "the pool's folder, in the data directory",
        "_probe": "the data directory",
        "_write_program": "the pool's folder of programs",
    },
    "machine/output_files.py": {
        "_report": "opens a descriptor of a RootedPath",
        "_opened": "opens a descriptor of a RootedPath",
        "send_logs": "agents' logs, in the data directory",
        "_lines": "the emulator's log",
    },
}
"""The files that know nodes' directories, and the functions there whose paths are never below one."""


@pytest.mark.parametrize("name", TRUSTED)
def test_files_of_nodes_are_reached_only_by_rooted_paths(name: str) -> None:
    found = {function for function, _ in calls(EMULATOR / name)}
    assert found - TRUSTED[name].keys() == set()
    assert TRUSTED[name].keys() - found == set(), "no longer needed here"


def test_every_module_that_imports_rooted_paths_is_checked() -> None:
    know = {
        str(path.relative_to(EMULATOR))
        for path in EMULATOR.rglob("*.py")
        if "machine.rooted_path import" in path.read_text(encoding="utf-8")
    }
    assert know - {"machine/walk.py"} <= TRUSTED.keys()


def calls(path: Path) -> Iterator[tuple[str, str]]:
    """(function, call) of each call that takes a path of a file."""
    yield from _calls(modules.tree(path), ())


def _calls(node: ast.AST, within: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        within = (*within, node.name)
    if isinstance(node, ast.Call) and _takes_a_path(node.func):
        yield ".".join(within), ast.unparse(node.func)
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, within)


def _takes_a_path(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    receiver = ast.unparse(function.value)
    if receiver == "os":
        return function.attr in OF_OS
    if receiver in MODULES:
        return True
    own = receiver.partition("(")[0].rpartition(".")[2]
    return own not in ROOTED and (function.attr in METHODS or (function.attr == "open" and _opens_a_file(receiver)))


def _opens_a_file(receiver: str) -> bool:
    """`.open` of a Path, not of a URL's opener, an archive or port forwards."""
    return not any(word in receiver for word in ("opener", "archive", "port_forwards", "tarfile"))
