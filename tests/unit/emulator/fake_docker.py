"""A Docker Engine in the test process: it keeps containers, runs programs by name, and answers on a Unix socket.

`docker create` is answered here, too (`command`). Only what the emulator asks of an engine is there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

CODES = {"SIGTERM": 143, "SIGKILL": 137}


class Program(NamedTuple):
    """What a program of a container does."""

    out: bytes = b""
    err: bytes = b""
    code: int = 0
    waits: bool = False
    """It runs until a signal ends it."""
    ignores_term: bool = False
    refusal: str = ""
    """Why the engine cannot start it."""
    out_of_memory: bool = False
    forgotten: bool = False
    """The engine reports no event of its end."""
    unstarted: bool = False
    """The engine knows no exit code."""
    slow: bool = False
    """Its output comes after its end, and its end a moment after a signal."""
    error: str = ""
    """What the engine says of its end."""


class Container:
    """One container, or a command that was executed in one."""

    def __init__(self, key: str, name: str, labels: Mapping[str, str], program: Program, **more: Any) -> None:
        self.id, self.name, self.labels, self.program = key, name, dict(labels), program
        self.about: dict[str, Any] = more
        self.status, self.code = "created", 0
        self.output: asyncio.StreamWriter | None = None
        self.parent: Container | None = None


class Answer(Exception):
    """The answer to a request: a status and a document."""

    def __init__(self, status: int, document: object) -> None:
        super().__init__(status)
        self.status, self.document = status, document


def no(status: int, message: str) -> Answer:
    return Answer(status, {"message": message})


class FakeDocker:
    """The engine. `containers`, `networks`, `volumes` and `images` are what it has; a test reads and changes them."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.containers: dict[str, Container] = {}
        self.networks: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, str]] = {}
        self.images: dict[str, list[str]] = {"train": []}
        """Entry points of images by name."""
        self.registry: dict[str, str] = {}
        """Images that can be pulled, with the user who may, or an empty text for everybody."""
        self.programs: dict[str, Program] = {"true": Program()}
        self.runtimes: dict[str, Any] = {}
        self.requests: list[str] = []
        self.created: list[dict[str, Any]] = []
        """What `docker create` was given: options, image, program, environment."""
        self.executed: list[dict[str, Any]] = []
        self.uploads: list[tuple[str, str]] = []
        """Container and directory of each uploaded archive."""
        self.fails: dict[str, Answer] = {}
        """Answers by the beginning of a request, instead of the usual one."""
        self.breaks_off = ""
        """The beginning of requests whose connection the engine closes without an answer."""
        self._execs: dict[str, Container] = {}
        self._events: list[tuple[asyncio.StreamWriter, dict[str, list[str]]]] = []
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None

    # --- for tests --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> FakeDocker:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """The engine is gone: its connections end."""
        assert self._server is not None
        self._server.close()
        self.socket.unlink(missing_ok=True)
        for writer, _ in self._events:
            writer.close()
        self._events.clear()

    def add(self, key: str, labels: Mapping[str, str]) -> None:
        """A container that an earlier emulator made."""
        self.containers[key] = Container(key, key, labels, Program(waits=True))

    def end(self, container: Container, code: int) -> None:
        """A container, or an executed command, ends."""
        if container.status != "running":
            return
        container.status, container.code = "exited", code
        if container.output is not None and not (container.program.slow and not container.program.waits):
            container.output.close()
        for child in self._execs.values():
            if child.parent is container:
                child.status = "exited"  # without an event
                if child.output is not None:
                    child.output.close()
        if not container.program.forgotten:
            self._tell("exec_die" if container.parent else "die", container)

    # --- docker create ----------------------------------------------------------------------------------------------

    async def command(self, *words: str, env: Mapping[str, str], **_: Any) -> Any:
        """Stands for `asyncio.create_subprocess_exec` of the command `docker`."""
        return _Create(self, list(words), env)

    def create(self, words: list[str], environment: dict[str, str]) -> str:
        """Raises LookupError with docker's message."""
        options = list(itertools.takewhile(lambda word: word.startswith("--"), words))
        image, *program = words[len(options) :]
        pairs = [option.removeprefix("--").partition("=")[::2] for option in options]
        self.created.append({"options": pairs, "image": image, "program": program, "environment": environment})
        if image not in self.images:
            raise LookupError(f"Error response from daemon: No such image: {image}")
        values = dict(pairs)
        if values.get("memory") == "much":
            raise LookupError("docker: invalid argument: memory\nSee 'docker create --help'.")
        labels = dict(value.partition("=")[::2] for name, value in pairs if name == "label")
        program = [*([values["entrypoint"]] if values.get("entrypoint") else self.images[image]), *program]
        known = self.programs.get(program[0], Program(waits=True)) if program else Program()
        return self._new(values["name"], labels, known, command=program, tty="tty" in values,
                         memory=int(values.get("memory", "0m")[:-1]) << 20)  # fmt: skip

    def _new(self, name: str, labels: Mapping[str, str], program: Program, **more: Any) -> str:
        if any(one.name == name for one in self.containers.values()):
            raise LookupError(f"the name {name} is in use")
        key = f"c{next(self._numbers):03}"
        self.containers[key] = Container(key, name, labels, program, **more)
        return key

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            method, target, _ = head.decode().split(" ", 2)
            where = urlsplit(target)
            query = {name: values[0] for name, values in parse_qs(where.query).items()}
            path = unquote(where.path)
            self.requests.append(f"{method} {path}")
            document = json.loads(body) if body and b"application/json" in head else {}
            auth = head.partition(b"X-Registry-Auth: ")[2].split(b"\r\n")[0]
            if self.breaks_off and f"{method} {path}".startswith(self.breaks_off):
                writer.close()
                return
            try:
                for beginning, answer in self.fails.items():
                    if f"{method} {path}".startswith(beginning):
                        raise answer
                if await self._stream(writer, method, path, query, document):
                    return
                raise Answer(200, self._answer(method, path, query, document, auth))
            except Answer as answer:
                data = b"".join(json.dumps(part).encode() + b"\n" for part in [answer.document] if part is not None)
                writer.write(f"HTTP/1.0 {answer.status} X\r\n\r\n".encode() + data)
                writer.close()

    async def _stream(
        self, writer: asyncio.StreamWriter, method: str, path: str, query: dict[str, str], body: dict[str, Any]
    ) -> bool:
        """Whether the request is answered with a stream."""
        _, kind, key, *action = [*path.split("/"), "", ""]
        if (method, path) == ("GET", "/events"):
            self._events.append((writer, json.loads(query["filters"])))
        elif kind == "containers" and action[0] == "attach":
            self.containers[key].output = writer
        elif kind == "exec" and action[0] == "start" and not body["Detach"]:
            writer.write(b"HTTP/1.0 200 X\r\n\r\n")
            self._execs[key].output = writer
            self._run(self._execs[key])
            return True
        else:
            return False
        writer.write(b"HTTP/1.0 200 X\r\n\r\n")
        return True

    def _answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any], auth: bytes) -> object:
        _, kind, key, *rest = [*path.split("/"), "", ""]
        action = rest[0]
        if kind == "containers":
            return self._containers(method, key, action, query, body)
        if kind == "exec":
            command = self._execs[key]
            if action == "start":  # only the emulator's own command to end all processes
                assert command.parent is not None
                self._signal_all(command.parent)
            return {
                "Running": command.status == "running",
                "ExitCode": None if command.program.unstarted else command.code,
            }
        if kind == "networks":
            return self._networks(method, key, query, body)
        if kind == "volumes":
            return self._volumes(method, key, query, body)
        if path == "/images/create":
            return self._pull(query, auth)
        if kind == "images":
            name = path.removeprefix("/images/").removesuffix("/json")
            if name not in self.images:
                raise no(404, f"No such image: {name}")
            return {"Architecture": "amd64", "Config": {"Entrypoint": self.images[name] or None}}
        return {"/version": {"Arch": "amd64"}, "/info": {"Runtimes": self.runtimes}, "/_ping": None}[path]

    def _containers(self, method: str, key: str, action: str, query: dict[str, str], body: dict[str, Any]) -> object:
        if key == "json":
            return [{"Id": one.id} for one in self.containers.values() if _has(one.labels, query)]
        if key == "create":
            return {"Id": self._new(query["name"], body["Labels"], Program(waits=True), body=body)}
        if key not in self.containers:
            raise no(404, f"No such container: {key}")
        container = self.containers[key]
        if method == "DELETE":
            self.end(container, 137)
            del self.containers[key]
        elif action == "start":
            if container.program.refusal:
                raise no(400, container.program.refusal)
            self._run(container)
        elif action == "kill":
            self._signal(container, CODES[query["signal"]])
        elif action == "archive":
            self.uploads.append((key, query["path"]))
        elif action == "exec":
            command = f"e{next(self._numbers):03}"
            program = self.programs.get(body["Cmd"][0], Program(waits=True))
            self._execs[command] = Container(command, "", container.labels, program)
            self._execs[command].parent = container
            self.executed.append({"container": key, **body})
            return {"Id": command}
        elif action == "top":
            running = [one for one in self._execs.values() if one.parent is container and one.status == "running"]
            return {"Processes": [[], *([] for _ in running)]}
        elif action == "json":
            return {
                "State": {
                    "Status": container.status,
                    "OOMKilled": container.program.out_of_memory,
                    "Error": container.program.error,
                },
                "Config": {"Tty": container.about.get("tty", False)},
                "HostConfig": {"Memory": container.about.get("memory", 0)},
                "NetworkSettings": {"SandboxKey": str(self.socket.parent / "space")},
                "ResolvConfPath": str(self.socket.parent / "resolv.conf"),
            }
        return None

    def _networks(self, method: str, key: str, query: dict[str, str], body: dict[str, Any]) -> object:
        if method == "DELETE":
            del self.networks[key]
            return None
        if method == "POST":
            name = body["Name"]
            self.networks[name] = {"Id": name, **body}
            return {"Id": name}
        return [network for network in self.networks.values() if _has(network["Labels"], query)]

    def _volumes(self, method: str, key: str, query: dict[str, str], body: dict[str, Any]) -> object:
        if method == "DELETE":
            del self.volumes[key]
            return None
        if method == "POST":
            self.volumes[body["Name"]] = body["Labels"]
            return {}
        return {"Volumes": [{"Name": name} for name, labels in self.volumes.items() if _has(labels, query)]}

    def _pull(self, query: dict[str, str], auth: bytes) -> object:
        if "fromSrc" in query:
            self.images[f"{query['repo']}:{query['tag']}"] = []
            return {"status": "done"}
        name = ":".join(query[part] for part in ("fromImage", "tag") if part in query)
        if name not in self.registry:
            return {"error": f"manifest for {name} not found: manifest unknown"}
        if self.registry[name] != self._user(auth):
            return {"error": "unauthorized: authentication required"}
        self.images[name] = []
        return {"status": "done"}

    @staticmethod
    def _user(auth: bytes) -> str:
        return str(json.loads(base64.urlsafe_b64decode(auth))["username"]) if auth else ""

    # --- programs ---------------------------------------------------------------------------------------------------

    def _run(self, container: Container) -> None:
        container.status, program = "running", container.program
        if program.slow and not program.waits:
            asyncio.get_running_loop().call_later(0.02, self._write, container)
        else:
            self._write(container)
        if not program.waits:
            self.end(container, program.code)

    @staticmethod
    def _write(container: Container) -> None:
        program = container.program
        if container.output is None:
            return
        for stream, data in ((1, program.out), (2, program.err)):
            head = b"" if container.about.get("tty") else bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big")
            container.output.write(head + data if data else b"")
        if program.slow and not program.waits:
            container.output.close()

    def _signal_all(self, container: Container) -> None:
        for command in self._execs.values():
            if command.parent is container:
                self._signal(command, CODES["SIGTERM"])

    def _signal(self, container: Container, code: int) -> None:
        if container.program.slow:
            asyncio.get_running_loop().call_later(0.02, self.end, container, code)
        elif not container.program.ignores_term:
            self.end(container, code)

    def _tell(self, event: str, container: Container) -> None:
        owner = container.parent or container
        attributes = {**owner.labels, "exitCode": str(container.code)}
        if container.parent:
            attributes["execID"] = container.id
        line = json.dumps({"Action": event, "Actor": {"ID": owner.id, "Attributes": attributes}}) + "\n"
        for writer, filters in self._events:
            if event in filters["event"] and _labelled(owner.labels, filters["label"]):
                writer.write(line.encode())


