"""Nodes as process trees of this machine: no root, no Docker. Each is an `agent.py`, told what to do over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import pwd
import select
import shlex
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from batchtrain.emulator.machine import docker_door, packages, pool_key, upload
from batchtrain.emulator.machine.docker import ContainerNodes, Joined
from batchtrain.emulator.machine.download import DownloadError, fetch
from batchtrain.emulator.machine.forwarding import Door, ways
from batchtrain.emulator.machine.types import Download, Exit, Mount, NodeLost, NodeSpec, NodeUnfit, NodeUp, Package, Run

logger = logging.getLogger("batchtrain.emulator.machine")

HERE = Path(__file__).parent
DIRECTORIES = ("applications", "fsmounts", "shared", "startup/wd", "volatile", "workitems", "home/_azbatch")
"""What Batch lays out below a node's root; `home/_azbatch` stands for /home/_azbatch."""
MARKER = "BATCHTRAIN_EMULATED_NODE"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_SECONDS = 20.0
END_SECONDS = 5.0
PARALLEL_DOWNLOADS = 4


class Variable(NamedTuple):
    """One node-wide environment variable and the reason that it is there."""

    name: str
    value: str
    why: str
    only_for_root: bool = False


NODE_ENVIRONMENT = (
    Variable("PATH", "{bin}:" + DEFAULT_PATH, "the stand-ins for ssh and nvidia-smi come first; then Debian's default"),
    Variable("HOME", "{root}/home/_azbatch", "the pool's user has a home of its own on every node"),
    Variable("USER", "{user}", "as getpwuid() answers on the node, so that no two tools disagree"),
    Variable("LOGNAME", "{user}", "POSIX's word for USER"),
    Variable("SHELL", "/bin/bash", "what sshd runs a command with on Azure's Linux images"),
    Variable("LANG", "C.UTF-8", "the images' default; without it Python 3.6 writes ASCII"),
    Variable(MARKER, "{root}", "says that the node is emulated, and which directory is its own"),
    Variable("I_MPI_THREAD_YIELD", "3", "Intel MPI spins: 2,000 small 2x2 all-reduces on 2 cores: minutes, not 0.5 s"),
    Variable("I_MPI_PIN", "0", "every node would pin its first rank to core 0 (the same all-reduces: 1.2 s)"),
    Variable("OMPI_MCA_mpi_yield_when_idle", "1", "Open MPI spins: the same all-reduces take 15 s and more"),
    Variable(
        "FI_TCP_IFACE",
        "{interface}",
        "libfabric would take the machine's outer interface, which may go away under a job",
    ),
    Variable("MPIR_CVAR_CH4_NETMOD", "ofi", "MPICH would take UCX, which joins no two nodes where there is no network"),
    Variable("OMPI_ALLOW_RUN_AS_ROOT", "1", "Open MPI refuses root, which the emulator runs as here", True),
    Variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", "it wants to be told twice", True),
)


class Isolation(NamedTuple):
    """What this machine's kernel gives a node."""

    kind: str
    """`namespaces` or `process`."""
    user_namespace: bool = False
    reason: str = ""
    """Why not `namespaces`."""


