"""What a task of a mapped image finds at paths of its image: its volumes, and local directories."""

from __future__ import annotations

import asyncio
import os
import urllib.parse
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.emulator.interface import Run
from batchtrain.emulator.machine import run_options
from batchtrain.emulator.machine.contained import NodePaths
from batchtrain.emulator.machine.rooted_path import RootedPath


class NodeMount(NamedTuple):
    """A file or directory of this machine at a path of a node."""

    source: str
    target: str
    read_only: bool = False


def of_run(run: Run, image_paths: Mapping[str, Path], paths: NodePaths, volumes: Path) -> tuple[NodeMount, ...]:
    """The mounts of a run. image_paths: the local directories of its image. volumes: the directory for named volumes
    and for host paths that this machine does not have. Raises run_options.Refused and contained.NotTheNodes."""
    mounts = [NodeMount(os.path.realpath(directory), path, read_only=True) for path, directory in image_paths.items()]
    for source, target, read_only in _of_options(run.container.options if run.container else ""):
        if not target.startswith("/") or target.strip("/.") == "":
            raise run_options.Refused(f"containerRunOptions: a volume at `{target}`; its path must be absolute, not /")
        is_already_there = source == target and (read_only or source.startswith(f"{paths.up.root_inside}/"))
        if not is_already_there:
            mounts.append(NodeMount(_on_machine(source or target, paths, volumes), os.path.normpath(target), read_only))
    return tuple({mount.target: mount for mount in mounts}.values())


def _of_options(text: str) -> Iterator[tuple[str, str, bool]]:
    """(source, target, whether it is read-only) of each volume; an empty source is an anonymous volume."""
    for name, value in run_options.options(text):
        if name == "--volume" and value:
            first, *remainder = value.split(":")
            yield (first, remainder[0], "ro" in remainder[-1].split(",")) if remainder else ("", first, False)
        elif name == "--mount" and value:
            yield (*run_options.bound(name, value), bool({"readonly", "ro", "readonly=true"} & set(value.split(","))))
        elif name == "--tmpfs" and value:
            yield "", value.partition(":")[0], False


def _on_machine(source: str, paths: NodePaths, volumes: Path) -> str:
    """The path, without links, of a volume's source on this machine; a missing directory is made."""
    machine_path = paths.on_machine(source) if source.startswith("/") else ""
    if machine_path and Path(machine_path).exists():
        return os.path.realpath(machine_path)
    if machine_path == os.path.normpath(source) or not machine_path:
        machine_path = f"{volumes}/{urllib.parse.quote(source, safe='')}"
    parent, _, name = machine_path.rpartition("/")
    volumes.mkdir(exist_ok=True)
    RootedPath(parent).make(name)
    return machine_path


class NodeMounts:
    """What is mounted on a node for tasks of mapped images. ask: requests to the agent. ended: the ended scopes."""

    def __init__(self, ask: Callable[..., Awaitable[dict[str, Any]]], ended: Collection[str]) -> None:
        self._ask, self._ended = ask, ended
        self._mounts: dict[str, tuple[NodeMount, set[str]]] = {}
        """By path of the node: the mount, and the scopes that use it."""
        self._lock = asyncio.Lock()

    async def mount(self, mounts: Iterable[NodeMount], scope: str) -> str:
        """Mount these for a scope. Returns why not; empty after a success. Raises NodeLost."""
        async with self._lock:
            for mount in mounts:
                current, scopes = self._mounts.get(mount.target, (None, set()))
                if current == mount:
                    scopes.add(scope)
                    continue
                if current is not None and not scopes <= set(self._ended):
                    return f"{mount.target} is {current.source} for another task that runs on this node"
                if current is not None:
                    await self._unmount(mount.target)
                if failure := (await self._ask(op="mount", **mount._asdict()))["failure"]:
                    return f"{mount.source} cannot be mounted at {mount.target}: {failure}"
                self._mounts[mount.target] = (mount, {scope})
        return ""

    async def unmount_unused(self) -> None:
        """Unmount what no scope uses any more. Raises NodeLost."""
        async with self._lock:
            for target in [target for target, (_, scopes) in self._mounts.items() if scopes <= set(self._ended)]:
                await self._unmount(target)

    async def _unmount(self, target: str) -> None:
        del self._mounts[target]
        await self._ask(op="unmount", target=target)
