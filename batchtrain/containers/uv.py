"""uv, which installs the packages of environments: with the settings of pip on this machine, and its errors."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from batchtrain.containers.environments import Environment
from batchtrain.errors import BatchtrainError

LOGGED_LINES = 12
"""Lines of a failed command's output in the message."""
REACH_SECONDS = 5.0
"""How long a second package index may take to accept a connection."""

Words = tuple[str | Path, ...]


class NotMade(BatchtrainError):
    """This machine cannot have an environment; the message gives the reason and the next step."""

    exit_code = 2


def index(spec: Environment) -> tuple[str, ...]:
    """The option for the second index, if it can be reached (assumed if there is a proxy): without it, what PyPI has
    must do."""
    url, host = spec.extra_index, urlsplit(spec.extra_index)
    with contextlib.suppress(OSError):
        if url and not getproxies():
            socket.create_connection((host.hostname or "", host.port or 443), REACH_SECONDS).close()
        return ("--index", url) if url else ()
    return ()


def install(
    directory: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    links: bool = False,
) -> None:
    """Install packages. links: share their files with the cache of uv, and so with other environments. A step that
    changes an installed library would change it there."""
    mode = "--link-mode=hardlink" if links else "--link-mode=copy"
    command: Words = (needed(), "pip", "install", "--quiet", mode, "--python", directory / "bin" / "python")
    variables = {"UV_COMPILE_BYTECODE": os.environ.get("UV_COMPILE_BYTECODE", "1"), **(variables or {})}
    if links or (directory / "lib" / "python3.6").exists():  # `make` shares the bytecode; that one's py_compile is old
        variables["UV_COMPILE_BYTECODE"] = "0"
    run("install " + " ".join(arguments), (*command, *arguments), {**settings_of_pip(), **variables}, cwd)


def needed() -> str:
    """uv. Raises NotMade if it is missing."""
    if uv := program():
        return uv
    raise NotMade(f"uv installs packages here, and it is missing: `{sys.executable} -m pip install uv`")


def program() -> str:
    """uv of PATH, or of the environment that runs batchtrain."""
    beside = Path(sys.executable).with_name("uv")
    return "uv" if shutil.which("uv") else str(beside) if beside.exists() else ""


_VARIABLES_OF_UV = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "no-index": ("UV_NO_INDEX", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
"""Of a setting of pip, uv's variable, and what stands between two values."""


@functools.cache  # an environment has several steps, and pip takes 0.3 s to start
def settings_of_pip() -> dict[str, str]:
    """uv's variables for the settings of pip on this machine, which uv does not read: indexes, directories
    of wheels, constraints and certificates. https://pip.pypa.io/en/stable/topics/configuration/"""
    settings = subprocess.run(
        (sys.executable, "-m", "pip", "config", "list"), capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # as pip does: the best version of all indexes
    # variables outweigh the settings of `pip install`, and these those of all commands
    for line in sorted(settings.stdout.splitlines(), key=lambda line: (line[:5] == ":env:", line[:8] == "install.")):
        name, _, value = line.partition("=")
        variable, between = _VARIABLES_OF_UV.get(name.rpartition(".")[2], ("", ""))
        if variable:
            variables[variable] = between.join(str(ast.literal_eval(value)).split())
    return {name: value for name, value in variables.items() if name not in os.environ}


def run(
    what: str,
    command: Sequence[str | Path],
    variables: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    lines: str = "",
) -> str:
    """Run to the end and return the output, or raise NotMade with its last lines. lines: the input."""
    code, output = ended(command, variables, cwd, lines)
    if code != 0:
        last = "\n".join(output.splitlines()[-LOGGED_LINES:])
        raise NotMade(f"could not {what}: exit code {code}\n{last}")
    return output


def ended(
    command: Sequence[str | Path], variables: Mapping[str, str] | None = None, cwd: Path | None = None, lines: str = ""
) -> tuple[int, str]:
    """Run to the end and return the exit code and the output. A signal that ends this process before, such as SIGTERM,
    also kills what the command started, such as compilers."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            output, _ = process.communicate(lines)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output
