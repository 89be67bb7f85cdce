"""The files of nodes and tasks: list, read in ranges, delete; nothing outside the node's directory is touched.

Slow work (a list, the deletion of a directory) is done in `Steps`, which the server runs off its event loop.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from batchtrain.emulator import documents, nodes, wire
from batchtrain.emulator.faults import Fault, invalid_parameter
from batchtrain.emulator.machine.rooted_path import LeadsOut, RootedPath
from batchtrain.emulator.machine.simulated import make_files
from batchtrain.emulator.machine.walk import Entry, Walk, Walks
from batchtrain.emulator.query import Page, Row, is_whole
from batchtrain.emulator.records import Document, Node
from batchtrain.emulator.reply import Call, Reply, Slice, Steps
from batchtrain.emulator.world import World

REACHABLE = ("up", "starting")
"""What the machine must do before files of a node can be read. A node that is down does not answer."""
STILL_ACTIVE = "The files of the specified task cannot be accessed as the task state is still active"
STEP = 500
"""Directory entries per step of a list."""
_WALKS = Walks()
"""Lists whose later pages have not been requested yet."""


class Tree(NamedTuple):
    """A directory of a node as the API shows it."""

    node: RootedPath
    """The node's directory. Nothing outside it is touched."""
    top: str
    """The directory that names are relative to, below `root`; empty for `root` itself."""
    url: str
    """Prefix of the files' URLs."""

    def path(self, name: str) -> str:
        """A name of this tree as a path of the node's directory."""
        return f"{self.top}/{name}".lstrip("/")


def node_tree(world: World, call: Call) -> Tree:
    """All files of a node."""
    entry, node = world.node(*call.path[:2])
    if not node.root or node.phase not in REACHABLE:
        raise nodes.refusal(node)
    return Tree(_below(node), "", f"{documents.node_url(call.base, entry.record.id, node.id)}/files")


def task_tree(world: World, call: Call) -> Tree:
    """A task's directory on the primary's node."""
    entry, task = world.task(*call.path[:2])
    if task.cleaned:
        raise Fault("TaskFilesCleanedup")
    if task.state == "active":
        raise Fault("OperationInvalidForCurrentState", Reason=STILL_ACTIVE)
    node = world.find_node(task.instances[0].node, *REACHABLE) if task.instances else None
    if node is None or not node.root:
        raise Fault("TaskFilesUnavailable")
    top = documents.task_directory(entry.record, task)
    if world.pool_of_node[node.id].simulated:
        make_files(node.root, top)
    return Tree(_below(node), top, f"{documents.task_url(call.base, entry.record, task)}/files")


def _below(node: Node) -> RootedPath:
    return RootedPath(node.root, {node.root_inside: node.root})


Operation = Callable[[Tree, Call], Reply | Steps]


def of_node(operation: Operation) -> Callable[[World, Call], Reply | Steps]:
    """An operation on the files of a node."""
    return lambda world, call: operation(node_tree(world, call), call)


def of_task(operation: Operation) -> Callable[[World, Call], Reply | Steps]:
    """An operation on the files of a task."""
    return lambda world, call: operation(task_tree(world, call), call)


def locate(tree: Tree, name: str) -> str:
    """The path of a name below a tree. Raises Fault 404 for a name that leads outside."""
    if not _is_name(name):
        raise Fault("FileNotFound")
    return tree.path(name)


def _is_name(name: str) -> bool:
    return "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))


def list_(tree: Tree, call: Call) -> Steps:
    """One page, in steps. The walk is kept for the next page, under the token at the end of this one."""
    page, recursive = Page(call, "files"), call.flag("recursive")
    key = (tree.url, tree.node.root, recursive)
    token = call.query.get("$skiptoken", "")
    walk = (_WALKS.take((*key, token)) if token else None) or _walk(tree, token, recursive=recursive)
    if walk is None:
        yield page.reply()
        return
    for number, entry in enumerate(walk, 1):
        if not page.add(_row(tree, entry, recursive)):
            walk.back(entry)
            _WALKS.keep((*key, page.last), walk)
            break
        if number % STEP == 0:
            yield None
    yield page.reply()


