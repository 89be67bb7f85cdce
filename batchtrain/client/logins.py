"""Commands on nodes: the words of the `ssh` that reaches a node of Azure or of the emulator, and forwarded ports."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from azure.batch import BatchClient

from batchtrain import runtime
from batchtrain.client import local
from batchtrain.client.late_values import Placeholders
from batchtrain.config.login_ports import SSH_PORT
from batchtrain.config.types import Recipe
from batchtrain.errors import NotFound, UsageError
from batchtrain.records import Endpoint
from batchtrain.service import read
from batchtrain.service.connect import Account

HOST = "127.0.0.1"
OPTIONS = ("-o", "StrictHostKeyChecking=accept-new")
"""A node has a new host key whenever it is created, and Batch does not publish it."""


class Login(NamedTuple):
    """How this machine runs commands on a node."""

    ssh: tuple[str, ...]
    """Ends with the host; options and the command may follow."""
    relay: tuple[str, ...] = ()
    """For an emulated node: its command that connects a socket with a port."""


def key_of(recipe: Recipe) -> str:
    """The path of the private key of the login; empty if the user gave only a public key."""
    ssh = recipe.pool.ssh if recipe.pool else None
    public_key = ssh and (ssh.ssh_public_key or ssh.ssh_public_key_data)
    return (ssh.ssh_private_key if ssh else "") or ("" if public_key else str(Placeholders(recipe).key_pair()))


def words(user: str, key: str, endpoint: Endpoint, options: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that logs in to a node of Azure."""
    return "ssh", *(("-i", key) if key else ()), *options, "-p", str(endpoint.port), f"{user}@{endpoint.address}"


def login(account: Account, batch: BatchClient, pool_id: str, node_id: str, recipe: Recipe | None) -> Login:
    """How to reach a node. Raises UsageError if the files have no login, NotFound if the node has no outside port."""
    if account.emulated:
        return Login(*local.login(account, node_id))
    ssh = recipe.pool.ssh if recipe and recipe.pool else None
    if recipe is None or ssh is None:
        raise UsageError(
            f"pool {pool_id} has no known login: add `ssh` with a `username` to pool.yaml, and run"
            " `batchtrain pool login --configdir DIR` with its directory"
        )
    if shutil.which("ssh") is None:
        raise UsageError("ssh is not installed on this machine; on Debian: `apt-get install openssh-client`")
    for endpoint in read.endpoints(batch, pool_id, SSH_PORT):
        if endpoint.node == node_id:
            return Login(words(ssh.username, key_of(recipe), endpoint, OPTIONS))
    raise NotFound(
        f"node {node_id} of pool {pool_id} has no outside port for ssh; `ssh` in pool.yaml opens it when the pool is"
        " created: delete the pool and add it again"
    )


def inside(directory: str, command: str) -> str:
    """The command of a node that runs a command in a running task, by the task's directory."""
    return shlex.join(["bash", "-c", runtime.read("inside.sh").decode(), "inside", directory, command])


def run(target: Login, command: str = "") -> int:
    """Run a command on a node, or a shell, with the stdin, stdout and stderr of this process. Returns its exit code."""
    terminal = ("-t",) if sys.stdin.isatty() and sys.stdout.isatty() else ()
    return subprocess.call([*target.ssh, *terminal, *(("--", command) if command else ())])


def output(target: Login, command: str, seconds: float) -> bytes:
    """What a command prints on a node. Raises UsageError if it fails, with the end of its stderr, or takes longer."""
    line = [*target.ssh, "--", command]
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise UsageError(f"it did not answer within {seconds:g} s") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UsageError(
            f"the command on the node ended with {done.returncode}: {lines[-1] if lines else 'no message'}"
        )
    return done.stdout


def forward(target: Login, port: int, local_port: int, ready: Callable[[int], None]) -> None:
    """Forward connections to a port of this machine to a port of a node, until Ctrl-C. ready: gets the port of this
    machine once it is open, as far as that can be known."""
    with _listening(local_port) as server:
        local_port = server.getsockname()[1]
        if target.relay:
            ready(local_port)
            command = [*target.ssh, "--", shlex.join([*target.relay, str(port)])]
            while True:  # every connection becomes a session on the node, which ends with it
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    subprocess.Popen(command, stdin=connection.fileno(), stdout=connection.fileno())
    ready(local_port)
    options = ("-o", "ExitOnForwardFailure=yes", "-N", "-L", f"{HOST}:{local_port}:{HOST}:{port}")
    if code := subprocess.call([*target.ssh, *options]):
        raise UsageError(f"ssh ended with exit code {code}; its message is above")


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UsageError(
            f"port {port} of this machine: {error.strerror}; `--local-port 0` (`local_port=0`) chooses a free one"
            " (nodes of the emulator without Docker share the ports of this machine)"
        ) from None