async def open_machine(data_dir: Path, image_prefix: Callable[[str], str | None]) -> ProcessMachine:
    """A machine whose nodes live below `data_dir`, as isolated as this kernel allows.

    `image_prefix` maps a container image to a local environment (`<prefix>/bin` holds its programs) or None.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    data_dir = data_dir.resolve()  # a link in /tmp is not there on a node
    isolation = await asyncio.to_thread(_isolation, data_dir)
    if isolation.kind == "process":
        logger.warning("nodes are plain processes of this machine, sharing its host name: %s", isolation.reason)
    containers = ContainerNodes(data_dir)
    await containers.sweep()
    return ProcessMachine(data_dir, image_prefix, isolation, containers)


class ProcessMachine:
    """The `Machine` of process nodes. Use it from one event loop; `open_machine` makes it.

    When this process dies, however, every node sees its control socket end and goes too.
    """

    def __init__(
        self,
        data_dir: Path,
        image_prefix: Callable[[str], str | None],
        isolation: Isolation,
        containers: ContainerNodes,
    ) -> None:
        self.isolation = isolation
        self._containers = containers
        self._data_dir = data_dir
        self._image_prefix = image_prefix
        self._nodes: dict[str, _Node] = {}
        self._pools: dict[str, _Pool] = {}
        self._slots = asyncio.Semaphore(PARALLEL_DOWNLOADS)

    async def boot(self, spec: NodeSpec, lost: Callable[[str], None]) -> NodeUp:
        """Bring a node up; what a former life of it left in its directory stays.

        NodeLost when it does not come up, NodeUnfit when a package or an image of its pool cannot be had.
        """
        await self.shutdown(spec.node_id)
        joined = await self._join(spec)
        try:
            return await self._boot(spec._replace(address=_address(spec, joined)), joined, lost)
        except BaseException:
            await self._containers.leave(spec.node_id)
            raise

    async def _join(self, spec: NodeSpec) -> Joined | None:
        """A network and containers for a node whose pool has images that nothing on this machine stands for, or whose
        commands have a Docker of their own."""
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
        """The images that a node's engine fetches ahead; None for a node that needs no engine."""
        images = spec.containers.images if spec.containers is not None else ()
        prefetch = [image for image in images if self._prefix(image) is None]
        none = not spec.own_docker and (spec.containers is None or (images and not prefetch))
        return None if none else prefetch

    def _root(self, spec: NodeSpec) -> Path:
        return self._data_dir / "nodes" / _safe(spec.pool_id) / _safe(spec.node_id)

    async def _boot(self, spec: NodeSpec, joined: Joined | None, lost: Callable[[str], None]) -> NodeUp:
        pool = self._pool(spec.pool_id)
        pool.admit(spec)
        up = self._lay_out(spec, pool, joined)
        await self._install(up.root, spec.packages)
        _mount_all(self._data_dir, up.root, spec.mounts)
        if joined is not None:
            await asyncio.to_thread(pool_key.install, pool.keys, up.root / "home/_azbatch")
        if spec.own_docker:
            up = await self._with_docker(spec, up, pool, joined)
        node = _Node(spec, up)
        self._nodes[spec.node_id] = node
        try:
            message = _boot_message(spec, up, pool, self.isolation, joined)
            if spec.own_docker and joined is not None:
                message["binds"] += docker_door.binds(docker_door.place(self._data_dir, spec.node_id))
            await node.start(message, pool.log(spec.node_id))
        except BaseException:
            node.kill()  # nobody else would close its control socket, without whose end it lives on
            await self._gone(node)
            raise
        node.watch(lambda: self._on_end(node, lost))
        network = joined.network if joined is not None else ""
        await node.door.open(ways(spec.address, spec.forwards, spec.service_port if network else 0), network)
        return up

    async def _with_docker(self, spec: NodeSpec, up: NodeUp, pool: _Pool, joined: Joined | None) -> NodeUp:
        """A node with a Docker of its own; where no engine answers, one whose commands are told why."""
        if joined is None:
            told = docker_door.environment_without(self._containers.missing)
            return up._replace(environment={**up.environment, **told})
        try:
            tmp, socket = pool.tmp(spec.node_id), docker_door.place(self._data_dir, spec.node_id)
            cli = await self._containers.give_docker(spec.node_id, up, tmp, socket)
            _write_program(pool.bin / "docker", docker_door.program(cli))
            own_tmp = self.isolation.kind == "namespaces"
            address = docker_door.address(socket, tmp, own_tmp=own_tmp)
        except OSError as error:
            raise NodeLost(f"{spec.node_id}: it gets no Docker of its own: {error}") from None
        return up._replace(environment={**up.environment, **docker_door.environment(address)})

    async def run(self, node_id: str, run: Run) -> Exit:
        """Run one command to its end. Cancelling the call does not end the command; `end` does.

        A scope that was ended runs nothing more on its node, where a run of it was still being prepared neither.
        """
        node = self._node(node_id)
        contained = run.image is not None and self._prefix(run.image) is None
        if contained and not self._containers.has(node_id):
            return await self._refusal(node, run)
        if run.elevated and not contained and not node.said_elevated:
            node.said_elevated = True
            logger.warning("%s: elevated commands run as %s here", node_id, node.up.environment["USER"])
        try:
            program = _program(run.command_line, may_be_empty=contained)
            directory = _prepare(node.up.root, run.directory)
            await self._install(node.up.root, run.packages)
            await self._fetch(node, directory, run)
        except (DownloadError, NodeUnfit) as error:
            return Exit(None, error.code, str(error))
        outcome = await (self._in_container(node, run, program) if contained else self._on_host(node, run, program))
        if outcome.code is None:
            return outcome
        return await self._send(node, directory, run, outcome)

    async def _in_container(self, node: _Node, run: Run, program: list[str]) -> Exit:
        try:
            return await self._prepared(node, run) or await self._contained(node, run, program)
        except NodeLost:
            node.kill()
            await asyncio.shield(node.gone)  # first it is said that the node died, then that its run was lost
            raise

    async def _prepared(self, node: _Node, run: Run) -> Exit | None:
        """Fetch the image; called off with the scope. What stands against it is the run's end."""
        preparing = asyncio.ensure_future(self._containers.prepare(node.spec.node_id, run))
        try:
            with node.calling_off(run.scope, [preparing]):
                await asyncio.wait([preparing])
        finally:
            preparing.cancel()
        return ENDED_BEFORE if preparing.cancelled() else preparing.result()

    async def _contained(self, node: _Node, run: Run, program: list[str]) -> Exit:
        tmp = self._pools[node.spec.pool_id].tmp(node.spec.node_id)
        return await self._containers.run(run, node.spec.node_id, program, node.up, tmp)

    async def _on_host(self, node: _Node, run: Run, program: list[str]) -> Exit:
        await self._show(node, self._prefix(run.image))
        if run.scope in node.ended:
            return ENDED_BEFORE
        node.directories[run.scope] = run.directory
        inside = PurePosixPath(node.up.root_inside, run.directory)
        answer = await node.ask(
            op="run",
            scope=run.scope,
            program=program,
            environment=self._environment(node, run),
            directory=str(inside / "wd"),
            stdout=str(inside / "stdout.txt"),
            stderr=str(inside / "stderr.txt"),
        )
        if answer["event"] == "failed":
            return Exit(None, answer["code"], answer["message"])
        return Exit(answer["code"])

    async def end(self, node_id: str, scope: str, grace: float = 0.0) -> None:
        """End every process of a scope; at once when the node is not there (they ended with it)."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.end(scope)
            await asyncio.gather(
                self._containers.end(node_id, scope, grace),
                node.ask(op="end", scope=scope, grace=grace),
                return_exceptions=True,
            )
            if directory := node.directories.pop(scope, ""):
                await self._containers.end_own(node_id, directory, node.up)

    async def shutdown(self, node_id: str) -> None:
        """End a node and everything on it; idempotent. Its directory stays."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.asked = True
            node.door.close()
            node.hang_up()
            try:
                await asyncio.wait_for(asyncio.shield(node.gone), END_SECONDS)
            except asyncio.TimeoutError:
                node.kill()
                await asyncio.shield(node.gone)
        await self._containers.leave(node_id)

    async def remove(self, node_id: str) -> None:
        """Shut down and delete the node's directory, one of an earlier life of the emulator too."""
        await self.shutdown(node_id)
        for place in ("nodes/*", "machine/*/nodes"):
            for directory in self._data_dir.glob(f"{place}/{_safe(node_id)}"):
                await asyncio.to_thread(_delete, directory)

    async def send_logs(self, node_id: str, container_url: str, directory: str) -> None:
        """Upload what there is to read of a node. Raises UploadError."""
        await asyncio.to_thread(upload.send_logs, self._data_dir, _safe(node_id), container_url, directory)

    async def close(self) -> None:
        """Shut down every node."""
        await asyncio.gather(*(self.shutdown(node_id) for node_id in list(self._nodes)))
        await self._containers.close()

    def _node(self, node_id: str) -> _Node:
        if node_id not in self._nodes:
            raise NodeLost(f"{node_id}: no such node is up")
        return self._nodes[node_id]

    def _pool(self, pool_id: str) -> _Pool:
        if pool_id not in self._pools:
            self._pools[pool_id] = _Pool(self._data_dir, _safe(pool_id))
        return self._pools[pool_id]

    def _lay_out(self, spec: NodeSpec, pool: _Pool, joined: Joined | None) -> NodeUp:
        root = self._root(spec)
        for name in DIRECTORIES:
            (root / name).mkdir(parents=True, exist_ok=True)
        shared = self.isolation.kind == "namespaces"
        inside = str(pool.mount_point if shared else root)
        home_user = pool.user(inside) if shared and self.isolation.user_namespace else None
        interface = "eth0" if joined is not None and joined.network else "lo"
        environment = _node_environment(str(pool.bin), inside, home_user or _user_name(), interface)
        # A login shell's /etc/profile sets PATH anew; its user's own profile comes after that.
        (root / "home/_azbatch/.profile").write_text(f"PATH={shlex.quote(str(pool.bin))}:$PATH\n")
        return NodeUp(root, inside, environment, "docker" if joined else self.isolation.kind, spec.address)

    async def _refusal(self, node: _Node, run: Run) -> Exit:
        """Why a node without containers does not run this. NodeLost where an engine answers by now: the node boots
        again, with one."""
        wanted = node.spec.containers is not None and self._prefetched(node.spec) is not None
        if wanted and await self._containers.ready():
            node.kill()
            await asyncio.shield(node.gone)
            raise NodeLost(f"{node.spec.node_id}: a Docker Engine answers now; the node boots again to have it")
        missing = self._containers.missing or "the pool's nodes came up without it"
        return Exit(
            None,
            "ContainerInvalidImage",
            f"No container engine runs the image {run.image} here: {missing}. Start a Docker Engine, or run its tasks"
            f" in a local environment: batchtrain emulator images map {run.image} PREFIX",
        )

    def _environment(self, node: _Node, run: Run) -> dict[str, str]:
        """The stand-ins are first on PATH whatever the task or its image say; the image's programs come next."""
        environment = {**node.up.environment, **run.environment}
        stand_ins = node.up.environment["PATH"].partition(":")[0]
        path = [folder for folder in environment["PATH"].split(":") if folder != stand_ins]
        prefix = self._prefix(run.image)
        environment["PATH"] = ":".join([stand_ins, *([f"{prefix}/bin"] if prefix else []), *path])
        return environment

    def _prefix(self, image: str | None) -> str | None:
        """The local environment that stands for an image, links followed: a link in /tmp is not there on a node."""
        prefix = self._image_prefix(image) if image else None
        return os.path.realpath(prefix) if prefix else None

    async def _show(self, node: _Node, prefix: str | None) -> None:
        """An environment below the machine's /tmp is shown to every node of the pool: ranks are started by ssh."""
        pool = self._pools[node.spec.pool_id]
        for path in _windows(prefix) if prefix else ():
            if path not in pool.windows:
                pool.windows.add(path)
                peers = [peer for peer in self._nodes.values() if peer.spec.pool_id == node.spec.pool_id]
                await asyncio.gather(*(peer.ask(op="expose", path=path) for peer in peers), return_exceptions=True)

    async def _fetch(self, node: _Node, directory: Path, run: Run) -> None:
        """Every resource file, a few at a time; the first failure (in the order given) is raised when all are done, or
        called off: by the end of the scope, of the node or of this call."""
        if not run.downloads or run.scope in node.ended:
            return
        target = directory / run.downloads_to if run.downloads_to else directory
        waits = [asyncio.ensure_future(self._download(item, target, node.up.root)) for item in run.downloads]
        try:
            with node.calling_off(run.scope, waits):
                await asyncio.wait(waits)
        finally:
            for wait in waits:
                wait.cancel()
        errors = [wait.exception() for wait in waits if not wait.cancelled()]
        for error in filter(None, errors):
            raise error

    async def _install(self, root: Path, wanted: tuple[Package, ...]) -> None:
        """Unpack what is not there yet. Raises NodeUnfit."""
        for package in wanted:
            await asyncio.to_thread(packages.install, self._data_dir, root, package)

    async def _send(self, node: _Node, directory: Path, run: Run, outcome: Exit) -> Exit:
        """Send the output files that are due; called off with the scope."""
        assert outcome.code is not None
        due = tuple(one for one in run.uploads if upload.applies(one, outcome.code))
        if not due or run.scope in node.ended:
            return outcome
        environment = self._environment(node, run)
        place = upload.Place(node.up.root, node.up.root_inside, directory, self._data_dir / MOUNTS, environment)
        called_off = threading.Event()
        wait = asyncio.ensure_future(_in_daemon_thread(lambda: upload.send(due, place, called_off.is_set)))
        try:
            with node.calling_off(run.scope, [wait]):
                await asyncio.wait([wait])
        finally:
            called_off.set()
            wait.cancel()
        error = None if wait.cancelled() else wait.exception()
        if isinstance(error, upload.UploadError):
            return outcome._replace(failure=error.code, message=str(error))
        if error is not None:
            return outcome._replace(failure="FileUploadMiscError", message=str(error))
        return outcome

    async def _download(self, item: Download, target: Path, root: Path) -> None:
        called_off = threading.Event()
        async with self._slots:
            try:
                await _in_daemon_thread(lambda: fetch(item, target, root, called_off.is_set))
            finally:
                called_off.set()

    async def _on_end(self, node: _Node, lost: Callable[[str], None]) -> None:
        await self._gone(node)
        if not node.asked:
            logger.warning("%s: the node died", node.spec.node_id)
            lost(node.spec.node_id)  # before anything else is awaited: what ran here is not to be sent here again
            await self._containers.leave(node.spec.node_id)

    async def _gone(self, node: _Node) -> None:
        """Wait for a node's last process, then forget the node."""
        await node.wait()
        if self.isolation.kind == "process" and not node.asked:
            await asyncio.to_thread(_sweep, f"{MARKER}={node.up.root_inside}")
        if self._nodes.get(node.spec.node_id) is node:
            del self._nodes[node.spec.node_id]
            try:
                self._pools[node.spec.pool_id].dismiss(node.spec)
            except OSError as error:  # the data directory is full, or gone: whoever waits for the node must hear of it
                logger.error("%s is not taken off its pool's list: %s", node.spec.node_id, error)
        node.say_gone()


