"""The node launcher through OpenSSH's own sshd on port 23 of two sets of namespaces with a cable between them."""

from __future__ import annotations

import json
import shutil

import pytest

from batchtrain.frameworks.base import Shape
from batchtrain.launchers import steps
from batchtrain.launchers.launch import File, Launch, Step, rendered
from tests.contract.test_real_sshd import ADDRESSES, Node, nodes, pytestmark, run

__all__ = ["nodes", "pytestmark"]  # used by pytest


def launch(command: str) -> Launch:
    """As the plan of a framework has it, less the framework."""
    worker = {"name": "worker", "command": command, "gpus": True, "ranked": True, "decides": True}
    spec = {
        "version": 1, "framework": "pytorch", "instances": 2, "processes_per_node": 2, "barrier_seconds": 20,
        "pre_execution": "export FROM_PRE='it is set'", "roles": [worker],
    }  # fmt: skip
    files = (
        steps.SSH,
        *steps.node_launcher("pytorch"),
        File(".batchtrain/gang.json", json.dumps(spec).encode()),
    )
    shape = Shape(2, container=True)
    application = f"{steps.SOURCE}\nbt_use_ssh {steps.SSHD_PORT}\nexec python3 -I -S -B ../.batchtrain/launch primary"
    return rendered((*steps.coordination(shape, None), Step(application, files)))


@pytest.mark.skipif(
    not shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin"), reason="no Python of the system's"
)
@pytest.mark.parametrize("environment", [{}, {"BATCHTRAIN_EMULATED_NODE": "container"}])
def test_a_gang_runs_and_ends_through_sshd(environment: dict[str, str], nodes: list[Node]) -> None:
    """A container of the emulator's is reached as one of Azure's is."""
    told = launch("echo $RANK $FROM_PRE $AZ_BATCH_NODE_ID $MASTER_ADDR $GLOO_SOCKET_IFNAME $TOKEN")
    done = run(nodes, told, TOKEN="t", **environment)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (
        0,
        [f"[{rank // 2}:{rank}] {rank} it is set tvm-{rank // 2} {ADDRESSES[0]} eth0 t" for rank in range(4)],
    ), done.stderr


@pytest.mark.skipif(
    not shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin"), reason="no Python of the system's"
)
def test_a_failure_on_a_node_behind_sshd_ends_all(nodes: list[Node]) -> None:
    told = launch("[ $RANK != 3 ] || { sleep 1; exit 7; }; (setsid sleep 100001 &) ; sleep 100000")
    done = run(nodes, told)
    assert done.returncode == 7, done.stderr
    assert f"batchtrain: rank 3 on node tvm-1 ({ADDRESSES[1]}) exited with code 7" in done.stderr
    assert all(node.run("ps -e -o args= | grep -c '[s]leep 10000[01]'").stdout == "0\n" for node in nodes)
