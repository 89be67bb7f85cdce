"""What the embedded service could not run is refused before anything is made for it."""

from __future__ import annotations

import fcntl
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from batchtrain.client import local
from batchtrain.client.local import refuse
from batchtrain.config.source_packages import READY, digest, of_recipe
from batchtrain.config.types import Secret
from batchtrain.containers import make_environment
from batchtrain.containers.environments import ENVIRONMENTS, Environment
from batchtrain.emulator import local_service, mapped_images, server, tokens
from batchtrain.errors import BatchtrainError, NotFound, PlanError, ServiceError, Unreachable, UsageError
from batchtrain.functions.this_python import image_of_this_python
from batchtrain.service.connect import Account
from tests.unit.plan.jobs import recipe

IMAGE = "example/train"
PLAIN = {
    "plain_nodes": "the kernel refuses namespaces",
    "plain_nodes_remedy": "`sudo sysctl -w user.max_user_namespaces=15000` lifts that",
}


def test_a_service_that_another_process_uses_is_known_and_one_to_be_stopped_is_not_taken_up(tmp_path: Path) -> None:
    local_service.use(tmp_path)
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_SH)
    with local_service.alone(tmp_path) as unused:
        assert not unused
    fcntl.flock(other, fcntl.LOCK_UN)
    with local_service.alone(tmp_path) as unused:
        assert unused
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(other)


def gang(runtime: str = "openmpi", nodes: int | str = 2, pre: str | None = None, **mpi: Any) -> dict[str, Any]:
    return {
        "multi_instance": {"num_instances": nodes, "pre_execution_command": pre, "mpi": {"runtime": runtime, **mpi}}
    }


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account("http://127.0.0.1:1", "batchtrain", Secret("a2V5"), emulated=True, home=str(tmp_path / "data"))


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the emulator says of this machine's Docker Engine."""
    said = {"missing": ""}
    monkeypatch.setattr("batchtrain.emulator.server.at", lambda home: None)
    monkeypatch.setattr("batchtrain.emulator.server.ask", lambda verb, to, path: said)
    return said


def mapped(account: Account, prefix: Path, *programs: str) -> None:
    (prefix / "bin").mkdir(parents=True)
    for program in ("python", *programs):
        (prefix / "bin" / program).touch(0o755)
    mapped_images.map_image(Path(account.home), IMAGE, prefix)


def test_open_mpi_across_plain_process_nodes_is_refused_with_the_reason(account: Account) -> None:
    plain = account._replace(**PLAIN)
    with pytest.raises(
        PlanError, match=r"job j, task 0: Open MPI cannot run.*share one host name.*max_user_namespaces"
    ):
        refuse(recipe(task=gang()), plain)
    horovod = {"multi_instance": {"num_instances": 2, "horovod": {"over": "mpi", "runtime": "openmpi"}}}
    with pytest.raises(PlanError, match="Open MPI cannot run"):
        refuse(recipe(task=horovod), plain)


@pytest.mark.parametrize(
    "task",
    [
        gang("mpich"),
        gang(nodes=1),
        {"docker_image": IMAGE, **gang()},
        {},
        {"multi_instance": {"num_instances": 2, "horovod": {}}},
    ],
)
def test_what_runs_on_plain_process_nodes_is_not_refused(account: Account, task: dict[str, Any]) -> None:
    refuse(recipe(task=task), account._replace(**PLAIN))


def test_a_gang_of_the_whole_pool_has_as_many_nodes_as_the_pool(account: Account) -> None:
    plain = account._replace(**PLAIN)
    whole = gang(nodes="pool_specification_vm_count_dedicated")
    refuse(recipe(task=whole, pool={"vm_count": {"dedicated": 1}}), plain)
    with pytest.raises(PlanError):
        refuse(recipe(task=whole, pool={"vm_count": {"dedicated": 2}}), plain)


def test_nothing_is_refused_where_nodes_have_namespaces_or_the_account_is_azures(account: Account) -> None:
    refuse(recipe(task=gang()), account)
    refuse(recipe(task=gang()), Account("https://a.b.batch.azure.com", "a", **PLAIN))


