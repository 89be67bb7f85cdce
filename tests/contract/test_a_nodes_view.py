"""A node sees its own directory and nothing else of the emulator's, and reaches the nodes of its own pool alone."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchtrain.emulator import mapped_images
from batchtrain.emulator.interface import Container, Exit, Mount, NodeSpec, Run
from batchtrain.emulator.machine import process
from batchtrain.emulator.machine.process import ProcessMachine, open_machine
from tests import examples, needs
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
        machine = await open_machine(self.data_dir, lambda image: mapped_images.prefix_of(self.data_dir, image))
        for number, (name, pool) in enumerate((("a", "one"), ("b", "one"), ("c", "two"))):
            mounts = (Mount("share", f"mounts/nfs/{pool}"),)
            spec = NodeSpec(pool, name, f"127.0.78.{number + 2}", f"host-{name}", "STANDARD_D2S_V5", mounts=mounts)
            up = await machine.boot(spec, lambda _: None)
            if name != "a":
                (up.root / "secret").write_text(SECRET)
        return machine

    def run(self, command: str, container: Container | None = None) -> tuple[int | None, str]:
        """On node a: exit code and all that was printed."""
        ended, printed = self.run_to_its_end(command, container)
        assert ended.failure is None, ended.message
        return ended.code, printed

    def run_to_its_end(self, command: str, container: Container | None = None) -> tuple[Exit, str]:
        number = next(self._numbers)
        image = container.image if container else None
        run = Run(f"run-{number}", f"{TASK}-{number}", "bash command.sh", {}, image=image, container=container)
        directory = self.data_dir / "nodes/one/a" / run.directory
        (directory / "wd").mkdir(parents=True)
        (directory / "wd/command.sh").write_text(command)
        ended = self._loop.run_until_complete(asyncio.wait_for(self._machine.run("a", run), 60))
        self._loop.run_until_complete(self._machine.end("a", run.scope))
        files = [directory / name for name in ("stdout.txt", "stderr.txt")]
        return ended, "".join(file.read_text() for file in files if file.exists())

    def close(self) -> None:
        self._loop.run_until_complete(self._machine.close())
        self._loop.close()


@pytest.fixture(scope="module", params=examples.first([("/tmp", False), ("/var/tmp", False), ("/var/tmp", True)]))
def pools(request: pytest.FixtureRequest) -> Iterator[Pools]:
    """With a data directory in what is a node's own, and elsewhere; in a user namespace, as an ordinary user has it."""
    place, user_namespace = request.param
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir=place) as directory:
        patch.setenv("DOCKER_HOST", "unix:///no/engine")
        if user_namespace:
            if reason := process._probe(Path(directory), user_namespace=True):
                needs.namespaces(reason)
            patch.setattr(process, "_isolation", lambda _: process.Isolation("namespaces", user_namespace=True))
        patch.setenv("BATCHTRAIN_EMULATOR_ISOLATION", "namespaces")
        patch.setenv("ACCOUNT_KEY", SECRET)
        try:
            found = Pools(Path(directory) / "data")
        except OSError as error:
            needs.namespaces(str(error))
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


IMAGE = "example/image"


@pytest.fixture
def machines_directory() -> Iterator[Path]:
    """Outside /tmp and /var/tmp, which are the node's own, wherever the user's home is."""
    candidates = (Path.home().resolve(), Path(__file__).resolve().parents[2], Path("/srv"), Path("/opt"))
    for folder in candidates:
        if not {Path("/tmp"), Path("/var/tmp")} & {*folder.parents} and os.access(folder, os.W_OK):
            with tempfile.TemporaryDirectory(dir=folder) as directory:
                yield Path(directory)
            return
    pytest.skip("no directory outside /tmp that this user can write")


@pytest.fixture
def image(pools: Pools, tmp_path: Path) -> str:
    """Mapped to an environment, with a directory at /opt/vendor."""
    (tmp_path / "vendor/bin").mkdir(parents=True)
    (tmp_path / "vendor/bin/tool").write_text("a tool\n")
    mapped_images.map_image(pools.data_dir, IMAGE, Path(sys.prefix), paths={"/opt/vendor": tmp_path / "vendor"})
    return IMAGE


def test_an_environment_in_the_data_directory_is_shown_to_its_tasks_read_only(pools: Pools) -> None:
    program = pools.data_dir / "environments/mine/bin/tool"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\necho ran; touch $0.new")
    program.chmod(0o755)
    mapped_images.map_image(pools.data_dir, "example/mine", program.parent.parent)
    code, printed = pools.run("tool; ssh host-b cat $(command -v tool)", Container("example/mine"))
    assert (code, printed.count("Read-only file system")) == (0, 1)
    assert printed.startswith("ran\n#!/bin/sh\n")
    shutil.rmtree(pools.data_dir / "environments")


def test_the_system_is_read_only_and_what_a_task_makes_in_the_root_is_the_nodes_alone(pools: Pools) -> None:
    _, printed = pools.run("touch /usr/x /etc/x /home/x /root/x; mkdir /made_by_a_task; ls -d /made_by_a_task")
    assert printed.count("Read-only file system") == 4
    assert printed.startswith("/made_by_a_task")
    assert not Path("/made_by_a_task").exists()