class _Node:
    """One agent process and the questions it has not answered yet."""

    def __init__(self, spec: NodeSpec, up: NodeUp) -> None:
        self.spec = spec
        self.up = up
        self.asked = False
        """Its end was asked for."""
        self.door = Door()
        self.said_elevated = False
        self.ended: set[str] = set()
        """Scopes, whose names do not come again."""
        self.directories: dict[str, str] = {}
        """Where each scope's commands ran."""
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
        """Start the agent and wait until it listens."""
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as stderr:
            self._process = _start_agent(theirs, self.spec.node_id, stderr)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._send(boot)
        try:
            answer = await asyncio.wait_for(_receive(self._reader), BOOT_SECONDS)
        except (EOFError, OSError, asyncio.TimeoutError):
            answer = {"event": "failed", "message": f"its agent did not come up; see {log}"}
        if answer["event"] != "up":
            self.kill()
            raise NodeLost(f"{self.spec.node_id}: {answer['message']}")
        with contextlib.suppress(OSError):  # a kernel before 5.3, or the agent is gone already
            self._init = os.pidfd_open(answer["pid"])

    def watch(self, ended: Callable[[], Any]) -> None:
        """Begin to hand out answers; `ended()` is awaited when the agent is heard no more."""
        self._task = asyncio.create_task(self._listen(ended))

    async def ask(self, **message: Any) -> dict[str, Any]:
        """Send a request and wait for its answer; NodeLost when the node goes meanwhile."""
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.gone.done() or self.asked:
            raise NodeLost(f"{self.spec.node_id}: the node is gone")
        self._answers[number] = answer
        try:
            self._send({**message, "id": number})
            return await answer
        finally:
            self._answers.pop(number, None)

    def end(self, scope: str) -> None:
        """Whatever is still being prepared for a scope is called off."""
        self.ended.add(scope)
        self._call_off(scope)

    @contextlib.contextmanager
    def calling_off(self, scope: str, waits: list[asyncio.Task[Any]]) -> Iterator[None]:
        """Meanwhile these are cancelled by the end of the scope or of the node."""
        entry = (scope, waits)
        self._downloads.append(entry)
        try:
            yield
        finally:
            self._downloads.remove(entry)

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
        """For an agent that does not end by itself; its pid 1 dies with it, by its parent-death signal."""
        self.hang_up()
        if self._process is not None:
            self._process.kill()

    async def wait(self) -> None:
        """Until the agent has ended; in a process namespace no process of the node outlives it."""
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
        if self._init is not None:  # outlives its launcher for a moment when that was killed
            await asyncio.to_thread(_wait_readable, self._init, END_SECONDS)
            os.close(self._init)
            self._init = None

    def say_gone(self) -> None:
        self.hang_up()
        self.door.close()
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

    async def _listen(self, ended: Callable[[], Any]) -> None:
        assert self._reader is not None
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._hand_out(await _receive(self._reader))
        await ended()

    def _hand_out(self, message: dict[str, Any]) -> None:
        answer = self._answers.get(message["id"])
        if answer is not None and not answer.done():
            answer.set_result(message)


