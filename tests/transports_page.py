"""`docs/reference/transports.md`, made of the tables of the launches: `python -m tests.generated_files`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from batchtrain.catalog import sizes
from batchtrain.frameworks.base import AUTO, Fabric, Shape, Variable
from batchtrain.frameworks.mpi import MPIS
from batchtrain.frameworks.transports import LIBFABRIC_TCP, NCCL_NAMES, UCX_NAMES
from batchtrain.launchers import variables
from batchtrain.launchers.rules import RULES

HEAD = """\
# Transports of MPIs, NCCL, RCCL, gloo, UCX and libfabric

`python -m tests.generated_files` generates this page from the tables of the launches; a test fails if it is stale.
`batchtrain config explain DIR` shows which of these settings a launch has, and why.

The transport of a gang is decided in this order, for tasks on the host, in containers and in Apptainer images alike:

1. What the user sets is never overridden: a variable in `environment_variables`, an option of the launcher
   (`--mca pml`, `-genv FI_PROVIDER`, `-x UCX_TLS`), and a variable that `pre_execution_command` exports. Settings that
   would contradict such a variable or option of the recipe are left out.
2. `infiniband: true` or `false` of the task or its job. Then the variables of the image do not count.
3. The image: a variable of its environment, and for NCCL its `/etc/nccl.conf`. The launch sets the variables of a task
   with an Apptainer image on the node; there, such an image does not override them.
4. The VM size: InfiniBand if the size has it, otherwise tcp over `eth0`. For a size that is not in the catalogue,
   nothing is set, so the image and the library choose.

Without InfiniBand the libraries must be told to use tcp, because the Ethernet card of Azure is an RDMA device, too
(`mlx5_an0`, `mana_0`). They try it, and then they fail, hang or are slow. A command without a block in `multi_instance`
has its own launcher and gets no settings.

If a library reports that it uses another network than planned, the launch warns while the gang runs. Intel MPI, UCX and
Open MPI report it, and NCCL where InfiniBand is planned.

"""
GPUS = ("Standard_NC24rs_v3", "Standard_ND40rs_v2", "Standard_ND96asr_v4", "Standard_ND96isr_H100_v5",
        "Standard_ND128isr_NDR_GB200_v6")  # fmt: skip
GLOO = (
    "nothing: gloo has no default but tcp; `GLOO_SOCKET_IFNAME` names the interface",
    "pytorch/gloo: gloo/transport; PyTorch: GlooDeviceFactory.cpp (GLOO_DEVICE_TRANSPORT)",
)


class Row(NamedTuple):
    """A library: its settings for InfiniBand and for tcp, and the names that an image may have set."""

    library: str
    infiniband: Iterable[Variable]
    tcp: Iterable[Variable]
    names: Iterable[str]
    note: str = ""


def page() -> str:
    """The text of the page."""
    return HEAD + "\n".join((*_table(), "", *_sources())) + "\n"


def _rows() -> Iterator[Row]:
    for name, mpi in MPIS.items():
        infiniband, tcp = mpi.on(Fabric.SR_IOV), mpi.on(Fabric.ETHERNET)
        both = ((*on.environment, *on.options) for on in (infiniband, tcp))
        yield Row(f"{mpi.library} (`{name}`)", *both, sorted(mpi.names))
    yield Row("UCX", _ucx(Fabric.SR_IOV), _ucx(Fabric.ETHERNET), UCX_NAMES)
    names = [name for variable in LIBFABRIC_TCP for name in (variable.name, *variable.rivals)]
    yield Row("libfabric", (), LIBFABRIC_TCP, names, "nothing; of MPIs, only Intel MPI uses it there")
    shapes = [_shape(name) for name in GPUS]
    every = (
        variable for shape in shapes for variable in (*variables.on_infiniband(shape), *variables.of_node(shape, AUTO))
    )
    tcp = variables.on_ethernet(shapes[0]._replace(fabric=Fabric.ETHERNET))
    large, small = (variables.of_node(_shape(f"Standard_NC{name}ads_A100_v4"), AUTO) for name in (96, 24))
    unique = {(variable.name, variable.value): variable for variable in every}
    yield Row("NCCL", unique.values(), (*tcp, *large, *small), (*NCCL_NAMES, "every variable of `/etc/nccl.conf`"))
    amd = _shape("Standard_ND96isr_MI300X_v5")
    yield Row(
        "RCCL", variables.on_infiniband(amd), variables.on_ethernet(amd._replace(fabric=Fabric.ETHERNET)), NCCL_NAMES
    )


def _shape(name: str) -> Shape:
    size = sizes.find(name)
    assert size is not None
    fabric = Fabric.SR_IOV if size.rdma else Fabric.ETHERNET
    return Shape(2, fabric, size=size.name, family=size.family, gpus=size.gpus, gpu_vendor=size.gpu_vendor)


def _ucx(fabric: Fabric) -> tuple[Variable, ...]:
    return variables.of_ucx(Shape(2, fabric))


def _table() -> Iterator[str]:
    yield "| library | InfiniBand | Ethernet by tcp | as the image says: kept where the image sets it | rules |"
    yield "|---|---|---|---|---|"
    for row in _rows():
        infiniband, tcp = tuple(row.infiniband), tuple(row.tcp)
        rules = dict.fromkeys(variable.rule for variable in (*infiniband, *tcp))
        cells = (
            row.library,
            "<br>".join(map(_setting, infiniband)) or row.note,
            "<br>".join(map(_setting, tcp)),
            "<br>".join(name if "`" in name else f"`{name}`" for name in row.names),
            ", ".join(f"`{rule}`" for rule in rules),
        )
        yield f"| {' | '.join(cells)} |"
    yield f"| gloo | {GLOO[0]} | the same | `GLOO_DEVICE_TRANSPORT` | {GLOO[1]} |"


def _setting(variable: Variable) -> str:
    separator = " " if variable.name.startswith("--") else "="
    value = variables.implicit((variable,))[0].value
    on_node = "" if value == variable.value else f": {value}"
    return f"`{variable.name}`{on_node}" if on_node else f"`{variable.name}{separator}{value}`"


def _sources() -> Iterator[str]:
    used = dict.fromkeys(variable.rule for row in _rows() for variable in (*row.infiniband, *row.tcp))
    yield "## Sources\n"
    yield "| rule | meaning | source | to change it |\n|---|---|---|---|"
    for rule in (RULES[name] for name in used):
        yield f"| `{rule.id}` | {rule.sentence} | {rule.source} | {rule.off} |"
