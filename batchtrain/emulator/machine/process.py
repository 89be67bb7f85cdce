"""Nodes as process trees of this machine, without root and Docker. Each is an `agent.py`, controlled over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import pwd
import secrets
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from batchtrain.emulator import mapped_images, trust
from batchtrain.emulator.interface import (
    NO_WINDOWS,
    Download,
    Exit,
    Mount,
    NodeLogin,
    NodeLost,
    NodeSpec,
    NodeUnfit,
    NodeUp,
    Package,
    Run,
    StorageAccount,
)
from batchtrain.emulator.machine import marked_processes, node_mounts, output_files, packages, pool_key, run_options
from batchtrain.emulator.machine.agent import Channel
from batchtrain.emulator.machine.contained import NodePaths, NotTheNodes
from batchtrain.emulator.machine.docker import ContainerNodes, Joined
from batchtrain.emulator.machine.forwarding import PortForwards, ways
from batchtrain.emulator.machine.node_mounts import NodeMounts
from batchtrain.emulator.machine.own_storage import OwnStorage
from batchtrain.emulator.machine.pool_key import HOME
from batchtrain.emulator.machine.resource_files import DownloadError, fetch
from batchtrain.emulator.machine.rooted_path import LeadsOut, RootedPath
from batchtrain.emulator.machine.threads import in_daemon_thread

logger = logging.getLogger("batchtrain.emulator.machine")

HERE = Path(__file__).parent
DIRECTORIES = ("applications", "fsmounts", "shared", "startup/wd", "volatile", "workitems", HOME)
"""The directories that Batch creates below the root of a node."""
MARKER = "BATCHTRAIN_EMULATED_NODE"
PLAIN = "BATCHTRAIN_EMULATED_PLAIN"
"""Why nodes share one host name, for the `ssh` stand-in; set only if they do."""
DEFAULT_PATH = mapped_images.MACHINES_PATH
BOOT_SECONDS = 20.0
BOOT_TRIES = 3
END_SECONDS = 5.0
PARALLEL_DOWNLOADS = 4
PARALLEL_REMOVALS = 2


class Variable(NamedTuple):
    """One variable of all nodes and the reason for it."""

    name: str
    value: str
    why: str
    only_for_root: bool = False


NODE_ENVIRONMENT = (
    Variable("PATH", "{bin}:" + DEFAULT_PATH, "the stand-ins for ssh and nvidia-smi come first; then Debian's default"),
    Variable("HOME", f"{{root}}/{HOME}", "the pool's user has a home of its own on every node"),
    Variable("USER", "{user}", "as getpwuid() answers on the node, so that no two tools disagree"),
    Variable("LOGNAME", "{user}", "POSIX's word for USER"),
    Variable("SHELL", "/bin/bash", "what sshd runs a command with on Azure's Linux images"),
    Variable("LANG", "C.UTF-8", "the images' default; without it Python 3.6 writes ASCII"),
    Variable(MARKER, "{root}", "says that the node is emulated, and which directory is its own"),
    Variable("I_MPI_THREAD_YIELD", "3", "Intel MPI spins: 2,000 small 2x2 all-reduces on 2 cores: minutes, not 0.5 s"),
    Variable("I_MPI_PIN", "0", "every node would pin its first rank to core 0 (the same all-reduces: 1.2 s)"),
    Variable("OMPI_MCA_mpi_yield_when_idle", "1", "Open MPI spins: the same all-reduces take 15 s and more"),
    *(
        Variable(name, "{interface}", "libfabric would take another interface of the machine, which may go away")
        for name in ("FI_TCP_IFACE", "FI_SOCKETS_IFACE", "FI_UDP_IFACE")  # each provider has its own
    ),
    Variable("MPIR_CVAR_CH4_NETMOD", "ofi", "MPICH would take UCX, which joins no two nodes where there is no network"),
    Variable("OMPI_ALLOW_RUN_AS_ROOT", "1", "Open MPI refuses root, and the emulator runs as root", True),
    Variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", "it needs both variables", True),
)


class Isolation(NamedTuple):
    """How this kernel can isolate a node."""

    kind: str
    """`namespaces` or `process`."""
    user_namespace: bool = False
    reason: str = ""
    """Why not `namespaces`."""
    remedy: str = ""
    """How to change that."""


async def open_machine(data_dir: Path, image_prefix: Callable[[str], str | None]) -> ProcessMachine:
    """A machine whose nodes live below `data_dir`, as isolated as this kernel allows. `image_prefix` maps a container
    image to a local environment (`<prefix>/bin` contains its programs), or returns None."""
    data_dir.mkdir(parents=True, exist_ok=True)
    data_dir = data_dir.resolve()  # a node does not see links in /tmp
    isolation = await asyncio.to_thread(_isolation, data_dir)
    if isolation.kind == "process":
        logger.warning(
            "nodes are plain processes of this machine, sharing its host name and its files, the account's key too:"
            " %s; %s",
            isolation.reason,
            isolation.remedy,
        )
    containers = ContainerNodes(data_dir)
    await containers.sweep()
    return ProcessMachine(data_dir, image_prefix, isolation, containers)


class ProcessMachine:
    """The `Machine` of process nodes. Use it from one event loop; `open_machine` creates it. If this process dies,
    every node sees the end of its control socket and ends, too."""

    def __init__(
        self,
        data_dir: Path,
        image_prefix: Callable[[str], str | None],
        isolation: Isolation,
        containers: ContainerNodes,
    ) -> None:
        self.isolation = isolation
        self.plain_nodes, self.plain_nodes_remedy = isolation.reason, isolation.remedy
        self._containers = containers
        self._data_dir = data_dir
        self._image_prefix = image_prefix
        self._nodes: dict[str, _Node] = {}
        self._pools: dict[str, _Pool] = {}
        self._slots = asyncio.Semaphore(PARALLEL_DOWNLOADS)
        self._removals = asyncio.Semaphore(PARALLEL_REMOVALS)
        self._going: set[Path] = set()
        """Directories that are being deleted because no record names them."""
        self._storage = OwnStorage(data_dir, lambda: [node.spec for node in self._nodes.values()])

    def share_storage(self, main: Callable[[], StorageAccount]) -> None:
        """Use the storage of another account of the emulator."""
        self._storage.main = main

    async def boot(self, spec: NodeSpec, on_lost: Callable[[str], None]) -> NodeUp:
        """Start a node. Files of an earlier start stay in its directory. Raises NodeLost if it does not start, and
        NodeUnfit if a package or image of its pool is not available."""
        await self.shutdown(spec.node_id)
        membership = await self._join(spec)
        try:
            return await self._boot(spec._replace(address=_address(spec, membership)), membership, on_lost)
        except BaseException:
            await self._containers.leave(spec.node_id)
            raise

    async def _join(self, spec: NodeSpec) -> Joined | None:
        """A network and containers for a node of a pool with unmapped images."""
        prefetch = self._prefetched(spec)
        if prefetch is None:
            return None

        def ended() -> None:
            if (node := self._nodes.get(spec.node_id)) is not None:
                node.kill()

        root = self._root(spec)
        root.mkdir(parents=True, exist_ok=True)
        return await self._containers.join(spec, root, prefetch, ended)

    def _prefetched(self, spec: NodeSpec) -> list[str] | None:
        """The images that the engine of a node pulls in advance; None for a node that needs no engine."""
        if spec.containers is None:
            return None
        images = spec.containers.images
        prefetch = [image for image in images if self._prefix(image) is None]
        return None if images and not prefetch else prefetch

    def _root(self, spec: NodeSpec) -> Path:
        return self._data_dir / "nodes" / _safe(spec.pool_id) / _safe(spec.node_id)

    async def _boot(self, spec: NodeSpec, membership: Joined | None, on_lost: Callable[[str], None]) -> NodeUp:
        pool = self._pool(spec.pool_id)
        pool.admit(spec)
        try:
            await asyncio.to_thread(pool.empty_tmp, spec.node_id)
            up = self._lay_out(spec, pool, membership)
            files = files_of(up)
            await self._install(files, spec.packages)
            _mount_all(self._data_dir, files, spec.mounts)
            await self._storage.mount(spec)
            if membership is not None:
                await asyncio.to_thread(pool_key.install, pool.keys, files)
        except BaseException:
            pool.dismiss(spec)
            raise
        node = _Node(spec, up)
        self._nodes[spec.node_id] = node
        try:
            await node.start(_boot_message(spec, up, pool, self.isolation, membership), pool.log(spec.node_id))
        except BaseException:
            node.kill()  # its control socket must be closed: the agent ends only with it
            await self._gone(node)
            raise
        node.watch(lambda: self._on_end(node, on_lost))
        network = membership.network if membership is not None else ""
        await node.port_forwards.open(ways(spec.address, spec.forwards, spec.service if network else None), network)
        return up

    async def run(self, node_id: str, run: Run) -> Exit:
        """Run one command to its end. Cancelling the call does not end the command; `end` does. After the end of its
        scope nothing more runs on the node, and runs in preparation do not start."""
        node = self._node(node_id)
        if run.container is not None:  # an engine is started by a shell that has the variables of the task
            options = Template(run.container.options).safe_substitute({**node.up.environment, **run.environment})
            run = run._replace(container=run.container._replace(options=options))
        prefix = self._prefix(run.image)
        if run.image and prefix and (problem := mapped_images.problem(Path(prefix))):
            return Exit(None, "ContainerInvalidImage", mapped_images.unusable(run.image, prefix, problem))
        in_container = run.image is not None and prefix is None
        if in_container and not self._containers.has(node_id):
            return await self._refusal(node, run)
        if run.elevated and not in_container and not node.said_elevated:
            node.said_elevated = True
            logger.warning("%s: elevated commands run as %s here", node_id, node.up.environment["USER"])
        try:
            program = _program(self._command(run), may_be_empty=in_container)
            node.files.make(f"{run.directory}/wd")
            await self._install(node.files, run.packages)
            await self._fetch(node, run)
        except LeadsOut as error:
            return Exit(None, "ResourceDirectoryCreateFailed", str(error))
        except (DownloadError, NodeUnfit) as error:
            return Exit(None, error.code, str(error))
        except run_options.Refused as error:
            return Exit(None, "ContainerInvalidSettings", str(error))
        await self._storage.copy(node.spec)
        outcome = await (self._in_container(node, run, program) if in_container else self._on_host(node, run, program))
        await self._storage.copy(node.spec)
        if outcome.code is None or run.scope in node.ended:
            return outcome
        return await self._send(node, run, outcome)

    def _command(self, run: Run) -> str:
        """The command line, after the entry point of the task's mapped image, as Docker does. A coordination command
        runs in a container that exists, so it has none. Raises run_options.Refused."""
        mapping = mapped_images.mapped(self._data_dir, run.image) if run.image and not run.stays else None
        if mapping is None:
            return run.command_line
        options = run_options.options(run.container.options if run.container else "")
        instead = [shlex.quote(value) if value else "" for name, value in options if name == "--entrypoint"]
        return f"{[mapping.entrypoint, *instead][-1]} {run.command_line}".strip()

    async def _in_container(self, node: _Node, run: Run, program: list[str]) -> Exit:
        try:
            tmp = self._pools[node.spec.pool_id].tmp(node.spec.node_id)
            return await self._prepared(node, run) or await self._containers.run(
                run, node.spec.node_id, program, node.up, tmp
            )
        except NodeLost:
            node.kill()
            await asyncio.shield(node.gone)  # the end of the node is reported first, then the loss of its run
            raise

    async def _prepared(self, node: _Node, run: Run) -> Exit | None:
        """Pull the image; cancelled with the scope. A fault ends the run."""
        preparing = asyncio.ensure_future(self._containers.prepare(node.spec.node_id, run))
        await node.wait_for(run.scope, [preparing])
        return ENDED_BEFORE if preparing.cancelled() else preparing.result()

    async def _on_host(self, node: _Node, run: Run, program: list[str]) -> Exit:
        await self._show(node, self._prefix(run.image))
        if run.image and (failure := await self._mount(node, run)):
            return Exit(None, "ContainerInvalidSettings", failure)
        if run.scope in node.ended:
            return ENDED_BEFORE
        answer = await node.ask(
            op="run",
            scope=run.scope,
            program=program,
            environment=self._environment(node, run),
            root=node.up.root_inside,
            directory=run.directory,
        )
        if answer["event"] == "failed":
            is_foreign = node.spec.windows and answer["code"] == "CommandProgramNotFound"
            return Exit(None, answer["code"], answer["message"] + (f". {NO_WINDOWS}" if is_foreign else ""))
        return Exit(answer["code"])

    async def _mount(self, node: _Node, run: Run) -> str:
        """Mount what the task of a mapped image finds at paths of its image. Returns why not; empty if it has it."""
        pool, mapping = self._pools[node.spec.pool_id], mapped_images.mapped(self._data_dir, run.image or "")
        paths = NodePaths(node.up, pool.tmp(node.spec.node_id), self._data_dir, node.spec.mounts)
        volumes = pool.tmp(node.spec.node_id).with_name("volumes")
        try:
            mounts = node_mounts.of_run(run, mapping.paths if mapping else {}, paths, volumes)
        except (run_options.Refused, NotTheNodes, OSError) as error:
            return str(error)
        if self.plain_nodes:
            targets = [mount.target for mount in mounts if mount.target != mount.source]
            return mapped_images.impossible(targets, *self.isolation[2:]) if targets else ""
        return await node.mounts.mount(mounts, run.scope)

    async def end(self, node_id: str, scope: str, grace: float = 0.0) -> None:
        """End every process of a scope; returns at once if the node is gone."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.end(scope)
            await asyncio.gather(
                self._containers.end(node_id, scope, grace),
                node.ask(op="end", scope=scope, grace=grace),
                return_exceptions=True,
            )
            with contextlib.suppress(NodeLost):
                await node.mounts.unmount_unused()

    async def upload(self, node_id: str, run: Run) -> None:
        """Send the output files of a command that was ended from outside; nothing if the node is gone."""
        if (node := self._nodes.get(node_id)) is not None:
            await self._send(node, run, Exit(None))

    async def shutdown(self, node_id: str) -> None:
        """End a node and everything on it; idempotent. Its directory stays."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.shutdown_requested = True
            node.port_forwards.close()
            node.hang_up()
            try:
                await asyncio.wait_for(asyncio.shield(node.gone), END_SECONDS)
            except asyncio.TimeoutError:
                node.kill()
                await asyncio.shield(node.gone)
        await self._containers.leave(node_id)

    async def remove(self, node_id: str) -> None:
        """Shut down a node and delete its directory, including one of an earlier emulator."""
        await self.shutdown(node_id)
        for folder in ("nodes/*", "machine/*/nodes"):
            for directory in self._data_dir.glob(f"{folder}/{_safe(node_id)}"):
                async with self._removals:
                    await in_daemon_thread(partial(_delete, directory))

    async def sweep(self, node_ids: Mapping[str, Collection[str]]) -> None:
        """Delete the directories of all pools and nodes but these. They are renamed before the first wait, because a
        new pool may have the name of an old one."""
        for pool_id in [pool_id for pool_id in self._pools if pool_id not in node_ids]:
            del self._pools[pool_id]
        paths = [_renamed(path) for path in _unknown(self._data_dir, node_ids) if path not in self._going]
        self._going.update(paths)
        try:
            async with self._removals:
                await in_daemon_thread(partial(_delete_each, paths))
        finally:
            self._going.difference_update(paths)

    async def send_logs(self, node_id: str, container_url: str, directory: str) -> None:
        """Upload the logs of a node. Raises UploadError."""
        await asyncio.to_thread(output_files.send_logs, self._data_dir, _safe(node_id), container_url, directory)

    def login(self, node_id: str) -> NodeLogin:
        """How this machine runs commands on a node. Raises NodeLost."""
        spec = self._node(node_id).spec
        relay = (sys.executable, "-I", "-S", str(HERE / "relay.py"))
        return NodeLogin((*_ssh_words(self._pool(spec.pool_id).peers), spec.address), relay)

    async def storage(self) -> StorageAccount:
        """The account's own storage, started at its first use. Raises StorageMissing."""
        return await self._storage.account()

    async def close(self) -> None:
        """Shut down every node."""
        specs = [node.spec for node in self._nodes.values()]
        await asyncio.gather(*(self.shutdown(node_id) for node_id in list(self._nodes)))
        await self._containers.close()
        await self._storage.close(specs)

    def _node(self, node_id: str) -> _Node:
        if node_id not in self._nodes:
            raise NodeLost(f"{node_id}: no such node is up")
        return self._nodes[node_id]

    def _pool(self, pool_id: str) -> _Pool:
        if pool_id not in self._pools:
            self._pools[pool_id] = _Pool(self._data_dir, _safe(pool_id))
        return self._pools[pool_id]

    def _lay_out(self, spec: NodeSpec, pool: _Pool, membership: Joined | None) -> NodeUp:
        root = self._root(spec)
        root.mkdir(parents=True, exist_ok=True)
        has_namespaces = self.isolation.kind == "namespaces"
        inside = str(pool.mount_point if has_namespaces else root)
        home_user = pool.user(inside) if has_namespaces and self.isolation.user_namespace else None
        interface = "eth0" if membership is not None and membership.network else "lo"
        facts = {"bin": pool.bin, "root": inside, "user": home_user or _user_name(), "interface": interface}
        variables = [variable for variable in NODE_ENVIRONMENT if os.getuid() == 0 or not variable.only_for_root]
        environment = {variable.name: variable.value.format(**facts) for variable in variables}
        if self.plain_nodes:
            environment[PLAIN] = f"{self.plain_nodes}; {self.plain_nodes_remedy}"
        up = NodeUp(root, inside, environment, "docker" if membership else self.isolation.kind, spec.address)
        files = files_of(up)
        try:
            for name in DIRECTORIES:
                files.make(name)
        except LeadsOut as error:
            raise NodeLost(f"{error}: a task replaced it by a link; a reimage of the node makes it anew") from None
        # A login shell's /etc/profile sets PATH again; the user's own profile comes after that.
        files.write(f"{HOME}/.profile", f"PATH={shlex.quote(str(pool.bin))}:$PATH\n".encode())
        return up

    async def _refusal(self, node: _Node, run: Run) -> Exit:
        """Why a node without containers does not run this. Raises NodeLost, for a new boot, if an engine answers."""
        if self._prefetched(node.spec) is not None and await self._containers.ready():
            node.kill()
            await asyncio.shield(node.gone)
            raise NodeLost(f"{node.spec.node_id}: a Docker Engine answers now; the node boots again to have it")
        missing = self._containers.missing or "the pool's nodes came up without it"
        return Exit(None, "ContainerInvalidImage", mapped_images.unserved(run.image or "", missing))

    def _environment(self, node: _Node, run: Run) -> dict[str, str]:
        """Set PATH: the stand-ins first, even if the task or its image sets PATH, then the image's programs."""
        environment = {**node.up.environment, **run.environment}
        stand_ins = node.up.environment["PATH"].partition(":")[0]
        path = [folder for folder in environment["PATH"].split(":") if folder != stand_ins]
        prefix = self._prefix(run.image)
        environment["PATH"] = ":".join([stand_ins, *([f"{prefix}/bin"] if prefix else []), *path])
        return environment

    def _prefix(self, image: str | None) -> str | None:
        """The local environment of a mapped image, with links resolved: a node does not see links in /tmp."""
        prefix = self._image_prefix(image) if image else None
        return os.path.realpath(prefix) if prefix else None

    async def _show(self, node: _Node, prefix: str | None) -> None:
        """An environment below /tmp of the machine is visible on every node of the pool: ranks are started by ssh."""
        pool = self._pools[node.spec.pool_id]
        for path in pool.visible_paths_of(prefix) if prefix else ():
            if path not in pool.visible_paths:
                pool.visible_paths.add(path)
                peers = [peer for peer in self._nodes.values() if peer.spec.pool_id == node.spec.pool_id]
                await asyncio.gather(*(peer.ask(op="expose", path=path) for peer in peers), return_exceptions=True)

    async def _fetch(self, node: _Node, run: Run) -> None:
        """Download every resource file, a few at a time. When all are done, the first failure (in the given order) is
        raised. The end of the scope, of the node or of this call cancels them."""
        if not run.downloads or run.scope in node.ended:
            return
        target = f"{run.directory}/{run.downloads_to}"
        waits = [asyncio.ensure_future(self._download(item, target, node.files)) for item in run.downloads]
        await node.wait_for(run.scope, waits)
        errors = [wait.exception() for wait in waits if not wait.cancelled()]
        for error in filter(None, errors):
            raise error

    async def _install(self, files: RootedPath, package_list: tuple[Package, ...]) -> None:
        """Unpack missing packages. Raises NodeUnfit."""
        for package in package_list:
            await asyncio.to_thread(packages.install, self._data_dir, files, package)

    async def _send(self, node: _Node, run: Run, outcome: Exit) -> Exit:
        """Upload the output files that are due; cancelled with the scope."""
        uploads = tuple(item for item in run.uploads if output_files.applies(item, outcome.code))
        if not uploads:
            return outcome
        environment = self._environment(node, run)
        files = files_of(node.up, mounted_at(self._data_dir, node.spec))
        source = output_files.Source(files, node.up.root_inside, run.directory, environment)
        called_off = threading.Event()
        wait = asyncio.ensure_future(in_daemon_thread(lambda: output_files.send(uploads, source, called_off.is_set)))
        try:
            await node.wait_for(run.scope, [wait])
        finally:
            called_off.set()
        error = None if wait.cancelled() else wait.exception()
        if isinstance(error, output_files.UploadError):
            return outcome._replace(failure=error.code, message=str(error))
        if error is not None:
            return outcome._replace(failure="FileUploadMiscError", message=str(error))
        return outcome

    async def _download(self, item: Download, target: str, files: RootedPath) -> None:
        item = await self._storage.addressed(item)
        called_off, ca = threading.Event(), trust.of(self._data_dir).ca
        async with self._slots:
            try:
                await in_daemon_thread(lambda: fetch(item, target, files, called_off.is_set, ca))
            finally:
                called_off.set()

    async def _on_end(self, node: _Node, on_lost: Callable[[str], None]) -> None:
        await self._gone(node)
        if not node.shutdown_requested:
            logger.warning("%s: the node died", node.spec.node_id)
            on_lost(node.spec.node_id)  # before the first await: a command that ran here must not be sent here again
            await self._containers.leave(node.spec.node_id)

    async def _gone(self, node: _Node) -> None:
        """Wait for a node's last process, then forget the node."""
        await node.wait()
        if self.isolation.kind == "process" and not node.shutdown_requested:
            await asyncio.to_thread(marked_processes.kill, f"{MARKER}={node.up.root_inside}")
        if self._nodes.get(node.spec.node_id) is node:
            del self._nodes[node.spec.node_id]
            try:
                self._pools[node.spec.pool_id].dismiss(node.spec)
            except OSError as error:  # the data directory is full or gone: every waiter must get this error
                logger.error("%s is not taken off its pool's list: %s", node.spec.node_id, error)
        node.say_gone()


