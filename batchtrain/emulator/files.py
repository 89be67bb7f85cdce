"""The files of nodes and tasks: listed, read in ranges, deleted; never anything outside the node's directory."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from batchtrain.emulator import documents, nodes, wire
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.query import Row, is_whole, listing
from batchtrain.emulator.reply import Call, Reply, Slice
from batchtrain.emulator.world import World

Document = dict[str, Any]


REACHABLE = ("up", "starting")
"""What a machine does for a node whose files can be read: one that is down answers nobody."""


class Tree(NamedTuple):
    """A directory of a node as the API shows it."""

    root: Path
    """The node's directory: nothing outside it is ever touched."""
    top: Path
    """The directory that names are relative to."""
    url: str
    """Prefix of the files' URLs."""


def node_tree(world: World, call: Call) -> Tree:
    """All of a node."""
    book, node = world.node(*call.path[:2])
    if not node.root or node.phase not in REACHABLE:
        raise nodes.refusal(node)
    root = Path(node.root)
    return Tree(root, root, f"{documents.node_url(call.base, book.record.id, node.id)}/files")


def task_tree(world: World, call: Call) -> Tree:
    """A task's directory, on the primary's node."""
    book, task = world.task(*call.path[:2])
    if task.cleaned:
        raise Fault("TaskFilesCleanedup")
    node_id = task.instances[0].node if task.instances else ""
    pool = world.pool_of_node.get(node_id)
    if pool is None or not pool.nodes[node_id].root or pool.nodes[node_id].phase not in REACHABLE:
        raise Fault("TaskFilesUnavailable")
    root = Path(pool.nodes[node_id].root)
    top = root / documents.task_directory(book.record, task)
    return Tree(root, top, f"{documents.task_url(call.base, book.record, task)}/files")


# Paths ---------------------------------------------------------------------------------------------------------------


def locate(tree: Tree, name: str) -> Path:
    """The path of a name below a tree; Fault 404 for every name that leads, or is made to lead, elsewhere."""
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise Fault("FileNotFound")
    path = tree.top.joinpath(*parts)
    if not _within(path.parent, tree.root):
        raise Fault("FileNotFound")
    return path


def _within(path: Path, root: Path) -> bool:
    """Whether a path, links followed, is inside the node's directory."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return False


def open_inside(tree: Tree, name: str) -> int:
    """A descriptor of a regular file.

    Where it lies is asked of the open descriptor, so that a link swapped in meanwhile gains nothing.
    """
    path = locate(tree, name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise Fault("FileNotFound") from error
    real = Path(f"/proc/self/fd/{descriptor}").readlink()
    if real.is_relative_to(tree.root.resolve()) and stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise Fault("FileNotFound")


# Listing -------------------------------------------------------------------------------------------------------------


def list_node_files(world: World, call: Call) -> Reply:
    return _list(node_tree(world, call), call)


def list_task_files(world: World, call: Call) -> Reply:
    return _list(task_tree(world, call), call)


def _list(tree: Tree, call: Call) -> Reply:
    if not _within(tree.top, tree.root):
        raise Fault("FileNotFound")
    recursive = call.flag("recursive")

    def rows(token: str) -> Iterator[Row]:
        for name, entry in sorted(_entries(tree, tree.top, recursive=recursive)):
            if name > token:
                yield Row(name, _item(tree, name, entry))

    return listing(call, "files", rows)


def _entries(tree: Tree, directory: Path, *, recursive: bool) -> Iterator[tuple[str, os.stat_result]]:
    """Names (relative, with `/`) and status; directories that are links are shown but not entered."""
    try:
        found = list(os.scandir(directory))
    except OSError:
        return
    for entry in found:
        path = Path(entry.path)
        try:
            if entry.is_symlink() and not _within(path, tree.root):
                continue
            status = entry.stat()
            enter = recursive and entry.is_dir(follow_symlinks=False)
        except OSError:
            continue  # gone meanwhile, or a link to nowhere
        yield _printable(path.relative_to(tree.top).as_posix()), status
        if enter:
            yield from _entries(tree, path, recursive=True)


def _printable(name: str) -> str:
    """A name that is no UTF-8 cannot be asked for, but it must not spoil the list."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _item(tree: Tree, name: str, status: os.stat_result) -> Document:
    item: Document = {"name": name, "url": _url(tree, name), "isDirectory": stat.S_ISDIR(status.st_mode)}
    if not item["isDirectory"]:
        item["properties"] = {
            "creationTime": wire.timestamp(wire.from_unix_ns(status.st_ctime_ns)),
            "lastModified": wire.timestamp(wire.from_unix_ns(status.st_mtime_ns)),
            "contentLength": str(status.st_size),
            "contentType": content_type(name),
            "fileMode": f"0o{status.st_mode:o}",
        }
    return item


