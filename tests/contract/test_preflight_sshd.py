"""The look at the nodes through OpenSSH's own sshd on port 23 of two sets of namespaces, which nobody emulates."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

from batchtrain.frameworks.base import Fabric
from batchtrain.launchers.launch import File, Launch
from tests.contract.test_preflight import GPUS, SMI, WAYS, by_nodes
from tests.contract.test_real_sshd import ADDRESSES, Node, nodes, run
from tests.contract.test_real_sshd import pytestmark as needs_sshd

__all__ = ["nodes"]  # used by pytest
pytestmark = [
    pytest.mark.slow,
    *needs_sshd,
    pytest.mark.skipif(
        not shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin"), reason="no Python of the system's"
    ),
]

IN_CONTAINERS = GPUS._replace(fabric=Fabric.ETHERNET, container=True)


def with_gpus(launch: Launch, of_the_second: str) -> Launch:
    """The launch with a stand-in for nvidia-smi, which shows four GPUs on the first node."""
    text = f"[ $(uname -n) = host-0 ] && {{ {SMI.format('0 1 2 3')}; exit; }}\n{SMI.format(of_the_second)}\n"
    seen = b'PATH="${0%/*}/../bin:$PATH"\n'
    files = [
        file._replace(data=seen + file.data) if file.name.endswith("preflight.sh") else file for file in launch.files
    ]
    return launch._replace(files=(*files, File("bin/nvidia-smi", f"#!/bin/bash\n{text}".encode(), 0o755)))


@pytest.fixture
def small(nodes: list[Node]) -> Iterator[None]:
    """The second node has what a container engine gives: too little shared memory."""
    assert nodes[1].run("mount -t tmpfs -o size=64m tmpfs /dev/shm").returncode == 0
    yield
    nodes[1].run("umount /dev/shm")


@WAYS
def test_nodes_that_are_as_they_should_be_start_the_program(made: Callable[..., Launch], nodes: list[Node]) -> None:
    done = run(nodes, with_gpus(made("echo it runs", IN_CONTAINERS, processes_per_node=2), "0 1 2 3"))
    assert (done.returncode, "it runs" in done.stdout) == (0, True), done.stderr
    assert "preflight" not in done.stderr


@WAYS
def test_all_faults_of_a_node_are_told_before_the_program_starts(
    made: Callable[..., Launch], nodes: list[Node], small: None
) -> None:
    done = run(nodes, with_gpus(made("echo it runs", IN_CONTAINERS, processes_per_node=2), "0 1"))
    assert (done.returncode, done.stdout) == (1, "")
    told = [line for line in done.stderr.splitlines() if "preflight: node" in line]
    assert len(told) == 2, done.stderr
    place = f"batchtrain: preflight: node tvm-1 ({ADDRESSES[1]}): "
    assert told[0].startswith(f"{place}nvidia-smi -L shows 2 of the 4 GPUs of Standard_ND96asr_v4")
    assert told[1].startswith(f"{place}/dev/shm has 64 MiB, and 4 processes need 256")


def test_infiniband_that_is_not_there_is_told_beside_the_rest(nodes: list[Node], small: None) -> None:
    launch = by_nodes("echo it runs", GPUS._replace(container=True))
    done = run(nodes, with_gpus(launch, "0 1 2 3"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "/dev/shm has 64 MiB" in done.stderr
    for index, address in enumerate(ADDRESSES):
        assert f"preflight: node tvm-{index} ({address}): InfiniBand is asked for" in done.stderr
