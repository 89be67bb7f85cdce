"""Nodes of a `plain_docker` pool on one Docker Engine: the requests of a plan run on them as Batch would run them.

Each node has a directory that it sees at one path, a network of its own, and a `docker` first on PATH that changes two
things on their way to the engine, which the nodes share: a path of the node becomes this machine's, and the host's
network becomes the node's. An `ssh` beside it logs in to the other nodes' hosts. All else is real.
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests import containers

_numbers = itertools.count(1)

DOCKER = """#!/bin/bash
words=()
for word; do
  case $word in
    "$SEEN"*:*) word=$ROOT${word#"$SEEN"} ;;
    /home/_azbatch/.ssh:*) word=$KEYS:${word#*:} ;;
    host) [ "${words[-1]}" != --network ] || word=container:$HOLDER ;;
  esac
  words+=("$word")
done
printf '%s\\n' "$*" >>"$ROOT/asked"
exec @DOCKER@ "${words[@]}"
"""
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do shift 2; done
host=$1; shift
[ -e "@NODES@/$host" ] || { echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }
exec setsid --wait "@NODES@/$host" "$*"
"""
LOGIN = """#!/bin/bash
exec env -i @ENVIRONMENT@ unshare --mount /bin/bash -c 'mount --bind "$ROOT" "$SEEN" && exec /bin/bash -c "$1"' - "$1"
"""


class Ended(NamedTuple):
    """How a command line ended."""

    code: int
    stdout: str
    stderr: str


class Node(NamedTuple):
    """One node: its directory, and its address."""

    name: str
    root: Path
    address: str
    environment: Mapping[str, str]

    @property
    def asked(self) -> str:
        """What the engine was asked for, a command a line."""
        path = self.root / "asked"
        return path.read_text() if path.exists() else ""


