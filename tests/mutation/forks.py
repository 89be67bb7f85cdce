"""A process that has imported the libraries and forks for each run of pytest: an import takes longer than most tests.

It reads the arguments of a run as a line of JSON, and answers with the exit code, or -1 for a run that did not end.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

LIBRARIES = (
    "azure.batch", "certifi", "click", "cryptography.hazmat.primitives.asymmetric.rsa", "http.server", "jsonschema",
    "msgspec", "requests", "tenacity", "yaml",
)  # fmt: skip
"""Of the tests and the package; none of a plugin of pytest, which rewrites those when it imports them."""
OUTPUT = "mutation-output.txt"
CURRENT = "mutation-test.txt"
"""The name of the test that runs: of one that does not end, pytest prints no name."""
ITSELF = "pytest itself"
"""In the place of that name before the first test."""
MOST_SECONDS = 600.0
"""For all tests of one change: it can also keep pytest from ending."""


class Current:
    """A plugin that notes which test runs."""

    def __init__(self) -> None:
        self._file = Path(CURRENT).resolve()
        self._file.write_text(ITSELF, encoding="utf-8")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._file.write_text(nodeid, encoding="utf-8")


def main() -> None:
    for library in LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        print(_run(json.loads(line)), flush=True)


def _run(arguments: list[str]) -> int:
    if not (child := os.fork()):
        os.setsid()
        for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
            os.dup2(os.open(path, flags), number)
        os.dup2(1, 2)
        code = 1
        try:
            code = int(pytest.main(arguments, [Current()]))
        finally:
            sys.stdout.flush()
            os._exit(code)
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


if __name__ == "__main__":
    main()
