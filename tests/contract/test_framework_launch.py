"""Each framework's launch on two nodes of the emulator's machine: which processes, where, and what each is told."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from batchtrain.frameworks.base import Shape
from batchtrain.launchers.launch import File, Launch
from tests.contract.gang_of_nodes import TASK, Gang, Outcome, gang_with_python
from tests.launching import launched

pytestmark = pytest.mark.process

TWO = Shape(2)
SHOW = File("show.py", b"import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]), flush=True)\n")
STAY = File(
    "stay.py",
    b"import os, sys, time\nexec(open(__file__.replace('stay', 'show')).read())\n"
    b"if os.environ['BATCHTRAIN_ROLE'] in ('ps', 'server', 'scheduler'): time.sleep(100000)\n"
    b"while not os.path.exists(os.environ['AZ_BATCH_TASK_DIR'] + '/go'): time.sleep(0.02)\n",
)
STAYS = re.compile(r"^\[\d+:(?:ps|server|scheduler)\b", re.MULTILINE)
"""A line of a process that stays; the others end when each of these has printed its line."""
COMMAND = "python3 $AZ_BATCH_TASK_SHARED_DIR/show.py"
OWN_PATH = 'PATH="$AZ_BATCH_TASK_SHARED_DIR/bin:$PATH"'
STAYING = "python3 $AZ_BATCH_TASK_SHARED_DIR/stay.py"


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    with gang_with_python(tmp_path_factory.mktemp("frameworks")) as two:
        yield two


def run(gang: Gang, launch: Launch, **environment: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Each process's arguments and environment, by the label that its line has."""
    done = started(gang, launch, **environment)
    assert done.code == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        label, _, text = line.removeprefix("[").partition("] ")
        found[label] = json.loads(text)
    return found


def started(gang: Gang, launch: Launch, **environment: str) -> Outcome:
    return gang.wait(until_all_are_up(gang, launch._replace(files=(*launch.files, SHOW, STAY)), environment))


async def until_all_are_up(gang: Gang, launch: Launch, environment: Mapping[str, str]) -> Outcome:
    for root in gang.roots:
        (root / TASK / "go").unlink(missing_ok=True)
    running = asyncio.create_task(gang.run(launch, environment))
    specs = [json.loads(file.data) for file in launch.files if file.name.endswith("gang.json")]
    roles = [role for spec in specs for role in spec["roles"] if role["name"] in ("ps", "server", "scheduler")]
    await asyncio.sleep(0)  # it forgets what the launch before it printed
    while not running.done() and len(STAYS.findall(gang.printed())) < sum(role["total"] for role in roles):
        await asyncio.sleep(0.02)
    for root in gang.roots:
        (root / TASK / "go").touch()
    return await running


def beside(launch: Launch, **programs: str) -> Launch:
    """The launch with programs that OWN_PATH finds first."""
    made = (File(f"bin/{name}", f"#!/bin/sh\n{text}\n".encode(), 0o755) for name, text in programs.items())
    return launch._replace(files=(*launch.files, *made))


def of(found: dict[str, tuple[list[str], dict[str, str]]], name: str) -> dict[str, str]:
    """One variable of each process."""
    return {label: variables.get(name, "") for label, (_, variables) in found.items()}


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


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_torchrun_is_started_once_a_node_with_its_options_and_the_whole_command(rendezvous: str, gang: Gang) -> None:
    options = {
        "pre_execution_command": OWN_PATH,
        "processes_per_node": 3,
        "launcher": "torchrun",
        "rendezvous": rendezvous,
    }
    launch = launched("pytorch", "./t 'a b' && x", TWO, **options)
    found = run(gang, beside(launch, torchrun='exec python3 "$AZ_BATCH_TASK_SHARED_DIR/show.py" "$@"'))
    assert set(found) == {"0:torchrun 0", "1:torchrun 1"}
    arguments = found["1:torchrun 1"][0]
    assert {"--nnodes=2", "--nproc-per-node=3"} <= set(arguments)
    assert ("--node-rank=1" in arguments) == (rendezvous == "static")
    assert ("--rdzv-conf=is_host=false" in arguments) == (rendezvous == "c10d")
    assert arguments[-4:] == ["--no-python", "/bin/bash", "-c", "./t 'a b' && x"]