class _Node:
    """One agent process and its open requests."""

    def __init__(self, spec: NodeSpec, up: NodeUp) -> None:
        self.spec = spec
        self.up = up
        self.files = files_of(up)
        self.shutdown_requested = False
        """Whether its end was requested."""
        self.port_forwards = PortForwards()
        self.said_elevated = False
        self.ended: set[str] = set()
        """Names of ended scopes, which are not used again."""
        self.mounts = NodeMounts(self.ask, self.ended)
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._process: subprocess.Popen[bytes] | None = None
        self._init: int | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._downloads: list[tuple[str, list[asyncio.Task[Any]]]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self, boot: dict[str, Any], log: Path) -> None:
        """Start the agent and wait until it listens; an agent that is killed meanwhile is started again."""
        for _ in range(BOOT_TRIES):
            answer = await self._come_up(boot, log)
            if answer["event"] != "killed":
                break
        if answer["event"] != "up":
            self.kill()
            raise NodeLost(f"{self.spec.node_id}: {answer['message']}")
        with contextlib.suppress(OSError):  # a kernel before 5.3, or the agent is already gone
            self._init = os.pidfd_open(answer["pid"])

    async def _come_up(self, boot: dict[str, Any], log: Path) -> dict[str, Any]:
        """Start the agent. Returns its first message, or how it failed."""
        self.hang_up()
        own_end, agent_end = socket.socketpair()
        with agent_end, log.open("ab") as stderr:
            self._process = _start_agent(agent_end, self.spec.node_id, stderr)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=own_end)
        try:
            self._send(boot)
            return await asyncio.wait_for(_receive(self._reader), BOOT_SECONDS)
        except asyncio.TimeoutError:
            event = "failed"
        except (EOFError, OSError):
            event = "killed" if await asyncio.to_thread(_was_killed, self._process) else "failed"
        return {"event": event, "message": f"its agent did not come up; see {log}"}

    def watch(self, on_end: Callable[[], Any]) -> None:
        """Start to dispatch answers; `on_end()` is awaited when the connection to the agent ends."""
        self._task = asyncio.create_task(self._listen(on_end))

    async def ask(self, **message: Any) -> dict[str, Any]:
        """Send a request and wait for its answer. Raises NodeLost if the node ends meanwhile."""
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.gone.done() or self.shutdown_requested:
            raise NodeLost(f"{self.spec.node_id}: the node is gone")
        self._answers[number] = answer
        try:
            self._send({**message, "id": number})
            return await answer
        finally:
            self._answers.pop(number, None)

    def end(self, scope: str) -> None:
        """Cancel the preparations of a scope."""
        self.ended.add(scope)
        self._call_off(scope)

    async def wait_for(self, scope: str, tasks: list[asyncio.Task[Any]]) -> None:
        """Wait until these are done. The end of the scope, of the node or of this call cancels them."""
        entry = (scope, tasks)
        self._downloads.append(entry)
        try:
            await asyncio.wait(tasks)
        finally:
            self._downloads.remove(entry)
            for task in tasks:
                task.cancel()

    def _call_off(self, scope: str | None) -> None:
        for owner, waits in self._downloads:
            if scope in (None, owner):
                for wait in waits:
                    wait.cancel()

    def hang_up(self) -> None:
        """The agent ends with its control socket."""
        if self._writer is not None:
            self._writer.close()

    def kill(self) -> None:
        """For an agent that does not end by itself. Its pid 1 dies with it, by the parent-death signal."""
        self.hang_up()
        if self._process is not None:
            self._process.kill()

    async def wait(self) -> None:
        """Wait until the agent has ended; in a process namespace no process of the node outlives it."""
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
        if self._init is not None:  # outlives its killed launcher for a moment
            await asyncio.to_thread(marked_processes.wait_readable, self._init, END_SECONDS)
            os.close(self._init)
            self._init = None

    def say_gone(self) -> None:
        self.hang_up()
        self.port_forwards.close()
        self._call_off(None)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(NodeLost(f"{self.spec.node_id}: the node died"))
        if not self.gone.done():
            self.gone.set_result(None)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        body = json.dumps(message).encode()
        self._writer.write(struct.pack("!I", len(body)) + body)

    async def _listen(self, on_end: Callable[[], Any]) -> None:
        assert self._reader is not None
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = await _receive(self._reader)
                answer = self._answers.get(message["id"])
                if answer is not None and not answer.done():
                    answer.set_result(message)
        await on_end()


