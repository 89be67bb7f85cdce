"""Fits containerRunOptions of a task to a node that is a container itself; pure.

The service passes the options to `docker create`. The network is the node's: a container joins it, as a container of
Batch joins that of its host.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

FLAGS = frozenset((
    "--disable-content-trust", "--help", "--init", "--interactive", "--no-healthcheck", "--oom-kill-disable",
    "--privileged", "--publish-all", "--quiet", "--read-only", "--rm", "--tty", "--use-api-socket",
))  # fmt: skip
"""Options of `docker create` without a value."""
SHORT_FLAGS = frozenset("iPtq")
SHORT = {
    "a": "--attach", "c": "--cpu-shares", "e": "--env", "h": "--hostname", "l": "--label", "m": "--memory",
    "p": "--publish", "u": "--user", "v": "--volume", "w": "--workdir", "P": "--publish-all", "i": "--interactive",
    "t": "--tty", "q": "--quiet",
}  # fmt: skip
NETWORKS = ("--net", "--network")
OF_THE_NODE = {
    **dict.fromkeys(("--publish", "--publish-all", "--expose"), "every port of the container is the node's"),
    **dict.fromkeys(
        ("--hostname", "--domainname", "--add-host", "--dns", "--dns-option", "--dns-opt", "--dns-search", "--ip",
         "--ip6", "--link", "--mac-address", "--net-alias", "--network-alias", "--link-local-ip"),
        "the container has the node's network and host name",
    ),
    "--name": "the nodes share one engine, where a name can be given once",
    "--cidfile": "it would be written on the machine, not on the node",
    "--volumes-from": "the nodes share one engine, and other nodes' containers are not the task's",
}  # fmt: skip
"""Options that are ignored, and why."""
INFINIBAND, MEMLOCK = "/dev/infiniband", "memlock"
TAKEN = {"--rm": "the service removes the container itself"}


class Refused(Exception):
    """Options that `docker create` does not accept either."""


class Node(NamedTuple):
    """The node to which the options are fitted."""

    network: str
    """Id of the container with the network of the node."""
    on_machine: Callable[[str], str]
    """The path on this machine of a path of the node."""
    has_device: Callable[[str], bool]
    prefix: str = ""
    """Prefix of volume names: the nodes share one engine, and each has its own volumes."""
    hidden_in: Callable[[str], str] = lambda path: ""
    """The relative path below a directory of this machine that must stay hidden; empty if there is none."""


class Fitted(NamedTuple):
    """Options for `docker create` without the entry point, and the ignored ones: (option, why)."""

    arguments: tuple[str, ...]
    entrypoint: str | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    volumes: tuple[str, ...] = ()
    """The named volumes, as the engine knows them."""


def fit(text: str, node: Node) -> Fitted:
    """Fit the options of a task. Raises Refused for options that cannot be parsed."""
    arguments: list[str] = []
    left_out: list[tuple[str, str]] = []
    volumes: list[str] = []
    entrypoint, network = None, f"container:{node.network}"
    for name, value in options(text):
        if name in NETWORKS:
            network = str(value) if value and value != "host" and not value.startswith("container:") else network
        elif name == "--entrypoint":
            entrypoint = value or ""
        elif name in TAKEN:
            continue
        elif why := _left_out(name, value, node):
            left_out.append((name if value is None else f"{name}={value}", why))
        elif name == "--help":
            raise Refused("containerRunOptions: --help makes no container")
        else:
            machine_value = None if value is None else _on_machine(name, value, node)
            arguments.append(name if machine_value is None else f"{name}={machine_value}")
            source, target = bound(name, machine_value or "")
            if source and not source.startswith("/"):
                volumes.append(source)
            elif source and (hidden := node.hidden_in(source)):  # an empty file system over this part
                arguments.append(f"--mount=type=tmpfs,destination={target.rstrip('/')}/{hidden}")
    return Fitted((f"--network={network}", *arguments), entrypoint, tuple(left_out), tuple(volumes))


def options(text: str) -> Iterator[tuple[str, str | None]]:
    """(long name, value or None for a flag) of each option, in order. Raises Refused."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Refused(f"containerRunOptions cannot be split into words: {error}: {text}") from None
    while words:
        word = words.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.partition("=")
            yield name, value if equals else None if name in FLAGS else _next(name, words)
        elif word.startswith("-") and len(word) > 1 and word != "--":
            yield from _short(word[1:], words)
        else:
            raise Refused(f"containerRunOptions: {word} is no option of docker create")


def _short(letters: str, words: list[str]) -> Iterator[tuple[str, str | None]]:
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter not in SHORT:
            raise Refused(f"containerRunOptions: -{letter} is no option of docker create")
        if letter in SHORT_FLAGS:
            yield SHORT[letter], None
            continue
        yield SHORT[letter], letters.removeprefix("=") or _next(f"-{letter}", words)
        return


def _next(name: str, words: list[str]) -> str:
    if not words:
        raise Refused(f"containerRunOptions: {name} needs a value")
    return words.pop(0)


def _left_out(name: str, value: str | None, node: Node) -> str:
    """Why an option is ignored; empty if it is not."""
    if name in OF_THE_NODE:
        return OF_THE_NODE[name]
    text = value or ""
    if name == "--device" and not node.has_device(text.partition(":")[0]):
        return "this machine has no such device"
    # Unlimited locked memory is for InfiniBand, and an engine without privileges fails with it.
    if name == "--ulimit" and text.startswith(f"{MEMLOCK}=") and not node.has_device(INFINIBAND):
        return "this machine has no InfiniBand, which needs it"
    outside = {"--pid": ("host", "container:"), "--ipc": ("container:",)}.get(name, ())
    return "the processes would run outside the node" if text.startswith(outside) else ""


def _on_machine(name: str, value: str, node: Node) -> str:
    """Translate a bind: a path of the node becomes that of the machine, and a volume gets the prefix of the node."""
    if name == "--volume":
        source, colon, target = value.partition(":")
        machine_source = node.on_machine(source) if source.startswith("/") else f"{node.prefix}{source}"
        return f"{machine_source}{colon}{target}" if colon else value
    if name == "--mount":
        parts = value.split(",")
        return ",".join(_mount_part(part, node, bind="type=bind" in parts) for part in parts)
    if name == "--env-file":
        return node.on_machine(value)
    return value


def _mount_part(part: str, node: Node, *, bind: bool) -> str:
    key, equals, source = part.partition("=")
    if key not in ("source", "src"):
        return part
    return f"{key}{equals}{node.on_machine(source) if bind else f'{node.prefix}{source}'}"


def bound(name: str, value: str) -> tuple[str, str]:
    """(source, target) of an option that binds a directory or a volume; empty for other options."""
    if name == "--volume":
        source, colon, remainder = value.partition(":")
        return (source, remainder.partition(":")[0]) if colon else ("", "")
    if name != "--mount":
        return "", ""
    parts = {key: text for key, _, text in (part.partition("=") for part in value.split(","))}
    target = parts.get("target") or parts.get("destination") or parts.get("dst") or ""
    return parts.get("source") or parts.get("src") or "", target
