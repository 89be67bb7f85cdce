"""The entry point of the command line: answers --version at once, runs the commands, and prints every error as one
message."""

from __future__ import annotations

import gc
import io
import signal
import sys
from types import FrameType
from typing import Any

from batchtrain.cli.streams import silence_closed_terminals
from batchtrain.version import __version__


def main() -> None:
    """Run the command line and exit with its code. Only `_run` imports click, which takes longer than --version."""
    if sys.argv[1:] == ["--version"]:
        print(f"batchtrain {__version__}")
        return
    gc.set_threshold(500_000)  # imports make a million objects that stay: a tenth of the time of most commands
    _at_signals(_end, "SIGTERM", "SIGHUP")
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # unused; JupyterLab brings it, and jsonschema takes 1 s
    for stream in (sys.stdout, sys.stderr):
        # Characters that the encoding of the stream lacks are printed as escapes; they never end a command.
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")
    code = _run()
    _at_signals(signal.SIG_DFL, "SIGINT", "SIGTERM", "SIGHUP")  # Python prints an exception while it ends
    gc.freeze()  # the four collections with which Python ends would visit all that imports made
    sys.exit(code)


def _at_signals(handler: Any, *names: str) -> None:
    """Set the handler of signals that are not ignored, as SIGHUP is under nohup. Windows lacks some."""
    for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    """SIGTERM and SIGHUP act like Ctrl-C: the command deletes what it created."""
    from batchtrain import errors  # --help needs none

    if number == signal.SIGTERM:
        raise errors.Terminated
    silence_closed_terminals()
    raise errors.TerminalClosed


def _run() -> int:
    from batchtrain.cli import app

    return app.run()


if __name__ == "__main__":
    main()
