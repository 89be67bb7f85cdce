"""What tests share: real MPIs and frameworks in environments of their own, and where the repository is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import containers, environments

ROOT = environments.ROOT


@pytest.fixture(autouse=True)
def _no_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tests of containers meet this machine's Docker Engine, if it has one."""
    if request.node.get_closest_marker("docker") is None:
        monkeypatch.setenv("DOCKER_HOST", "unix:///no/engine")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def mpi_environment() -> Callable[[str], Path]:
    """Gives the prefix of a virtual environment with one MPI, mpi4py, numpy and scikit-learn; fails where it cannot."""
    return mpi_prefix


@pytest.fixture(scope="session")
def framework_environment() -> Callable[[str], Path]:
    """Gives the prefix of a framework's virtual environment, or skips the test with the reason."""
    return framework_prefix


@pytest.fixture(scope="session")
def engine() -> None:
    """A Docker Engine answers; the test is skipped, with the reason, where none does."""
    with _or_skip():
        containers.require_engine()


@pytest.fixture(scope="session")
def image(engine: None) -> str:
    """Debian with sshd, Python and Open MPI, or the test is skipped with the reason."""
    with _or_skip():
        return containers.image()


@pytest.fixture(scope="module")
def registry(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[containers.Registry]:
    """One with a password, or the test is skipped with the reason."""
    with contextlib.ExitStack() as stack:
        with _or_skip():
            running = stack.enter_context(containers.registry(tmp_path_factory.mktemp("registry")))
        yield running


@contextlib.contextmanager
def _or_skip() -> Iterator[None]:
    try:
        yield
    except containers.Missing as missing:
        pytest.skip(str(missing))


def mpi_prefix(name: str) -> Path:
    """The environment of one MPI; made at first use."""
    return environments.prefix(name)


def framework_prefix(name: str) -> Path:
    """The environment of one framework; made at first use."""
    try:
        return environments.prefix(name)
    except environments.Missing as missing:
        pytest.skip(f"{name}: {missing}")
