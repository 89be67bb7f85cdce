"""node.sh on a machine of directories: the GPUs, the InfiniBand ports and the order of the hosts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from batchtrain import runtime
from tests.memory_kills import KILLS
from tests.waiting import until

pytestmark = pytest.mark.process

MIG = """GPU 0: NVIDIA A100 (UUID: GPU-1)
  MIG 3g.20gb     Device  0: (UUID: MIG-a)
  MIG 3g.20gb     Device  1: (UUID: MIG-b)
"""


PARTS = (
    "/proc/stat", "/proc/net/dev", "/proc/meminfo", "/dev/nvidia", "/dev/kfd", "/sys/class/", "/proc/driver/",
    "/proc/self/cgroup", "/proc/vmstat", "/sys/fs/cgroup",
)  # fmt: skip
"""What the script reads of the kernel."""


class Machine:
    """The kernel's files below a folder, and programs of its own on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        text = runtime.read("node.sh").decode()
        for part in PARTS:
            text = text.replace(part, f"{folder}{part}")
        (folder / "bin").mkdir()
        (folder / "node.sh").write_text(text)

    def write(self, path: str, text: str = "") -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def nvidia_smi(self, printed: str) -> None:
        self.write("bin/nvidia-smi", f"#!/bin/sh\ncat <<'END'\n{printed}END\n")
        (self.folder / "bin/nvidia-smi").chmod(0o755)

    def ask(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        values = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", **variables}
        return subprocess.run(
            ["bash", str(self.folder / "node.sh"), *words], env=values, capture_output=True, text=True, check=False
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def devices(machine: Machine) -> None:
    for name in ("dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"):
        machine.write(name)
    machine.nvidia_smi("GPU 7: never asked\n")


def cut(machine: Machine) -> None:
    devices(machine)
    machine.nvidia_smi(MIG)
    machine.write("proc/driver/nvidia/capabilities/gpu0/mig/gi1/access")


def stand_in(machine: Machine) -> None:
    machine.nvidia_smi("GPU 0: a\nGPU 1: b\nGPU 2: c\n")


def amd(machine: Machine) -> None:
    machine.nvidia_smi("")
    machine.write("dev/kfd")
    for number, gpu in enumerate((0, 51110, 9021)):
        machine.write(f"sys/class/kfd/kfd/topology/nodes/{number}/gpu_id", f"{gpu}\n")


@pytest.mark.parametrize(
    ("lay_out", "printed"),
    [
        (devices, "driver\ngpu 0\ngpu 1\n"),
        (cut, "driver\ngpu MIG-a\ngpu MIG-b\n"),
        (stand_in, "gpu 0\ngpu 1\ngpu 2\n"),
        (amd, "driver\ngpu 0\ngpu 1\n"),
        (lambda machine: machine.nvidia_smi(""), ""),
    ],
)
def test_gpus_are_named_as_cuda_visible_devices_names_them(
    lay_out: Callable[[Machine], None], printed: str, machine: Machine
) -> None:
    lay_out(machine)
    assert machine.ask("gpus").stdout == printed


def test_active_infiniband_ports_are_told_with_a_partition_key_of_their_own(machine: Machine) -> None:
    ports = {
        "mlx5_0": ("Ethernet", "4: ACTIVE"),
        "mlx5_1": ("InfiniBand", "4: ACTIVE"),
        "mlx5_2": ("InfiniBand", "1: DOWN"),
        "mlx5_3": ("InfiniBand", "4: ACTIVE"),
    }
    for device, (layer, state) in ports.items():
        place = f"sys/class/infiniband/{device}/ports/1"
        machine.write(f"{place}/link_layer", layer)
        machine.write(f"{place}/state", state)
        machine.write(f"{place}/pkeys/0", "0x8012")
        machine.write(f"{place}/pkeys/1", "0x7fff")
    assert machine.ask("infiniband").stdout == "infiniband mlx5_1:1,mlx5_3:1 0x0012\n"


def test_a_node_without_infiniband_says_nothing(machine: Machine) -> None:
    assert machine.ask("infiniband").stdout == ""


def test_the_primary_is_the_first_of_the_hosts_whatever_their_order(machine: Machine) -> None:
    listed = {"AZ_BATCH_HOST_LIST": "10.0.0.6, 10.0.0.4,10.0.0.5", "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"}
    assert machine.ask("hosts", "3", **listed).stdout == "10.0.0.4,10.0.0.6,10.0.0.5\n"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "no multi-instance task's primary"),
        ({"AZ_BATCH_HOST_LIST": "10.0.0.5"}, "address (AZ_BATCH_MASTER_NODE is not set) is not in"),
        (
            {"AZ_BATCH_HOST_LIST": "10.0.0.5,10.0.0.6", "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"},
            "10.0.0.4 is not in AZ_BATCH_HOST_LIST",
        ),
        (
            {"AZ_BATCH_HOST_LIST": "10.0.0.4", "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"},
            "2 instances were planned, AZ_BATCH_HOST_LIST has 1 hosts",
        ),
    ],
)
def test_hosts_that_cannot_be_are_refused(values: dict[str, str], said: str, machine: Machine) -> None:
    done = machine.ask("hosts", "2", **values)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr


