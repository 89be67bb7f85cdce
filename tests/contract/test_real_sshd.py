"""The launch of a native container through OpenSSH's own sshd on port 23, nothing of the emulator's between.

Two nodes are two sets of namespaces with a cable between them. Needs root, iproute2 and openssh-server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from batchtrain.frameworks.base import Shape
from batchtrain.launchers.launch import File, Launch
from tests import needs
from tests.contract.test_mpi_launch import PROGRAM, RUNTIMES, VARIABLES
from tests.launching import launched

MISSING = [program for program in ("ip", "unshare", "nsenter", "ssh-keygen") if shutil.which(program) is None]
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: sshd takes port 23"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

ADDRESSES = ("10.99.23.4", "10.99.23.5")
# More ranks than cores, as on every node of the emulator, where the node says so itself; and one kernel, for which UCX
# takes the two nodes for one.
HERE = {
    "I_MPI_THREAD_YIELD": "3",
    "I_MPI_PIN": "0",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "UCX_TLS": "tcp,self",
}


class Node(NamedTuple):
    """A running set of namespaces, entered through its first process."""

    index: int
    pid: int
    task: Path
    """As its processes see it: the same path on each node, another directory below it."""

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "AZ_BATCH_NODE_ID": f"tvm-{self.index}",
            "AZ_BATCH_TASK_SHARED_DIR": str(self.task),
            "AZ_BATCH_HOST_LIST": ",".join(reversed(ADDRESSES)),
            "AZ_BATCH_MASTER_NODE": f"{ADDRESSES[0]}:6000",
            "AZ_BATCH_IS_CURRENT_NODE_MASTER": "true" if self.index == 0 else "false",
            **environment,
        }
        enter = ["nsenter", "-t", str(self.pid), "-m", "-u", "-n", "-p"]
        return subprocess.run(
            [*enter, "/bin/bash", "-c", f"cd {self.task} && {{ {script}; }}"],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )


@contextmanager
def boot(index: int, folder: Path) -> Iterator[Node]:
    """A node without a network yet; root's .ssh is the image's, with its key."""
    own, task = folder / f"node{index}", folder / "task"
    (own / "wd").mkdir(parents=True)
    task.mkdir(exist_ok=True)
    script = f"""set -e
    hostname host-{index}
    mount --bind {folder}/hosts /etc/hosts
    mount --bind {own} {task}
    mkdir -p /root/.ssh && mount --bind {folder}/ssh /root/.ssh
    mount -t tmpfs tmpfs /run
    ip link set lo up
    touch {own}/up
    exec sleep infinity"""
    namespaces = ["unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    started = subprocess.Popen([*namespaces, "bash", "-c", script])
    try:
        while not (own / "up").exists():
            assert started.poll() is None, "this kernel gives no namespaces"
            time.sleep(0.01)
        pid = int(Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()[0])
        yield Node(index, pid, task)
    finally:
        started.kill()
        started.wait()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    needs.program("sshd")
    folder = tmp_path_factory.mktemp("sshd")
    (folder / "hosts").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{address} host-{index}\n" for index, address in enumerate(ADDRESSES))
    )
    key = folder / "ssh/id_ed25519"
    key.parent.mkdir(mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (folder / "ssh/authorized_keys").write_text(key.with_suffix(".pub").read_text())
    with ExitStack() as stack:
        booted = [stack.enter_context(boot(index, folder)) for index in range(2)]
        ends = [f"bt{os.getpid() % 100000}{letter}" for letter in "ab"]
        subprocess.run(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]], check=True)
        for node, end, address in zip(booted, ends, ADDRESSES, strict=True):
            subprocess.run(["ip", "link", "set", end, "netns", str(node.pid)], check=True)
            up = f"ip link set {end} name eth0 && ip addr add {address}/24 dev eth0 && ip link set eth0 up"
            assert node.run(up).returncode == 0
        yield booted


def run(nodes: list[Node], launch: Launch, **environment: str) -> subprocess.CompletedProcess[str]:
    """As the plan has it run; an sshd of an earlier launch is ended first, as its container would be."""
    for node in nodes:
        node.run("! [ -e /run/sshd.pid ] || kill $(cat /run/sshd.pid)")
        texts = (File("launch.sh", launch.application.encode()), File("coordinate.sh", launch.coordination.encode()))
        for file in (*launch.files, *texts):
            path = node.task.parent / f"node{node.index}" / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
            path.chmod(file.mode)
    for node in nodes:
        done = node.run("bash coordinate.sh >coordinated 2>&1 || { cat coordinated; exit 1; }")
        assert done.returncode == 0, done.stdout
    return nodes[0].run("cd wd && exec bash ../launch.sh", **environment)


@pytest.mark.parametrize("name", RUNTIMES)
@pytest.mark.parametrize(("how", "code"), [("ok", 0), ("_exit", 7)])
def test_a_launch_through_sshd_on_port_23(
    name: str, how: str, code: int, nodes: list[Node], mpi_environment: Callable[[str], Path]
) -> None:
    prefix = mpi_environment(name)
    options = {
        "runtime": RUNTIMES[name],
        "processes_per_node": 2,
        "pre_execution_command": f"export FROM_PRE='it is set' PATH={prefix}/bin:$PATH",
    }
    command = f'python -u "$AZ_BATCH_TASK_SHARED_DIR/program.py" {how} 3'
    launch = launched("mpi", command, Shape(2, container=True), **options)
    launch = launch._replace(files=(*launch.files, File("program.py", PROGRAM)))
    own = {variable: value.format(prefix) for variable, value in VARIABLES[name].items()}
    done = run(nodes, launch, **own, **HERE)
    assert done.returncode == code, done.stderr
    assert [line.split()[:5] for line in done.stdout.splitlines()[:4]] == [
        [str(rank), "it", "is", "set", f"tvm-{rank // 2}"] for rank in range(4)
    ]
    if code:
        assert f"batchtrain: rank 3 on node tvm-1 ({ADDRESSES[1]}) exited with code 7" in done.stderr
