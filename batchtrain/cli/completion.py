"""Completes ids of pools and jobs in the shell: within a time limit, without messages and without starting anything."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread

import click

from batchtrain.cli.options import Settings
from batchtrain.client import client
from batchtrain.config.load import load_credentials
from batchtrain.emulator import server
from batchtrain.emulator.local_service import account_dir, emulator_directory

NEAR, FAR = 0.2, 1.5
"""Seconds to wait for the emulator, and for an account."""
QUESTION = "api-version=2025-06-01&%24select=id"


def ids(kind: str, ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes an id. kind: `pools` or `jobs`."""
    options = ctx.find_root().ensure_object(Settings)
    if _has_account(options):
        names = _within(FAR, lambda: _of_account(kind, options))
    else:
        names = _within(NEAR, _of_emulator(kind, options.batch_account))
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


def _has_account(flags: Settings) -> bool:
    """Whether the target may be an Azure account, as far as known without reading files."""
    if flags.local:
        return False
    directory = Path(flags.configdir or ".")
    files = (directory / "credentials.yaml", directory / "config" / "credentials.yaml")
    return bool(os.environ.get("AZURE_BATCH_ENDPOINT")) or "credentials" in flags.files or any(map(Path.exists, files))


def _within(seconds: float, look: Callable[[], Iterable[str]]) -> list[str]:
    """The ids that arrive in time. Errors are dropped, because a shell cannot show them."""
    names: list[str] = []

    def work() -> None:
        with contextlib.suppress(Exception):
            names.extend(look())

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return list(names)


def _of_account(kind: str, options: Settings) -> list[str]:
    credentials = load_credentials(options.configdir or ".", options.files)
    connection = client.connect(local=False, credentials=credentials, account=options.batch_account)
    if kind == "pools":
        return [pool.id for pool in connection.pools.list()]
    return [job.id for job in connection.jobs.list()]


def _of_emulator(kind: str, account: str) -> Callable[[], list[str]]:
    """Reads the ids without the SDK, whose import takes too long for a shell. The time limit excludes imports."""

    def look() -> list[str]:
        to = server.status(account_dir(emulator_directory(), account))
        return [] if to is None else [item["id"] for item in server.signed("GET", to, f"/{kind}", QUESTION)["value"]]

    return look
