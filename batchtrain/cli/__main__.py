"""The entry point of the command line: answers --version at once, runs the commands, and prints every error as one
message."""

from __future__ import annotations

import errno
import gc
import io
import signal
import sys
from types import FrameType
from typing import TextIO

UNREAD = 141
"""The exit code if the reader of the output is gone, as for a program that SIGPIPE ends."""


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        from batchtrain.version import __version__  # without click, whose import would take most of the time

        print(f"batchtrain {__version__}")
        return
    gc.set_threshold(500_000)  # imports make a million objects that stay: a tenth of the time of most commands
    signal.signal(signal.SIGTERM, _interrupt)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, _hang_up)
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # unused; JupyterLab brings it, and jsonschema takes 1 s
    for stream in (sys.stdout, sys.stderr):
        # Characters that the encoding of the stream lacks are printed as escapes; they never end a command.
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run())


def _nobody_reads() -> bool:
    """Whether stdout or stderr has lost its reader, as after `| head -1`."""
    readers_gone = [_unread(stream) for stream in (sys.stdout, sys.stderr)]
    return any(readers_gone)


def _unread(stream: TextIO | None) -> bool:
    """Whether the reader of a stream is gone; if so, the rest of the output is discarded."""
    import select  # only for a broken pipe

    from batchtrain.cli.messages import silence

    if stream is None or not hasattr(select, "poll"):  # Windows has none, and no SIGPIPE either
        return False
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    broken = any(event & select.POLLERR for _, event in poll.poll(0))
    if broken:
        silence(stream)
    return broken


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM acts like Ctrl-C: the command deletes what it created."""
    from batchtrain.errors import Terminated

    raise Terminated


def _hang_up(_number: int, _frame: FrameType | None) -> None:
    """SIGHUP acts like Ctrl-C too: the terminal was closed, and what is written to it fails from now on."""
    from batchtrain.cli.messages import silence
    from batchtrain.errors import TerminalClosed

    for stream in filter(_is_hung_up, (sys.stdout, sys.stderr)):
        silence(stream)
    raise TerminalClosed


def _is_hung_up(stream: TextIO) -> bool:
    """Whether a stream is a terminal that was closed."""
    import termios  # a system with SIGHUP has it

    try:
        termios.tcgetattr(stream.fileno())
    except (OSError, ValueError, termios.error) as error:
        return bool(error.args[0] == errno.EIO)
    return False


def _run() -> int:
    import click

    from batchtrain.cli.app import root
    from batchtrain.cli.options import Settings, values_of_variable

    options = Settings()
    try:
        options.values.update(values_of_variable())
        result = root.main(standalone_mode=False, obj=options)
        print(end="", flush=True)  # reports a full disk behind stdout here, and not when Python ends
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as empty:
        print(empty.format_message(), file=sys.stderr)
        return 2
    except SystemExit:  # from click: a completion, or a broken pipe
        if _nobody_reads():
            return UNREAD
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost handler: every exception becomes one message
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return UNREAD
        from batchtrain.cli import failures  # needed only by a command that failed

        return failures.report(error, options)


if __name__ == "__main__":
    main()