class _Pool:
    """What the nodes of a pool share on this machine: the stand-ins, the name table and the sockets of their doors."""

    def __init__(self, data_dir: Path, name: str) -> None:
        self.name = name
        self._dir = data_dir / "machine" / name
        self.bin = self._dir / "bin"
        self.peers = self._dir / "peers"
        self.hosts = self._dir / "hosts"
        self.keys = self._dir / "ssh"
        self.mount_point = data_dir / "mnt" / name
        """Where each node of the pool sees its own directory: one path for all, as on Azure."""
        self.windows = {window for path in (data_dir, HERE, sys.prefix, sys.base_prefix) for window in _windows(path)}
        """What its nodes see of the machine's /tmp, their own being elsewhere."""
        self._members: dict[str, NodeSpec] = {}
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.mount_point.mkdir(parents=True, exist_ok=True)
        self.peers.mkdir(exist_ok=True, mode=0o700)
        self.bin.mkdir(exist_ok=True)
        _write_program(self.bin / "ssh", _ssh_program(self.peers))

    def admit(self, spec: NodeSpec) -> None:
        """Before a node boots: the others learn its name, and its size's stand-ins are there."""
        self._members[spec.node_id] = spec
        for name in (spec.hostname.lower(), f"@{spec.node_id}"):
            _link(self.peers / name, spec.address)
        if spec.gpus and shutil.which("nvidia-smi", path=DEFAULT_PATH) is None:
            _write_program(self.bin / "nvidia-smi", _nvidia_smi_program(spec))
        place = self._dir / "nodes" / spec.node_id
        place.mkdir(parents=True, exist_ok=True)
        (place / "hostname").write_text(f"{spec.hostname}\n")
        _delete(place / "tmp")
        (place / "tmp").mkdir()
        (place / "tmp").chmod(0o1777)
        self._write_hosts()

    def dismiss(self, spec: NodeSpec) -> None:
        if self._members.get(spec.node_id) is not spec:
            return
        del self._members[spec.node_id]
        for name in (spec.hostname.lower(), f"@{spec.node_id}", spec.address):
            (self.peers / name).unlink(missing_ok=True)
        self._write_hosts()

    def user(self, root_inside: str) -> str | None:
        """Batch's user name, where the node's /etc/passwd can have it for the user that runs the emulator."""
        if ":" in root_inside:
            return None
        entry = f"_azbatch:x:{os.getuid()}:{os.getgid()}::{root_inside}/home/_azbatch:/bin/bash\n"
        (self._dir / "passwd").write_text(entry + Path("/etc/passwd").read_text())
        return "_azbatch"

    def binds(self, spec: NodeSpec, root: Path) -> list[tuple[str, str]]:
        """(what, over what) a node mounts; only over files that this machine has."""
        files = [(self.hosts, "/etc/hosts"), (self._dir / "nodes" / spec.node_id / "hostname", "/etc/hostname")]
        if (self._dir / "passwd").exists():
            files.append((self._dir / "passwd", "/etc/passwd"))
        present = [(str(file), over) for file, over in files if Path(over).exists()]
        return [(str(root), str(self.mount_point)), *present]

    def resolver(self, spec: NodeSpec, text: str) -> list[tuple[str, str]]:
        """What to mount for a network with name servers of its own."""
        file = self._dir / "nodes" / spec.node_id / "resolv.conf"
        if not text or not Path("/etc/resolv.conf").exists():
            return []
        file.write_text(text)
        return [(str(file), "/etc/resolv.conf")]

    def log(self, node_id: str) -> Path:
        return self._dir / "nodes" / node_id / "agent.log"

    def tmp(self, node_id: str) -> Path:
        return self._dir / "nodes" / node_id / "tmp"

    def _write_hosts(self) -> None:
        """In place, because the nodes have this very file mounted, and longest first, so that none reads half of it."""
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        lines += [f"{spec.address} {spec.hostname}" for spec in self._members.values()]
        text = "\n".join([*lines, *_other_hosts()]).encode() + b"\n"
        fd = os.open(self.hosts, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(fd, text, 0)
            os.ftruncate(fd, len(text))
        finally:
            os.close(fd)


def _other_hosts() -> list[str]:
    """The machine's own names for addresses elsewhere: what resolves here resolves on a node."""
    try:
        lines = Path("/etc/hosts").read_text().splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip() and not line.lstrip().startswith(("#", "127.", "::1", "fe", "ff"))]


