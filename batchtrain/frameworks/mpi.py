"""Every MPI, each in one table entry, and the block that launches a command with one.

Sources: Batch Shipyard's table of options; for current sizes Azure's "Set up Message Passing Interface for HPC"
(setup-mpi) and azhpc-images. docs/explanation/untested-on-azure.md lists what is untested.
"""

import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from batchtrain.frameworks import transports
from batchtrain.frameworks.base import LAUNCH, Block, Fabric, Scripts, Text, Variable, says


class Settings(NamedTuple):
    """One MPI on one fabric."""

    environment: tuple[Variable, ...] = ()
    """Each for a variable without a value yet; set before pre_execution_command, which may override them. The launcher
    brings them to the ranks with the rest of the environment."""
    options: tuple[Variable, ...] = ()
    """Parameters of Open MPI, for its launcher's line."""
    device: bool = False
    """Needs /dev/infiniband; a node without it fails the task, because the MPI would silently use tcp."""
    port: bool = False
    """Needs to know the active InfiniBand ports and the partition key ($bt_ports, $bt_pkey)."""
    removed: str = ""
    """The feature that this needs and Intel MPI removed in 2019."""


class Added(NamedTuple):
    """Something that a launch adds for an MPI; `config explain` shows it."""

    what: str
    value: str
    because: str
    rule: str
    """The rule of `launchers.rules.RULES`."""
    line: str = ""
    """Shell text on the launcher's line; empty for what `prepared` does."""
    unless: str = ""
    """A pattern; the user's options that have it win."""
    in_container: bool = False
    """Only in a container."""
    placing: bool = False
    """Only if the launch places the ranks, and before the options that do."""


class Mpi(NamedTuple):
    """The properties of one MPI."""

    library: str
    """The name that its library reports."""
    rank_options: str
    """The launcher's options for the ranks: {total} in total, {each} per node."""
    launchers: tuple[str, ...]
    """The programs that start its ranks."""
    rank: tuple[str, ...]
    """The variables in which a rank may find its number; rank.sh reads the first that is set."""
    ranks: tuple[str, ...]
    """Further variables that have another value in every rank."""
    sizes: tuple[str, ...]
    """Variables with a number of ranks."""
    fabric: dict[Fabric, Settings]
    """Without an entry for Network Direct it uses tcp."""
    starts: frozenset[str]
    """Libraries whose programs its launcher can start."""
    in_names: tuple[str, ...] = ()
    """The part of an image name that identifies it."""
    module: str = ""
    """Its environment module on Azure's HPC images; empty if they do not have it."""
    prepared: tuple[str, ...] = ()
    """What happens before the line: a sentence, then shell text, in which {executable} is the launcher."""
    counted: tuple[str, ...] = ()
    """The same where the launch places the ranks; {each} are those of a node."""
    added: tuple[Added, ...] = ()
    """What every launch adds, in the order of the line."""
    abort: str = ""
    """A variable that makes MPI_Abort end its rank with SIGABRT, so that the launch detects the caller."""
    bound: str = ""
    """Shell text of the option that binds each rank to $bt_share cores."""
    unbound: str = ""
    """The option without which its launcher would bind a rank to one core."""
    own_binding: str = ""
    """Shell words NAME=VALUE: the variables that switch off the library's own binding."""
    shares: bool = False
    """That binding is an equal share of the cores for each rank, not one core."""
    binding: str = r"\bbind"
    """A pattern; the user's options that have it bind the ranks."""
    binding_names: tuple[str, ...] = ()
    """Patterns of the shell; variables with such names bind the ranks."""
    by_host_name: bool = False
    """Its launcher tells nodes apart by their host names."""
    one_machine: tuple[Variable, ...] = ()
    """Options instead of those of the fabric on emulated nodes with loopback addresses: other interfaces of the machine
    may disappear during a job."""
    world_size: tuple[str, ...] = ("PMI_SIZE",)
    """The variables in which a rank may find the number of ranks; rank.sh reads the first that is set."""
    world: tuple[str, ...] = ()
    """Variables with which rank 0 of its world writes a file (%)."""
    singleton: str = ""
    """What this file has if the world has one rank; empty if MPI_Finalize writes it, without the size."""

    def on(self, fabric: Fabric) -> Settings:
        if fabric is Fabric.NETWORK_DIRECT and fabric not in self.fabric:
            fabric = Fabric.ETHERNET
        return self.fabric.get(fabric, Settings())

    @property
    def names(self) -> frozenset[str]:
        """The names that choose its transport."""
        choices = (variable for on in self.fabric.values() for variable in (*on.environment, *on.options))
        return frozenset(name for item in choices if not item.keeps for name in (item.name, *item.rivals))


