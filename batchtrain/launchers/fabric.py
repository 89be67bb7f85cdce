"""How each MPI dialect is told to use the network that a node has, as text that the node itself decides by.

Sources: Batch Shipyard's table of options; for current sizes Azure's "Set up Message Passing Interface for HPC"
(setup-mpi) and azhpc-images. What of it nobody could try here stands in docs/explanation/untested-on-azure.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from batchtrain.launchers import shell
from batchtrain.launchers.types import Fabric, Implicit, Mpi


class Settings(NamedTuple):
    """One dialect on one fabric."""

    environment: tuple[str, ...] = ()
    """Shell words NAME=VALUE, each for a variable without a value yet; set before pre_execution_command, which may
    override them. The launcher brings them to the ranks with the rest of the environment."""
    options: tuple[str, ...] = ()
    """Shell text of the launcher's options, a pair each; left out where the person's own options name its parameter."""
    device: bool = False
    """Needs /dev/infiniband; a node without stops the task, for the MPI would talk over tcp in silence."""
    port: bool = False
    """Needs to know the active InfiniBand ports and the partition key ($bt_ports, $bt_pkey)."""
    removed: str = ""
    """What Intel MPI removed in 2019 and this needs."""


# MANPATH: mpivars.sh of that time failed without one.
_MANPATH = "MANPATH=/usr/share/man:/usr/local/man"
_UCX = ('"UCX_NET_DEVICES=$bt_ports"', '${bt_pkey:+"UCX_IB_PKEY=$bt_pkey"}')
"""UCX would try the card of the accelerated Ethernet as well (Azure: known issues with HPC)."""
_TCP = Settings(options=("--mca btl_tcp_if_include eth0",))
_ONE_MACHINE = {"openmpi": ("--mca btl_tcp_if_include lo",)}
"""On nodes that the emulator runs on loopback addresses: the machine's other interfaces may go away under a job."""
_DAPL = Settings(
    environment=(
        "I_MPI_FALLBACK=0",
        _MANPATH,
        "I_MPI_FABRICS=shm:dapl",
        "I_MPI_DAPL_PROVIDER=ofa-v2-ib0",
        "I_MPI_DYNAMIC_CONNECTION=0",
        "I_MPI_DAPL_TRANSLATION_CACHE=0",
    ),
    device=True,
    removed="DAPL",
)

TABLE: dict[tuple[str, Fabric], Settings] = {
    # I_MPI_FALLBACK went in 2019, before the provider mlx came, which fails by itself where it cannot be; a newer Intel
    # MPI warns of it on every start.
    ("intelmpi", Fabric.SR_IOV): Settings(
        environment=("I_MPI_FABRICS=shm:ofi", "FI_PROVIDER=mlx", *_UCX),  # mlx is libfabric's way to UCX
        device=True,
        port=True,
    ),
    ("intelmpi-ofa", Fabric.SR_IOV): Settings(
        environment=("I_MPI_FALLBACK=0", _MANPATH, "I_MPI_FABRICS=shm:ofa", "FI_PROVIDER=mlx"),
        device=True,
        removed="OFA",
    ),
    ("mpich", Fabric.SR_IOV): Settings(environment=_UCX, device=True, port=True),
    ("mvapich", Fabric.SR_IOV): Settings(environment=_UCX, device=True, port=True),
    ("openmpi", Fabric.SR_IOV): Settings(
        environment=_UCX,
        options=("--mca pml ucx", "--mca btl ^vader,tcp,openib"),
        device=True,
        port=True,
    ),
    ("intelmpi", Fabric.NETWORK_DIRECT): _DAPL,
    ("intelmpi-ofa", Fabric.NETWORK_DIRECT): _DAPL,
    ("openmpi", Fabric.NETWORK_DIRECT): _TCP,
    ("openmpi", Fabric.ETHERNET): _TCP,
}
"""What is not here needs nothing: that MPI finds plain Ethernet by itself, and Network Direct not at all."""

_NAMES = {Fabric.SR_IOV: "InfiniBand (SR-IOV)", Fabric.NETWORK_DIRECT: "InfiniBand (Network Direct)"}


def prologue(options: Mpi, fabric: Fabric) -> str:
    """The choice of fabric, before pre_execution_command."""
    settings = TABLE.get((options.runtime, fabric))
    if settings is None:
        return _note(options, fabric)
    return _rdma(options, fabric, settings) if settings.device else _ethernet(options, settings)


