"""Nodes whose tasks run in containers of a Docker Engine. A node's "host" is still a process node (see `process`).

Each node has one container that only waits and holds the network address and host name of the node. Containers of tasks
join its network, as they join the network of a host. Everything carries a label with the data directory: the next start
of the emulator removes what a killed one left behind.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hashlib
import itertools
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.emulator.interface import Exit, Login, NodeLost, NodeSpec, NodeUnfit, NodeUp, Run
from batchtrain.emulator.machine import docker_engine as engines
from batchtrain.emulator.machine import engine_failures, engine_network, handover, hold, run_options
from batchtrain.emulator.machine.contained import Contained, NotTheNodes, fits_a_line
from batchtrain.emulator.machine.container_output import Copy
from batchtrain.emulator.machine.docker_engine import Engine, EngineError
from batchtrain.emulator.machine.image_store import ImageStore
from batchtrain.emulator.machine.leftovers import LABEL, filters, make_volumes, remove, sweep, sweep_forgotten
from batchtrain.emulator.machine.rooted_path import RootedPath

logger = logging.getLogger("batchtrain.emulator.machine")

NODE_IMAGE = "batchtrain/node"
NODE_TAG = "1"
NODE_ROOT = "/node"
"""The path of the node's directory in its own container, through which the engine changes the owner of root's files."""
HOLD = "/.batchtrain-hold"
RETURN_SECONDS = 60.0
"""Seconds to wait for an engine that is gone: a restart takes seconds."""
RETURN_PAUSE = 0.2
WENT_SECONDS = 20.0
"""Seconds that an engine still reports events while it stops and takes no requests: it gives its containers 15 s."""
DRAIN_SECONDS = 10.0
"""Seconds to wait for the output of an ended command. Engines close it within 2 s, even if a process holds it open."""


class Joined(NamedTuple):
    """The parts of the node's container that a process node uses."""

    address: str
    network: str
    """The network namespace to enter; empty if this process may not, or if the engine runs on another machine."""
    resolver: str
    """The text of its /etc/resolv.conf; empty for that of the machine."""


class _Made(NamedTuple):
    """A container of a scope."""

    id: str
    held: bool
    """Its first process only waits; `docker exec` runs the commands."""
    entrypoint: tuple[str, ...]


class _Scope:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.made: list[_Made] = []
        self.starting = asyncio.Lock()
        """Held from before a container is created until it runs, so that `end` misses none."""
        self.copies: list[Copy] = []


class _Node:
    """The container of a node, and those of its scopes."""

    def __init__(self, spec: NodeSpec, container: str, membership: Joined, root: Path) -> None:
        self.spec = spec
        self.root = root
        self.container = container
        self.joined = membership
        self.scopes: dict[str, _Scope] = {}
        self.ended: set[str] = set()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.warned_options: set[str] = set()
        self.has_volumes = False
        """Whether run options named volumes."""


