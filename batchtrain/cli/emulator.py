"""`batchtrain emulator`: start, stop and inspect the embedded Azure Batch."""

from __future__ import annotations

import os
import re
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from batchtrain.cli.documents import plain
from batchtrain.cli.emulator_commands import ACCOUNT, DEFAULT_ACCOUNT
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.output import show, show_rows
from batchtrain.config import catalog_file
from batchtrain.config.types import SPAN, seconds_of
from batchtrain.emulator import identity, mapped_images, own_catalog, server, steering, tokens, trust
from batchtrain.emulator.local_service import VARIABLE, account_dir, emulator_directory, emulator_faults, use
from batchtrain.emulator.machine import azurite
from batchtrain.emulator.machine.agent import KERNEL
from batchtrain.emulator.server import Settings, Status
from batchtrain.errors import BatchtrainError, DamagedState, NotFound, UsageError
from batchtrain.state_files import write_atomically


class Mapped(NamedTuple):
    """An image and the local environment used in its place."""

    image: str
    prefix: str
    entrypoint: str = ""
    paths: tuple[str, ...] = ()


class Limit(NamedTuple):
    """A quota of the account, or the nodes of a VM size in the region."""

    name: str
    most: int | None


class Request(NamedTuple):
    """An injected fault."""

    id: int
    kind: str
    operation: str
    resource: str
    struck: int


