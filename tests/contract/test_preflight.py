"""The nodes are looked at before a launch: a real bash runs preflight.sh on nodes that want something."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from batchtrain import runtime
from batchtrain.config import task_resources
from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.launchers import preflight
from batchtrain.launchers.launch import File, Launch
from tests import examples
from tests.contract.gang_of_nodes import TASK, Gang, gang_with_python
from tests.launching import launched

pytestmark = pytest.mark.process

TWO = Shape(2)
GPUS = Shape(
    2,
    Fabric.SR_IOV,
    size="Standard_ND96asr_v4",
    family="ND A100 v4",
    gpus=4,
    gpu_vendor="nvidia",
    hcas=2,
    port_gbps=200,
)
EXPECTED = (
    "processes=4", "gpus=4", "vendor=nvidia", "size=Standard_ND96asr_v4", "infiniband=2", "rate=200", "memlock=1",
)  # fmt: skip
SMI = 'for i in {}; do echo "GPU $i: NVIDIA A100-SXM4-40GB (UUID: GPU-$i)"; done'
SPACE = "case $* in */dev/shm) echo {}; ;; *) echo {} ;; esac"
PLENTY, NOTHING = "4096 262144 262144", "4096 4096 4096"
"""1 GiB and 16 MiB, as `stat -f -c '%S %b %a'` has it."""


class Node:
    """What preflight.sh sees of one node: its PATH, its /sys and /dev, and how much memory it may lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin, self.sys, self.task = folder / "bin", folder / "sys/class", folder / "task/.batchtrain"
        for made in (self.bin, self.sys, self.task):
            made.mkdir(parents=True)
        self.status = folder / "status"
        self.capable(of="00000000a80425fb")  # root in a container
        text = runtime.read("preflight.sh").decode()
        for real, own in {
            "/sys/class": self.sys,
            "/dev/nvidia": folder / "nvidia",
            "/proc/self/status": self.status,
        }.items():
            text = text.replace(real, str(own))
        (self.task / "preflight.sh").write_text(text)
        text = runtime.read("node.sh").decode().replace("/dev/nvidia", str(folder / "nvidia"))
        (self.task / "node.sh").write_text(text)
        (self.task / "environment").write_text("export AZ_BATCH_NODE_ID='tvm-2'\n")
        self.memlock = resource.RLIM_INFINITY
        self.program("nvidia-smi", SMI.format("0 1 2 3"))
        self.space(PLENTY, PLENTY)
        for number in range(2):
            self.port("InfiniBand", "4: ACTIVE", number)

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.bin / name).chmod(0o755)

    def capable(self, of: str) -> None:
        self.status.write_text(f"Name:\tbash\nCapEff:\t{of}\n")

    def space(self, memory: str, disk: str) -> None:
        self.program("stat", SPACE.format(memory, disk))

    def port(self, layer: str, state: str, number: int = 0, rate: int = 200, key: str = "0x8001") -> None:
        place = self.sys / f"infiniband/mlx5_ib{number}/ports/1"
        (place / "pkeys").mkdir(parents=True, exist_ok=True)
        values = {
            "link_layer": layer,
            "state": state,
            "rate": f"{rate} Gb/sec (4X HDR)",
            "pkeys/0": key,
            "pkeys/1": "0x7fff",
        }
        for name, value in values.items():
            (place / name).write_text(f"{value}\n")

    def carriers(self, changes: int) -> None:
        file = self.sys / "infiniband/mlx5_ib1/device/net/ib1/carrier_changes"
        file.parent.mkdir(parents=True)
        file.write_text(f"{changes}\n")

    def counter(self, name: str, count: int) -> None:
        file = self.sys / f"infiniband/mlx5_ib1/ports/1/counters/{name}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{count}\n")

    def answers(self, query: str, text: str) -> None:
        """What nvidia-smi prints for a query."""
        self.program("nvidia-smi", f'case "$*" in *{query}*) printf "{text}" ;; *) {SMI.format("0 1 2 3")} ;; esac')

    def look(self, *more: str, **variables: str) -> list[str]:
        """What it says, and that its exit code tells whether it said more than warnings."""
        limit = f"ulimit -l {self.memlock // 1024 if self.memlock > 0 else '$(ulimit -H -l)'}; exec bash"
        words = [*EXPECTED, "own=10.0.0.5", f"now={int(time.time())}", *more]
        if self.memlock < 0 and resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] != resource.RLIM_INFINITY:
            words.remove("memlock=1")  # nobody may lock more here
        done = subprocess.run(
            ["bash", "-c", f'{limit} "$@"', "-", self.task / "preflight.sh", *words],
            env={"PATH": f"{self.bin}:{os.environ['PATH']}", **variables}, capture_output=True, text=True,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        faults = [line for line in lines if not line.startswith("preflight warning: ")]
        assert (done.returncode, done.stderr) == (9 if faults else 0, "")
        return lines


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def unlockable(node: Node) -> None:
    node.memlock = 8 << 20


FAULTS: dict[str, tuple[Callable[[Node], object], tuple[str, ...], str, str]] = {
    "a GPU is gone": (
        lambda node: node.program("nvidia-smi", SMI.format("0 1 3") + "; echo Unable to find GPU0000:2; exit 1"), (),
        "nvidia-smi -L shows 3 of the 4 GPUs of Standard_ND96asr_v4 (Unable to find GPU0000:2)", "reboot the node",
    ),
    "the driver does not answer": (
        lambda node: node.program("nvidia-smi", SMI.format("0 1 2 3") + "; exit 15"), (),
        "the driver does not answer (nvidia-smi -L ended with code 15)", "reboot the node",
    ),
    "no AMD GPU": (lambda node: None, ("vendor=amd",), "kfd shows 0 of the 4 GPUs", "with the driver"),
    "the link is down": (
        lambda node: node.port("InfiniBand", "1: DOWN"), (),
        "1 of 2 InfiniBand ports work (mlx5_ib0: 1: DOWN in ", "infiniband: false",
    ),
    "only the Ethernet's card is there": (
        lambda node: [node.port("Ethernet", "4: ACTIVE", number) for number in range(2)], (),
        "0 of 2 InfiniBand ports work (there are no others in ", "infiniband: false",
    ),
    "a port is slow": (
        lambda node: node.port("InfiniBand", "4: ACTIVE", 1, rate=100), (),
        "1 of 2 InfiniBand ports work (mlx5_ib1: 100 of 200 Gb/s in ", "reboot the node",
    ),
    "a port is in no partition": (
        lambda node: node.port("InfiniBand", "4: ACTIVE", 1, key="0x0000"), (),
        "1 of 2 InfiniBand ports work (mlx5_ib1: in no partition in ", "reboot the node",
    ),
    "a link flaps": (
        lambda node: node.carriers(100000), (), "InfiniBand link of mlx5_ib1 was lost 50000 times", "remove it",
    ),
    "a row of memory is broken": (
        lambda node: node.answers("remapped", "00000000:01:00.0, 0, 0\\n00000000:02:00.0, 0, 1\\n"), (),
        "GPU 00000000:02:00.0 has a broken row (replacement pending: 0, failed: 1)", "reboot the node",
    ),
    "SRAM has an error": (
        lambda node: node.answers("sram", "0, 0\\n1, [N/A]\\n2, 3\\n"), (),
        "GPU 2 has 3 uncorrected ECC errors in SRAM", "reboot the node",
    ),
    "SRAM had an error before": (
        lambda node: node.answers("aggregate.sram", "1, 0, 1, 0, 0, 0, 0, 0, 0\\n"), (),
        "GPU 1 has 1 uncorrected ECC errors in SRAM, and the limit is 0", "reboot the node",
    ),
    "SRAM is corrected too often": (
        lambda node: node.answers("corrected.volatile.sram", "1, 0, 0, 10001, 20002, 0, 0, 0, 0\\n"), (),
        "GPU 1 has 10001 corrected ECC errors in SRAM, and the limit is 10000", "reboot the node",
    ),
    "memory is corrected too often": (
        lambda node: node.answers("corrected.aggregate.dram", "0, 0, 0, 0, 0, 0, 0, 7, 20000001\\n"), (),
        "GPU 0 has 20000001 corrected ECC errors in DRAM, and the limit is 20000000", "reboot the node",
    ),
    "an NVLink is down": (
        lambda node: node.answers("nvlink", "GPU 0: A\\n\\t Link 0: 25 GB/s\\nGPU 1: A\\n\\t Link 0: <inactive>\\n"),
        (), "1 NVLinks of GPU 1 are inactive", "reboot the node",
    ),
    "a GPU fell off the bus": (
        lambda node: node.program("dmesg", "echo '[999999999.5] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off'"),
        (), "Xid 79 of the GPU PCI:0000:02:00", "reboot the node",
    ),
    "memory cannot be locked": (
        unlockable, (),
        "a process may lock 8192 KiB of memory (ulimit -l), and InfiniBand needs 1048576", "create the pool again",
    ),
    "shared memory is small": (
        lambda node: node.space(NOTHING, PLENTY), (), "/dev/shm has 16 MiB, and 4 processes need 256", "shm_size",
    ),
    "the disk is full": (
        lambda node: node.space(PLENTY, NOTHING), (),
        "16 MiB are free on the disk of the task's directory, and 256 are the least", "retention_time",
    ),
    "the clock is ahead": (
        lambda node: None, (f"now={int(time.time()) - 3600}",),
        "s ahead of the primary's; the limit is 30 s", "chronyc",
    ),
    "the clock is behind": (
        lambda node: None, (f"now={int(time.time()) + 3600}",),
        "s behind the primary's; the limit is 30 s", "chronyc",
    ),
    "two nodes are not reached": (
        lambda node: None, ("hosts=127.0.0.8,10.0.0.5,127.0.0.9", "port=9"),
        "it does not reach 2 of the other nodes on port 9 (127.0.0.8 127.0.0.9: Connection refused)", "security group",
    ),
}  # fmt: skip

REPAIRABLE = {
    "memory cannot be locked", "shared memory is small", "the disk is full", "the clock is ahead",
    "the clock is behind", "two nodes are not reached",
}  # fmt: skip
"""Faults that another node would have, too, or that are no fault of this node's hardware."""


@pytest.mark.parametrize("name", examples.first(FAULTS, 4))
def test_a_fault_names_its_node_what_was_found_what_was_expected_and_what_to_do(name: str, node: Node) -> None:
    bring, more, found, advice = FAULTS[name]
    bring(node)
    [line] = sorted(node.look(*more), key=lambda line: found not in line)[:1]
    begin = "preflight" if name in REPAIRABLE else "preflight hardware"
    assert line.startswith(f"{begin}: node tvm-2 (10.0.0.5): ")
    assert found in line
    assert advice in line
    assert len(node.look(*more)) == 1


def test_all_faults_of_a_node_are_told_at_once(node: Node) -> None:
    for bring in (unlockable, FAULTS["a GPU is gone"][0], FAULTS["the link is down"][0]):
        bring(node)
    node.space(NOTHING, NOTHING)
    assert len(node.look("now=5", "hosts=127.0.0.8,10.0.0.5", "port=9")) == 7


WARNINGS: dict[str, tuple[Callable[[Node], object], str]] = {
    "hot GPUs": (
        lambda node: node.answers("clocks_event", "0, 0x0000000000000000\\n1, 0x0000000000000060\\n2, 0x1C\\n"),
        "GPUs are slowed down (GPU 1 by the driver for heat and the hardware for heat; GPU 2 by the hardware and"
        " sync boost): reboot the node",
    ),
    "a driver before 535": (
        lambda node: node.program(
            "nvidia-smi",
            'case "$*" in *event*) echo "Field is not valid, 0x8"; exit 2 ;; *throttle*) echo "3, 0x80" ;;'
            f' *) {SMI.format("0 1 2 3")} ;; esac',
        ),
        "GPUs are slowed down (GPU 3 by the power brake): reboot",
    ),
    "a reason without a name": (
        lambda node: node.answers("clocks_event", "0, 0x0000000000000400\\n1, [N/A]\\n"),
        "GPUs are slowed down (GPU 0 by reason 0x0000000000000400): reboot",
    ),
    "low application clocks": (
        lambda node: node.answers("clocks.max", "0, 1593, 1410, 1593, 1275\\n1, 9, 9, 9, 9\\n2, 5, 5, [N/A]\\n"),
        "below their maximum (GPU 0: 1593,1275 of 1593,1410 MHz): `nvidia-smi -ac MEMORY,GRAPHICS`",
    ),
    "a damaged label of a GPU": (
        lambda node: node.program(
            "nvidia-smi", SMI.format("0 1 2 3") + "; echo WARNING: infoROM is corrupted at gpu 0001:00:00.0; exit 14"
        ),
        "the infoROM of a GPU is corrupted (WARNING: infoROM is corrupted at gpu 0001:00:00.0): report",
    ),
    "a link that was lost twice": (
        lambda node: [node.carriers(5), node.counter("port_rcv_errors", 100), node.counter("symbol_error", 2)],
        "InfiniBand ports have counted errors (mlx5_ib1: link lost 2 times, symbol_error 2): if the gang",
    ),
    "packets that were lost": (
        lambda node: [node.counter("port_rcv_errors", 101), node.counter("port_xmit_discards", 1001)],
        "counted errors (mlx5_ib1: port_rcv_errors 101, port_xmit_discards 1001)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WARNINGS)
def test_what_may_make_a_gang_slow_is_a_warning_and_no_fault(name: str, node: Node) -> None:
    bring, text = WARNINGS[name]
    bring(node)
    [line] = node.look()
    assert line.startswith("preflight warning: node tvm-2 (10.0.0.5): ")
    assert text in line


def in_domain(node: Node, ready: str) -> None:
    """The node has a channel, and its service has joined a domain of these hosts."""
    channel = node.folder / "nvidia-caps-imex-channels/channel0"
    channel.parent.mkdir()
    channel.touch()
    file = node.folder / "shared/batchtrain/imex/ready"
    file.parent.mkdir(parents=True)
    file.write_text(ready)
    with (node.task / "environment").open("a") as environment:
        environment.write(f"export AZ_BATCH_NODE_SHARED_DIR='{node.folder}/shared'\n")


@pytest.mark.parametrize(
    ("ready", "why"),
    [(None, "has no IMEX channel"), ("10.0.0.5\n10.0.0.6\n", "is not in the IMEX domain of the gang")],
)
def test_a_node_outside_the_imex_domain_fails_only_where_nccl_would_use_it(
    ready: str | None, why: str, node: Node
) -> None:
    if ready is not None:
        in_domain(node, ready)
    [slow] = node.look("imex=0", "hosts=10.0.0.20,10.0.0.5")
    [broken] = node.look("imex=1", "hosts=10.0.0.20,10.0.0.5")
    assert slow.startswith(f"preflight warning: node tvm-2 (10.0.0.5): it {why}")
    assert broken.startswith(f"preflight: node tvm-2 (10.0.0.5): it {why}")
    assert "NCCL_MNNVL_ENABLE: 0" in broken


def test_a_node_in_the_imex_domain_of_its_gang_is_healthy(node: Node) -> None:
    in_domain(node, "10.0.0.5\n10.0.0.20\n")
    assert node.look("imex=1", "hosts=10.0.0.20,10.0.0.5") == []


@pytest.mark.parametrize(
    ("word", "session", "advice"),
    [
        ("container=1", {}, "--ulimit memlock=-1:-1"),
        ("container=", {"SSH_CONNECTION": "10.0.0.4 1 10.0.0.5 22"}, "limits.conf"),
        ("container=", {}, "create the pool again"),
    ],
)
def test_the_advice_about_locked_memory_fits_the_process(
    word: str, session: dict[str, str], advice: str, node: Node
) -> None:
    unlockable(node)
    [line] = node.look(word, **session)
    assert line.endswith(advice) or advice in line.partition("needs")[2]


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("clocks_event", "0, 0x0000000000000001\\n1, 0x0000000000000004\\n2, 0x5\\n3, [N/A]\\n"),
        ("clocks.max", "0, 1593, 1410, 1593, 1410\\n1, [N/A], [N/A], [N/A], [N/A]\\n"),
        ("ecc.errors", "0, 0, 0, 10000, 10000, 20000000, 20000000, 5, 7\\n1, [N/A], [N/A]\\n"),
    ],
)
def test_a_gpu_that_idles_or_is_at_a_limit_is_healthy(query: str, answer: str, node: Node) -> None:
    node.answers(query, answer)
    assert node.look() == []


def test_a_link_that_came_up_when_the_node_started_is_healthy(node: Node) -> None:
    node.carriers(3)
    assert node.look() == []


def test_a_fault_and_a_warning_of_a_node_are_both_told(node: Node) -> None:
    node.counter("link_downed", 1)
    node.port("InfiniBand", "1: DOWN")
    assert sorted(line.partition(": ")[0] for line in node.look()) == ["preflight hardware", "preflight warning"]


def test_a_healthy_node_says_nothing(node: Node) -> None:
    with ExitStack() as open_:
        at = open_.enter_context(socket.create_server(("127.0.0.8", 0)))
        words = ("hosts=127.0.0.8,10.0.0.5", f"port={at.getsockname()[1]}")
        assert node.look(*words) == []


def test_a_hundred_nodes_are_knocked_at_at_once(node: Node) -> None:
    hosts = ",".join(f"127.0.1.{number}" for number in range(1, 101))
    with socket.create_server(("", 0), backlog=200) as everywhere:
        assert node.look(f"hosts={hosts}", "own=127.0.1.7", f"port={everywhere.getsockname()[1]}") == []


BUSYBOX = 'shift; "$@" & (sleep 3; kill $!) >/dev/null & wait $!'
"""A timeout that ends its program alone, and not what that has started."""


@pytest.mark.slow
@pytest.mark.parametrize("timeout", ["", BUSYBOX], ids=["coreutils", "busybox"])
def test_nodes_that_do_not_answer_are_waited_for_together_and_not_for_long(node: Node, timeout: str) -> None:
    if timeout:
        node.program("timeout", '[ "$1" = 3 ] || exec /usr/bin/timeout "$@"; ' + timeout)
    with socket.create_server(("", 0), backlog=0) as deaf, ExitStack() as waiting:
        for _ in range(3):  # nobody takes them, so the kernel lets no more in
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", deaf.getsockname()[1]))
        [line] = node.look("hosts=10.0.0.5,127.0.0.8,127.0.0.9", f"port={deaf.getsockname()[1]}")
        assert "(127.0.0.8 127.0.0.9: no answer in 3 s)" in line


def test_an_emulated_node_is_not_asked_for_what_its_machine_does_not_have(node: Node) -> None:
    for bring in (unlockable, FAULTS["a GPU is gone"][0], FAULTS["the link is down"][0]):
        bring(node)
    node.space(NOTHING, PLENTY)
    assert node.look("emulated=1") == []


def test_who_may_lock_memory_anyway_needs_no_limit(node: Node) -> None:
    unlockable(node)
    node.capable(of="000001ffffffffff")
    assert node.look() == []


def test_what_one_process_may_lock_is_enough_for_any_number_of_them(node: Node) -> None:
    script = node.task / "preflight.sh"
    script.write_text(script.read_text().replace("$(ulimit -l)", "1048576"))
    assert node.look("processes=120", "memlock=1") == []


def test_the_shared_memory_that_the_rules_ask_for_is_enough(node: Node) -> None:
    node.space(f"4096 {task_resources.LEAST_MIB * 256} 0", PLENTY)
    assert node.look("processes=8") == []


def test_a_timeout_of_other_words_stops_no_node(node: Node) -> None:
    node.program("timeout", "echo usage: timeout [-t SECS] PROG; exit 127")
    for number in range(4):
        (node.sys.parents[1] / f"nvidia{number}").touch()
    assert node.look("hosts=127.0.0.8,10.0.0.5", "port=9") == []


def test_an_nvidia_smi_that_this_image_cannot_run_is_no_missing_gpu(node: Node, tmp_path: Path) -> None:
    node.program("nvidia-smi", "exit 127")
    for number in range(4):
        (tmp_path / f"nvidia{number}").touch()
    assert node.look() == []


def test_an_image_without_nvidia_smi_is_believed_its_devices(node: Node, tmp_path: Path) -> None:
    (node.bin / "nvidia-smi").unlink()
    for program in ("bash", "timeout"):
        (node.bin / program).symlink_to(f"/usr/bin/{program}")
    for number in range(4):
        (tmp_path / f"nvidia{number}").touch()
    path, os.environ["PATH"] = os.environ["PATH"], ""
    try:
        assert node.look() == []
        (tmp_path / "nvidia3").unlink()
        assert "shows 3 of the 4 GPUs" in node.look()[0]
    finally:
        os.environ["PATH"] = path


# --- in a launch ----------------------------------------------------------------------------------------------------

MPIRUN = 'while [ "$1" != sh ]; do shift; done\nshift 2\nexec "$@"'
"""The command alone, once."""
STAT = """#!/bin/bash
! grep -qs "NODE_ID='{}" "${{!#}}/environment" || exec echo {}
exec /usr/bin/stat "$@"
"""
SAMPLES = Path(__file__).parents[1] / "data/nccl"


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    with gang_with_python(tmp_path_factory.mktemp("preflight")) as two:
        yield two


def by_nodes(command: str, shape: Shape = TWO, **more: object) -> Launch:
    return launched("pytorch", command, shape, **more)


def by_mpi(command: str, shape: Shape = TWO, **more: object) -> Launch:
    made = launched(
        "mpi", command, shape, runtime="mpich", executable_path="$AZ_BATCH_TASK_SHARED_DIR/bin/mpirun", **more
    )
    return made._replace(files=(*made.files, File("bin/mpirun", f"#!/bin/bash\n{MPIRUN}\n".encode(), 0o755)))


WAYS = pytest.mark.parametrize("made", [by_nodes, by_mpi], ids=["node launcher", "mpi"])


@pytest.fixture
def full(gang: Gang) -> Iterator[Callable[..., Launch]]:
    """A launch for which the disks of the nodes are full whose names begin so."""
    stand_in = gang.prefix / "bin/stat"

    def fill(launch: Launch, name: str) -> Launch:
        stand_in.write_text(STAT.format(name, NOTHING))
        stand_in.chmod(0o755)
        return seeing_stand_ins(launch, gang)

    yield fill
    stand_in.unlink(missing_ok=True)


def seeing_stand_ins(launch: Launch, gang: Gang) -> Launch:
    """A session of ssh has a PATH of its own."""
    first = f"PATH={gang.prefix}/bin:$PATH\n".encode()
    looks = lambda file: file.name.endswith("preflight.sh")  # noqa: E731
    files = (file._replace(data=first + file.data) if looks(file) else file for file in launch.files)
    return launch._replace(files=tuple(files))


@WAYS
def test_a_launch_stops_before_the_program_and_names_each_node(
    made: Callable[..., Launch], gang: Gang, full: Callable[..., Launch]
) -> None:
    done = gang.launch(full(made("echo it runs"), "tvm-"))
    assert done.code == 1
    assert done.stdout == ""
    for name, address in zip(gang.names, gang.addresses, strict=True):
        assert f"batchtrain: preflight: node {name} ({address}): 16 MiB are free on the disk" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("batchtrain: nothing was started")
    assert gang.left() == []


@WAYS
def test_one_bad_node_is_enough_and_it_alone_is_named(
    made: Callable[..., Launch], gang: Gang, full: Callable[..., Launch]
) -> None:
    done = gang.launch(full(made("echo it runs"), "tvm-1"))
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.count("preflight: node") == 1
    assert f"node tvm-1 ({gang.addresses[1]})" in done.stderr


@WAYS
@pytest.mark.parametrize("gone", [False, True], ids=["all there", "one gone"])
def test_gpus_are_counted_on_every_node_that_is_not_emulated(
    gone: bool, made: Callable[..., Launch], gang: Gang
) -> None:
    own = f"{gang.environments[0]['AZ_BATCH_TASK_DIR']}/.batchtrain/environment"
    fewer = f"if grep -q tvm-1 {own}; then {SMI.format('0 1 2')}; exit; fi\n" if gone else ""
    stand_in = gang.prefix / "bin/nvidia-smi"
    stand_in.write_text(f"#!/bin/bash\n{fewer}{SMI.format('0 1 2 3')}\n")
    stand_in.chmod(0o755)
    options = {"pre_execution_command": "unset BATCHTRAIN_EMULATED_NODE", "coordination_command": "true"}
    shape = GPUS._replace(fabric=Fabric.ETHERNET, container=True)
    done = gang.launch(seeing_stand_ins(made("echo it runs", shape, processes_per_node=1, **options), gang))
    stand_in.unlink()
    assert (done.code, "it runs" in done.stdout) == ((1, False) if gone else (0, True)), done.stderr
    line = (
        f"batchtrain: preflight: node tvm-1 ({gang.addresses[1]}): nvidia-smi -L shows 3 of the 4 GPUs of Standard_ND"
    )
    assert (line in done.stderr, done.stderr.count("preflight: node")) == (gone, gone)


@WAYS
def test_a_gang_with_warnings_starts_and_records_them(made: Callable[..., Launch], gang: Gang) -> None:
    own = f"{gang.environments[0]['AZ_BATCH_TASK_DIR']}/.batchtrain/environment"
    hot = f"if [[ $* = *event* ]]; then grep -q tvm-1 {own} && echo '2, 0x40'; exit; fi\n"
    stand_in = gang.prefix / "bin/nvidia-smi"
    stand_in.write_text(f"#!/bin/bash\n{hot}{SMI.format('0 1 2 3')}\n")
    stand_in.chmod(0o755)
    options = {"pre_execution_command": "unset BATCHTRAIN_EMULATED_NODE", "coordination_command": "true"}
    shape = GPUS._replace(fabric=Fabric.ETHERNET, container=True, family="")  # no topology, which this machine lacks
    before = len(recorded(gang, "warning"))
    done = gang.launch(seeing_stand_ins(made("echo it runs", shape, processes_per_node=1, **options), gang))
    stand_in.unlink()
    assert (done.code, "it runs" in done.stdout) == (0, True), done.stderr
    text = f"node tvm-1 ({gang.addresses[1]}): GPUs are slowed down (GPU 2 by the hardware for heat): reboot the node"
    assert done.stderr.count(f"batchtrain: warning: {text}") == 1
    [warning] = recorded(gang, "warning")[before:]
    assert warning.startswith(text)


@WAYS
@pytest.mark.parametrize("gone", [False, True], ids=["disk alone", "and a GPU"])
def test_a_gang_waits_for_a_replacement_of_nodes_with_broken_hardware_alone(
    gone: bool,
    made: Callable[..., Launch],
    gang: Gang,
    full: Callable[..., Launch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight, "REPLACE_SECONDS", 1)
    own = f"{gang.environments[0]['AZ_BATCH_TASK_DIR']}/.batchtrain/environment"
    stand_in = gang.prefix / "bin/nvidia-smi"
    fewer = f"if grep -q tvm-1 {own}; then {SMI.format('0 1 2')}; exit; fi\n" * gone
    stand_in.write_text(f"#!/bin/bash\n{fewer}{SMI.format('0 1 2 3')}\n")
    stand_in.chmod(0o755)
    options = {"pre_execution_command": "unset BATCHTRAIN_EMULATED_NODE", "coordination_command": "true"}
    shape = GPUS._replace(fabric=Fabric.ETHERNET, container=True, replaces_nodes=True)
    before = len(recorded(gang, "unfit"))
    done = gang.launch(full(made("echo it runs", shape, processes_per_node=1, **options), "tvm-"))
    stand_in.unlink()
    assert (done.code, done.stdout) == (1, "")
    waits = [line for line in done.stderr.splitlines() if " for a client that replaces " in line]
    assert waits == [f"batchtrain: waits 1 s for a client that replaces node {gang.addresses[1]}"] * gone
    assert recorded(gang, "unfit")[before:] == [gang.addresses[1]] * gone
    assert "preflight hardware" not in done.stderr


@WAYS
def test_without_preflight_it_starts_all_the_same(
    made: Callable[..., Launch], gang: Gang, full: Callable[..., Launch]
) -> None:
    launch = full(made("echo it runs", preflight=False), "tvm-")
    assert ".batchtrain/preflight.sh" not in [file.name for file in launch.files]
    done = gang.launch(launch)
    assert done.code == 0, done.stderr
    assert "it runs" in done.stdout


@WAYS
def test_a_recipe_for_gpus_and_infiniband_runs_on_emulated_nodes(made: Callable[..., Launch], gang: Gang) -> None:
    done = gang.launch(made("echo it runs", GPUS))
    assert done.code == 0, done.stderr
    assert "preflight" not in done.stderr


# --- the verdict after the run --------------------------------------------------------------------------------------


def noting(folder: str) -> str:
    """A program that has NCCL's lines of a socket on the second node, and of InfiniBand on the first."""
    return (
        f'mkdir -p "{folder}"; case $AZ_BATCH_NODE_ID in *-1) n=socket ;; *) n=infiniband ;; esac;'
        f' cp "$AZ_BATCH_TASK_SHARED_DIR/$n.txt" "{folder}/nccl.host.$$.txt"'
    )


def recorded(gang: Gang, name: str) -> list[str]:
    """The values of a key in the records of the gangs so far."""
    path = gang.roots[0] / TASK / "wd/ranks/stream.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line[name] for line in lines if name in line]


def with_samples(launch: Launch) -> Launch:
    files = tuple(File(f"{name}.txt", (SAMPLES / f"{name}.txt").read_bytes()) for name in ("socket", "infiniband"))
    return launch._replace(files=(*launch.files, *files))


@pytest.mark.parametrize("code", [0, 7])
def test_the_network_that_nccl_took_is_said_after_a_run_however_it_ended(code: int, gang: Gang) -> None:
    command = f"{noting('$AZ_BATCH_TASK_WORKING_DIR/ranks')}; sleep 0.2; [ $RANK = 0 ] || exit {code}"
    done = gang.launch(with_samples(by_nodes(command, GPUS)))
    assert done.code == code, done.stderr
    node = f"node tvm-1 ({gang.addresses[1]})"
    wanted = f'batchtrain: warning: NCCL used Socket on an RDMA pool ({node}, rank 3: "NET/IB : No device found.";'
    assert [line for line in done.stderr.splitlines() if line.startswith(wanted)], done.stderr
    assert recorded(gang, "warning")[-1].startswith(wanted.removeprefix("batchtrain: warning: "))
    assert f"batchtrain: rank 1 on {node} exited with code 7" in done.stderr or code == 0


def test_that_nccl_took_sockets_is_warned_of_while_the_processes_run(gang: Gang) -> None:
    """Rank 0 waits for the warning, for a minute at most."""
    stream = "$AZ_BATCH_TASK_WORKING_DIR/ranks/stream.jsonl"
    wait = f"for n in $(seq 600); do ! grep -q 'NCCL used Socket' {stream} || exit 0; sleep 0.1; done; exit 9"
    command = f"{noting('$AZ_BATCH_TASK_WORKING_DIR/ranks')}; [ $RANK != 0 ] || {{ {wait}; }}; sleep 0.5"
    before = recorded(gang, "warning")
    done = gang.launch(with_samples(by_nodes(command, GPUS)))
    assert done.code == 0, done.stderr
    assert done.stderr.count("warning: NCCL used Socket") == 1
    assert len(recorded(gang, "warning")) <= len(before) + 1


def test_what_an_earlier_try_noted_is_not_taken_for_this_ones(gang: Gang) -> None:
    old = gang.roots[0] / TASK / "wd/ranks/nccl.host.1.txt"
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_bytes((SAMPLES / "socket.txt").read_bytes())
    done = gang.launch(by_nodes("true", GPUS))
    assert (done.code, "NCCL used" in done.stderr) == (0, False)


@pytest.mark.parametrize("code", examples.first([0, 7]))
def test_an_mpis_run_is_judged_by_what_stands_on_every_node(code: int, gang: Gang) -> None:
    each = noting("$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/ranks")
    there = f"root=$BATCHTRAIN_EMULATED_NODE; . $root/{TASK}/.batchtrain/environment; {each}"
    launch = with_samples(by_mpi("./program", GPUS))
    launch = launch._replace(
        files=(
            *launch.files,
            File(
                "wd/program", f"#!/bin/bash\n{each}\nssh {gang.addresses[1]} '{there}'\nexit {code}\n".encode(), 0o755
            ),
        )
    )
    done = gang.launch(launch)
    assert done.code == code, done.stderr
    node = f"node tvm-1 ({gang.addresses[1]})"
    wanted = (
        f'batchtrain: warning: NCCL used Socket on an RDMA pool ({node}, rank 3: "NET/IB : No device found."; 1 of 2'
    )
    assert [line for line in done.stderr.splitlines() if line.startswith(wanted)], done.stderr
    assert recorded(gang, "warning")[-1].startswith(wanted.removeprefix("batchtrain: warning: "))