# --- what an agent is told --------------------------------------------------------------------------------------


ENDED_BEFORE = Exit(None, "TaskEnded", "the task ended before its command started")


def _address(spec: NodeSpec, joined: Joined | None) -> str:
    """A node may have been a container's in its last life."""
    return joined.address if joined is not None else f"127.{spec.address.partition('.')[2]}"


def _boot_message(
    spec: NodeSpec, up: NodeUp, pool: _Pool, isolation: Isolation, joined: Joined | None
) -> dict[str, Any]:
    last = [int(byte) for byte in spec.address.split(".")[-2:]]
    resolver = pool.resolver(spec, joined.resolver) if joined is not None else []
    return {
        "op": "boot",
        "isolation": isolation.kind,
        "user_namespace": isolation.user_namespace,
        "hostname": spec.hostname,
        "address": spec.address,
        "environment": dict(up.environment),
        "peers": str(pool.peers),
        "tmp": str(pool.tmp(spec.node_id)),
        "windows": sorted(pool.windows),
        "binds": pool.binds(spec, up.root) + resolver,
        "network": joined.network if joined is not None else "",
        "first_pid": 1000 + (last[0] * 256 + last[1]) * 997 % 20000,
    }


def _windows(path: str | Path) -> tuple[str, ...]:
    """The directories below the machine's /tmp that a use of this one needs: itself and, when it is a Python
    environment, the installation that its interpreter is a link to."""
    interpreter = Path(os.path.realpath(Path(path, "bin/python")))
    places = (
        {os.path.realpath(path), str(interpreter.parent.parent)} if interpreter.exists() else {os.path.realpath(path)}
    )
    return tuple(sorted(place for place in places if place.startswith("/tmp/")))