# --- samples --------------------------------------------------------------------------------------------------------


def counters(machine: Machine, busy: int, idle: int, received: int, sent: int) -> None:
    machine.write("proc/stat", f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
    machine.write("proc/meminfo", "MemTotal: 4194304 kB\nMemFree: 1 kB\nMemAvailable:    1048576 kB\n")
    head = "Inter-| Receive | Transmit\n face |bytes packets|bytes packets\n    lo: 9 9 9 9 9 9 9 9 9 9\n"
    machine.write("proc/net/dev", f"{head}  eth0:{received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n")


def samples(machine: Machine, **variables: str) -> subprocess.Popen[bytes]:
    values = {"PATH": f"{machine.folder}/bin:{os.environ['PATH']}", "BATCHTRAIN_SAMPLE_SECONDS": "1", **variables}
    script, file = str(machine.folder / "node.sh"), str(machine.folder / "samples.jsonl")
    return subprocess.Popen(["bash", script, "samples", file, str(os.getpid())], env=values, stderr=subprocess.PIPE)


def lines(machine: Machine) -> list[dict[str, object]]:
    file = machine.folder / "samples.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.slow
def test_a_node_is_sampled_between_two_looks(machine: Machine) -> None:
    counters(machine, 100, 100, 10_000_000, 0)
    machine.nvidia_smi("90, 1024\n30, 512\n")
    sampler = samples(machine, AZ_BATCH_NODE_ID="tvm-1")
    try:
        until(lambda: lines(machine) != [])
        first = len(lines(machine))
        counters(machine, 175, 125, 10_000_000_000_000, 5)
        until(lambda: len(lines(machine)) >= first + 2)
    finally:
        sampler.terminate()
        sampler.communicate()
    quiet, busy = lines(machine)[0], next(line for line in lines(machine) if line["cpu_percent"])
    assert (quiet["cpu_percent"], quiet["network_in_mb"], quiet["node"]) == (0, 0, "tvm-1")
    assert (busy["cpu_percent"], busy["memory_gib"], busy["network_out_mb"]) == (75, 3, 0)
    assert isinstance(busy["network_in_mb"], float) and busy["network_in_mb"] > 0
    assert (busy["gpu_percent"], busy["gpu_memory_gib"]) == (60, 1.5)


def test_samples_can_be_switched_off(machine: Machine) -> None:
    sampler = samples(machine, BATCHTRAIN_SAMPLE_SECONDS="0")
    assert (sampler.wait(), lines(machine)) == (0, [])


@pytest.mark.slow
def test_samples_end_when_their_caller_has_ended(machine: Machine) -> None:
    counters(machine, 1, 1, 1, 1)
    sampling = f"bash {machine.folder}/node.sh samples {machine.folder}/samples.jsonl $$"
    text = f"BATCHTRAIN_SAMPLE_SECONDS=1 {sampling} >/dev/null & echo $!"
    shell = subprocess.run(["bash", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    until(lambda: not Path(f"/proc/{int(shell.stdout)}").exists())


def test_a_counter_that_falls_is_written_as_0() -> None:
    """The sum over network interfaces falls if one of them goes away; `0.-48` is not JSON."""
    script = (Path(runtime.__file__).parent / "node.sh").read_text(encoding="utf-8")
    (line,) = (line for line in script.splitlines() if line.startswith("hundredths()"))
    printed = subprocess.run(
        ["bash", "-c", f"{line}; hundredths -48; echo; hundredths 1234"], capture_output=True, text=True
    )
    assert printed.stdout == "0.00\n12.34"


@pytest.mark.parametrize(("files", "cgroup"), KILLS)
def test_kills_for_memory_are_counted_for_our_cgroups_and_for_the_node(
    files: dict[str, str], cgroup: int, machine: Machine
) -> None:
    for path, text in files.items():
        machine.write(path.lstrip("/"), text + "\n")
    assert machine.ask("memory_kills").stdout == f"{cgroup} 5\n"
    assert machine.ask("memory_kills", BATCHTRAIN_EMULATED_NODE="/nodes/n0").stdout == "0 5\n"
