"""`batchtrain images` with a real Docker Engine: a good image and bad ones, a registry with a password, archives."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from batchtrain.emulator.interface import StorageAccount
from tests import containers
from tests.azurite import credentials

from .conftest import Shell

pytestmark = [pytest.mark.docker, pytest.mark.process, pytest.mark.slow]

BAD = {
    "no sshd": ("RUN rm /usr/sbin/sshd", "sshd", "openssh-server"),
    "an sshd that does not start": ("RUN echo Prot 23 >> /etc/ssh/sshd_config", "sshd", "configuration"),
    "an sshd that lets root in by nothing": (
        "RUN rm /etc/ssh/sshd_config.d/*; echo PermitRootLogin no >> /etc/ssh/sshd_config",
        "login",
        "PermitRootLogin",
    ),
    "host keys of its own": ("RUN ssh-keygen -A", "keys", "the container makes host keys"),
    "a key for logins": (
        "RUN ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519",
        "keys",
        "the pool the keys of logins",
    ),
    "another user": ("USER 1000", "user", "USER root"),
    "an entry point that takes every command for its own": ('ENTRYPOINT ["python3"]', "entry point", "ENTRYPOINT []"),
    "an entry point that prints every command": ('ENTRYPOINT ["/bin/echo", "+"]', "entry point", "ENTRYPOINT []"),
    "a driver": ("RUN touch /usr/lib/libcuda.so.535.1", "cuda", "the driver of the node"),
    "no MPI and no Python": ("RUN rm -rf /opt/venv/bin/mpirun /usr/bin/python3*", "mpi", "install an MPI"),
}
"""What is done to a good image, the check that fails, and a word of its next step."""


@pytest.fixture(scope="module")
def good(image: str) -> str:
    """An image that lacks nothing."""
    return image


@pytest.fixture(scope="module")
def tiny(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image that holds one small file and no shell."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "file").write_text("content\n")
    with made("tiny", "FROM scratch\nCOPY file /file\n", folder) as name:
        yield name


@contextlib.contextmanager
def made(name: str, dockerfile: str, folder: Path) -> Iterator[str]:
    """An image of a Dockerfile, for as long as it is needed."""
    image = containers.name_of(name)
    (folder / "Dockerfile").write_text(dockerfile)
    containers.docker("build", "--quiet", "--network=none", f"--tag={image}", str(folder))
    try:
        yield image
    finally:
        containers.docker("rmi", "--force", image)


@pytest.fixture(autouse=True)
def nothing_stays(engine: None) -> Iterator[None]:
    """No check leaves a container. One test at a time: they count the engine's containers."""
    containers.CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(containers.CACHE / "checks.lock"):
        before = checked()
        yield
        assert checked() <= before


def checked() -> set[str]:
    """The containers of checks that are there."""
    return set(containers.docker("ps", "--all", "--quiet", "--filter", "name=batchtrain-check-").split())


def found(batchtrain: Shell, *arguments: str, code: int) -> dict[str, dict[str, str]]:
    rows = json.loads(batchtrain("images", "check", "-o", "json", "--no-pull", *arguments, code=code).stdout)
    return {row["check"]: row for row in rows}


# --- check ----------------------------------------------------------------------------------------------------------


def test_a_good_image_passes(batchtrain: Shell, good: str) -> None:
    rows = found(batchtrain, good, code=0)
    assert {name for name, row in rows.items() if row["result"] != "ok"} <= {"infiniband"}
    assert "Open MPI" in rows["mpi"]["found"]
    assert rows["login"]["found"] == "root by key on port 23"


@pytest.mark.parametrize("what", BAD)
def test_what_a_bad_image_lacks_is_named_with_what_to_do(
    batchtrain: Shell, good: str, tmp_path: Path, what: str
) -> None:
    line, check, step = BAD[what]
    with made("bad", f"FROM {good}\n{line}\n", tmp_path) as name:
        rows = found(batchtrain, name, code=2)
    assert rows[check]["result"] == "fail", rows
    assert step in rows[check]["next_step"]


def test_an_image_for_another_architecture_is_not_run(batchtrain: Shell, tmp_path: Path) -> None:
    with containers.of_another_architecture(tmp_path) as name:
        rows = found(batchtrain, name, code=2)
    assert "s390x" in rows["architecture"]["found"]
    assert rows["shell"]["found"].startswith("not tried")


def test_an_image_that_is_nowhere_is_not_found(batchtrain: Shell) -> None:
    said = batchtrain("images", "check", "--no-pull", "batchtrain-test/nobody:1", code=3).stderr
    assert "batchtrain images build" in said
    assert "--help is not" in batchtrain("images", "check", "--no-pull", "--", "--help", code=3).stderr


