"""`batchtrain dashboard`: the web page of an account and of recorded runs."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from batchtrain.cli.help import Command
from batchtrain.cli.options import FINITE, say, settings
from batchtrain.errors import NoAccount
from batchtrain.records.events import Event, RunRecorded

IDLE_SECONDS = 3600
"""How long a dashboard that a run started stays without a page."""

if TYPE_CHECKING:
    from batchtrain.dashboard.serve import Served
    from batchtrain.service.connect import Account


@click.command("dashboard", cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), help="Port on 127.0.0.1; 0 for any. Default: 8265, else any.")
@click.option("--no-open", is_flag=True, help="Do not open the browser; print the link.")
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Allow to resize and delete pools, reboot nodes, run failed tasks again, and disable, enable, terminate and"
    " delete jobs.",
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Accept requests for this host name, from a proxy."
)
@click.option("--until-idle", type=FINITE, hidden=True, help="End when no page was open for so many seconds.")
def command(
    port: int | None, no_open: bool, allow_changes: bool, hosts: tuple[str, ...], until_idle: float | None
) -> None:
    """Show pools, jobs, live logs, metric curves and recorded runs in the browser. Ctrl-C ends it.

    It listens on 127.0.0.1 only. The printed link signs in, so keep it private. Links to pages have no token.
    """
    from batchtrain.dashboard.serve import Options, serve

    options = Options(
        account=_account(),
        runs=settings().runs_root,
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
        return settings().connect().account
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
        _open(server.link, stack)


class RunPage:
    """Prints where a run can be watched: its page in a dashboard that is open, or in one that it starts."""

    def __init__(self, runs: Path, tell: Callable[[Event], None], *, starts: bool, stack: contextlib.ExitStack) -> None:
        """starts: whether to open a page in the browser."""
        self._runs, self._tell, self._starts, self._stack = runs, tell, starts, stack

    def tell(self, event: Event) -> None:
        """Pass an event on; print the address of a run that begins."""
        self._tell(event)
        if isinstance(event, RunRecorded):
            from batchtrain.dashboard.note import address_of

            fragment = ""
            url = address_of(self._runs)
            if self._starts and not url:
                url, fragment = self._started()
            if url:
                page = f"{url}/runs/{event.run}{fragment}"
                say(f"watch it at {page}")
                if self._starts:
                    _open(page, self._stack)
                    self._starts = False

    def _started(self) -> tuple[str, str]:
        """The address of a new dashboard, and the fragment that signs in. It continues after the run, so that its page
        shows the record."""
        from batchtrain.cli.children import PROGRAM

        words = [sys.executable, *PROGRAM, *shlex.split(settings().target), "--runs-dir", str(self._runs), "-o", "json"]
        words += ["dashboard", "--no-open", "--until-idle", str(IDLE_SECONDS)]
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert process.stdout is not None
        with process.stdout:
            line = process.stdout.readline()
        if not line:
            say("the dashboard could not be started; `batchtrain dashboard` shows why")
            return "", ""
        document = msgspec.json.decode(line)
        say(f"the dashboard ends when no page was open for {IDLE_SECONDS // 60} minutes")
        return document["url"], f"#token={document['token']}"


def _open(link: str, stack: contextlib.ExitStack) -> None:
    """Open the link by a file that only this user can read: other users see the arguments of a browser."""
    import webbrowser

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="batchtrain-dashboard-")))
    page = folder / "open.html"
    page.touch(mode=0o600)
    page.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={link}"><title>batchtrain</title>', encoding="utf-8"
    )
    if not webbrowser.open(page.as_uri()):
        say("no browser was found; open the link above")