class ContainerNodes:
    """The containers of an emulator's nodes. Use it from one event loop."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._label = f"{LABEL}={data_dir}"
        self._nodes: dict[str, _Node] = {}
        self._engine: Engine | None = None
        self._images: ImageStore | None = None
        self._cli = ""
        self.missing = ""
        """Why there is no engine."""
        self._awaited_until = 0.0
        """By the clock of the loop: the engine may return until then."""
        self._setting_up = asyncio.Lock()
        self._subnet = ""
        self._watcher: asyncio.Task[None] | None = None
        self._ends: dict[str, asyncio.Future[int]] = {}
        """Ids of containers and of executed commands, with the exit code each will have."""
        self._numbers = itertools.count(1)
        self._locks: dict[str, asyncio.Lock] = collections.defaultdict(asyncio.Lock)
        """By id of a node: held while its containers are removed, and while its own is created."""

    @property
    def _live(self) -> Engine:
        """The engine, for callers that have a node on it."""
        assert self._engine is not None
        return self._engine

    # The engine --------------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Remove what an earlier emulator left behind, if an engine answers."""
        engine, _ = await engines.find()
        if engine is not None:
            with contextlib.suppress(EngineError):
                if count := await sweep(engine, self._label):
                    logger.warning("removed %d containers that an earlier emulator left behind", count)

    async def ready(self) -> bool:
        """Whether an engine answers. The first time, and after it returns, everything that nodes share is created."""
        async with self._setting_up:
            if self._engine is not None and self._watcher is not None and not self._watcher.done():
                return True
            self._engine, self.missing = await self._find()
            cli = shutil.which("docker")
            if self._engine is not None and not hold.fits():
                self._engine, self.missing = None, f"nodes with containers are for {' and '.join(hold.MACHINES)} alone"
            if self._engine is not None and cli is None:
                self._engine, self.missing = None, engines.NO_COMMAND
            if self._engine is None or cli is None:
                return False
            self._cli, self._images, self.missing = cli, ImageStore(self._engine), ""
            try:
                await self._set_up(self._engine)
            except EngineError as error:
                self._engine, self.missing = None, f"the Docker Engine could not be set up: {error}"
                return False
            return True

    async def _find(self) -> tuple[Engine | None, str]:
        """The engine that answers; waits for one that disappeared a moment ago."""
        while True:
            engine, address = await engines.find()
            if engine is not None or asyncio.get_running_loop().time() >= self._awaited_until:
                return engine, address
            await asyncio.sleep(RETURN_PAUSE)

    async def _set_up(self, engine: Engine) -> None:
        await sweep(engine, self._label)
        await sweep_forgotten(engine)
        await _node_image(engine)
        self._subnet = ""
        program = hold.program_path(self._data_dir)
        program.parent.mkdir(mode=0o700, exist_ok=True)
        if not program.exists():
            program.write_bytes(hold.program())
            program.chmod(0o755)
        listening = asyncio.get_running_loop().create_future()
        self._watcher = asyncio.create_task(self._watch(engine, listening))
        await listening

    async def _watch(self, engine: Engine, listening: asyncio.Future[None]) -> None:
        """Receive the end of every container and executed command. If the connection ends, all nodes are lost."""
        now = str(int(time.time()))  # the engine answers before its events arrive, so ask for those in between, too
        query = {"since": now, "filters": filters(label=[self._label], event=["die", "exec_die"])}
        try:
            reader, writer = await engine.stream("GET", "/events", query=query)
        except EngineError as error:
            listening.set_exception(error)
            return
        listening.set_result(None)
        try:
            with contextlib.suppress(EngineError):
                async for event in engines.objects(reader):
                    self._on_event(event)
        finally:
            writer.close()
            self._awaited_until = asyncio.get_running_loop().time() + RETURN_SECONDS
            for node in tuple(self._nodes.values()):
                _settle(node.lost)

    def _on_event(self, event: dict[str, Any]) -> None:
        about = event["Actor"]["Attributes"]
        key = about.get("execID") or event["Actor"]["ID"]
        if (end := self._ends.pop(key, None)) and not end.done():
            end.set_result(int(about.get("exitCode", 255)))
        for node in self._nodes.values():
            if node.container == key:
                _settle(node.lost)

    def _end_of(self, key: str) -> asyncio.Future[int]:
        return self._ends.setdefault(key, asyncio.get_running_loop().create_future())

    # Nodes -------------------------------------------------------------------------------------------------------

    async def join(
        self, spec: NodeSpec, root: Path, prefetch: Iterable[str], on_lost: Callable[[], None]
    ) -> Joined | None:
        """A network for a node, with its images pulled; None if no engine answers (`missing` gives the reason).

        on_lost: called once if its container ends unexpectedly. Raises NodeUnfit for an image that cannot be pulled."""
        while await self.ready():
            assert self._engine is not None
            try:
                return await self._join(self._engine, spec, root, prefetch, on_lost)
            except EngineError as error:
                if error.status or not await self._went():
                    raise NodeLost(f"{spec.node_id}: its network could not be made: {error}") from None
        return None

    async def _went(self) -> bool:
        """Whether the connection to an engine that does not answer is closed, or will be soon."""
        assert self._watcher is not None
        await asyncio.wait([self._watcher], timeout=WENT_SECONDS)
        return self._watcher.done()

    async def _join(
        self, engine: Engine, spec: NodeSpec, root: Path, prefetch: Iterable[str], on_lost: Callable[[], None]
    ) -> Joined:
        assert self._images is not None
        logins = _logins(spec)
        await asyncio.gather(*(self._images.fetch(name, logins) for name in prefetch))
        address = await self._address(engine, spec)
        async with self._locks[spec.node_id]:  # a container of an earlier start still has the address
            container, membership = await self._hold_network(engine, spec, address, root)
        node = self._nodes[spec.node_id] = _Node(spec, container, membership, root)
        node.lost.add_done_callback(lambda _: on_lost() if self._nodes.get(spec.node_id) is node else None)
        return membership

    def has(self, node_id: str) -> bool:
        """Whether tasks of a node can run in containers."""
        return node_id in self._nodes

    async def leave(self, node_id: str) -> None:
        """Remove a node's containers; idempotent."""
        async with self._locks[node_id]:
            node = self._nodes.pop(node_id, None)
            if node is None or self._engine is None:
                return
            _settle(node.lost)
            ids = [container.id for scope in node.scopes.values() for container in scope.made]
            await asyncio.gather(*(remove(self._engine, container) for container in ids))
            if node.has_volumes:
                with contextlib.suppress(EngineError):
                    await sweep(self._engine, self._label, f"{LABEL}.docker={node_id}")
            await self._take_over(self._engine, node)
            await remove(self._engine, node.container)

    async def _take_over(self, engine: Engine, node: _Node, below: str = "") -> None:
        """Take ownership of directories of root in the directory of the node, outermost first."""
        if os.getuid() == 0:
            return
        for _ in range(handover.MOST_ROUNDS):
            directories = await asyncio.to_thread(handover.foreign, RootedPath(node.root), below)
            if not directories:
                return
            archive = handover.archive(directories)
            with contextlib.suppress(EngineError):
                await engine.ask("PUT", f"/containers/{node.container}/archive", archive, query={"path": NODE_ROOT})
                continue
            return  # its container is gone

    async def close(self) -> None:
        """Remove everything."""
        await asyncio.gather(*(self.leave(node_id) for node_id in tuple(self._nodes)))
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
            engine = self._engine or (await engines.find())[0]  # it may have returned after its last node was gone
            if engine is not None:
                with contextlib.suppress(EngineError):
                    await sweep(engine, self._label)

    @property
    def _network(self) -> str:
        return f"batchtrain-{hashlib.sha256(str(self._data_dir).encode()).hexdigest()[:10]}"

    async def _address(self, engine: Engine, spec: NodeSpec) -> str:
        """The address of the node: the network gives the first two bytes, the node's own address the last two."""
        async with self._setting_up:
            if not self._subnet:
                first = int(spec.address.split(".")[1])
                self._subnet = await engine_network.make(engine, self._network, self._data_dir, first)
        return ".".join([*self._subnet.split(".")[:2], *spec.address.split(".")[2:]])

    async def _hold_network(self, engine: Engine, spec: NodeSpec, address: str, root: Path) -> tuple[str, Joined]:
        network = self._network
        body = {
            "Image": f"{NODE_IMAGE}:{NODE_TAG}",
            "Entrypoint": [f"/{hold.NAME}"],
            "Hostname": spec.hostname,
            "Labels": {LABEL: str(self._data_dir), f"{LABEL}.node": spec.node_id},
            "HostConfig": {
                "NetworkMode": network,
                "LogConfig": {"Type": "none"},
                "Mounts": [{"Type": "bind", "Source": str(root), "Target": NODE_ROOT}],
            },
            "NetworkingConfig": {
                "EndpointsConfig": {network: {"IPAMConfig": {"IPv4Address": address}, "Aliases": [spec.hostname]}}
            },
        }
        name = f"{network}-{spec.node_id[:14]}-{next(self._numbers)}"
        container = await _tracked(engine, self._create_own(engine, name, body))
        try:
            await engine.ask("POST", f"/containers/{container}/start")
            about = await engine.ask("GET", f"/containers/{container}/json")
        except BaseException:
            await remove(engine, container)
            raise
        space, resolver = about["NetworkSettings"]["SandboxKey"], about["ResolvConfPath"]
        enter = os.getuid() == 0 and os.access(space, os.R_OK)
        if not enter:
            logger.warning("%s: what runs on the node's host uses the machine's network", spec.node_id)
        text = Path(resolver).read_text() if enter and os.access(resolver, os.R_OK) else ""
        return container, Joined(address, space if enter else "", text)

    async def _create_own(self, engine: Engine, name: str, body: dict[str, Any]) -> str:
        return str((await engine.ask("POST", "/containers/create", body, query={"name": name}))["Id"])

    # Runs --------------------------------------------------------------------------------------------------------

    async def prepare(self, node_id: str, run: Run) -> Exit | None:
        """Pull the image of a run; a fault of the image ends the run."""
        node = self._node(node_id)
        assert self._images is not None
        assert run.container is not None
        logins = (*([run.container.login] if run.container.login else []), *(_logins(node.spec)))
        try:
            await self._images.fetch(run.container.image, logins)
        except NodeUnfit as error:
            return Exit(None, error.code, str(error))
        except EngineError as error:
            raise NodeLost(f"{node_id}: {error}") from None
        return None

    async def run(self, run: Run, node_id: str, program: list[str], up: NodeUp, tmp: Path) -> Exit:
        """Run a command in its own container; a coordination command runs in a container that stays until the scope
        ends. Raises NodeLost if the node is lost meanwhile."""
        node = self._node(node_id)
        scope = node.scopes.setdefault(run.scope, _Scope(run.directory))
        inside = Contained(run, up, tmp, self._data_dir, node.spec.mounts)
        try:
            return await self._first_of(node, self._execute(node, scope, inside, program))
        except EngineError as error:
            if error.status == 0:
                raise NodeLost(f"{node_id}: {error}") from None
            return Exit(None, "ContainerMiscError", str(error))
        except _Failed as failed:
            return failed.exit

    async def _first_of(self, node: _Node, work: Any) -> Exit:
        """The result of the work. Raises NodeLost if the node is lost first."""
        task: asyncio.Task[Exit] = asyncio.ensure_future(work)
        task.add_done_callback(lambda future: future.cancelled() or future.exception())  # its caller may be gone
        try:
            either: list[asyncio.Future[Any]] = [task, node.lost]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise NodeLost(f"{node.spec.node_id}: the node died")
            return task.result()
        finally:
            task.cancel()

    async def _execute(self, node: _Node, scope: _Scope, inside: Contained, program: list[str]) -> Exit:
        run = inside.run
        held = next((container for container in scope.made if container.held), None)
        assert node.spec.containers is not None
        if run.stays or (held is not None and node.spec.containers.one_for_gangs):
            return await self._in_held(node, scope, inside, program, held)
        container = await self._make(node, scope, inside, program, held=False)
        return await self._follow(scope, inside, container)

    async def _make(self, node: _Node, scope: _Scope, inside: Contained, program: list[str], *, held: bool) -> _Made:
        """Create a container and start it; a held one waits for commands. Raises _Failed."""
        run = inside.run
        async with scope.starting:
            if run.scope in node.ended:
                raise _Failed(Exit(None, "TaskEnded", "the task ended before its command started"))
            options_node = inside.node(node.container, f"{self._network}-{node.spec.node_id}-")
            try:
                options = run_options.fit(inside.container.options, options_node)
                run_arguments = tuple(inside.arguments())
            except (run_options.Refused, NotTheNodes) as error:
                raise _Failed(Exit(None, "ContainerInvalidSettings", str(error))) from None
            _tell(node, options.left_out)
            await self._make_volumes(self._live, node, options.volumes)
            gpus = await self._gpus(self._live, node.spec)
            name = f"{self._network}-{run.scope}-{next(self._numbers)}"
            entry: list[str] = []
            if held:
                entry = [f"--entrypoint={HOLD}", f"--mount=type=bind,source={inside.hold},target={HOLD},readonly"]
            elif options.entrypoint is not None:
                entry = [f"--entrypoint={options.entrypoint}"]
            arguments = [
                f"--name={name}", "--log-driver=none", *gpus, *run_arguments, *options.arguments, *entry,
                f"--label={self._label}", f"--label={LABEL}.node={node.spec.node_id}",  # the last value of a name wins
                inside.image, *([] if held else program),
            ]  # fmt: skip
            container = await _tracked(self._live, self._create(arguments, inside.environment))
            record = _Made(container, held, await self._entrypoint(inside.image, options.entrypoint) if held else ())
            scope.made.append(record)
            if held:
                await self._start(record)
            return record

    async def _make_volumes(self, engine: Engine, node: _Node, names: tuple[str, ...]) -> None:
        """The volumes in run options, which are removed with the node."""
        node.has_volumes = node.has_volumes or bool(names)
        try:
            labels = {LABEL: str(self._data_dir), f"{LABEL}.docker": node.spec.node_id}
            await make_volumes(engine, names, labels)
        except EngineError as error:
            if error.status == 0:
                raise
            raise _Failed(Exit(None, engine_failures.INVALID_SETTINGS, str(error))) from None

    async def _follow(self, scope: _Scope, inside: Contained, container: _Made) -> Exit:
        """Run the command of a container from start to end."""
        about = await self._live.ask("GET", f"/containers/{container.id}/json")
        end = self._end_of(container.id)
        query = {"stream": "1", "stdout": "1", "stderr": "1"}
        reader, writer = await self._live.stream("POST", f"/containers/{container.id}/attach", query=query)
        copy = _copy(scope, inside, reader, writer, frames=not about["Config"]["Tty"])
        await self._start(container)
        code = await end
        await copy.drained(DRAIN_SECONDS)
        return await self._outcome(container, code)

    async def _start(self, container: _Made) -> None:
        try:
            await self._live.ask("POST", f"/containers/{container.id}/start", patience=None)
        except EngineError as error:
            if error.status == 0:
                raise
            self._ends.pop(container.id, None)
            raise _Failed(Exit(None, engine_failures.of_start(str(error)), engine_failures.cleaned(str(error)),
                               container=await self._info(container.id))) from None  # fmt: skip

    async def _in_held(
        self, node: _Node, scope: _Scope, inside: Contained, program: list[str], held: _Made | None
    ) -> Exit:
        """Execute a command in the container of the scope that stays."""
        container = held or await self._make(node, scope, inside, program, held=True)
        # If the container ends, the engine does not report the end of executed commands.
        container_end = self._end_of(container.id)
        words = [*container.entrypoint, *program]
        body = {"AttachStdout": True, "AttachStderr": True, "Cmd": words, "Env": inside.pairs()}
        command = (await self._live.ask("POST", f"/containers/{container.id}/exec", body))["Id"]
        end = self._end_of(command)
        start = {"Detach": False, "Tty": False}
        reader, writer = await self._live.stream("POST", f"/exec/{command}/start", start)
        copy = _copy(scope, inside, reader, writer, frames=True)
        either: list[asyncio.Future[Any]] = [end, container_end, copy.task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not end.done() and not container_end.done():
            about = await self._live.ask("GET", f"/exec/{command}/json")
            if not about["Running"]:
                self._ends.pop(command, None)
                return await self._exec_over(container, about["ExitCode"], copy)
            await asyncio.wait([end, container_end], return_when=asyncio.FIRST_COMPLETED)
        await copy.drained(DRAIN_SECONDS)
        return await self._outcome(container, (end if end.done() else container_end).result())

    async def _exec_over(self, container: _Made, code: int | None, copy: Copy) -> Exit:
        """The end of a command whose output ended before its exit event, or that never started: its output says why."""
        message = copy.last.decode(errors="replace").strip()
        if code in (126, 127, 255, None) and "OCI runtime exec failed" in message:
            failure = engine_failures.of_start(message)
            return Exit(None, failure, engine_failures.cleaned(message), container=await self._info(container.id))
        return await self._outcome(container, 255 if code is None else code)

    async def _outcome(self, container: _Made, code: int) -> Exit:
        try:
            about = await self._live.ask("GET", f"/containers/{container.id}/json")
        except EngineError as error:
            if error.status != 404:
                raise
            return Exit(code)  # the scope ended meanwhile
        state = about["State"]
        message = engine_failures.of_exit(code, state, about["HostConfig"].get("Memory", 0))
        return Exit(code, message=message, container=_info(container.id, state))

    async def _info(self, container: str) -> dict[str, str] | None:
        with contextlib.suppress(EngineError):
            return _info(container, (await self._live.ask("GET", f"/containers/{container}/json"))["State"])
        return None

    async def _entrypoint(self, image: str, entrypoint: str | None) -> tuple[str, ...]:
        """The entry point that the engine would put before the command."""
        if entrypoint is not None:
            return (entrypoint,) if entrypoint else ()
        about = await self._live.ask("GET", f"/images/{image}/json")
        return tuple(about["Config"].get("Entrypoint") or ())

    async def _gpus(self, engine: Engine, spec: NodeSpec) -> tuple[str, ...]:
        """GPU options as the service adds them: all, if the size has GPUs and this engine supports them."""
        if not spec.gpus:
            return ()
        about = await engine.ask("GET", "/info")
        return ("--gpus=all",) if "nvidia" in (about.get("Runtimes") or {}) else ()

    async def _create(self, arguments: list[str], environment: dict[str, str]) -> str:
        """`docker create`. Only docker parses the options. Raises _Failed."""
        several = {name: value for name, value in environment.items() if not fits_a_line(value)}
        lines = "".join(f"{name}={value}\n" for name, value in environment.items() if name not in several)
        with tempfile.TemporaryDirectory() as empty:
            command = [
                self._cli, "--host", f"unix://{self._live.socket}", "--config", empty, "create", "--pull=never",
                "--env-file=/dev/stdin", *(f"--env={name}" for name in several), *arguments,
            ]  # fmt: skip
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=several,
            )
            out, err = await process.communicate(lines.encode())
        if process.returncode == 0:
            return out.decode().strip().rpartition("\n")[2]
        message = err.decode(errors="replace").strip()
        raise _Failed(Exit(None, engine_failures.of_create(message), engine_failures.cleaned(message)))

    async def end(self, node_id: str, scope: str, grace: float) -> None:
        """End the containers of a scope and remove them."""
        node = self._nodes.get(node_id)
        if node is None or self._engine is None:
            return
        node.ended.add(scope)
        ending = node.scopes.get(scope)
        if ending is None:
            return
        async with ending.starting:
            node.scopes.pop(scope, None)
        with contextlib.suppress(EngineError):
            await asyncio.gather(*(self._end_one(self._engine, container, grace) for container in ending.made))
        await asyncio.gather(*(copy.drained(DRAIN_SECONDS) for copy in ending.copies))
        for copy in ending.copies:
            copy.stop()
        await self._take_over(self._engine, node, ending.directory)

    async def _end_one(self, engine: Engine, container: _Made, grace: float) -> None:
        with contextlib.suppress(EngineError):
            if await self._terminate(engine, container) and grace > 0:
                await self._gone(engine, container, grace)
        await remove(engine, container.id)
        end = self._ends.pop(container.id, None)
        if end and not end.done():  # it never ran, so the engine does not report its end
            end.set_result(engine_failures.KILLED)

    async def _terminate(self, engine: Engine, container: _Made) -> bool:
        """Send SIGTERM to all processes; returns False if none runs."""
        if not container.held:
            if container.id not in self._ends:
                return False
            await engine.ask("POST", f"/containers/{container.id}/kill", query={"signal": "SIGTERM"})
            return True
        body = {"Cmd": ["/bin/sh", "-c", "kill -TERM -1"], "User": "0"}
        command = (await engine.ask("POST", f"/containers/{container.id}/exec", body))["Id"]
        await engine.ask("POST", f"/exec/{command}/start", {"Detach": True})
        return True

    async def _gone(self, engine: Engine, container: _Made, grace: float) -> None:
        """Wait until nothing runs in the container, or the grace period is over."""
        if not container.held:
            if (end := self._ends.get(container.id)) is not None:
                await asyncio.wait([end], timeout=grace)
            return
        pause, until = 0.02, asyncio.get_running_loop().time() + grace
        while asyncio.get_running_loop().time() < until:
            if len((await engine.ask("GET", f"/containers/{container.id}/top"))["Processes"]) <= 1:
                return
            await asyncio.sleep(pause)  # the engine reports no event for the last process but one
            pause *= 1.5

    def _node(self, node_id: str) -> _Node:
        if node_id not in self._nodes:
            raise NodeLost(f"{node_id}: no such node is up")
        return self._nodes[node_id]