def test_deepspeed_is_told_what_pytorch_is(gang: Gang) -> None:
    found = run(gang, launched("deepspeed", COMMAND, TWO, processes_per_node=1, accelerator="cpu"))
    assert of(found, "RANK") == {"0:0": "0", "1:1": "1"}
    assert set(of(found, "DS_ACCELERATOR").values()) == {"cpu"}


def test_jax_finds_its_coordinator(gang: Gang) -> None:
    found = run(gang, launched("jax", COMMAND, TWO, processes_per_node=2, port=21999))
    assert set(of(found, "JAX_COORDINATOR_ADDRESS").values()) == {f"{gang.addresses[0]}:21999"}
    assert of(found, "OMPI_COMM_WORLD_RANK") == {"0:0": "0", "0:1": "1", "1:2": "2", "1:3": "3"}


def cluster(found: dict[str, tuple[list[str], dict[str, str]]]) -> dict[str, Any]:
    return {label: json.loads(text)["task"] for label, text in of(found, "TF_CONFIG").items()}


def test_an_estimators_chief_takes_the_place_of_the_primarys_first_worker(gang: Gang) -> None:
    options = {"processes_per_node": 2, "mode": "estimator", "parameter_servers": 1}
    found = run(gang, launched("tensorflow", STAYING, TWO, **options))
    assert cluster(found) == {
        "0:0": {"type": "chief", "index": 0},
        "0:1": {"type": "worker", "index": 0},
        "1:2": {"type": "worker", "index": 1},
        "1:3": {"type": "worker", "index": 2},
        "0:ps 0": {"type": "ps", "index": 0},
    }


def test_workers_under_a_chief_are_ended_with_it(gang: Gang) -> None:
    done = started(gang, launched("tensorflow", STAYING, TWO, mode="parameter_server"))
    assert done.code == 0, done.stderr
    assert gang.left() == []


def test_flags_of_tensorflow_1_name_every_host_and_the_process_itself(gang: Gang) -> None:
    options = {"mode": "flags", "parameter_servers": 2}
    found = run(gang, launched("tensorflow", f"{STAYING} --model x", TWO, **options))
    flags = {label: dict(word[2:].split("=") for word in words[2:]) for label, (words, _) in found.items()}
    assert {label: (one["job_name"], one["task_index"]) for label, one in flags.items()} == {
        "0:0": ("worker", "0"), "1:1": ("worker", "1"), "0:ps 0": ("ps", "0"), "1:ps 1": ("ps", "1"),
    }  # fmt: skip
    [servers] = {one["ps_hosts"] for one in flags.values()}
    assert [host.partition(":")[0] for host in servers.split(",")] == gang.addresses
    assert set(of(found, "TF_CONFIG").values()) == {""}


@pytest.mark.slow
def test_mxnets_roles_meet_at_the_primarys_port(gang: Gang) -> None:
    found = run(gang, launched("mxnet", STAYING, TWO, rendezvous="ignored:21998", verbose=1))
    assert sorted(of(found, "DMLC_ROLE").values()) == ["scheduler", "server", "server", "worker", "worker"]
    assert set(of(found, "DMLC_PS_ROOT_PORT").values()) == {"21998"}
    assert set(of(found, "PS_VERBOSE").values()) == {"1"}


def test_horovods_ranks_are_told_of_gloo(gang: Gang) -> None:
    found = run(gang, launched("horovod", COMMAND, TWO, processes_per_node=2))
    assert set(of(found, "HOROVOD_CONTROLLER").values()) == {"gloo"}
    assert of(found, "HOROVOD_CROSS_RANK") == {"0:0": "0", "0:1": "0", "1:2": "1", "1:3": "1"}


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
    for _, variables in run(gang, launch).values():
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
