"""A node sees its own directory and nothing else of the emulator's, and reaches the nodes of its own pool alone."""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchtrain.emulator.interface import Mount, NodeSpec, Run
from batchtrain.emulator.machine import process
from batchtrain.emulator.machine.process import ProcessMachine, open_machine
from tests.contract.nodes_on_this_machine import TASK

pytestmark = pytest.mark.process

SECRET = "the-account's-key"
PTRACE = f"{sys.executable} -c 'import ctypes, os; os._exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != -1)'"
"""Exit code 0 where the node's first process, which has more rights than a task, cannot be entered."""

ATTEMPTS = {
    "the key by its path": "cat {data}/key",
    "every file of the data directory": "find {data} -type f -exec cat {{}} +",
    "other processes' environments": "cat /proc/[0-9]*/environ | tr '\\0' '\\n'",
    "other processes' files": "for fd in /proc/[0-9]*/fd/*; do timeout 1 cat $fd$0/key $fd/key </dev/null; done",
    "other processes' roots": "cat /proc/[0-9]*/root{data}/key /proc/[0-9]*/cwd{data}/key",
    "behind the mount": "umount -l {data}; cat {data}/key",
    "behind the mount, in a new user namespace": "unshare -Urm sh -c 'umount -l {data} /tmp; cat {data}/key'",
    "behind another process's mount": "nsenter -t 1 -m cat {data}/key",
    "the data directory mounted elsewhere": "mkdir m; mount --bind {data}/.. m; cat m/*/key",
    "another node of the pool": "cat {data}/nodes/one/*/secret",
    "another pool": "cat {data}/nodes/two/*/secret {data}/mnt/two/secret",
    "another pool's key pair": "cat {data}/machine/two/ssh/*",
    "another pool's mounted file system": "cat {data}/mounts/nfs/two/secret",
    "a program that runs commands for others": "docker -H unix:///run/docker.sock run -v {data}:/d d cat /d/key;"
    " systemd-run --pipe cat {data}/key; systemd-run --user --pipe cat {data}/key",
}


class Pools:
    """Pool `one` with the nodes a and b, pool `two` with c, in one data directory that holds a secret everywhere."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        for place in ("key", "machine/two/ssh/key", "mounts/nfs/two/secret", "mounts/nfs/one/shown"):
            (data_dir / place).parent.mkdir(parents=True, exist_ok=True)
            (data_dir / place).write_text(SECRET if "one" not in place else "shown")
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._machine = self._loop.run_until_complete(self._boot())

    async def _boot(self) -> ProcessMachine:
        machine = await open_machine(self.data_dir, {}.get)
        for number, (name, pool) in enumerate((("a", "one"), ("b", "one"), ("c", "two"))):
            mounts = (Mount("share", f"mounts/nfs/{pool}"),)
            spec = NodeSpec(pool, name, f"127.0.78.{number + 2}", f"host-{name}", "STANDARD_D2S_V5", mounts=mounts)
            up = await machine.boot(spec, lambda _: None)
            if name != "a":
                (up.root / "secret").write_text(SECRET)
        return machine

    def run(self, command: str) -> tuple[int | None, str]:
        """On node a: exit code and all that was printed."""
        number = next(self._numbers)
        run = Run(f"run-{number}", f"{TASK}-{number}", "bash command.sh", {})
        directory = self.data_dir / "nodes/one/a" / run.directory
        (directory / "wd").mkdir(parents=True)
        (directory / "wd/command.sh").write_text(command)
        ended = self._loop.run_until_complete(asyncio.wait_for(self._machine.run("a", run), 60))
        return ended.code, "".join((directory / name).read_text() for name in ("stdout.txt", "stderr.txt"))

    def close(self) -> None:
        self._loop.run_until_complete(self._machine.close())
        self._loop.close()


@pytest.fixture(scope="module", params=[("/tmp", False), ("/var/tmp", False), ("/var/tmp", True)])
def pools(request: pytest.FixtureRequest) -> Iterator[Pools]:
    """With a data directory in what is a node's own, and elsewhere; in a user namespace, as an ordinary user has it."""
    place, user_namespace = request.param
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir=place) as directory:
        patch.setenv("DOCKER_HOST", "unix:///no/engine")
        if user_namespace:
            if reason := process._probe(Path(directory), user_namespace=True):
                pytest.skip(reason)
            patch.setattr(process, "_isolation", lambda _: process.Isolation("namespaces", user_namespace=True))
        patch.setenv("BATCHTRAIN_EMULATOR_ISOLATION", "namespaces")
        patch.setenv("ACCOUNT_KEY", SECRET)
        try:
            found = Pools(Path(directory) / "data")
        except OSError as error:
            pytest.skip(str(error))
        yield found
        found.close()


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_task_cannot_read(pools: Pools, attempt: str) -> None:
    _, printed = pools.run(ATTEMPTS[attempt].format(data=pools.data_dir))
    assert SECRET not in printed


def test_a_task_cannot_enter_its_nodes_first_process(pools: Pools) -> None:
    assert pools.run(PTRACE)[0] == 0


def test_the_data_directory_of_a_node_holds_what_is_its_own(pools: Pools) -> None:
    _, printed = pools.run(f"cd {pools.data_dir} && find . -maxdepth 2 -mindepth 1 | sort; cat mounts/nfs/one/shown")
    assert printed.split() == ["./machine", "./machine/one", "./mnt", "./mnt/one", "./mounts", "./mounts/nfs", "shown"]


@pytest.mark.parametrize("host", ["127.0.78.4", "host-c", "@c", "../../two/peers/127.0.78.4"])
def test_ssh_reaches_no_node_of_another_pool(pools: Pools, host: str) -> None:
    assert pools.run(f"ssh {host} hostname")[0] == 255
    assert pools.run("ssh host-b hostname") == (0, "host-b\n")


def test_a_task_cannot_stand_in_for_the_stand_in_nor_for_another_node(pools: Pools) -> None:
    machine = pools.data_dir / "machine/one"
    _, printed = pools.run(f"rm {machine}/peers/host-b; echo > {machine}/bin/ssh; ssh host-b hostname")
    assert printed.count("Read-only file system") == 2
    assert printed.startswith("host-b\n")


def test_a_task_has_none_of_the_rights_with_which_root_would_leave_its_node(pools: Pools) -> None:
    _, printed = pools.run("grep CapBnd /proc/self/status")
    assert not int(printed.split()[1], 16) & (1 << 2 | 1 << 19 | 1 << 21 | 1 << 27)


def test_a_node_sees_each_link_on_the_way_to_an_interpreter(tmp_path: Path) -> None:
    """A virtual environment made by a `python3` that is itself a link, in a directory that a node does not see."""
    for place, target in (
        ("installed/bin", sys.executable),
        ("links", "../installed/bin/python"),
        ("env/bin", "../../links/python"),
    ):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "python").symlink_to(target)
    shown = process._Pool(tmp_path, "pool").visible_paths_of(tmp_path / "env")
    assert {f"{tmp_path.resolve()}/{place}" for place in ("env", "links", "installed/bin")} <= set(shown)
