"""The files of tasks and nodes for the user: lists, fetches, and opens them like local files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from azure.batch import BatchClient

from batchtrain.errors import NotFound, ServiceError, UsageError, nodes_called, printable
from batchtrain.records import File, Table
from batchtrain.runs.local_names import LocalNames
from batchtrain.runs.recording import QUIET, Progress
from batchtrain.runs.results import Part, parts, selects, there
from batchtrain.service import downloads, read
from batchtrain.service.downloads import Fetched, Tree, Wanted
from batchtrain.service.retry import Patience

LAUNCH = ".batchtrain/"
"""The launcher's own files in the directory of a task."""
BLOCK = 1 << 20
"""Bytes that an open file reads at once."""


class FileRow(NamedTuple):
    """A file of a task or a node."""

    path: str
    size: int
    modified: datetime | None
    node: str


class GotRow(NamedTuple):
    """A file that was fetched."""

    path: str
    size: int
    local: str
    sha256: str
    note: str = ""


class Service(NamedTuple):
    """The target of a request for files."""

    batch: BatchClient
    patience: Patience


class TaskFiles:
    """The files of one task, on all nodes that it ran on."""

    def __init__(self, client: Service, job_id: str, task_id: str) -> None:
        self._client, self.job_id, self.id = client, job_id, task_id

    def __repr__(self) -> str:
        return f"TaskFiles({self.job_id!r}, {self.id!r})"

    def files(self, *, node: str | None = None, all_nodes: bool = False) -> Table[FileRow]:
        """The files of the task on the node of its primary, on another node of its gang, or on all nodes."""
        parts = self._parts(node, all_nodes=all_nodes)
        return Table(FileRow(file.path, file.size, file.modified, part.node) for part, file in self._listed(parts))

    def get(
        self,
        *patterns: str,
        directory: str | Path = ".",
        node: str | None = None,
        all_nodes: bool = False,
        progress: Progress = QUIET,
    ) -> Table[GotRow]:
        """Fetch the files that match a pattern (all files without one) to a directory; skips files that are already
        there.

        Patterns are relative to the directory of the task or to its working directory. Raises NotFound if nothing
        matches, and ServiceError at the end if some files could not be fetched.
        """
        parts = self._parts(node, all_nodes=all_nodes)
        matches = [(part, file) for part, file in self._listed(parts) if _means(patterns, file.path)]
        if not matches:
            targets = " or ".join(f"`{pattern}`" for pattern in patterns) or "anything"
            raise NotFound(
                f"task {self.job_id}/{self.id} has no file {targets}; `batchtrain jobs files {self.job_id} {self.id}"
                " --all-nodes` lists its files",
                code="FileNotFound",
            )
        names = ((part, file, f"{part.name}/" if len(parts) > 1 else "") for part, file in matches)
        files = [(part.tree, file, f"{node}{file.path.removeprefix('wd/')}") for part, file, node in names]
        return fetch(self._client, files, Path(directory), progress)

    def open(self, path: str, *, node: str | None = None) -> io.BufferedReader:
        """Open a file for reading; its bytes are read from the node on demand. Raises NotFound."""
        (part,) = self._parts(node, all_nodes=False)
        for candidate in (path, f"wd/{path}"):
            try:
                file = downloads.size_of(self._client.batch, part.tree, candidate)
            except NotFound as error:
                missing = error
                continue
            return io.BufferedReader(RemoteFile(self._client, part.tree, file), BLOCK)
        raise missing

    def _parts(self, node: str | None, *, all_nodes: bool) -> tuple[Part, ...]:
        all_parts = parts(self.job_id, self.id, read.task_nodes(self._client.batch, self.job_id, self.id))
        if not all_parts:
            raise NotFound(f"task {self.job_id}/{self.id} has not run yet, so it has no files")
        if all_nodes:
            return all_parts
        if node is None:
            return all_parts[:1]
        ids = nodes_called(node, (part.node for part in all_parts))
        matches = tuple(part for part in all_parts if part.node in ids)
        if len(matches) != 1:
            names = ", ".join(f"{part.name} ({part.node})" for part in all_parts)
            raise UsageError(f"task {self.job_id}/{self.id} did not run on one node `{node}`; its nodes are {names}")
        return matches

    def _listed(self, parts: Iterable[Part]) -> Iterator[tuple[Part, File]]:
        return ((part, file) for part in parts for file in downloads.listed(self._client.batch, part.tree))


def node_files(client: Service, pool_id: str, node_id: str) -> Table[FileRow]:
    """The files of a node. Raises NotFound."""
    tree = downloads.node_tree(pool_id, node_id)
    return Table(FileRow(file.path, file.size, file.modified, node_id) for file in downloads.listed(client.batch, tree))


def get_node_files(
    client: Service, pool_id: str, node_id: str, patterns: tuple[str, ...], directory: Path, progress: Progress
) -> Table[GotRow]:
    """Fetch files of a node. Raises NotFound if no file matches a pattern."""
    tree = downloads.node_tree(pool_id, node_id)
    matches = [file for file in downloads.listed(client.batch, tree) if _means(patterns, file.path)]
    if not matches:
        pattern_text = " or ".join(f"`{pattern}`" for pattern in patterns)
        raise NotFound(
            f"node {node_id} has no file {pattern_text}; `batchtrain pool files {pool_id} {node_id}` lists its files",
            code="FileNotFound",
        )
    return fetch(client, [(tree, file, file.path) for file in matches], directory, progress)


def _means(patterns: tuple[str, ...], path: str) -> bool:
    if not patterns:
        return not path.startswith(LAUNCH)  # the launcher's pipes are not files
    return selects(patterns, path) or selects(patterns, path.removeprefix("wd/"))


def fetch(
    client: Service, files: list[tuple[Tree, File, str]], directory: Path, progress: Progress = QUIET
) -> Table[GotRow]:
    """Fetch files to names below a directory. Raises ServiceError at the end if some were not fetched."""
    names = LocalNames()
    items = [Wanted(tree, file, directory / names.of(f"{tree.url}:{file.path}", name)) for tree, file, name in files]
    progress.begin(len(items), sum(item.file.size for item in items))
    rows = {item: GotRow(item.file.path, item.file.size, str(item.target), "", "unchanged") for item in items}
    missing = [item for item in items if not there(directory, item.target, item.file)]
    failed: list[Fetched] = []
    for result in downloads.fetch(client.batch, missing, directory, progress.moved, patience=client.patience):
        if not result.sha256:
            failed.append(result)
        rows[result.wanted] = rows[result.wanted]._replace(size=result.size, sha256=result.sha256, note=result.reason)
    if failed:
        reasons = dict.fromkeys(result.reason for result in failed)
        first = printable(failed[0].wanted.file.path)
        raise ServiceError(
            f"{len(failed)} of {len(items)} files were not fetched to {directory}, such as {first}:"
            f" {'; '.join(reasons)}"
        )
    return Table(rows.values())


class RemoteFile(io.RawIOBase):
    """A file of a node with the interface of a Python file object."""

    def __init__(self, client: Service, tree: Tree, file: File) -> None:
        self._client, self._tree, self._seen, self._at = client, tree, file, 0
        self.name = file.path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._seen.size}
        self._at = max(starts[whence] + offset, 0)
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # the stubs' Buffer has no len
        end = min(self._at + len(buffer), self._seen.size)
        if self._at >= end:
            return 0
        content = downloads.read(self._client.batch, self._tree, self._seen.path, self._at, end)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