def _links(path: Path) -> Iterator[Path]:
    """A path and the targets of its links, link by link; empty if the path does not exist."""
    while path.exists():
        yield path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()


class _Pool:
    """What the nodes of a pool share on this machine: the stand-ins, the name table and the sockets of the nodes."""

    def __init__(self, data_dir: Path, name: str) -> None:
        self._dir = data_dir / "machine" / name
        self.bin = self._dir / "bin"
        self.peers = self._dir / "peers"
        self.hosts = self._dir / "hosts"
        self.keys = self._dir / "ssh"
        self.mount_point = data_dir / "mnt" / name
        """The path of each node's own directory on the node: the same for all, as on Azure."""
        self.data_dir = data_dir
        self.visible_paths = {
            directory for path in (HERE, sys.prefix, sys.base_prefix) for directory in self.visible_paths_of(path)
        }
        """The parts of the machine's /tmp and of the data directory that its nodes see besides their own."""
        self._members: dict[str, NodeSpec] = {}
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.peers.mkdir(exist_ok=True, mode=0o700)
        self.bin.mkdir(exist_ok=True)
        _write_program(self.bin / "ssh", f'#!/bin/sh\nexec {shlex.join(_ssh_words(self.peers))} "$@"\n')

    def admit(self, spec: NodeSpec) -> None:
        """Before a node boots: add its name to the table of the pool, and create the stand-ins for its size."""
        self._members[spec.node_id] = spec
        for name in (spec.hostname.lower(), f"@{spec.node_id}"):
            (self.peers / name).unlink(missing_ok=True)
            (self.peers / name).symlink_to(spec.address)
        if spec.gpus and shutil.which("nvidia-smi", path=DEFAULT_PATH) is None:
            text = (HERE / "nvidia-smi.sh").read_text().replace("@GPUS@", str(spec.gpus))
            _write_program(self.bin / "nvidia-smi", text.replace("@VM_SIZE@", shlex.quote(spec.vm_size)))
        folder = self._dir / "nodes" / spec.node_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hostname").write_text(f"{spec.hostname}\n")
        self._write_hosts()

    def empty_tmp(self, node_id: str) -> None:
        """Delete what an earlier start left in the node's /tmp. Blocks."""
        tmp = self.tmp(node_id)
        _delete(tmp)
        RootedPath(tmp.parent).make(tmp.name, 0o1777)

    def dismiss(self, spec: NodeSpec) -> None:
        if self._members.get(spec.node_id) is not spec:
            return
        del self._members[spec.node_id]
        for name in (spec.hostname.lower(), f"@{spec.node_id}", spec.address):
            (self.peers / name).unlink(missing_ok=True)
        self._write_hosts()

    def user(self, root_inside: str) -> str | None:
        """The user name of Batch, if /etc/passwd of the node can have it for the user of the emulator."""
        if ":" in root_inside:
            return None
        entry = f"_azbatch:x:{os.getuid()}:{os.getgid()}::{root_inside}/{HOME}:/bin/bash\n"
        (self._dir / "passwd").write_text(entry + Path("/etc/passwd").read_text())
        return "_azbatch"

    def visible_paths_of(self, path: str | Path) -> list[str]:
        """The directories that a node needs for this one, if they are outside its view: the directory itself, and for a
        Python environment those of the links to its interpreter and of the installation."""
        links = list(_links(Path(path, "bin/python")))
        places = {os.path.realpath(path), *(os.path.realpath(link.parent) for link in links)}
        if links:
            places.add(str(Path(os.path.realpath(links[-1])).parent.parent))
        return sorted(
            directory
            for directory in places
            if directory.startswith(("/tmp/", "/var/tmp/", f"{mapped_images.main_dir(self.data_dir)}/"))
        )

    def binds(self, spec: NodeSpec, root: Path) -> list[tuple[str, str, bool]]:
        """(what, over what, read-only) that a node mounts; files of the machine only if they exist."""
        files = [(self.hosts, "/etc/hosts"), (self._dir / "nodes" / spec.node_id / "hostname", "/etc/hostname")]
        if (self._dir / "passwd").exists():
            files.append((self._dir / "passwd", "/etc/passwd"))
        present = [(str(file), over, False) for file, over in files if Path(over).exists()]
        directories = [(str(directory), str(directory), True) for directory in (self.bin, self.peers)]
        mounts = [(str(directory), str(directory), False) for directory in mounted_at(self.data_dir, spec)]
        return [(str(root), str(self.mount_point), False), *directories, *mounts, *present]

    def resolver(self, spec: NodeSpec, text: str) -> list[tuple[str, str, bool]]:
        """The mounts for a network with its own name servers."""
        file = self._dir / "nodes" / spec.node_id / "resolv.conf"
        if not text or not Path("/etc/resolv.conf").exists():
            return []
        file.write_text(text)
        return [(str(file), "/etc/resolv.conf", False)]

    def log(self, node_id: str) -> Path:
        return self._dir / "nodes" / node_id / "agent.log"

    def tmp(self, node_id: str) -> Path:
        return self._dir / "nodes" / node_id / "tmp"

    def _write_hosts(self) -> None:
        """In place, because the nodes mount this very file, and longest first, so that no node reads half of it."""
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        lines += [f"{spec.address} {spec.hostname}" for spec in self._members.values()]
        with contextlib.suppress(OSError):  # names that resolve on the machine resolve on a node
            machine_lines = Path("/etc/hosts").read_text().splitlines()
            others = ("#", "127.", "::1", "fe", "ff")
            lines += [line for line in machine_lines if line.strip() and not line.lstrip().startswith(others)]
        text = "\n".join(lines).encode() + b"\n"
        fd = os.open(self.hosts, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(fd, text, 0)
            os.ftruncate(fd, len(text))
        finally:
            os.close(fd)


# --- messages to an agent --------------------------------------------------------------------------------------------


ENDED_BEFORE = Exit(None, "TaskEnded", "the task ended before its command started")


def _address(spec: NodeSpec, membership: Joined | None) -> str:
    """A container may have used the node before."""
    return membership.address if membership is not None else f"127.{spec.address.partition('.')[2]}"


def _boot_message(
    spec: NodeSpec, up: NodeUp, pool: _Pool, isolation: Isolation, membership: Joined | None
) -> dict[str, Any]:
    last = [int(byte) for byte in spec.address.split(".")[-2:]]
    resolver = pool.resolver(spec, membership.resolver) if membership is not None else []
    return {
        "op": "boot",
        "isolation": isolation.kind,
        "user_namespace": isolation.user_namespace,
        "hostname": spec.hostname,
        "address": spec.address,
        "environment": dict(up.environment),
        "peers": str(pool.peers),
        "data_dir": str(mapped_images.main_dir(pool.data_dir)),
        "tmp": str(pool.tmp(spec.node_id)),
        # A mapped environment may be gone.
        "visible_paths": sorted(path for path in pool.visible_paths if Path(path).is_dir()),
        "binds": pool.binds(spec, up.root) + resolver,
        "network": membership.network if membership is not None else "",
        "first_pid": 1000 + (last[0] * 256 + last[1]) * 997 % 20000,
    }


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _start_agent(control: socket.socket, name: str, stderr: Any) -> subprocess.Popen[bytes]:
    """Its own session, so that Ctrl-C in the emulator's terminal does not reach the node; no environment."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(HERE / "agent.py"), str(control.fileno()), name],
        pass_fds=[control.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=stderr,
        stderr=stderr,
        cwd="/",
        env={},
        start_new_session=True,
    )


def _was_killed(process: subprocess.Popen[bytes]) -> bool:
    """Whether a signal ended a process that has just closed its socket."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(END_SECONDS) < 0
    return False


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any]:
    length = struct.unpack("!I", await reader.readexactly(4))[0]
    message: dict[str, Any] = json.loads(await reader.readexactly(length))
    return message


