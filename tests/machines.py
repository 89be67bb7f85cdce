"""Machines with other processors and GPUs than this one, as files like those of the kernel: for node.sh and gang.sh."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class CPUs(NamedTuple):
    """How the processors of a machine lie; CPU numbers go through packages, NUMA nodes and cores in this order."""

    packages: int = 1
    numa: int = 1
    """NUMA nodes of each package."""
    cores: int = 2
    """Cores of each NUMA node."""
    threads: int = 1
    allowed: str = ""
    """The CPUs that a process may use, as the kernel lists them; all if empty."""
    gpus: tuple[int, ...] = ()
    """The NUMA node of each GPU, in the order of their addresses."""
    has_packages: bool = True


class Machine(NamedTuple):
    folder: Path

    def seen_by(self, text: str) -> str:
        """A script that reads this machine's files."""
        for path in ("/proc/self/status", "/proc/driver/nvidia", "/sys/devices/system", "/sys/bus/pci"):
            text = text.replace(path, f"{self.folder}{path}")
        return text


def write(folder: Path, cpus: CPUs) -> Machine:
    """The files of such a machine below a folder."""
    made: dict[str, object] = {}
    size = cpus.cores * cpus.threads
    for numa in range(cpus.packages * cpus.numa):
        made[f"sys/devices/system/node/node{numa}/cpulist"] = f"{numa * size}-{(numa + 1) * size - 1}"
    count = cpus.packages * cpus.numa * size
    for cpu in range(count):
        topology, first = f"sys/devices/system/cpu/cpu{cpu}/topology", cpu - cpu % cpus.threads
        made[f"{topology}/physical_package_id"] = cpu // (cpus.numa * size) if cpus.has_packages else -1
        made[f"{topology}/thread_siblings_list"] = f"{first}-{first + cpus.threads - 1}" if cpus.threads > 1 else cpu
    for number, numa in enumerate(cpus.gpus):
        address = f"{number + 1:04X}:00:00.0"
        made[f"proc/driver/nvidia/gpus/{address}/information"] = ""
        made[f"sys/bus/pci/devices/{address.lower()}/numa_node"] = numa
    made["proc/self/status"] = f"Name:\tbash\nCpus_allowed_list:\t{cpus.allowed or f'0-{count - 1}'}"
    for name, value in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return Machine(folder)
