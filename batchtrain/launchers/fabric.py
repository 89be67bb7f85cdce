"""The text that makes each MPI use the network of a node; the node itself decides by it.

The settings of each MPI are in its entry of `frameworks.mpi.MPIS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from batchtrain.frameworks.base import Fabric
from batchtrain.frameworks.mpi import MpiBlock, Settings
from batchtrain.launchers import shell
from batchtrain.launchers.launch import Implicit

_MCA = "OMPI_MCA_"
"""The variables of Open MPI's parameters, which its options override."""
_NAMES = {Fabric.SR_IOV: "InfiniBand (SR-IOV)", Fabric.NETWORK_DIRECT: "InfiniBand (Network Direct)"}


def prologue(block: MpiBlock, fabric: Fabric, user_names: Collection[str] = ()) -> str:
    """The choice of fabric, before pre_execution_command. user_names: the variables that the user sets."""
    settings = block.mpi.on(fabric)
    if settings.device:
        return _rdma(block, fabric, settings, user_names)
    return _ethernet(block, _not_named(block, settings.options, user_names))


def check(block: MpiBlock, fabric: Fabric) -> str:
    """The check, after pre_execution_command, when the MPI is on PATH, that this version supports the fabric."""
    settings = block.mpi.on(fabric)
    if not settings.removed:
        return ""
    return shell.block(
        f"Intel MPI has {settings.removed} up to 2018; a newer one would talk over tcp in silence:",
        f"bt_need_old_intelmpi {settings.removed} {block.executable_path}",
    )


def on_line(block: MpiBlock, fabric: Fabric, user_names: Collection[str] = ()) -> str:
    """The options of the fabric on the launcher's line."""
    return '"${bt_fabric[@]}"' if _not_named(block, block.mpi.on(fabric).options, user_names) else ""


def implicit(block: MpiBlock, fabric: Fabric, user_names: Collection[str] = ()) -> tuple[Implicit, ...]:
    """The settings that the user did not ask for."""
    settings = block.mpi.on(fabric)
    value = " ".join((*settings.environment, *_not_named(block, settings.options, user_names)))
    if not value:
        return ()
    because = f"the VM size has {_NAMES[fabric]}" if settings.device else "the nodes of a pool communicate over eth0"
    return (Implicit(f"{block.runtime} fabric", value, because, "mpi-fabric"),)


def _rdma(block: MpiBlock, fabric: Fabric, settings: Settings, user_names: Collection[str]) -> str:
    """A node without the device stops here with the reason; an emulated node uses tcp."""
    name = _NAMES[fabric]
    mpi_options = _not_named(block, settings.options, user_names)
    on_one_machine = _not_named(block, block.mpi.one_machine, user_names)
    return shell.block(
        f"Fabric: {name}; variables that are set already keep their value:",
        "bt_fabric=()" if mpi_options else "",
        "if [ -e /dev/infiniband ]; then",
        "  bt_find_ports" if settings.port else "",
        f"  bt_default {' '.join(settings.environment)}" if settings.environment else "",
        f"  bt_fabric=({' '.join(mpi_options)})" if mpi_options else "",
        "elif bt_emulated; then",
        f"  bt_say 'this node is emulated and has no {name}: the ranks talk over tcp'",
        f"  ! bt_on_loopback || bt_fabric=({' '.join(on_one_machine)})" if mpi_options and on_one_machine else "",
        "else",
        f"  bt_stop 1 '{name} is requested, but this node has no /dev/infiniband (an image without the drivers? set"
        " infiniband: false to use tcp)'",
        "fi",
    )


def _ethernet(block: MpiBlock, mpi_options: tuple[str, ...]) -> str:
    if not mpi_options:
        return ""
    return shell.block(
        "Fabric: tcp over eth0, the pool's own network, and no bridge or tunnel beside it:",
        "bt_fabric=()",
        "if bt_on_loopback; then",
        f"  bt_fabric=({' '.join(block.mpi.one_machine)})",
        "elif [ -e /sys/class/net/eth0 ] && ! bt_emulated; then",
        f"  bt_fabric=({' '.join(mpi_options)})",
        "fi",
    )


def _not_named(block: MpiBlock, pairs: Iterable[str], user_names: Collection[str]) -> tuple[str, ...]:
    """The pairs whose parameter is not in the user's options or variables: an explicit value wins."""
    of_variables = (f"mca {name[len(_MCA) :]} " for name in user_names if name.startswith(_MCA))
    options_text = " ".join((*block.options, *of_variables))
    # btl_tcp_if_include and btl_tcp_if_exclude exclude each other, so the beginning of their names decides.
    parameters = {pair: "btl_tcp_if_" if "btl_tcp_if_" in pair else f"mca {pair.split()[1]} " for pair in pairs}
    return tuple(pair for pair, name in parameters.items() if name not in options_text)
