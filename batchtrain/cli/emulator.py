"""`batchtrain emulator`: start, stop and look at the embedded Azure Batch."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common, settings
from batchtrain.cli.output import plain, show, show_rows
from batchtrain.errors import NotFound, ServiceError, UsageError


class Mapped(NamedTuple):
    """An image and the environment that stands for it here."""

    image: str
    prefix: str


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
@click.option("--foreground", is_flag=True, help="Stay, and end with Ctrl-C.")
@common
def start(data_dir: str | None, port: int, account: str, foreground: bool) -> None:
    """Start it; it listens on loopback only."""
    from batchtrain.emulator import server

    chosen = server.Settings(data_dir=_place(data_dir), port=port, account=account)
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
    """Where it is, with the account's key; exit code 3 when it is not running."""
    from batchtrain.emulator import server

    place = _place(data_dir)
    running = server.status(place)
    if running is None:
        raise NotFound(f"no emulator is running on {place}; `batchtrain emulator start` starts it")
    show(_document(running), "\n".join(f"{name}: {value}" for name, value in _document(running).items()))
    return 0


@command.command(cls=Command)
@_data_dir
@common
def reset(data_dir: str | None) -> None:
    """Delete all its pools, jobs and nodes."""
    from batchtrain.emulator import server

    place = _place(data_dir)
    settings().confirm(f"Delete every pool and job of the emulator on {place}?")
    if server.status(place) is None:
        raise NotFound(f"no emulator is running on {place}; `batchtrain emulator start` starts it")
    server.reset(place)
    show({"reset": str(place)}, "reset")


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