# --- what this kernel gives -------------------------------------------------------------------------------------


def _isolation(data_dir: Path) -> Isolation:
    """Try it: a kernel may create namespaces and then refuse every mount in them (AppArmor in Ubuntu 24.04)."""
    choice = os.environ.get("BATCHTRAIN_EMULATOR_ISOLATION", "")
    if choice == "process":
        remedy = f"unset the variable, then {RESTART}"
        return Isolation("process", reason="BATCHTRAIN_EMULATOR_ISOLATION=process", remedy=remedy)
    reason = ""
    for user_namespace in (False, True) if os.getuid() == 0 else (True,):
        reason = _probe(data_dir, user_namespace)
        if not reason:
            return Isolation("namespaces", user_namespace)
    if choice == "namespaces":
        raise OSError(f"BATCHTRAIN_EMULATOR_ISOLATION=namespaces, but this kernel refuses them: {reason}")
    return Isolation("process", reason=f"the kernel refuses namespaces: {reason}", remedy=_remedy(Path("/proc/sys")))


RESTART = "`batchtrain emulator stop`, and run again"
SWITCHES = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
)
"""Files of /proc/sys that can forbid namespaces, the forbidding value, and the command that changes it."""


def _remedy(settings: Path) -> str:
    """How to allow namespaces on this machine, as far as its settings show."""
    shut = [setting for file, closed, setting in SWITCHES if _says(settings / file, closed)]
    if shut:
        return f"`sudo sysctl -w {' '.join(shut)}` lifts that, then {RESTART}"
    return f"in a container, start it with `--security-opt seccomp=unconfined` or `--privileged`, then {RESTART}"


