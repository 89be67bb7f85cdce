"""`batchtrain dashboard`: the web page of an account and of recorded runs."""

from __future__ import annotations

import contextlib
import os

import msgspec

from batchtrain.cli.connecting import connect
from batchtrain.cli.logins import login_files
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.run_directories import runs_root
from batchtrain.cli.run_page import open_page
from batchtrain.dashboard.serve import Options, Served, serve
from batchtrain.errors import NoAccount
from batchtrain.service.connect import Account


def command(
    port: int | None, no_open: bool, allow_changes: bool, hosts: tuple[str, ...], until_idle: float | None
) -> None:
    """Show pools, jobs, live logs, metric curves and recorded runs in the browser. Ctrl-C ends it.

    It listens on 127.0.0.1 only. The printed link signs in, so keep it private. Links to pages have no token.
    """
    options = Options(
        account=_account(),
        login_files=login_files,
        runs=runs_root(),
        port=port,
        changes=allow_changes,
        hosts=frozenset(name.lower() for name in hosts),
        target=settings().target,
        idle=until_idle,
    )
    with contextlib.ExitStack() as stack:
        serve(options, lambda server: _ready(server, None if no_open else stack))


def _account() -> Account | None:
    """The account; None if nothing says which: then the recorded runs are shown."""
    try:
        return connect().account
    except NoAccount:
        say("no account is configured, so only recorded runs are shown; `--local` shows the emulator")
        return None


def _ready(server: Served, stack: contextlib.ExitStack | None) -> None:
    """Print the link, and open the browser."""
    if settings().output == "table":
        print(f"{server.link}\n", end="", flush=True)
        say("Ctrl-C ends the dashboard")
    else:
        document = {"url": server.url, "link": server.link, "token": server.token, "pid": os.getpid()}
        print(msgspec.json.encode(document).decode(), flush=True)
    if stack is not None:
        open_page(server.link, stack)
