"""`batchtrain emulator`: start, stop and look at the embedded Azure Batch."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common, settings
from batchtrain.cli.output import plain, show, show_rows
from batchtrain.errors import NotFound, ServiceError, UsageError

if TYPE_CHECKING:
    from batchtrain.emulator.server import Status


class Mapped(NamedTuple):
    """An image and the environment that stands for it here."""

    image: str
    prefix: str


class Asked(NamedTuple):
    """A fault that was asked for."""

    id: int
    kind: str
    operation: str
    resource: str
    struck: int


_data_dir = click.option(
    "--data-dir", envvar="BATCHTRAIN_EMULATOR_DIR", metavar="DIR", help="Where it keeps everything."
)


@click.group(cls=Group)
def command() -> None:
    """The embedded Azure Batch on this machine."""


@command.command(cls=Command)
@_data_dir
@click.option("--port", type=click.IntRange(0, 65535), default=10010, show_default=True, help="0 takes any free port.")
@click.option("--account", default="batchtrain", show_default=True, help="Name of its account.")
@click.option("--nodes-max", type=click.IntRange(0, 65535), metavar="N", help="Nodes of all pools (256).")
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="NAME=N",
    help="Most that the account may have; NAME is pools, dedicated-cores, low-priority-cores or active-jobs.",
)
@click.option("--foreground", is_flag=True, help="Stay, and end with Ctrl-C.")
@common
def start(
    data_dir: str | None, port: int, account: str, nodes_max: int | None, quotas: tuple[str, ...], foreground: bool
) -> None:
    """Start it; it listens on loopback only."""
    from batchtrain.emulator import server

    try:
        limits = server.quotas_of(quotas) | ({} if nodes_max is None else {"nodes": nodes_max})
    except ValueError as error:
        raise UsageError(str(error)) from None
    chosen = server.Settings(data_dir=_place(data_dir), port=port, account=account, quotas=limits)
    running = server.status(chosen.data_dir)
    if running is not None:
        show(_document(running), f"already running at {running.endpoint}")
        return
    try:
        if foreground:
            server.serve(chosen)
            return
        status = server.spawn(chosen)
    except server.PortTaken as error:
        raise UsageError(str(error)) from None
    except server.StartFailed as error:
        raise ServiceError(str(error), operation="start the emulator") from None
    show(_document(status), f"listening at {status.endpoint}; `batchtrain emulator stop` ends it")


@command.command(cls=Command)
@_data_dir
@common
def stop(data_dir: str | None) -> None:
    """End it with every node; what it knows is kept."""
    from batchtrain.emulator import server

    stopped = server.stop(_place(data_dir))
    show({"stopped": stopped}, "stopped" if stopped else "it was not running")


@command.command(cls=Command)
@_data_dir
@common
def status(data_dir: str | None) -> int:
    """Where it is, with the account's key, and what runs on it; exit code 3 when it is not running."""
    from batchtrain.emulator import steering

    running = _running(data_dir)
    document = {**_document(running), **steering.account(running)}
    show(document, "\n".join(f"{name}: {value}" for name, value in document.items() if not isinstance(value, dict)))
    return 0