def test_paths_of_an_image_are_refused_on_plain_process_nodes(account: Account, tmp_path: Path) -> None:
    mapped(account, tmp_path / "env")
    volumes = {"data_volumes": {"v": {"host_path": "/d", "container_path": "/data"}, "same": {"host_path": "/d"}}}
    plain, resources = account._replace(**PLAIN), {"volumes": volumes}
    used = {"docker_image": IMAGE, "data_volumes": ["v"]}
    refuse(recipe(task=used, resources=resources), account)
    refuse(recipe(task={**used, "data_volumes": ["same"]}, resources=resources), plain)
    with pytest.raises(PlanError, match=r"job j, task 0: .*the task's directories /data at these paths.*user_namesp"):
        refuse(recipe(task=used, resources=resources), plain)
    mapped_images.map_image(Path(account.home), IMAGE, tmp_path / "env", paths={"/opt/x": tmp_path})
    with pytest.raises(PlanError, match="directories /opt/x at these paths"):
        refuse(recipe(task={"docker_image": IMAGE}), plain)


def test_an_environment_without_the_packages_of_the_source_is_refused(account: Account, tmp_path: Path) -> None:
    mapped(account, tmp_path / "env")
    (tmp_path / "x/src").mkdir(parents=True)
    (tmp_path / "x/src/requirements.txt").write_text("rich\n")
    mine = recipe(task={"docker_image": IMAGE, "source": "src"}, directory=str(tmp_path / "x"))
    refuse(mine, account)  # the environment is the user's own
    (tmp_path / "env" / READY).touch()
    with pytest.raises(PlanError, match=r"does not have .*src/requirements.txt lists now: `batchtrain images env"):
        refuse(mine, account)
    (tmp_path / "env" / READY).write_text(digest(of_recipe(mine, IMAGE)))
    refuse(mine, account)


def test_a_mapping_to_a_directory_that_is_gone_is_refused(account: Account, tmp_path: Path) -> None:
    mapped_images.map_image(Path(account.home), IMAGE, tmp_path / "gone")
    with pytest.raises(
        PlanError, match=rf"image {IMAGE} is mapped to .*gone, which is not there: .*images unmap {IMAGE}"
    ):
        refuse(recipe(task={"docker_image": IMAGE}), account)


def test_a_mapping_to_an_environment_without_the_launcher_is_refused(account: Account, tmp_path: Path) -> None:
    mapped(account, tmp_path / "env", "mpiexec")
    task = {"docker_image": IMAGE}
    with pytest.raises(PlanError, match=r"mapped to .*/env, which has no bin/no-such-mpirun"):
        refuse(recipe(task={**task, **gang("mpich", executable_path="no-such-mpirun")}), account)
    refuse(recipe(task={**task, **gang("mpich", executable_path="mpiexec")}), account)
    refuse(recipe(task=task), account)


@pytest.mark.parametrize(
    "pre", ["source mpivars.sh", "export PATH=/opt/mpi/bin:$PATH", "set -e; . ./env", "module load a"]
)
def test_a_launcher_that_the_launchs_shell_may_find_is_not_refused(account: Account, tmp_path: Path, pre: str) -> None:
    mapped(account, tmp_path / "env")
    refuse(recipe(task={"docker_image": IMAGE, **gang(executable_path="no-such-mpirun", pre=pre)}), account)


def test_a_command_before_the_launch_that_brings_no_programs_changes_nothing(account: Account, tmp_path: Path) -> None:
    mapped(account, tmp_path / "env")
    pre = 'export OPAL_PREFIX="$(dirname "$(command -v mpirun)")" LD_LIBRARY_PATH=/opt/lib'
    with pytest.raises(PlanError, match="no-such-mpirun"):
        refuse(recipe(task={"docker_image": IMAGE, **gang(executable_path="no-such-mpirun", pre=pre)}), account)


@pytest.mark.parametrize(
    ("made", "problem"),
    [((), "is not there"), (("lib",), "it has no bin directory"), (("bin",), "its bin directory is empty")],
)
def test_what_is_no_environment_stands_for_no_image(tmp_path: Path, made: tuple[str, ...], problem: str) -> None:
    for name in made:
        (tmp_path / "env" / name).mkdir(parents=True)
    assert problem in mapped_images.problem(tmp_path / "env")


