"""A framework's launch on two nodes of the emulator's machine: which processes, where, and with whose variables."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from batchtrain.frameworks.base import Shape
from batchtrain.launchers.launch import File, Launch
from tests.contract.gang_of_nodes import Gang, Outcome, gang_with_python
from tests.launching import launched

pytestmark = pytest.mark.process

TWO = Shape(2)
SHOW = File("show.py", b"import json, os\nprint(json.dumps(dict(os.environ)), flush=True)\n")
COMMAND = "python3 $AZ_BATCH_TASK_SHARED_DIR/show.py"
OWN_PATH = 'PATH="$AZ_BATCH_TASK_SHARED_DIR/bin:$PATH"'


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    with gang_with_python(tmp_path_factory.mktemp("frameworks")) as two:
        yield two


def run(gang: Gang, launch: Launch, **environment: str) -> dict[str, dict[str, str]]:
    """The environment of each process, by the label that its line has."""
    done = started(gang, launch, **environment)
    assert done.code == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        label, _, text = line.removeprefix("[").partition("] ")
        found[label] = json.loads(text)
    return found


def started(gang: Gang, launch: Launch, **environment: str) -> Outcome:
    return gang.launch(launch._replace(files=(*launch.files, SHOW)), environment)


def beside(launch: Launch, **programs: str) -> Launch:
    """The launch with programs that OWN_PATH finds first."""
    made = (File(f"bin/{name}", f"#!/bin/sh\n{text}\n".encode(), 0o755) for name, text in programs.items())
    return launch._replace(files=(*launch.files, *made))


def of(found: dict[str, dict[str, str]], name: str) -> dict[str, str]:
    """One variable of each process."""
    return {label: variables.get(name, "") for label, variables in found.items()}


def test_pytorch_has_a_process_for_each_place_of_each_node(gang: Gang) -> None:
    found = run(gang, launched("pytorch", COMMAND, TWO, processes=4))
    assert of(found, "RANK") == {"0:0": "0", "0:1": "1", "1:2": "2", "1:3": "3"}
    assert set(of(found, "MASTER_ADDR").values()) == {gang.addresses[0]}
    assert set(of(found, "PYTHONUNBUFFERED").values()) == {"1"}


def test_a_variable_of_ones_own_stands_and_one_that_is_left_alone_is_not_there(gang: Gang) -> None:
    options = {"processes_per_node": 1, "leave_unset": ("PYTHONUNBUFFERED", "GLOO_SOCKET_IFNAME")}
    found = run(gang, launched("pytorch", COMMAND, TWO, **options), OMP_NUM_THREADS="7")
    assert set(of(found, "OMP_NUM_THREADS").values()) == {"7"}
    assert set(of(found, "PYTHONUNBUFFERED").values()) | set(of(found, "GLOO_SOCKET_IFNAME").values()) == {""}


def test_pre_execution_may_bring_the_python_that_the_launcher_needs(gang: Gang) -> None:
    options = {"processes_per_node": 1, "pre_execution_command": OWN_PATH}
    launch = launched("pytorch", COMMAND.replace("python3", "python"), TWO, **options)
    assert len(run(gang, beside(launch, python3="exit 1", python=f'exec {sys.executable} "$@"'))) == 2


A100 = Shape(2, size="Standard_NC24ads_A100_v4", family="NC A100 v4", gpus=1, gpu_vendor="nvidia")


@pytest.mark.parametrize(("export", "expected"), [("", ("Socket", "1")), ("export NCCL_IB_HCA=mlx5_an0", ("", ""))])
def test_without_infiniband_nccl_uses_sockets_unless_the_users_commands_choose_otherwise(
    gang: Gang, export: str, expected: tuple[str, str]
) -> None:
    launch = launched("pytorch", COMMAND, A100, processes_per_node=1, preflight=False, pre_execution_command=export)
    for variables in run(gang, launch).values():
        assert (variables.get("NCCL_NET", ""), variables.get("NCCL_IB_DISABLE", "")) == expected
        assert variables["NCCL_GRAPH_FILE"] == "/dev/null"


def test_a_persons_modules_are_the_ranks_and_not_the_launchers(gang: Gang) -> None:
    launch = launched("pytorch", COMMAND, TWO, processes_per_node=1)
    own = [f"{environment['AZ_BATCH_TASK_SHARED_DIR']}/bin" for environment in gang.environments]
    found = run(gang, beside(launch, **{"selectors.py": "raise SystemExit('taken for ours')"}), PYTHONPATH=own[0])
    after_ours = {rank: path.partition(":")[2] for rank, path in of(found, "PYTHONPATH").items()}
    assert after_ours == {"0:0": own[0], "1:1": own[1]}


@pytest.mark.slow
def test_a_node_without_a_fitting_python_is_said_before_anything_is_started(gang: Gang) -> None:
    launch = launched("pytorch", "./train", TWO, pre_execution_command=OWN_PATH)
    done = started(gang, beside(launch, python3="exit 1", python="exit 1"))
    assert done.code == 127
    assert "none of python3, python on this node is a Python 3.6 or later" in done.stderr