def _node_environment(bin_dir: str, root: str, user: str, interface: str) -> dict[str, str]:
    is_root = os.getuid() == 0
    return {
        variable.name: variable.value.format(bin=bin_dir, root=root, user=user, interface=interface)
        for variable in NODE_ENVIRONMENT
        if is_root or not variable.only_for_root
    }


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _start_agent(control: socket.socket, name: str, stderr: Any) -> subprocess.Popen[bytes]:
    """A session of its own, so that Ctrl-C in the emulator's terminal does not reach the node, and no environment."""
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


async def _in_daemon_thread(work: Callable[[], None]) -> None:
    """As `asyncio.to_thread`, in a thread that neither a cancelled call nor the end of the process waits for."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[BaseException | None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if not outcome.done():
            outcome.set_result(error)

    def body() -> None:
        error = None
        try:
            work()
        except BaseException as caught:  # noqa: BLE001 - raised again where it is awaited
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=body, daemon=True).start()
    if (error := await outcome) is not None:
        raise error


def _wait_readable(fd: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(seconds * 1000)


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any]:
    length = struct.unpack("!I", await reader.readexactly(4))[0]
    message: dict[str, Any] = json.loads(await reader.readexactly(length))
    return message


# --- what this kernel gives -------------------------------------------------------------------------------------


def _isolation(data_dir: Path) -> Isolation:
    """Try it: a kernel may let us make namespaces and then refuse every mount in them (Ubuntu 24.04's AppArmor)."""
    wanted = os.environ.get("BATCHTRAIN_EMULATOR_ISOLATION", "")
    if wanted == "process":
        return Isolation("process", reason="BATCHTRAIN_EMULATOR_ISOLATION=process")
    reason = ""
    for user_namespace in (False, True) if os.getuid() == 0 else (True,):
        reason = _probe(data_dir, user_namespace)
        if not reason:
            return Isolation("namespaces", user_namespace)
    if wanted == "namespaces":
        raise OSError(f"BATCHTRAIN_EMULATOR_ISOLATION=namespaces, but this kernel refuses them: {reason}")
    return Isolation("process", reason=f"the kernel refuses namespaces ({reason})")


def _probe(data_dir: Path, user_namespace: bool) -> str:
    """Why an agent cannot have its namespaces; empty when it can."""
    ours, theirs = socket.socketpair()
    with ours, theirs, (data_dir / "probe").open("w+b") as output:
        agent = _start_agent(theirs, "probe", output)
        boot = {"op": "probe", "user_namespace": user_namespace, "hostname": "probe", "first_pid": 1000}
        body = json.dumps({**boot, "tmp": "/tmp", "windows": [], "binds": [(str(data_dir), str(data_dir))]}).encode()
        ours.sendall(struct.pack("!I", len(body)) + body)
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
        raise DownloadError("CommandProgramNotFound", "the command line is empty")
    return program


def _prepare(root: Path, directory: str) -> Path:
    """Make a run's directory and its `wd`; it must lie below the node's root, links followed."""
    path = root / directory
    if not path.resolve().is_relative_to(root.resolve()):
        raise DownloadError("ResourceDirectoryCreateFailed", f"{directory}: leads out of the node's directory")
    (path / "wd").mkdir(parents=True, exist_ok=True)
    return path


MOUNTS = "mounts"
"""Below the data directory: what stands for mounted file systems (`Mount.place` begins with it)."""


def _mount_all(data_dir: Path, root: Path, mounts: tuple[Mount, ...]) -> None:
    """Links below `fsmounts` to what stands for the file systems, each with a log beside it as Batch writes one."""
    for mount in mounts:
        place, link = data_dir / mount.place, root / "fsmounts" / mount.path
        place.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink() or not link.exists():
            _link(link, str(place))
        link.with_name(f"{link.name}.log").write_text(
            f"{mount.path} is {mount.place} of the emulator's data directory\n"
        )


def _safe(name: str) -> str:
    """An id as one path component; ids never hold anything else, and if one does it is refused."""
    if not name or name in (".", "..") or any(letter in name for letter in "/\0*?["):
        raise ValueError(f"not an id: {name!r}")
    return name


def _delete(directory: Path) -> None:
    """A node's directory, if it is there, also where a task took its own write permission away."""
    if directory.exists():
        shutil.rmtree(directory, onerror=_force)


def _force(function: Callable[..., Any], path: str, _: object) -> None:
    with contextlib.suppress(OSError):
        Path(path).parent.chmod(0o700)
        if stat.S_ISDIR(os.lstat(path).st_mode):  # chmod follows links, out of the node's directory too
            Path(path).chmod(0o700)
        if function in (os.unlink, os.rmdir):
            function(path)
        else:
            shutil.rmtree(path, ignore_errors=True)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _write_program(path: Path, text: str) -> None:
    """Written aside and renamed: a node may be running the former one."""
    if path.exists() and path.read_text() == text:
        return
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.chmod(0o755)
    aside.rename(path)


def _ssh_program(peers: Path) -> str:
    words = [sys.executable, "-I", "-S", str(HERE / "ssh.py"), str(peers)]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def _nvidia_smi_program(spec: NodeSpec) -> str:
    template = (HERE / "nvidia-smi.sh").read_text()
    return template.replace("@GPUS@", str(spec.gpus)).replace("@VM_SIZE@", shlex.quote(spec.vm_size))


# --- the last resort --------------------------------------------------------------------------------------------


def _sweep(marker: str) -> None:
    """Kill what a plain-process node left behind when its agent was killed: all that have its marker."""
    wanted = marker.encode()
    while found := [pid for pid in _own_processes() if wanted in _environment_of(pid)]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _own_processes() -> list[int]:
    uid, own = os.getuid(), os.getpid()
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != own and entry.stat().st_uid == uid:
                pids.append(int(entry.name))
    return pids


def _environment_of(pid: int) -> list[bytes]:
    """Empty for a zombie, whose killing is done."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
