"""Every MPI, each in one table entry, and the block that launches a command with one.

Sources: Batch Shipyard's table of options; for current sizes Azure's "Set up Message Passing Interface for HPC"
(setup-mpi) and azhpc-images. docs/explanation/untested-on-azure.md lists what is untested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from batchtrain.frameworks.base import LAUNCH, Block, Fabric, Text, says


class Settings(NamedTuple):
    """One MPI on one fabric."""

    environment: tuple[str, ...] = ()
    """Shell words NAME=VALUE, each for a variable without a value yet; set before pre_execution_command, which may
    override them. The launcher brings them to the ranks with the rest of the environment."""
    options: tuple[str, ...] = ()
    """Shell text of the launcher's options, one pair each; omitted if the user's options set the parameter."""
    device: bool = False
    """Needs /dev/infiniband; a node without it fails the task, because the MPI would silently use tcp."""
    port: bool = False
    """Needs to know the active InfiniBand ports and the partition key ($bt_ports, $bt_pkey)."""
    removed: str = ""
    """The feature that this needs and Intel MPI removed in 2019."""


class Mpi(NamedTuple):
    """The properties of one MPI."""

    library: str
    """The name that its library reports."""
    rank_options: str
    """The launcher's options for the ranks: {total} in total, {each} per node."""
    rank: str
    """The variable in which a rank finds its number; rank.sh reads it."""
    fabric: dict[Fabric, Settings]
    """Without an entry for plain Ethernet the MPI detects it. Without one for Network Direct it uses tcp."""
    starts: frozenset[str]
    """Libraries whose programs its launcher can start."""
    in_names: tuple[str, ...] = ()
    """The part of an image name that identifies it."""
    carries_environment: bool = True
    """Its launcher exports the primary's environment to every rank by default."""
    abort: str = ""
    """A variable that makes MPI_Abort end its rank with SIGABRT, so that the launch detects the caller."""
    unbound: str = ""
    """The option that binds no rank to cores."""
    one_machine: tuple[str, ...] = ()
    """Options instead of those of the fabric on emulated nodes with loopback addresses: other interfaces of the machine
    may disappear during a job."""
    lost_peer: range = range(0)
    """Exit codes of a rank that ends because it lost another: an error class of the MPI, not the cause."""

    def on(self, fabric: Fabric) -> Settings:
        return self.fabric.get(fabric) or self.fabric.get(Fabric.ETHERNET, Settings())


_HYDRA = '-hosts "$AZ_BATCH_HOST_LIST" -np {total} %s {each}'
_PMI = frozenset({"Intel(R) MPI", "MPICH", "MVAPICH"})
_ERROR_CLASSES = range(13, 18)
# MANPATH: mpivars.sh of that time failed without one.
_MANPATH = "MANPATH=/usr/share/man:/usr/local/man"
_UCX = ('"UCX_NET_DEVICES=$bt_ports"', '${bt_pkey:+"UCX_IB_PKEY=$bt_pkey"}')
"""UCX would also use the card of the accelerated Ethernet (Azure: known issues with HPC)."""
_BY_UCX = Settings(environment=_UCX, device=True, port=True)
_TCP = Settings(options=("--mca btl_tcp_if_include eth0",))
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
_INTEL = Mpi(
    library="Intel(R) MPI",
    rank_options=_HYDRA % "-perhost",
    rank="PMI_RANK",
    # Intel MPI removed I_MPI_FALLBACK in 2019, before it added the provider mlx, which fails if it cannot work.
    # A newer Intel MPI warns about the variable on every start. mlx is libfabric's interface to UCX.
    fabric={
        Fabric.SR_IOV: Settings(("I_MPI_FABRICS=shm:ofi", "FI_PROVIDER=mlx", *_UCX), device=True, port=True),
        Fabric.NETWORK_DIRECT: _DAPL,
    },
    starts=_PMI,
    in_names=("intelmpi", "impi"),
    lost_peer=_ERROR_CLASSES,
)

MPIS: dict[str, Mpi] = {
    "intelmpi": _INTEL,
    "intelmpi-ofa": _INTEL._replace(
        fabric={
            Fabric.SR_IOV: Settings(
                ("I_MPI_FALLBACK=0", _MANPATH, "I_MPI_FABRICS=shm:ofa", "FI_PROVIDER=mlx"), device=True, removed="OFA"
            ),
            Fabric.NETWORK_DIRECT: _DAPL,
        },
        in_names=(),
    ),
    "mpich": Mpi(
        library="MPICH",
        rank_options=_HYDRA % "-ppn",
        rank="PMI_RANK",
        fabric={Fabric.SR_IOV: _BY_UCX},
        starts=_PMI,
        in_names=("mpich",),
        abort="MPIR_CVAR_COREDUMP_ON_ABORT",
        unbound="-bind-to none",
        lost_peer=_ERROR_CLASSES,
    ),
    "mvapich": Mpi(
        library="MVAPICH",
        rank_options=_HYDRA % "-ppn",
        rank="PMI_RANK",
        fabric={Fabric.SR_IOV: _BY_UCX},
        starts=_PMI,
        in_names=("mvapich",),
        abort="MPIR_CVAR_COREDUMP_ON_ABORT",
        unbound="-bind-to none",
        lost_peer=_ERROR_CLASSES,
    ),
    "openmpi": Mpi(
        library="Open MPI",
        # A bare host list means one slot per host, so --oversubscribe is needed.
        rank_options='--oversubscribe -host "$AZ_BATCH_HOST_LIST" -np {total} --map-by ppr:{each}:node',
        rank="OMPI_COMM_WORLD_RANK",
        fabric={
            Fabric.SR_IOV: _BY_UCX._replace(options=("--mca pml ucx", "--mca btl ^vader,tcp,openib")),
            Fabric.ETHERNET: _TCP,
        },
        starts=frozenset({"Open MPI"}),
        in_names=("openmpi",),
        carries_environment=False,
        unbound="--bind-to none",
        one_machine=("--mca btl_tcp_if_include lo",),
    ),
}
"""Every MPI by its value of `runtime`."""

if TYPE_CHECKING:
    Runtime = str
else:
    Runtime = Literal[tuple(MPIS)]


class MpiBlock(Block, frozen=True, kw_only=True):
    runtime: Annotated[Runtime, says("The MPI's dialect.", LAUNCH)]
    executable_path: Annotated[Text, says("The launcher, by path or found on PATH.", LAUNCH)] = "mpirun"
    options: Annotated[tuple[str, ...], says("Additional options; they come first.", LAUNCH)] = ()
    processes_per_node: Annotated[
        int | str | None,
        says(
            "Ranks per node: a number, `auto` (one per GPU, or one), or a shell command evaluated on the primary.",
            LAUNCH,
            example="nvidia-smi -L | wc -l",
        ),
    ] = None

    @property
    def mpi(self) -> Mpi:
        return MPIS[self.runtime]


def named_in(image: str) -> str:
    """The MPI whose mark is in the name of an image; empty if there is none. Longer marks contain shorter ones."""
    known = {word: name for name, mpi in MPIS.items() for word in mpi.in_names}
    return next((known[word] for word in sorted(known, key=len, reverse=True) if word in image), "")