def check(options: Mpi, fabric: Fabric) -> str:
    """After pre_execution_command, when the MPI is on PATH: can this version use the fabric at all?"""
    settings = TABLE.get((options.runtime, fabric))
    if settings is None or not settings.removed:
        return ""
    return shell.block(
        f"Intel MPI has {settings.removed} up to 2018; a newer one would talk over tcp in silence:",
        f"bt_need_old_intelmpi {settings.removed} {options.executable_path}",
    )


def on_line(options: Mpi, fabric: Fabric) -> str:
    """What of it stands on the launcher's line."""
    settings = TABLE.get((options.runtime, fabric), Settings())
    return '"${bt_fabric[@]}"' if _wanted(options, settings) else ""


def needs_device(options: Mpi, fabric: Fabric) -> bool:
    """Whether the dialect is told to use InfiniBand."""
    return TABLE.get((options.runtime, fabric), Settings()).device


def implicit(options: Mpi, fabric: Fabric) -> tuple[Implicit, ...]:
    """What the dialect is told without the person having asked."""
    settings = TABLE.get((options.runtime, fabric), Settings())
    value = " ".join((*settings.environment, *_wanted(options, settings)))
    if not value:
        return ()
    because = f"the VM size has {_NAMES[fabric]}" if settings.device else "the nodes of a pool talk over eth0"
    return (Implicit(f"{options.runtime} fabric", value, because, "mpi-fabric"),)


def _note(options: Mpi, fabric: Fabric) -> str:
    if fabric is not Fabric.NETWORK_DIRECT:
        return ""
    return shell.block(f"Fabric: tcp. Only Intel MPI up to 2018 reaches Network Direct, {options.runtime} does not.")


def _rdma(options: Mpi, fabric: Fabric, settings: Settings) -> str:
    """A node without the device stops here with the reason, except on the emulator, where it is tcp."""
    name = _NAMES[fabric]
    wanted = _wanted(options, settings)
    on_one_machine = _not_named(options, _ONE_MACHINE.get(options.runtime, ()))
    return shell.block(
        f"Fabric: {name}; variables that are set already keep their value:",
        "bt_fabric=()" if wanted else "",
        "if [ -e /dev/infiniband ]; then",
        "  bt_find_ports" if settings.port else "",
        f"  bt_default {' '.join(settings.environment)}" if settings.environment else "",
        f"  bt_fabric=({' '.join(wanted)})" if wanted else "",
        "elif bt_emulated; then",
        f"  bt_say 'this node is emulated and has no {name}: the ranks talk over tcp'",
        f"  ! bt_on_loopback || bt_fabric=({' '.join(on_one_machine)})" if wanted and on_one_machine else "",
        "else",
        f"  bt_stop 1 '{name} is asked for, and this node has no /dev/infiniband"
        " (an image without the drivers? set infiniband: false to go on over tcp)'",
        "fi",
    )


def _ethernet(options: Mpi, settings: Settings) -> str:
    wanted = _wanted(options, settings)
    if not wanted:
        return ""
    return shell.block(
        "Fabric: tcp over eth0, the pool's own network, and no bridge or tunnel beside it:",
        "bt_fabric=()",
        "if bt_on_loopback; then",
        f"  bt_fabric=({' '.join(_ONE_MACHINE[options.runtime])})",
        "elif [ -e /sys/class/net/eth0 ] && ! bt_emulated; then",
        f"  bt_fabric=({' '.join(wanted)})",
        "fi",
    )


def _wanted(options: Mpi, settings: Settings) -> tuple[str, ...]:
    return _not_named(options, settings.options)


def _not_named(options: Mpi, pairs: Iterable[str]) -> tuple[str, ...]:
    """The pairs whose parameter the person's own options do not name: an explicit value wins."""
    own = " ".join(options.options)
    return tuple(pair for pair in pairs if _parameter(pair) not in own)


def _parameter(pair: str) -> str:
    """What of a person's options says the same thing: btl_tcp_if_include and btl_tcp_if_exclude do."""
    name = pair.split()[1]
    return "btl_tcp_if_" if name.startswith("btl_tcp_if_") else f"mca {name} "