class _Failed(Exception):
    """A run that ended before its command began."""

    def __init__(self, exit: Exit) -> None:
        self.exit = exit


def _copy(
    scope: _Scope, inside: Contained, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, frames: bool
) -> Copy:
    """Copy the output of a command to the files of the task from now on. Raises _Failed."""
    try:
        copy = Copy(reader, writer, inside.files, inside.run.directory, frames=frames)
    except OSError as error:
        raise _Failed(Exit(None, "CommandLaunchFailed", str(error))) from None
    scope.copies.append(copy)
    return copy


def _logins(spec: NodeSpec) -> tuple[Login, ...]:
    return spec.containers.logins if spec.containers else ()


def _tell(node: _Node, left_out: Iterable[tuple[str, str]]) -> None:
    for option, why in left_out:
        if option not in node.warned_options:
            node.warned_options.add(option)
            logger.warning("%s: ignored run option %s: %s", node.spec.node_id, option, why)


def _info(container: str, state: dict[str, Any]) -> dict[str, str]:
    """containerInfo of the service: as `docker inspect` reports it."""
    info = {"containerId": container, "state": str(state.get("Status", ""))}
    return {**info, "error": state["Error"]} if state.get("Error") else info


async def _tracked(engine: Engine, creating: Awaitable[str]) -> str:
    """The id of a container during its creation; if it is cancelled, the container is removed as soon as it exists."""
    making = asyncio.ensure_future(creating)
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        with contextlib.suppress(EngineError, _Failed):
            await remove(engine, await making)
        raise


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _node_image(engine: Engine) -> None:
    """Create the image of the nodes' own containers, once per engine."""
    try:
        await engine.ask("GET", f"/images/{NODE_IMAGE}:{NODE_TAG}/json")
    except EngineError as error:
        if error.status != 404:
            raise
        query = {"fromSrc": "-", "repo": NODE_IMAGE, "tag": NODE_TAG, "message": "holds a node's network"}
        await engine.ask("POST", "/images/create", hold.image(), query=query)