def _url(tree: Tree, name: str) -> str:
    return f"{tree.url}/{quote(name)}"


def content_type(name: str) -> str:
    """The service looks no further than at the name."""
    return "text/plain" if name.endswith((".txt", ".log", ".out", ".err")) else "application/octet-stream"


# Reading -------------------------------------------------------------------------------------------------------------


def get_node_file(world: World, call: Call) -> Reply:
    return _read(node_tree(world, call), call)


def get_task_file(world: World, call: Call) -> Reply:
    return _read(task_tree(world, call), call)


def _read(tree: Tree, call: Call) -> Reply:
    name = call.path[2]
    file = os.fdopen(open_inside(tree, name), "rb")
    try:
        status = os.fstat(file.fileno())
        _check_times(call, status)
        start, length = byte_range(call.headers.get("ocp-range") or call.headers.get("range"), status.st_size)
    except BaseException:
        file.close()
        raise
    # 200 even for a part of the file: the official SDK takes a 206 for an error.
    return Reply(200, headers=_headers(tree, name, status), content=Slice(file, start, length))


def head_node_file(world: World, call: Call) -> Reply:
    return _head(node_tree(world, call), call)


def head_task_file(world: World, call: Call) -> Reply:
    return _head(task_tree(world, call), call)


def _head(tree: Tree, call: Call) -> Reply:
    name = call.path[2]
    path = locate(tree, name)
    if path.is_dir() and _within(path, tree.root):
        return Reply(200, headers=_headers(tree, name, path.stat()))
    descriptor = open_inside(tree, name)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    _check_times(call, status)
    return Reply(200, headers={**_headers(tree, name, status), "Content-Length": str(status.st_size)})


def _check_times(call: Call, status: os.stat_result) -> None:
    modified = wire.from_unix_ns(status.st_mtime_ns)
    wire.check_conditions(call.headers, wire.etag(modified), modified, reading=True)


def _headers(tree: Tree, name: str, status: os.stat_result) -> dict[str, str]:
    return {
        "Content-Type": content_type(name),
        "Last-Modified": wire.http_date(wire.from_unix_ns(status.st_mtime_ns)),
        "ocp-creation-time": wire.http_date(wire.from_unix_ns(status.st_ctime_ns)),
        "ocp-batch-file-isdirectory": str(stat.S_ISDIR(status.st_mode)),
        "ocp-batch-file-mode": f"0o{status.st_mode:o}",
        "ocp-batch-file-url": quote(_url(tree, name), safe=""),
    }


def byte_range(header: str | None, size: int) -> tuple[int, int]:
    """Start and length of `bytes=a-b`, `bytes=a-` or `bytes=-n`; Fault 416 when it begins past the end."""
    if not header:
        return 0, size
    unit, _, span = header.partition("=")
    first, dash, last = span.partition("-")
    numbers = [part for part in (first, last) if part]
    if unit.strip() != "bytes" or not dash or not numbers or not all(map(is_whole, numbers)):
        raise Fault("InvalidHeaderValue", HeaderName="ocp-range", HeaderValue=header)
    if not first:
        start, end = max(size - int(last), 0), size - 1
    else:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
    if start >= size or (last and first and int(last) < int(first)):
        raise Fault("InvalidRange", MaxLimit=str(size))
    return start, end - start + 1


# Deleting ------------------------------------------------------------------------------------------------------------


def delete_node_file(world: World, call: Call) -> Reply:
    return _delete(node_tree(world, call), call)


def delete_task_file(world: World, call: Call) -> Reply:
    return _delete(task_tree(world, call), call)


def _delete(tree: Tree, call: Call) -> Reply:
    path = locate(tree, call.path[2])
    try:
        if not path.is_dir() or path.is_symlink():
            path.unlink()
        elif call.flag("recursive"):
            shutil.rmtree(path)
        else:
            path.rmdir()
    except FileNotFoundError as error:
        raise Fault("FileNotFound") from error
    except OSError as error:
        raise Fault("OperationInvalidForCurrentState", Reason=error.strerror or str(error)) from error
    return Reply(200)