def directory_of_account(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The data directory that an option names, or that of --account."""
    account = ctx.meta.get(ACCOUNT, DEFAULT_ACCOUNT)
    if account == DEFAULT_ACCOUNT or ctx.get_parameter_source(str(parameter.name)) == ParameterSource.COMMANDLINE:
        return value
    return str(account_dir(_data_directory(value), account))


def start(
    data_dir: str | None,
    port: int | None,
    account: str,
    nodes_max: int | None,
    quotas: tuple[str, ...],
    https: bool,
    names: tuple[str, ...],
    foreground: bool,
    **settings: Any,
) -> None:
    """Start the emulator. It listens on loopback only."""
    if names and not https:
        raise UsageError("--name belongs to a certificate: add --https")
    try:
        limits = server.quotas_of(quotas) | ({} if nodes_max is None else {"nodes": nodes_max})
        names = tuple(trust.checked(name) for name in names)
    except ValueError as error:
        raise UsageError(str(error)) from None
    port = (10010 if account == DEFAULT_ACCOUNT else 0) if port is None else port
    options = server.Settings(
        data_dir=_data_directory(data_dir),
        port=port,
        account=account,
        quotas=limits,
        https=https,
        names=names,
        **settings,
    )
    catalog = catalog_file.load(Path.cwd())
    with emulator_faults():
        use(options.data_dir)  # no command stops it from here on
        running = server.status(options.data_dir)
        if running is not None:
            _keep(running, options, data_dir)
            return
        own_catalog.add(options.data_dir, catalog.own_sizes, catalog.own_images)
        if foreground:
            from batchtrain.emulator import serving  # the whole service: only the process that serves needs it

            serving.serve(options)
            return
        status = server.spawn(options)
    text = f"listening at {status.endpoint}; `batchtrain emulator stop{_same(data_dir)}` ends it"
    show(plain(status), f"{status.data_loss}\n{text}{_for_others(data_dir)}".lstrip())


def _keep(running: Status, options: Settings, data_dir: str | None) -> None:
    """An emulator that a command started for itself continues; its settings stay as they are."""
    server.keep(running.data_dir)
    text = f"already running at {running.endpoint}, and stays"
    if differences := server.differences(running, options):
        text += f"; but {'; '.join(differences)}: `batchtrain emulator stop{_same(data_dir)}`, then start it again"
    show({**plain(running), "differences": differences}, text + _for_others(data_dir))


def stop(data_dir: str | None) -> None:
    """Stop the emulator and its nodes, and those of its other accounts. Its data is kept."""
    directory = _data_directory(data_dir)
    accounts = (path for path in (directory / mapped_images.ACCOUNTS).glob("*") if path.is_dir())
    with emulator_faults():
        *_, stopped = ends = [_stopped(path) for path in (*accounts, directory)]
    for end in ends:
        if isinstance(end, DamagedState):
            raise end
    text = "stopped; the pools and jobs are kept for the next start" if stopped else _none(data_dir)
    show({"stopped": stopped}, text)


def _stopped(data_dir: Path) -> bool | DamagedState:
    """Stop one emulator. Returns whether it was running, or why that is unknown: then the others are stopped anyway."""
    try:
        return server.stop(data_dir)
    except DamagedState as error:
        return error


def status(data_dir: str | None) -> None:
    """Show the endpoint, the account key and what is running. Exit code 3 if the emulator is not running."""
    running = _running(data_dir)
    with emulator_faults():
        document = {**plain(running), **_snake(steering.account(running))}
    show(document, "\n".join(f"{name}: {value}" for name, value in document.items() if not isinstance(value, dict)))


def env(data_dir: str | None, entra: bool) -> None:
    """Print the account as shell variables: after `eval "$(batchtrain emulator env)"`, `az batch` uses it.

    AZURE_STORAGE_CONNECTION_STRING is that of its storage, which is started. IDENTITY_ENDPOINT and IDENTITY_HEADER are
    included, so DefaultAzureCredential gets tokens from the emulator. With --entra, ClientSecretCredential and
    WorkloadIdentityCredential do, too; give them `disable_instance_discovery=True`.
    """
    running = _running(data_dir)
    home = {VARIABLE: directory} if (directory := _own_directory(data_dir)) else {}
    variables = running.environment | home | _storage(running) | (_entra(running) if entra else {})
    show(dict(variables), "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))


def _storage(running: Status) -> dict[str, str]:
    """The variable of the storage; without one on this machine, says why there is none."""
    try:
        with emulator_faults():
            azurite.install(azurite.find_node(), say)
            return {azurite.VARIABLE: server.storage(running).connection_string}
    except BatchtrainError as error:
        say(f"without storage: {error}")
        return {}


def _entra(running: Status) -> dict[str, str]:
    """The variables of a sign-in as with Microsoft Entra ID. Writes the file of the federated token."""
    if not running.endpoint.startswith("https:"):
        raise UsageError("sign-in libraries take an https authority only; start the emulator with --https")
    token_file = running.data_dir / "federated-token"
    write_atomically(token_file, identity.assertion(running.key, running.account, server.clock()))
    return identity.application(running.endpoint, running.key, str(token_file))


def token(data_dir: str | None, resource: str, minutes: int) -> None:
    """Print an access token of the emulator, used like one of Microsoft Entra ID: `Authorization: Bearer TOKEN`."""
    running = _running(data_dir)
    now, life = server.clock(), minutes * 60
    access_token = tokens.issue(running.key, running.account, resource, now, life)
    show({"accessToken": access_token, "expiresOn": tokens.seconds(now) + life, "resource": resource}, access_token)


def reset(data_dir: str | None) -> None:
    """Delete all pools, jobs and nodes of the emulator."""
    directory = _data_directory(data_dir)
    confirm(f"Delete every pool and job of the emulator on {directory}?")
    with emulator_faults():
        server.reset(directory)
    show({"reset": str(directory)}, "reset")


def clock(data_dir: str | None, span: str | None, scale: float | None, step: bool, real: bool) -> None:
    """Show or set the clock of the emulator, for example to run a week of schedules in a second.

    It never goes back while there are pools and jobs: `batchtrain emulator reset` sets it to the time of the machine.
    """
    if sum((scale is not None, step, real)) > 1:
        raise UsageError("give only one of --scale, --step and --real")
    if span is not None and not re.match(SPAN, span):
        raise UsageError(f"`{span}` is not a time span of the form [days.]HH:MM:SS")
    to = _running(data_dir)
    with emulator_faults():
        if scale is not None or step or real:
            steering.turn(to, "scaled" if scale is not None else "stepped" if step else "real", scale or 1.0)
        if span is not None:
            steering.advance(to, timedelta(seconds=seconds_of(span)))
        clock = steering.clock(to)
    ahead = timedelta(seconds=round(clock["aheadSeconds"]))
    show(_snake(clock), f"{clock['now']} ({clock['mode']}, {ahead} ahead)")


def capacity(limits: tuple[str, ...], data_dir: str | None) -> None:
    """Show or set how many nodes the region has of a VM size, such as STANDARD_ND96ISR_H100_V5=1.

    NAME is a VM size or a quota (pools, dedicated-cores, low-priority-cores, active-jobs, nodes). A pool that wants
    more nodes than there are gets AllocationFailed, and at a quota AccountCoreQuotaReached. Its other nodes stay.
    """
    numbers = dict(text.partition("=")[::2] for text in limits)
    if wrong := [name for name, number in numbers.items() if not (number.isascii() and number.isdecimal())]:
        raise UsageError(f"write NAME=N with a number of nodes or cores, not `{wrong[0]}`")
    to = _running(data_dir)
    with emulator_faults():
        document = _snake(steering.limit(to, {name: int(number) for name, number in numbers.items()}))
    rows = [Limit(name, most) for name, most in {**document["quotas"], **document["capacity"]}.items()]
    show_rows([row for row in rows if row.most is not None])


def add_fault(kind: str, data_dir: str | None, **numbers: object) -> None:
    """Inject faults of KIND from now on."""
    parameters = {name: value for name, value in numbers.items() if value is not None}
    with emulator_faults():
        fault_id = steering.fault(_running(data_dir), kind, **parameters)
    ends = f"`batchtrain emulator fault clear {fault_id}{_same(data_dir)}`"
    show({"id": fault_id}, f"fault {fault_id} is active; {ends} removes it")


def list_faults(data_dir: str | None) -> None:
    """List the injected faults, and how often each occurred."""
    faults = steering.faults(_running(data_dir))
    rows = [Request(*(fault[name] for name in Request._fields)) for fault in faults]
    show_rows(rows, empty="no faults")


def clear_faults(number: int | None, data_dir: str | None) -> None:
    """Remove fault NUMBER, or all faults."""
    with emulator_faults():
        steering.clear_faults(_running(data_dir), number)
    show({"cleared": number or "all"}, "cleared")


def befall(node: str, act: str, data_dir: str | None, seconds: float | None, notice: float | None) -> None:
    """Make a NODE preempted, lost or unusable now.

    NODE is an id or a short id as `pool show` has it, or its number there (n0 or 0) if only one pool has nodes.
    """
    with emulator_faults():
        steering.befall(_running(data_dir), node, act, seconds, notice)
    show({"node": node, "act": act}, f"{act}: {node}" + (f" in {notice:g} s" if notice else ""))


def _running(data_dir: str | None) -> Status:
    with emulator_faults():
        running = server.status(_data_directory(data_dir))
    if running is None:
        raise NotFound(f"{_none(data_dir)}; `batchtrain emulator start{_same(data_dir)}` starts it")
    return running


def _none(data_dir: str | None) -> str:
    """What to say without an emulator. Another shell may have started it in another directory."""
    other = f" (of another directory: `--data-dir DIR`, or {VARIABLE}=DIR for all commands)"
    return f"no emulator is running on {_data_directory(data_dir)}{'' if _own_directory(data_dir) else other}"


def map_(image: str, prefix: str, entrypoint: str, paths: tuple[str, ...], data_dir: str | None) -> None:
    """Use PREFIX, such as a virtual environment, in place of IMAGE."""
    environment = Path(prefix).absolute()
    if problem := mapped_images.problem(environment):
        raise UsageError(f"{environment} {problem}")
    directories = dict(map(_path_of_an_image, paths))
    mapped_images.map_image(_data_directory(data_dir), image, environment, entrypoint, directories)
    show(_row(image, mapped_images.Mapped(environment, entrypoint, directories)), f"{image} is {environment}")


def _path_of_an_image(text: str) -> tuple[str, Path]:
    path, _, directory = text.partition("=")
    first = path.strip("/").partition("/")[0]
    if not path.startswith("/") or not first or not directory:
        raise UsageError(f"--path {text}: write PATH=DIR with an absolute PATH, such as /opt/intel=~/intel")
    if first in KERNEL:
        raise UsageError(f"--path {text}: /{first} belongs to the kernel; choose another path")
    if not Path(directory).expanduser().is_dir():
        raise UsageError(f"--path {text}: {directory} is not a directory")
    return os.path.normpath(path), Path(directory).expanduser().absolute()


def _row(image: str, mapping: mapped_images.Mapped) -> Mapped:
    paths = tuple(f"{path}={directory}" for path, directory in mapping.paths.items())
    return Mapped(image, str(mapping.prefix), mapping.entrypoint, paths)


def unmap(image: str, data_dir: str | None) -> None:
    """Remove the mapping of IMAGE."""
    if not mapped_images.unmap(_data_directory(data_dir), image):
        raise NotFound(f"{image} is not mapped")
    show({"unmapped": image}, f"the mapping of {image} is removed")


def list_(data_dir: str | None) -> None:
    """List the mapped images."""
    rows = [_row(*item) for item in sorted(mapped_images.list_images(_data_directory(data_dir)).items())]
    show_rows(rows, empty="no images are mapped")


def _data_directory(data_dir: str | None) -> Path:
    return Path(data_dir).absolute() if data_dir else emulator_directory()


def _own_directory(data_dir: str | None) -> str:
    """The directory that only an option names, so that other commands do not use it; otherwise empty."""
    is_option = click.get_current_context().get_parameter_source("data_dir") == ParameterSource.COMMANDLINE
    return str(_data_directory(data_dir)) if is_option and data_dir != os.environ.get(VARIABLE) else ""


def _for_others(data_dir: str | None) -> str:
    directory = _own_directory(data_dir)
    return f"\nother commands use it after `export {VARIABLE}={shlex.quote(directory)}`" if directory else ""


def _same(data_dir: str | None) -> str:
    """The option that makes another command use the same emulator. Empty if a variable names it."""
    if directory := _own_directory(data_dir):
        return f" --data-dir {shlex.quote(directory)}"
    account = click.get_current_context().meta.get(ACCOUNT, DEFAULT_ACCOUNT)
    return "" if account == DEFAULT_ACCOUNT else f" --account {account}"


def _snake(value: Any) -> Any:
    """A document of the emulator with the key names that other commands use."""
    if not isinstance(value, dict):
        return value
    return {re.sub("(?<=[a-z])([A-Z])", r"_\1", name).lower(): _snake(item) for name, item in value.items()}