class Pool:
    """The nodes; the first is the primary."""

    def __init__(self, folder: Path, image: str) -> None:
        self.folder, self.image = folder, image
        self.name = f"plain{os.getpid()}x{next(_numbers)}"
        self.seen = folder / "tasks"
        self.task_id = "task"
        self.nodes: list[Node] = []

    @property
    def directory(self) -> str:
        """The task's, below a node's."""
        return f"workitems/job/job-1/{self.task_id}"

    @property
    def place(self) -> Path:
        """The task's directory on the primary."""
        return self.nodes[0].root / self.directory

    def boot(self, count: int) -> None:
        for part in ("tasks", "bin", "nodes", "keys"):
            (self.folder / part).mkdir()
        _program(self.folder / "bin" / "docker", DOCKER.replace("@DOCKER@", shutil.which("docker") or "docker"))
        _program(self.folder / "bin" / "ssh", SSH.replace("@NODES@", str(self.folder / "nodes")))
        key = self.folder / "keys" / "intra_pool_rsa"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        shutil.copy(f"{key}.pub", self.folder / "keys" / "authorized_keys")
        containers.docker("network", "create", "--internal", f"--label={containers.POOL}={self.name}", self.name)
        for number in range(count):
            self._boot_one(f"tvm-{number}")

    def _boot_one(self, name: str) -> None:
        holder = f"{self.name}-{name}"
        containers.docker("run", "--detach", "--name", holder, f"--label={containers.POOL}={self.name}",
                          "--network", self.name, self.image, "sleep", "infinity")  # fmt: skip
        address = containers.docker(
            "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", holder
        )
        root, seen = self.folder / name, self.seen
        (root / "startup" / "wd").mkdir(parents=True)
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(root),
            "ROOT": str(root),
            "SEEN": str(seen),
            "KEYS": str(self.folder / "keys"),
            "HOLDER": holder,
            "BATCHTRAIN_EMULATED_NODE": str(seen),
            "BATCHTRAIN_EMULATED_DOCKER": "yes",
            **({"DOCKER_HOST": os.environ["DOCKER_HOST"]} if "DOCKER_HOST" in os.environ else {}),
        }
        login = " ".join(shlex.quote(f"{key}={value}") for key, value in environment.items())
        _program(self.folder / "nodes" / address, LOGIN.replace("@ENVIRONMENT@", login))
        self.nodes.append(Node(name, root, address, environment))

    def variables(self, number: int) -> dict[str, str]:
        """What Batch tells a task on a node."""
        node, seen, directory = self.nodes[number], self.seen, f"{self.seen}/{self.directory}"
        return {
            **node.environment,
            "AZ_BATCH_POOL_ID": self.name,
            "AZ_BATCH_NODE_ID": node.name,
            "AZ_BATCH_JOB_ID": "job",
            "AZ_BATCH_TASK_ID": self.task_id,
            "AZ_BATCH_NODE_ROOT_DIR": str(seen),
            "AZ_BATCH_NODE_SHARED_DIR": f"{seen}/shared",
            "AZ_BATCH_NODE_STARTUP_DIR": f"{seen}/startup",
            "AZ_BATCH_TASK_DIR": directory,
            "AZ_BATCH_TASK_SHARED_DIR": directory,
            "AZ_BATCH_TASK_WORKING_DIR": f"{directory}/wd",
            "AZ_BATCH_HOST_LIST": ",".join(node.address for node in reversed(self.nodes)),
            "AZ_BATCH_MASTER_NODE": f"{self.nodes[0].address}:6000",
            "AZ_BATCH_IS_CURRENT_NODE_MASTER": "true" if number == 0 else "false",
        }

    def start(self, number: int, line: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Begin a command line on a node, as the service does: without a shell."""
        (self.nodes[number].root / self.directory / "wd").mkdir(parents=True, exist_ok=True)
        inside = [
            "/bin/bash",
            "-c",
            'mount --bind "$ROOT" "$SEEN" && cd "$AZ_BATCH_TASK_WORKING_DIR" && exec "$@"',
            "-",
        ]
        return subprocess.Popen(
            ["unshare", "--mount", *inside, *shlex.split(line)],
            env={**self.variables(number), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, number: int, line: str, environment: Mapping[str, str], seconds: float = 180) -> Ended:
        return ended(self.start(number, line, environment), seconds)

    def task(self, body: Mapping[str, Any], **variables: str) -> Ended:
        """A whole task: on every node its coordination command, on the primary its own."""
        environment = {**settings(body), **variables}
        self.coordinate(body, environment)
        return self.run(0, body["commandLine"], environment)

    def coordinate(self, body: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        gang = body.get("multiInstanceSettings")
        lines = [gang["coordinationCommandLine"]] * len(self.nodes) if gang else []
        running = [self.start(number, line, environment) for number, line in enumerate(lines)]
        for one in [ended(process) for process in running]:
            assert one.code == 0, one

    def left(self) -> list[str]:
        """The tasks' containers that are there."""
        names = containers.docker("ps", "--all", "--format", "{{.Names}} {{.Labels}}").splitlines()
        return [line.split()[0] for line in names if f"batchtrain.node={self.name}/" in line]

    def none_left_soon(self, seconds: float = 60) -> bool:
        end = time.monotonic() + seconds
        while self.left():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        for node in self.nodes:
            for gang in node.root.rglob(".batchtrain-docker"):
                (gang / "adopted").touch()  # what waits for a primary, until the end of its lease, need not any more
        mine = [*self.left(), *(f"{self.name}-{node.name}" for node in self.nodes)]
        containers.docker("rm", "--force", "--volumes", *mine, check=False)
        containers.docker("network", "rm", self.name, check=False)


def ended(process: subprocess.Popen[str], seconds: float = 180) -> Ended:
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return Ended(process.returncode, stdout, stderr)


@contextmanager
def event(nodes: Pool, name: str, seconds: float = 60) -> Iterator[Callable[[], bool]]:
    """Gives a call that waits for the engine's word of an event of the tasks' containers; False when none comes."""
    shown = ["--format", '{{index .Actor.Attributes "batchtrain.node"}}', "--filter", f"event={name}"]
    since = containers.docker("info", "--format", "{{.SystemTime}}")
    with subprocess.Popen(["docker", "events", "--since", since, *shown], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        late = threading.Timer(seconds, process.kill)
        late.start()
        lines = process.stdout
        try:
            yield lambda: any(line.startswith(f"{nodes.name}/") for line in lines)
        finally:
            late.cancel()
            process.kill()


def settings(body: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in body.get("environmentSettings", ())}


@contextmanager
def pool(folder: Path, image: str, count: int) -> Iterator[Pool]:
    """Nodes that are gone at the end, and whatever they ran with them. Raises containers.Missing."""
    made = Pool(folder, image)
    try:
        made.boot(count)
        yield made
    finally:
        made.close()


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
