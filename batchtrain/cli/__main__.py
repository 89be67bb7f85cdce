"""The command line's outermost door: the version at once, then the commands, and every error as one message."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        from batchtrain.version import __version__  # not even click: 0.1 s is the budget

        print(f"batchtrain {__version__}")
        return
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(_run())


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Being told to end is like Ctrl-C: what was made is cleaned up."""
    raise KeyboardInterrupt


def _run() -> int:
    import click

    from batchtrain.cli.app import root
    from batchtrain.errors import BatchtrainError

    try:
        result = root.main(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as empty:
        print(empty.format_message(), file=sys.stderr)
        return 2
    except click.ClickException as wrong:
        _say(wrong.format_message())
        return 2
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return 130
    except BatchtrainError as error:
        return _fail(error)
    except OSError as error:
        if error.filename is None:
            return _bug(error)
        _say(f"{error.filename}: {error.strerror}")
        return 2
    except Exception as error:  # noqa: BLE001 - the outer door: whatever comes here is our bug
        return _bug(error)


def _say(message: str) -> None:
    print(f"batchtrain: {message}", file=sys.stderr)


def _debugging() -> bool:
    import os

    return "--debug" in sys.argv or os.environ.get("BATCHTRAIN_DEBUG", "") not in ("", "0")


def _fail(error: Exception) -> int:
    from batchtrain.errors import BatchtrainError, ConfigError, TaskFailed

    assert isinstance(error, BatchtrainError)
    if _debugging():
        import traceback

        traceback.print_exception(error)
    if isinstance(error, ConfigError):
        from batchtrain.cli.output import colored

        paint = colored(sys.stderr)
        for problem in error.problems:
            print(problem.rendered(color=paint), file=sys.stderr)
        count = sum(problem.level == "error" for problem in error.problems)
        _say(f"{count} error{'s' if count != 1 else ''} in the configuration")
        return error.exit_code
    _say(str(error))
    if isinstance(error, TaskFailed) and error.lines and sys.argv[1:2] != ["run"]:  # `run` has shown them already
        print("its last lines:", *(f"  {line}" for line in error.lines), sep="\n", file=sys.stderr)
    return error.exit_code


def _bug(error: Exception) -> int:
    if _debugging():
        import traceback

        traceback.print_exception(error)
    else:
        _say(f"this is a bug in batchtrain, please report it: {type(error).__name__}: {error} (--debug shows where)")
    return 1


if __name__ == "__main__":
    main()