def _says(file: Path, word: str) -> bool:
    try:
        return file.read_text().strip() == word
    except OSError:
        return False


def _probe(data_dir: Path, user_namespace: bool) -> str:
    """Why an agent cannot use namespaces; empty if it can."""
    own_end, agent_end = socket.socketpair()
    with own_end, agent_end, (data_dir / "probe").open("w+b") as output:
        agent = _start_agent(agent_end, "probe", output)
        hidden = str(data_dir)
        boot = {"op": "probe", "user_namespace": user_namespace, "hostname": "probe", "first_pid": 1000}
        more = {"data_dir": hidden, "tmp": "/tmp", "visible_paths": [], "binds": [(hidden, f"{hidden}/mnt", True)]}
        Channel(own_end).send({**boot, **more})
        try:
            status = agent.wait(BOOT_SECONDS)
        except subprocess.TimeoutExpired:
            agent.kill()
            status = agent.wait()
        output.seek(0)
        reason = output.read().decode(errors="replace").strip().rpartition("\n")[2]
    (data_dir / "probe").unlink()
    return "" if status == 0 else reason or f"the probe ended with status {status}"


# --- files ------------------------------------------------------------------------------------------------------


def _program(command_line: str, *, may_be_empty: bool = False) -> list[str]:
    try:
        program = shlex.split(command_line)
    except ValueError as error:
        raise DownloadError("CommandLaunchFailed", f"{command_line}: {error}") from None
    if not program and not may_be_empty:
        raise DownloadError(
            "CommandProgramNotFound",
            "the command line is empty; `batchtrain emulator images map IMAGE PREFIX --entrypoint CMD` gives the"
            " environment of a container task an entry point",
        )
    return program