_HYDRA = '-hosts "$AZ_BATCH_HOST_LIST" -np {total} %s {each}'
_HYDRAS = ("mpirun", "mpiexec", "mpiexec.hydra")
_HYDRA_RANKS = ("MPI_LOCALRANKID",)
_HYDRA_SIZES = ("PMI_SIZE", "MPI_LOCALNRANKS")
_PMI = frozenset({"Intel(R) MPI", "MPICH", "MVAPICH"})
_BY_UCX = Settings(environment=transports.UCX_INFINIBAND, device=True, port=True)
_BY_TCP = Settings(environment=(*transports.UCX_TCP, *transports.LIBFABRIC_TCP))
_DAPL = Settings(environment=transports.INTELMPI_DAPL, device=True, removed="DAPL")
_NO_TREE = ("OMPI_MCA_plm_rsh_no_tree_spawn", "PRTE_MCA_plm_ssh_no_tree_spawn")
"""Open MPI 4 (OMPI_MCA) and 5 (PRTE_MCA) name the parameters of their daemons differently; each ignores the other's."""
_INTEL = Mpi(
    library="Intel(R) MPI",
    rank_options=_HYDRA % "-perhost",
    launchers=_HYDRAS,
    rank=("PMI_RANK",),
    ranks=_HYDRA_RANKS,
    sizes=_HYDRA_SIZES,
    fabric={
        Fabric.SR_IOV: _BY_UCX._replace(environment=(*transports.INTELMPI_INFINIBAND, *transports.UCX_INFINIBAND)),
        Fabric.NETWORK_DIRECT: _DAPL,
        Fabric.ETHERNET: Settings(environment=transports.INTELMPI_TCP),
    },
    starts=_PMI,
    in_names=("intelmpi", "impi"),
    module="mpi/impi-2021",
    counted=(
        "With more ranks than processors, those that wait must let others run:",
        "! bt_is_crowded {each} || bt_default I_MPI_THREAD_YIELD=3",
    ),
    added=(
        Added("I_MPI_THREAD_YIELD", "3 on a node with fewer processors than ranks",
              "Intel MPI spins while it waits: an all-reduce of such ranks takes minutes", "intelmpi-yield"),
    ),
    own_binding="I_MPI_PIN=0",
    shares=True,
    binding=r"bind|I_MPI_PIN",
    binding_names=("I_MPI_PIN*",),
    world=("I_MPI_TUNING_BIN_DUMP=%",),
)  # fmt: skip
_MPICH = Mpi(
    library="MPICH",
    rank_options=_HYDRA % "-ppn",
    launchers=(*_HYDRAS, "mpiexec.mpich"),
    rank=("PMI_RANK",),
    ranks=_HYDRA_RANKS,
    sizes=_HYDRA_SIZES,
    fabric={Fabric.SR_IOV: _BY_UCX, Fabric.ETHERNET: _BY_TCP},
    starts=_PMI,
    in_names=("mpich",),
    abort="MPIR_CVAR_COREDUMP_ON_ABORT",
    bound="-bind-to core:$bt_share",
    binding_names=("HYDRA_BINDING",),
)

