"""Facts about this machine from the kernel: its CPUs, its interfaces, its free ports."""

import collections
import fcntl
import os
import socket
import struct

from .spec import Values


def text_of(path: str) -> str:
    """The text of a small file of the kernel; empty if it does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def nccl_settings_of_image() -> "list[str]":
    """The variables that the image sets for NCCL; a variable of the environment would win over this file."""
    return [line.split("=", 1)[0].strip() for line in text_of("/etc/nccl.conf").splitlines() if "=" in line]


def killed_for_memory() -> "dict[str, int]":
    """How many processes the kernel has killed because memory was full: by the limit of our cgroup (of version 1 or 2)
    or of one above it, and on the whole machine, cgroups included. An emulated node that is no container has the
    cgroups of the user's session, which are no limits of the task."""
    files: "list[str]" = []
    is_container = os.environ.get("BATCHTRAIN_EMULATED_NODE", "container") == "container"
    for line in text_of("/proc/self/cgroup").splitlines() if is_container else ():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            folder = "/sys/fs/cgroup" + ("/memory" if controllers else "")
            names = [name for name in path.split("/") if name]
            file = "memory.oom_control" if controllers else "memory.events"
            files += [os.path.join(folder, *names[:length], file) for length in range(len(names) + 1)]
    return {"cgroup": sum(_counter(text_of(file)) for file in files), "node": _counter(text_of("/proc/vmstat"))}


def _counter(text: str) -> int:
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))


def names_in(folder: str) -> "list[str]":
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def cpu_numbers(text: str) -> "list[int]":
    """Parses the list format of the kernel: "0-2,8"."""
    numbers: "list[int]" = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def numa_nodes() -> "dict[int, list[int]]":
    """The CPUs that this process may use, by NUMA node; threads of one core are adjacent."""
    allowed = os.sched_getaffinity(0)
    folder = "/sys/devices/system/node"
    listed = {
        int(name[4:]): cpu_numbers(text_of(f"{folder}/{name}/cpulist"))
        for name in names_in(folder)
        if name[:4] == "node" and name[4:].isdigit()
    }
    listed = listed or {0: sorted(allowed)}
    return {node: sorted((cpu for cpu in cpus if cpu in allowed), key=core_of) for node, cpus in listed.items()}


def core_of(cpu: int) -> "tuple[int, int]":
    siblings = text_of(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return min(cpu_numbers(siblings) or [cpu]), cpu


def share_cpus(nodes: "dict[int, list[int]]", homes: "list[int]") -> "list[list[int]]":
    """Disjoint CPUs for each local process. homes: the NUMA node of its GPU, -1 if it has none.

    Returns empty lists (no binding) for more processes than CPUs, and for a single process, which may use all.
    """
    everything = [cpu for node in sorted(nodes) for cpu in nodes[node]]
    if len(homes) < 2 or len(everything) < len(homes):
        return [[] for _ in homes]
    if all(len(nodes.get(home, [])) >= homes.count(home) for home in homes):
        seen: "collections.Counter[int]" = collections.Counter()
        shares = []
        for home in homes:
            shares.append(block(nodes[home], seen[home], homes.count(home)))
            seen[home] += 1
        return shares
    return [block(everything, index, len(homes)) for index in range(len(homes))]


def block(items: "list[int]", index: int, count: int) -> "list[int]":
    size = len(items) // count
    return items[index * size : (index + 1) * size]


def find_interfaces() -> "Values":
    """IPv4 addresses by interface."""
    addresses = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            except OSError:
                continue
            addresses[name] = socket.inet_ntoa(answer[20:24])
    return addresses


def find_ports(count: int, index: int, nodes: int) -> "list[int]":
    """Free ports on all addresses, outside the kernel's range; one range for each of `nodes` on one machine."""
    low, high = port_range(*[int(word) for word in text_of("/proc/sys/net/ipv4/ip_local_port_range").split()])
    width = max(1, (high - low) // nodes)
    low += index * width
    start = int.from_bytes(os.urandom(2), "big")
    ports: "list[int]" = []
    for step in range(width):
        port = low + (start + step) % width
        if not why_taken(port):
            ports.append(port)
            if len(ports) == count:
                break
    return sorted(ports)


def port_range(first: int = 32768, last: int = 60999) -> "tuple[int, int]":
    """The wider of the two ranges beside the one that the kernel assigns (first to last)."""
    below, above = (20000 if first > 21000 else 10000, first), (last + 1, 65535)
    return max(below, above, key=lambda bounds: bounds[1] - bounds[0])


def why_taken(port: int, again: bool = False) -> str:
    """Why a process cannot listen on the port now; empty if it can.

    again: ignore connections of an ended server, as servers do.
    """
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, again)
            probe.bind(("", port))
            probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return ""
