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

TRUSTED: dict[str, dict[str, str]] = {
    "drive.py": {},
    "files.py": {},
    "machine/agent.py": {
        "the node's own directory and its mounts, before there is a task": "View.__init__",
        "mount points in an empty file system": "_show_entries",
        "/proc": "_make_read_only _open_files _parent _is_of_a_session _write children descendants",
        "the pool's folder of log-in sockets": "_listen",
        "a network namespace": "enter_network",
        "/dev/null": "Supervisor._start",
    },
    "machine/contained.py": {"/dev": "has_device"},
    "machine/marked_processes.py": {"/proc": "_processes_with"},
    "machine/node_mounts.py": {"the folder of a node's volumes, in the data directory": "_on_machine"},
    "machine/docker.py": {
        "the program that holds a node's network, in the data directory": "ContainerNodes._set_up",
        "the engine's resolv.conf": "ContainerNodes._hold_network",
        "looks for the docker command": "ContainerNodes.ready",
        "a new empty directory of the machine's": "ContainerNodes._create",
    },
    "machine/resource_files.py": {},
    "machine/handover.py": {},
    "machine/container_output.py": {},
    "machine/mounted_containers.py": {
        "what was copied last, in the data directory": "MountedContainer.copy",
        "opens a descriptor of a RootedPath": "MountedContainer._send",
    },
    "machine/packages.py": {
        "the packages, in the data directory": "installed _application",
        "copies between open files": "_unpack",
    },
    "machine/pool_key.py": {"the pool's keys, in the data directory": "install _make"},
    "machine/process.py": {
        "the data directory": "open_machine _probe",
        "a node's directory itself": "ProcessMachine._join ProcessMachine._lay_out",
        "looks for nodes' directories by id": "ProcessMachine.remove",
        "the agent's log, in the data directory": "_Node._come_up",
        "directories of pools and nodes themselves": "_delete_each _renamed",
        "/proc": "_says",
        "looks for directories of pools and nodes": "_unknown",
        "the pool's folder, in the data directory": (
            "_Pool.__init__ _Pool.admit _Pool.dismiss _Pool.user _Pool.resolver _Pool._write_hosts"
        ),
        "the pool's folder of programs": "_write_program",
    },
    "machine/output_files.py": {
        "opens a descriptor of a RootedPath": "_report _opened",
        "agents' logs, in the data directory": "send_logs",
        "the emulator's log": "_lines",
    },
}
"""The files that know nodes' directories; what else paths lead to there, with the functions that take such paths."""


@pytest.mark.parametrize("name", TRUSTED)
def test_files_of_nodes_are_reached_only_by_rooted_paths(name: str) -> None:
    found = {function for function, _ in calls(EMULATOR / name)}
    trusted = {function for functions in TRUSTED[name].values() for function in functions.split()}
    assert found - trusted == set()
    assert trusted - found == set(), "no longer needed here"


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
