"""Where a run can be watched: its page in a dashboard."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path

import msgspec

from batchtrain.cli.children import PROGRAM
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.dashboard.note import address_of
from batchtrain.records.events import Event, RunRecorded

IDLE_SECONDS = 3600
"""How long a dashboard that a run started stays without a page."""


class RunPage:
    """Prints where a run can be watched: its page in a dashboard that is open, or in one that it starts."""

    def __init__(self, runs: Path, tell: Callable[[Event], None], *, starts: bool, stack: contextlib.ExitStack) -> None:
        """starts: whether to open a page in the browser."""
        self._runs, self._tell, self._starts, self._stack = runs, tell, starts, stack

    def tell(self, event: Event) -> None:
        """Pass an event on; print the address of a run that begins."""
        self._tell(event)
        if isinstance(event, RunRecorded):
            fragment = ""
            url = address_of(self._runs)
            if self._starts and not url:
                url, fragment = self._started()
            if url:
                page = f"{url}/runs/{event.run}{fragment}"
                say(f"watch it at {page}")
                if self._starts:
                    open_page(page, self._stack)
                    self._starts = False

    def _started(self) -> tuple[str, str]:
        """The address of a new dashboard, and the fragment that signs in. It continues after the run, so that its page
        shows the record."""
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


def open_page(link: str, stack: contextlib.ExitStack) -> None:
    """Open the link by a file that only this user can read: other users see the arguments of a browser."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="batchtrain-dashboard-")))
    page = folder / "open.html"
    page.touch(mode=0o600)
    page.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={link}"><title>batchtrain</title>', encoding="utf-8"
    )
    if not webbrowser.open(page.as_uri()):
        say("no browser was found; open the link above")