def files_of(up: NodeUp, mounts: Iterable[Path] = ()) -> RootedPath:
    """The files below the directory of a node, and below `mounts`, the directories of its mounted file systems."""
    return RootedPath(up.root, {up.root_inside: up.root, **{str(directory): directory for directory in mounts}})


def mounted_at(data_dir: Path, spec: NodeSpec) -> list[Path]:
    """The directories that stand for the mounted file systems of a node's pool."""
    return [data_dir / mount.directory for mount in spec.mounts]


def _mount_all(data_dir: Path, files: RootedPath, mounts: tuple[Mount, ...]) -> None:
    """Links below `fsmounts` to these directories, each with a log as Batch writes one."""
    for mount in mounts:
        link = f"fsmounts/{mount.path}"
        with contextlib.suppress(LeadsOut):  # the user linked it to another directory, which exists or not
            RootedPath(data_dir).make(mount.directory)
        files.link(link, str(data_dir / mount.directory))
        files.write(f"{link}.log", f"{mount.path} is {mount.directory} of the emulator's data directory\n".encode())


def _unknown(data_dir: Path, node_ids: Mapping[str, Collection[str]]) -> Iterator[Path]:
    """Directories of pools and nodes that no record names."""
    yield from data_dir.glob("mnt")  # of an earlier version: nodes have it in their own mounts now
    for pools, of_nodes in (("nodes", "."), ("machine", "nodes")):
        for pool in data_dir.glob(f"{pools}/*"):
            if pool.name not in node_ids:
                yield pool
                continue
            yield from (node for node in pool.glob(f"{of_nodes}/*") if node.name not in node_ids[pool.name])


def _renamed(path: Path) -> Path:
    """Move it to a name that no record uses."""
    away = path.with_name(f".gone-{secrets.token_hex(8)}")
    try:
        return path.rename(away)
    except OSError as error:
        logger.warning("%s belongs to nothing and cannot be moved away: %s", path, error)
        return path


def _delete_each(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            _delete(path)
        else:
            path.unlink(missing_ok=True)


def _safe(name: str) -> str:
    """An id as one path component; any other text is refused."""
    if not name or name in (".", "..") or any(letter in name for letter in "/\0*?["):
        raise ValueError(f"not an id: {name!r}")
    return name


def _delete(directory: Path) -> None:
    """Delete the directory of a node if it exists, even if a task removed its own write permission."""
    try:
        RootedPath(directory.parent).remove(directory.name)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning("%s could not be deleted: %s", directory, error)


def _write_program(path: Path, text: str) -> None:
    """Written to another file and renamed: a node may be running the old one."""
    if path.exists() and path.read_text() == text:
        return
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.chmod(0o755)
    aside.rename(path)


def _ssh_words(peers: Path) -> tuple[str, ...]:
    return sys.executable, "-I", "-S", str(HERE / "ssh.py"), str(peers)
