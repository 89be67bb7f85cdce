"""ends.py [--settle] (-m MODULE | -c TEXT | FILE) [ARGUMENT]...: runs a program as Python does, but ends it
differently.

Workers of MXNet and processes of JAX wait for all others when their interpreter ends, even after an exception, so a
failure would stay unnoticed. Here an uncaught exception ends the process at once.

With --settle the program ends as usual, but PyTorch's threads of gloo get time to release what they sent last. They
need the interpreter for that, and abort a process that is ending: "terminate called without an active exception", code
134, in some of a hundred runs on CPUs (PyTorch 2.13; its issue 190489). Standard library, Python 3.6 or later.
"""

import atexit
import contextlib
import gc
import os
import runpy
import sys
import time
import traceback
import types

SETTLE_SECONDS = 0.05
"""Threads of gloo release their last work within a millisecond after they get the lock of the interpreter."""


def run(arguments: "list[str]") -> None:
    kind, rest = (arguments[0], arguments[1:]) if arguments[0] in ("-m", "-c") else ("", arguments)
    sys.argv[:] = ["-c", *rest[1:]] if kind == "-c" else rest
    if kind == "-c":
        sys.path[0] = ""
        exec(compile(rest[0], "<string>", "exec"), sys.modules["__main__"].__dict__)
    elif kind == "-m":
        sys.path[0] = os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")


def code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write("{}\n".format(end.code))
    return 1


def leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 255)


def settle() -> None:
    """Without references, a model ends its process group, which waits for its threads; the other threads get time."""
    if "torch.distributed" in sys.modules:
        gc.collect()
        time.sleep(SETTLE_SECONDS)


def print_failure(kind: "type[BaseException]", error: BaseException, trace: "types.TracebackType | None") -> None:
    """The traceback as Python itself would print it: without the frames of this file and of runpy."""
    while trace is not None and trace.tb_frame.f_code.co_filename in OWN:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


OWN = (__file__, runpy.__file__, "<frozen runpy>")


def main() -> None:
    sys.excepthook = print_failure
    if sys.argv[1] == "--settle":
        atexit.register(settle)  # handlers run in reverse order, so this one is last
        run(sys.argv[2:])
        return
    try:
        run(sys.argv[1:])
    except SystemExit as end:
        code = code_of(end)
        if code:
            leave(code)
    except BaseException as error:  # noqa: BLE001  # whatever it is, the others must not wait for it
        sys.excepthook(type(error), error, error.__traceback__)  # the program may have its own
        leave(1)


if __name__ == "__main__":
    main()