MPIS: dict[str, Mpi] = {
    "intelmpi": _INTEL,
    "intelmpi-ofa": _INTEL._replace(
        fabric={
            Fabric.SR_IOV: Settings(environment=transports.INTELMPI_OFA, device=True, removed="OFA"),
            Fabric.NETWORK_DIRECT: _DAPL,
            Fabric.ETHERNET: Settings(environment=transports.INTELMPI_OFA_TCP),
        },
        in_names=(),
    ),
    "mpich": _MPICH,
    "mvapich": _MPICH._replace(
        library="MVAPICH",
        launchers=_HYDRAS,
        rank=("PMI_RANK", "MV2_COMM_WORLD_RANK", "MPIRUN_RANK"),
        sizes=(*_HYDRA_SIZES, "MV2_COMM_WORLD_SIZE"),
        world_size=("PMI_SIZE", "MV2_COMM_WORLD_SIZE"),
        in_names=("mvapich",),
        module="mpi/mvapich",
        own_binding="MV2_ENABLE_AFFINITY=0 MVP_ENABLE_AFFINITY=0",  # up to 2.3, and from 3.0
        binding=r"\bbind|ENABLE_AFFINITY|CPU_(?:BINDING|MAPPING)",
        binding_names=("HYDRA_BINDING", "MV[2P]_ENABLE_AFFINITY", "MV[2P]_CPU_*"),
    ),
    "openmpi": Mpi(
        library="Open MPI",
        rank_options='-host "$bt_slots" -np {total} --map-by ppr:{each}:node"${{bt_share:+:pe=$bt_share}}"',
        launchers=("mpirun", "mpiexec", "orterun", "prterun"),
        rank=("OMPI_COMM_WORLD_RANK", "PMIX_RANK"),
        ranks=("OMPI_COMM_WORLD_LOCAL_RANK",),
        sizes=("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_UNIVERSE_SIZE"),
        fabric={
            Fabric.SR_IOV: _BY_UCX._replace(options=transports.OPENMPI_INFINIBAND),
            Fabric.ETHERNET: Settings(
                transports.UCX_TCP, (*transports.OPENMPI_TCP, *transports.OPENMPI_INTERFACE)
            ),
            Fabric.IMAGE: Settings(options=transports.OPENMPI_INTERFACE),
        },
        starts=frozenset({"Open MPI"}),
        in_names=("openmpi",),
        module="mpi/hpcx",
        prepared=(
            "Open MPI finds its daemons on the other nodes by --prefix, started from here alone, by this shell's ssh;"
            " and nothing of this shell's environment reaches the ranks there but what -x names:",
            f"export {' '.join(f'{name}=1' for name in _NO_TREE)}",
            "bt_find_prefix {executable}",
            "bt_list_exported",
        ),
        added=(
            Added("--oversubscribe", "on a node with fewer processors than ranks",
                  "each host has a slot for each rank, or one for each processor if there are fewer; Open MPI refuses"
                  " more ranks than slots without this option, and such ranks yield while they wait",
                  "openmpi-slots", '"${bt_oversubscribe[@]}"', unless="oversubscribe", placing=True),
            Added("--allow-run-as-root", "true", "a container's processes are root, which Open MPI refuses",
                  "openmpi-as-root", "--allow-run-as-root", unless="--allow-run-as-root", in_container=True),
            Added("--prefix", "the directory above the launcher's bin",
                  "the other nodes find the daemon at the path of the launcher on this node", "openmpi-prefix",
                  '"${bt_prefix[@]}"', unless="--prefix"),
            Added("-x", "each variable of the shell, except those of Batch, the MPI and the login",
                  "otherwise the ranks of other nodes do not get the shell's environment", "openmpi-environment",
                  '"${bt_exported[@]}"'),
            Added(", ".join(_NO_TREE), "1", "only the primary logs in to the other nodes", "openmpi-daemons"),
        ),
        counted=(
            "A host without a number has one slot, and with more ranks than slots Open MPI's ranks yield:",
            "bt_state_slots {each}",
        ),
        # Up to version 4 it binds a single rank on a node, and two ranks in total, to one core each.
        bound="--bind-to core",
        unbound="--bind-to none",
        binding=r"bind|rankfile|cpu-(?:set|list)|map-by",
        binding_names=("*_MCA_hwloc_*bind*", "*_MCA_rmaps_*"),
        by_host_name=True,
        one_machine=tuple(option._replace(value="lo") for option in transports.OPENMPI_INTERFACE),
        world_size=("OMPI_COMM_WORLD_SIZE",),
        world=("OMPI_MCA_mpi_show_mca_params=enviro", "OMPI_MCA_mpi_show_mca_params_file=%"),
        singleton="(out of a total of 1)",
    ),
}  # fmt: skip
"""Every MPI by its value of `runtime`."""

if TYPE_CHECKING:
    Runtime = str
else:
    Runtime = Literal[tuple(MPIS)]

AllowSingletons = Annotated[
    bool,
    says("Each rank may be rank 0 of 1. By default, a gang ends if every rank is alone after MPI_Init.", LAUNCH),
]


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
    allow_singletons: AllowSingletons = False

    scripts: ClassVar[Scripts] = Scripts(imports=("mpi4py",), image="mpich")

    @property
    def mpi(self) -> Mpi:
        return MPIS[self.runtime]


def named_in(image: str) -> str:
    """The MPI whose mark is in the name of an image; empty if there is none. Longer marks contain shorter ones."""
    marks = {word: name for name, mpi in MPIS.items() for word in mpi.in_names}
    return next((marks[word] for word in sorted(marks, key=len, reverse=True) if word in image), "")


def runs_cntk(command: str, image: str) -> bool:
    """Whether a command runs CNTK, by its words or by the name of its image."""
    return "cntk" in command.lower() or re.search(r"cntk|1bitsgd", image.lower()) is not None
