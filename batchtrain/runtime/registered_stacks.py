"""The sitecustomize of the Pythons of a gang: at the signal SIGNAL, all threads write their stacks to a deleted file,
where stacks.py reads them. Then the sitecustomize that this one hides runs. For every Python, also 2.7."""

import os
import sys

SIGNAL = 64
"""SIGRTMAX."""


def register():  # type: () -> None
    import faulthandler

    path = "/tmp/batchtrain-stacks-%s" % os.urandom(8).hex()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    os.unlink(path)
    faulthandler.register(SIGNAL, file=fd, all_threads=True)


def run_hidden():  # type: () -> None
    own, path = sys.modules.pop(__name__), sys.path[:]
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in path if os.path.abspath(each) != folder]
    try:
        __import__(__name__)
    except ImportError:
        sys.modules[__name__] = own
    finally:
        sys.path[:] = path + [each for each in sys.path if each not in path]


if __name__ == "sitecustomize":
    try:
        register()
    except Exception:  # noqa: BLE001 - whatever it is, the program runs without this
        pass
    run_hidden()