def _walk(tree: Tree, token: str, *, recursive: bool) -> Walk | None:
    """None if the directory does not exist yet."""
    after = os.fsdecode(unquote_to_bytes(token))
    if token and not _is_name(after):
        raise invalid_parameter("$skiptoken", token)
    try:
        return Walk(tree.node, tree.top, after=after, depth=None if recursive else 1, follow=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Fault("FileNotFound") from error


def _row(tree: Tree, entry: Entry, recursive: bool) -> Row:
    """A link is shown as its target. A link that leads nowhere or out of the node, and one to a directory that the list
    does not enter, is shown as a file with the mode of a link."""
    status = entry.status
    if stat.S_ISLNK(status.st_mode):
        with contextlib.suppress(OSError):
            target = tree.node.status(tree.path(entry.path))
            if stat.S_ISREG(target.st_mode) or (stat.S_ISDIR(target.st_mode) and not recursive):
                status = target
    # Of a name that is not UTF-8, only the URL is exact.
    name = os.fsencode(entry.path).decode(errors="replace")
    item: Document = {"name": name, "url": _url(tree, entry.path), "isDirectory": stat.S_ISDIR(status.st_mode)}
    if not item["isDirectory"]:
        item["properties"] = {
            "creationTime": wire.timestamp(wire.from_unix_ns(status.st_ctime_ns)),
            "lastModified": wire.timestamp(wire.from_unix_ns(status.st_mtime_ns)),
            "contentLength": str(status.st_size),
            "contentType": content_type(entry.path),
            "fileMode": f"0o{status.st_mode:o}",
        }
    return Row(quote(os.fsencode(entry.path)), item)


def _url(tree: Tree, name: str) -> str:
    return f"{tree.url}/{quote(os.fsencode(name))}"


def content_type(name: str) -> str:
    """The type of file by its name alone, as in the service."""
    return "text/plain" if name.endswith((".txt", ".log", ".out", ".err")) else "application/octet-stream"


def read(tree: Tree, call: Call) -> Reply:
    name = call.path[2]
    file = os.fdopen(_open(tree, name), "rb")
    try:
        status = os.fstat(file.fileno())
        _check_times(call, status)
        start, length = byte_range(call.headers.get("ocp-range") or call.headers.get("range"), status.st_size)
    except BaseException:
        file.close()
        raise
    # 200 even for a part of the file: the official SDK treats 206 as an error.
    return Reply(200, headers=_headers(tree, name, status), content=Slice(file, start, length))


def head(tree: Tree, call: Call) -> Reply:
    name = call.path[2]
    try:
        status = tree.node.status(locate(tree, name))
    except OSError as error:
        raise Fault("FileNotFound") from error
    if stat.S_ISDIR(status.st_mode):
        return Reply(200, headers=_headers(tree, name, status))
    os.close(_open(tree, name))
    _check_times(call, status)
    return Reply(200, headers={**_headers(tree, name, status), "Content-Length": str(status.st_size)})


def _open(tree: Tree, name: str) -> int:
    """A descriptor of a regular file."""
    try:
        return tree.node.open(locate(tree, name))
    except OSError as error:
        raise Fault("FileNotFound") from error


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
    """Start and length of `bytes=a-b`, `bytes=a-` or `bytes=-n`. Raises Fault 416 if the range starts past the end."""
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


def delete(tree: Tree, call: Call) -> Steps:
    path = locate(tree, call.path[2])
    try:
        if call.flag("recursive") or not stat.S_ISDIR(tree.node.status(path, follow=False).st_mode):
            tree.node.remove(path)
        else:
            tree.node.remove_empty(path)
    except (FileNotFoundError, NotADirectoryError, LeadsOut) as error:
        raise Fault("FileNotFound") from error
    except OSError as error:
        raise Fault("OperationInvalidForCurrentState", Reason=error.strerror or str(error)) from error
    yield Reply(200)