class _Create:
    """A process of `docker create`."""

    returncode = 0

    def __init__(self, engine: FakeDocker, words: list[str], environment: Mapping[str, str]) -> None:
        self._engine, self._words, self._environment = engine, words, environment

    async def communicate(self, stdin: bytes) -> tuple[bytes, bytes]:
        await asyncio.sleep(0)
        at = self._words.index("create") + 1
        words, host = self._words[at:], self._words[self._words.index("--host") + 1]
        assert host == f"unix://{self._engine.socket}", "another engine"
        pairs = dict(line.partition("=")[::2] for line in stdin.decode().splitlines())
        pairs |= {name: self._environment[name] for name in _values(words, "--env=")}
        own = ("--pull=", "--env-file=", "--env=")
        try:
            key = self._engine.create([word for word in words if not word.startswith(own)], pairs)
        except LookupError as error:
            self.returncode = 1
            return b"", str(error.args[0]).encode()
        return f"a warning\n{key}\n".encode(), b""


def _values(words: list[str], option: str) -> list[str]:
    return [word.removeprefix(option) for word in words if word.startswith(option)]


def _has(labels: Mapping[str, str], query: Mapping[str, str]) -> bool:
    return _labelled(labels, json.loads(query.get("filters", "{}")).get("label", ()))


def _labelled(labels: Mapping[str, str], wanted: list[str]) -> bool:
    pairs = (text.partition("=") for text in wanted)
    return all(name in labels and (not equals or labels[name] == value) for name, equals, value in pairs)