def test_links_of_the_machines_root_are_links_of_the_node(pools: Pools) -> None:
    links = {path.name: str(path.readlink()) for path in Path("/").iterdir() if path.is_symlink()}
    _, printed = pools.run("cd /; for name in *; do [ -L $name ] && echo $name $(readlink $name); done")
    assert dict(line.split() for line in printed.splitlines()) == links


@pytest.mark.parametrize(
    ("path", "kind", "options"),
    [
        ("/", "tmpfs", {"rw", "nosuid", "nodev", "mode=755"}),
        ("{data}", "tmpfs", {"rw", "nosuid", "nodev", "size=1024k", "mode=755"}),
        ("/proc", "proc", {"rw", "nosuid", "nodev", "noexec"}),
        ("/dev/shm", "tmpfs", {"rw", "nosuid", "nodev"}),
    ],
)
def test_file_systems_of_a_node_allow_no_programs_of_other_users_and_no_devices(
    pools: Pools, path: str, kind: str, options: set[str]
) -> None:
    _, printed = pools.run("cat /proc/mounts")
    mounts = {mount[1]: mount for line in printed.splitlines() if (mount := line.split())}
    mount = mounts[path.format(data=pools.data_dir)]
    assert (mount[0], mount[2]) == (kind, kind)
    assert set(mount[3].split(",")) >= options


def test_every_node_has_tmp_of_its_own_twice(pools: Pools) -> None:
    code, printed = pools.run("echo a >/tmp/x && cat /var/tmp/x && ssh host-b ls /tmp/x /var/tmp/x")
    assert code != 0
    assert printed.startswith("a\n")


def test_a_volume_of_a_task_is_at_its_path_in_the_container_while_the_task_runs(
    pools: Pools, image: str, machines_directory: Path
) -> None:
    (machines_directory / "word").write_text("hello\n")
    options = f"-v {machines_directory}:/data:ro --volume=scratch:/usr/share/of_a_task/scratch -v /data_of_a_node:/more"
    command = "cat /data/word; echo kept >/usr/share/of_a_task/scratch/x; touch /more/y; touch /data/z"
    _, printed = pools.run(command, Container(image, options))
    assert printed.startswith("hello\n")
    assert printed.count("Read-only file system") == 1
    again = "cat /usr/share/of_a_task/scratch/x; ls /more /data; ls /usr/share | wc -l"
    assert pools.run(again, Container(image, options))[1].split()[:4] == ["kept", "/data:", "word", "/more:"]
    assert pools.run("ls /data /more /usr/share/of_a_task/scratch/x")[1].count("No such file") == 1
    assert not any(Path(path).exists() for path in ("/data_of_a_node", "/usr/share/of_a_task"))


def test_a_volume_of_the_node_itself_and_a_mounted_file_system_are_the_nodes(pools: Pools, image: str) -> None:
    options = "-v $AZ_BATCH_NODE_ROOT_DIR/shared:/own -v $AZ_BATCH_NODE_MOUNTS_DIR/share:/share"
    root = str(pools.data_dir / "mnt/one")
    variables = options.replace("$AZ_BATCH_NODE_ROOT_DIR", root).replace(
        "$AZ_BATCH_NODE_MOUNTS_DIR", f"{root}/fsmounts"
    )
    assert pools.run(f"cat /share/shown; touch /own/x; ls {root}/shared", Container(image, variables)) == (
        0,
        "shownx\n",
    )


def test_a_volume_above_the_data_directory_does_not_show_the_key(pools: Pools, image: str) -> None:
    _, printed = pools.run("find /above -type f -exec cat {} +", Container(image, f"-v {pools.data_dir.parent}:/above"))
    assert SECRET not in printed
    ended, printed = pools.run_to_its_end("cat /d/key", Container(image, f"-v {pools.data_dir}:/d"))
    assert SECRET not in printed
    assert ended.failure == (None if pools.data_dir.is_relative_to("/tmp") else "ContainerInvalidSettings")


def test_a_directory_is_shown_read_only_at_a_path_of_the_image(pools: Pools, image: str) -> None:
    code, printed = pools.run("cat /opt/vendor/bin/tool; touch /opt/vendor/x; ls /opt | wc -l", Container(image))
    assert (code, printed.split("\n")[0]) == (0, "a tool")
    assert "Read-only file system" in printed
    assert not Path("/opt/vendor").exists()
    assert len(list(Path("/opt").iterdir())) + 1 == int(printed.split("\n")[1])


def test_plain_nodes_refuse_a_task_with_paths_of_its_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = process.Isolation("process", reason="no namespaces", remedy="allow them")
    monkeypatch.setattr(process, "_isolation", lambda _: plain)
    mapped_images.map_image(tmp_path, IMAGE, Path(sys.prefix), paths={"/opt/vendor": tmp_path})

    async def run() -> Exit:
        machine = await open_machine(tmp_path, lambda image: mapped_images.prefix_of(tmp_path, image))
        await machine.boot(NodeSpec("one", "a", "127.0.78.2", "host-a", "STANDARD_D2S_V5"), lambda _: None)
        try:
            return await machine.run("a", Run("s", TASK, "true", {}, image=IMAGE, container=Container(IMAGE)))
        finally:
            await machine.close()

    ended = asyncio.run(run())
    assert ended.failure == "ContainerInvalidSettings"
    assert "/opt/vendor at these paths" in ended.message
    assert "plain processes of this machine (no namespaces; allow them)" in ended.message