@command.command(cls=Command)
@_data_dir
@common
def env(data_dir: str | None) -> None:
    """Print the account as variables of a shell: `eval "$(batchtrain emulator env)"`, then `az batch` finds it."""
    variables = _running(data_dir).environment
    show(dict(variables), "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))


@command.command(cls=Command)
@_data_dir
@common
def reset(data_dir: str | None) -> None:
    """Delete all its pools, jobs and nodes."""
    from batchtrain.emulator import server

    place = _place(data_dir)
    settings().confirm(f"Delete every pool and job of the emulator on {place}?")
    _running(data_dir)
    server.reset(place)
    show({"reset": str(place)}, "reset")


@command.command(cls=Command)
@_data_dir
@click.option("--advance", "span", metavar="SPAN", help="Go on by [d.]HH:MM:SS, from one thing due to the next.")
@click.option("--scale", type=float, metavar="N", help="Run N times as fast.")
@click.option("--step", is_flag=True, help="Stand still, but for --advance.")
@click.option("--real", is_flag=True, help="Run as the machine's clock does.")
@common
def clock(data_dir: str | None, span: str | None, scale: float | None, step: bool, real: bool) -> None:
    """Show or turn the account's clock: a week of schedules in a second."""
    from datetime import timedelta

    from batchtrain.config.types import SPAN, seconds_of
    from batchtrain.emulator import steering

    if sum((scale is not None, step, real)) > 1:
        raise UsageError("one of --scale, --step and --real")
    if span is not None and not re.match(SPAN, span):
        raise UsageError(f"`{span}` is not a time span of the form [days.]HH:MM:SS")
    to = _running(data_dir)
    with _refusals():
        if scale is not None or step or real:
            steering.turn(to, "scaled" if scale is not None else "stepped" if step else "real", scale or 1.0)
        if span is not None:
            steering.advance(to, timedelta(seconds=seconds_of(span)))
        found = steering.clock(to)
    ahead = timedelta(seconds=round(found["aheadSeconds"]))
    show(found, f"{found['now']} ({found['mode']}, {ahead} ahead)")


@command.group(cls=Group)
def fault() -> None:
    """Faults on request: refusals, lost answers, failing nodes and allocations."""


@fault.command("add", cls=Command)
@click.argument("kind")
@_data_dir
@click.option("--operation", metavar="NAME", help="Operations of this name, such as create_task or list_*.")
@click.option("--resource", metavar="PATH", help="About this path, such as pools/POOL/nodes/* or jobs/JOB*.")
@click.option("--rate", type=float, metavar="SHARE", help="Share of the chances that strike, 0 to 1.")
@click.option("--count", type=int, metavar="N", help="Strike N times at most.")
@click.option("--seed", type=int, metavar="N", help="Start of its chance, for a run that can be repeated.")
@click.option("--code", metavar="CODE", help="Service's error code (error, allocation-refused).")
@click.option("--retry-after", type=float, metavar="SECONDS", help="Retry-After of the answer (error).")
@click.option("--seconds", type=float, metavar="SECONDS", help="How late or how far off (latency, skew, …-slow).")
@click.option("--fraction", type=float, metavar="SHARE", help="Share that comes (allocation-partial, truncate).")
@click.option("--exit-code", type=int, metavar="N", help="Exit code (start-task-fails).")
@common
def add_fault(kind: str, data_dir: str | None, **numbers: object) -> None:
    """Let a fault of KIND strike from now on.

    KIND is error, latency, drop, truncate, skew (of requests), allocation-refused, allocation-partial,
    allocation-slow (of pools), boot-fails, start-task-fails or node-slow (of nodes).
    """
    from batchtrain.emulator import steering

    given = {name: value for name, value in numbers.items() if value is not None}
    with _refusals():
        made = steering.fault(_running(data_dir), kind, **given)
    show({"id": made}, f"fault {made} strikes from now on; `batchtrain emulator fault clear {made}` ends it")


@fault.command("list", cls=Command)
@_data_dir
@common
def list_faults(data_dir: str | None) -> None:
    """List the faults that were asked for, and how often each struck."""
    from batchtrain.emulator import steering

    found = steering.faults(_running(data_dir))
    rows = [Asked(one["id"], one["kind"], one["operation"], one["resource"], one["struck"]) for one in found]
    show_rows(rows, empty="no faults")


@fault.command("clear", cls=Command)
@click.argument("number", type=int, required=False)
@_data_dir
@common
def clear_faults(number: int | None, data_dir: str | None) -> None:
    """End fault NUMBER, or all of them."""
    from batchtrain.emulator import steering

    with _refusals():
        steering.clear_faults(_running(data_dir), number)
    show({"cleared": number or "all"}, "cleared")


@fault.command("node", cls=Command)
@click.argument("node")
@click.argument("act", type=click.Choice(["preempt", "lose", "break"]))
@_data_dir
@click.option("--seconds", type=float, help="After how long a preempted node comes back; never when absent.")
@common
def befall(node: str, act: str, data_dir: str | None, seconds: float | None) -> None:
    """Let a NODE be preempted, lost or broken now."""
    from batchtrain.emulator import steering

    with _refusals():
        steering.befall(_running(data_dir), node, act, seconds)
    show({"node": node, "act": act}, f"{act}: {node}")


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """The emulator's own refusals are mistakes of whoever asked."""
    from batchtrain.emulator.server import Refused

    try:
        yield
    except Refused as refused:
        raise UsageError(str(refused)) from None


def _running(data_dir: str | None) -> Status:
    from batchtrain.emulator import server

    place = _place(data_dir)
    running = server.status(place)
    if running is None:
        raise NotFound(f"no emulator is running on {place}; `batchtrain emulator start` starts it")
    return running


@command.group(cls=Group)
def images() -> None:
    """Which local environment stands for a container image."""


@images.command("map", cls=Command)
@click.argument("image")
@click.argument("prefix")
@_data_dir
@common
def map_(image: str, prefix: str, data_dir: str | None) -> None:
    """Let PREFIX (such as a virtual environment) stand for IMAGE."""
    from batchtrain.emulator import images as mapping

    place = Path(prefix).absolute()
    if not (place / "bin").is_dir():
        raise UsageError(f"{place} is no environment: it has no bin directory")
    mapping.map_image(_place(data_dir), image, place)
    show(Mapped(image, str(place)), f"{image} is {place}")


@images.command("unmap", cls=Command)
@click.argument("image")
@_data_dir
@common
def unmap(image: str, data_dir: str | None) -> None:
    """Forget what stands for IMAGE."""
    from batchtrain.emulator import images as mapping

    if not mapping.unmap(_place(data_dir), image):
        raise NotFound(f"nothing stands for {image}")
    show({"unmapped": image}, f"nothing stands for {image} any more")


@images.command("list", cls=Command)
@_data_dir
@common
def list_(data_dir: str | None) -> None:
    """List what stands for which image."""
    from batchtrain.emulator import images as mapping

    try:
        found = mapping.list_images(_place(data_dir))
    except ValueError as error:
        raise UsageError(f"the list of images in {_place(data_dir)} cannot be read: {error}") from None
    show_rows([Mapped(image, str(prefix)) for image, prefix in sorted(found.items())], empty="no images are mapped")


def _place(data_dir: str | None) -> Path:
    from batchtrain.client import emulator_directory

    return Path(data_dir).absolute() if data_dir else emulator_directory()


def _document(status: object) -> dict[str, object]:
    built: dict[str, object] = plain(status)
    return built