def test_an_image_is_pulled_to_be_checked_by_a_sign_in_of_credentials_yaml(
    batchtrain: Shell, registry: containers.Registry, tiny: str, tmp_path: Path
) -> None:
    pushed = registry.push(tiny, "checked:1")
    entry = f"'{registry.server}': {{username: {registry.username}, password: {registry.password}}}"
    (tmp_path / "credentials.yaml").write_text(f"credentials: {{docker_registry: {{{entry}}}}}\n")
    try:
        done = batchtrain("images", "check", pushed, "--configdir", str(tmp_path), "-o", "json", code=2)
    finally:
        containers.docker("rmi", "--force", pushed, check=False)
    assert {row["check"] for row in json.loads(done.stdout)} >= {"architecture", "shell"}


def test_what_was_seen_of_one_image_is_shown_though_the_next_is_nowhere(batchtrain: Shell, tiny: str) -> None:
    done = batchtrain("images", "check", "--no-pull", tiny, "batchtrain-test/nobody:1", "-o", "json", code=3)
    assert {row["image"] for row in json.loads(done.stdout)} == {tiny}


# --- build ----------------------------------------------------------------------------------------------------------


def test_a_directory_of_ones_own_is_built(batchtrain: Shell, tiny: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nARG WORD=no\nLABEL word=${WORD}\n")
    name = containers.name_of("built")
    arguments = ("--base", tiny, "--tag", name, "--build-arg", "WORD=yes", "-o", "json")
    try:
        built = json.loads(batchtrain("images", "build", str(tmp_path), *arguments).stdout)
        assert built["image"] == name
        assert containers.docker("image", "inspect", "--format", "{{.Config.Labels.word}}", name) == "yes"
    finally:
        containers.docker("rmi", "--force", name)


def test_a_build_that_fails_says_why_and_exits_with_4(batchtrain: Shell, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY nothing /\n")
    said = batchtrain("images", "build", str(tmp_path), "--tag", "batchtrain-test/no:1", code=4).stderr
    assert "nothing" in said


@pytest.fixture
def with_packages(good: str) -> str:
    """A good image from inside which Debian's packages can be had, or the test is skipped."""
    command = "apt-get update -qq && apt-cache policy libibverbs1"
    container = ["docker", "run", "--rm", "--network=host", good, "sh", "-c", command]
    done = subprocess.run(container, capture_output=True, text=True)
    if "Candidate: 4" not in done.stdout:
        pytest.skip(f"a container has no way to Debian's packages here: {done.stderr[-200:]}")
    return good


def test_the_base_of_all_images_is_built_and_passes(batchtrain: Shell, with_packages: str) -> None:
    """On Debian, with Debian's packages; the other images need PyPI from inside a container."""
    tag = containers.name_of("base-of-all")
    try:
        batchtrain("images", "build", "base", "--base", with_packages, "--tag", tag, "--network", "host")
        rows = found(batchtrain, "--for", "framework", tag, code=0)
        assert {row["result"] for row in rows.values()} == {"ok"}
    finally:
        containers.docker("rmi", "--force", tag)


def test_the_image_of_a_recipe_is_built_under_the_recipe_s_name_and_passes(
    batchtrain: Shell, with_packages: str, tmp_path: Path
) -> None:
    """With the packages of PyPI in the base, because pip may not reach PyPI from inside a container."""
    batchtrain("config", "set", "registry", "batchtrain-test")
    containers.wheels(tmp_path / "wheels")
    lines = (f"FROM {with_packages}-base", "COPY wheels /wheels", "ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels", "")
    with made("with-wheels", "\n".join(lines), tmp_path) as base:
        name = "batchtrain-test/openmpi:digits"
        try:
            built = batchtrain("images", "build", "mpi4py-OpenMPI", "--base", base, "--network", "host")
            assert built.stdout.startswith(f"{name}: sha256:")
            rows = found(batchtrain, "--for", "mpi", name, code=0)
            assert {row["result"] for row in rows.values()} <= {"ok", "warn"}
        finally:
            containers.docker("rmi", "--force", name)


# --- mirror ---------------------------------------------------------------------------------------------------------


def variables(registry: containers.Registry, password: str = "") -> dict[str, str]:
    return {
        "BATCHTRAIN_REGISTRY_USERNAME": registry.username,
        "BATCHTRAIN_REGISTRY_PASSWORD": password or registry.password,
    }


def test_an_image_is_copied_by_a_sign_in_of_the_environment(
    batchtrain: Shell, registry: containers.Registry, tiny: str
) -> None:
    to = f"{registry.server}/own-place"
    done = batchtrain("images", "mirror", tiny, "--to", to, "-o", "json", environment=variables(registry))
    (row,) = json.loads(done.stdout)
    assert row["copy"] == f"{to}/{tiny}"
    assert row["pinned"].startswith(f"{to}/batchtrain-test/tiny@sha256:")
    assert registry.password not in done.stdout + done.stderr
    assert containers.docker("images", "--quiet", row["copy"]) == "", "only the registry keeps the copy's name"
    assert containers.docker("images", "--quiet", tiny)


def test_an_image_is_copied_and_pulled_by_a_sign_in_of_credentials_yaml(
    batchtrain: Shell, registry: containers.Registry, tiny: str, tmp_path: Path
) -> None:
    entry = f"'{registry.server}': {{username: {registry.username}, password: {registry.password}}}"
    (tmp_path / "credentials.yaml").write_text(f"credentials: {{docker_registry: {{{entry}}}}}\n")
    listed = f"global_resources: {{docker_images: ['{tiny}']}}\n"
    (tmp_path / "config.yaml").write_text(f"batchtrain: {{fallback_registry: '{registry.server}'}}\n{listed}")
    here = ("--configdir", str(tmp_path), "-o", "json")
    (first,) = json.loads(batchtrain("images", "mirror", *here).stdout)
    (again,) = json.loads(batchtrain("images", "mirror", first["pinned"], "--to", f"{registry.server}/2", *here).stdout)
    assert again["pinned"].rpartition("@")[2] == first["pinned"].rpartition("@")[2]
    containers.docker("rmi", "--force", first["pinned"], check=False)


def test_a_wrong_password_is_refused_and_not_shown(batchtrain: Shell, registry: containers.Registry, tiny: str) -> None:
    wrong = variables(registry, "not-the-word")
    said = batchtrain("images", "mirror", tiny, "--to", registry.server, code=4, environment=wrong).stderr
    assert "docker login" in said
    assert "not-the-word" not in said


# --- archives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["images.tar", "images.tar.gz"])
def test_an_archive_brings_an_image_back(batchtrain: Shell, tmp_path: Path, file: str) -> None:
    (tmp_path / "file").write_text("x")
    with made("kept", "FROM scratch\nCOPY file /kept\n", tmp_path) as name:
        batchtrain("images", "save", name, str(tmp_path / file))
        containers.docker("rmi", name)
        assert batchtrain("images", "load", str(tmp_path / file)).stdout.strip() == name
        assert containers.docker("images", "--quiet", name)


def test_an_archive_of_an_image_that_is_not_there_is_not_written(batchtrain: Shell, tmp_path: Path) -> None:
    batchtrain("images", "save", "batchtrain-test/nobody:1", str(tmp_path / "images.tar"), code=3)
    assert not list(tmp_path.glob("images.tar*"))


def test_an_archive_takes_the_place_of_no_directory_and_no_pipe(batchtrain: Shell, tiny: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        assert "name a file" in batchtrain("images", "save", tiny, str(place), code=2).stderr
    assert (tmp_path / "pipe").is_fifo()


def test_an_archive_is_written_where_a_link_leads(batchtrain: Shell, tiny: str, tmp_path: Path) -> None:
    (tmp_path / "link.tar").symlink_to(tmp_path / "kept.tar")
    batchtrain("images", "save", tiny, str(tmp_path / "link.tar"))
    assert (tmp_path / "link.tar").is_symlink()
    assert (tmp_path / "kept.tar").stat().st_size > 0


def test_what_is_no_archive_is_refused(batchtrain: Shell, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive")
    assert "was not taken" in batchtrain("images", "load", str(tmp_path / "text"), code=4).stderr
    assert "gone.tar" in batchtrain("images", "load", str(tmp_path / "gone.tar"), code=2).stderr


def test_an_archive_on_storage_stands_in_for_a_registry(
    batchtrain: Shell, tmp_path: Path, azurite: StorageAccount
) -> None:
    (tmp_path / "file").write_text("x")
    with made("stored", "FROM scratch\nCOPY file /stored\n", tmp_path) as name:
        (tmp_path / "credentials.yaml").write_text(credentials(azurite))
        place, here = "storage:link/images/stored.tar.gz", ("--configdir", str(tmp_path))
        batchtrain("images", "save", name, place, *here)
        containers.docker("rmi", name)
        assert batchtrain("images", "load", place, *here).stdout.strip() == name