CONTAINED = {"command": "x", "docker_image": IMAGE}
IN_CONTAINERS = ({"tasks": [CONTAINED]}, {"merge_task": CONTAINED})


@pytest.mark.parametrize("job", IN_CONTAINERS)
def test_an_image_that_nothing_stands_for_is_refused_where_no_engine_runs(
    job: dict[str, Any], account: Account, engine: dict[str, str], tmp_path: Path
) -> None:
    refuse(recipe(job), account)
    engine["missing"] = "no Docker Engine answers"
    with pytest.raises(PlanError, match=f"runs the image {IMAGE} here: no Docker.*map {IMAGE} PREFIX` .*its directory"):
        refuse(recipe(job), account)
    refuse(recipe(job, pool={"metadata": {"batchtrain-nodes": "simulated"}}), account)
    mapped(account, tmp_path / "environment")
    refuse(recipe(job), account)


def test_the_key_of_a_running_emulator_is_not_in_its_repr(tmp_path: Path) -> None:
    status = server.Status("http://127.0.0.1:1", "batchtrain", "c2VjcmV0", 1, tmp_path, tmp_path / "log")
    assert "c2VjcmV0" not in f"{status!r} {status}"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (server.Unsafe("it"), UsageError, "it"),
        (server.PortTaken("it"), UsageError, "it"),
        (server.Refused("it"), UsageError, "it"),
        (server.StartFailed("it"), ServiceError, "the emulator does not start: it"),
        (server.Busy("it"), Unreachable, "it"),
        (server.NotRunning("it"), NotFound, "it; `batchtrain emulator start` starts it"),
    ],
)
def test_an_error_of_the_emulator_becomes_one_of_batchtrain(
    error: Exception, kind: type[BatchtrainError], message: str
) -> None:
    with pytest.raises(kind) as raised, local_service.emulator_faults():
        raise error
    assert (type(raised.value), str(raised.value)) == (kind, message)


def test_a_token_that_batchtrain_issues_to_itself_ends_within_a_minute() -> None:
    token = local.issued("c2VjcmV0", "batchtrain")
    assert token.expires_on <= tokens.seconds(server.clock()) + 60


OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def other_python(account: Account, tmp_path: Path) -> str:
    """An image of a recipe whose environment has Python 2.7."""
    mapped(account, tmp_path / "other", "python3")
    (tmp_path / "other/bin/python3").write_text("#!/bin/sh\necho 2.7\n")
    mapped_images.map_image(Path(account.home), "example/jax:cpu", tmp_path / "other")
    return "example/jax:cpu"


@pytest.mark.process
@pytest.mark.slow
def test_an_environment_of_another_python_is_made_for_this_one_after_its_size_is_said(
    account: Account, other_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = wheel(tmp_path)
    monkeypatch.setitem(ENVIRONMENTS, "jax", Environment((str(package),), pythons=("2.7", OWN), megabytes=10))
    lines: list[str] = []
    image = image_of_this_python(account, other_python, lines.append)
    assert image == f"example/jax:cpu-python{OWN}"
    assert lines[0].startswith(f"the environment {tmp_path}/other of {other_python} has Python 2.7, and this is")
    assert lines[1] == "the environment jax needs about 10 MB, and a minute:"
    prefix = Path(mapped_images.prefix_of(Path(account.home), image) or "")
    assert make_environment.version_of(prefix) == OWN
    assert list(prefix.glob("lib/python*/site-packages/tiny.py"))
    lines.clear()
    assert image_of_this_python(account, image, lines.append) == image
    assert image_of_this_python(account, other_python, lines.append) == image
    assert lines == []


def wheel(folder: Path) -> Path:
    """The smallest package that pip installs."""
    path = folder / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        archive.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.dist-info/RECORD", "")
    return path


def test_packages_that_this_python_cannot_have_are_refused_with_the_python_to_start(
    account: Account, other_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENTS, "jax", Environment(("x",), pythons=("2.7",)))
    with pytest.raises(UsageError, match=f"packages of jax do not exist: start this program with {tmp_path}/other/bin"):
        image_of_this_python(account, other_python, lambda _: None)
