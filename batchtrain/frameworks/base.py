"""The parts of every framework's block: properties, roles of processes, variables, and faults.

Pure, and imports nothing of `config`, whose types are built on this file. A framework is one file beside this one; the
file of the same name in `runtime/launch/frameworks` sets the variables on a node.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import Meta

from batchtrain.frameworks import counts
from batchtrain.frameworks.block import Block as Block

LAUNCH = "batchtrain: launch"
BATCHS_PORT = 6000
AUTO = "auto"
"""One process per GPU of the node, otherwise one; for a variable: a value detected on each node."""
EACH = "processes_per_node"
"""The `per_node` of a role with as many processes as `processes_per_node`."""


def says(description: str, wire: str = "", *, copied: bool = False, example: Any = None, **bounds: int) -> Meta:
    """The sentence of a property, its use, and its bounds.

    wire: the field of the request, from the request's name down (`pool.vmSize`, `task.requiredSlots`), or after
    `batchtrain:` how batchtrain itself uses it; empty for a block, whose properties have their own. copied: the request
    has the value as it is. bounds: `ge`, `le` of numbers, `min_length`, `max_length` of lists and texts.
    """
    settings: dict[str, Any] = {"description": description, "extra": {"wire": wire, "copied": copied}, **bounds}
    if example is not None:
        settings["examples"] = [example]
    return Meta(**settings)


Text = Annotated[str, Meta(min_length=1)]
AllProcesses = Annotated[int, Meta(ge=1, le=1_000_000)]
"""Processes of a whole gang."""
FreePort = Annotated[int, Meta(ge=1024, le=65535)]
"""A port that needs no administrator."""
Seconds = Annotated[float, Meta(ge=0, le=3600)]
Patience = Annotated[float, Meta(ge=5, le=3600)]
"""Minimum seconds for a node to answer ssh and start Python."""


# --- the gang -------------------------------------------------------------------------------------------------------


class Fabric(enum.Enum):
    """The network of a gang: tcp over plain Ethernet, InfiniBand with SR-IOV, the old Network Direct, or what the image
    says, because the VM size is unknown."""

    ETHERNET = "ethernet"
    SR_IOV = "sr-iov"
    NETWORK_DIRECT = "network-direct"
    IMAGE = "image"


class Shape(NamedTuple):
    """The facts about a gang at planning time."""

    instances: int
    """The number of nodes; the task runs one instance on each."""
    fabric: Fabric = Fabric.ETHERNET
    container: bool = False
    """The task runs inside a container (as root, with the image's sshd on port 23) of Batch or of the node's engine."""
    size: str = ""
    """The VM size, and its family below, as in the catalogue; empty if unknown."""
    family: str = ""
    gpus: int = 0
    """GPUs of one node that the task may use."""
    gpu_vendor: str = ""
    """nvidia, amd, or empty without a GPU."""
    hcas: int = 0
    """InfiniBand cards of one node, and the Gb/s of the port of each; 0 if unknown."""
    port_gbps: int = 0
    replaces_nodes: bool = False
    """A client replaces a node with faults while the gang waits for it."""
    explicit_fabric: bool = False
    """The user chose the fabric with `infiniband`, so the image's own choice does not count."""

    @property
    def tcp(self) -> bool:
        """Whether libraries that only know SR-IOV are to use tcp."""
        return self.fabric in (Fabric.ETHERNET, Fabric.NETWORK_DIRECT)


class Runner(NamedTuple):
    """A program that starts the command."""

    program: str
    """Its name on PATH, used if the command does not start with Python."""
    module: str
    """The same program as a module, for the Python that starts the command."""
    options: tuple[str, ...]
    """Shell words; the command comes after them."""
    file: str = ""
    """A file of `runtime` that this Python runs in place of the module. If the command names no Python, a shell script
    of the same name finds one."""
    before: str = ""
    """Shell words that set variables for it."""
    takes_command: bool = True
    """Whether it runs the command; otherwise it replaces the command."""


class Role(NamedTuple):
    """Processes of one kind: how many, on which nodes, and the meaning of their end."""

    name: str
    command: str
    per_node: int | str | None = EACH
    total: int | None = None
    """Total of all nodes, in place of `per_node`."""
    placement: str = "all"
    """all, primary, or spread: one after another over the nodes."""
    gpus: bool = True
    ranked: bool = True
    """Whether its processes count in the world size."""
    decides: bool = True
    """The gang is complete when all of these have ended; the others are then terminated."""
    instead_of: str = ""
    """The role whose processes each of these replaces on the same node."""
    linger: float | None = None
    """Seconds that these have to end when the gang is complete; None is the framework's default."""
    runner: Runner | None = None
    """Starts the command; without one, the launch starts it."""
    first: str = ""
    """A Python program that must succeed before the command starts; the Python of the command runs it."""


class Variable(NamedTuple):
    """One variable that a launch sets: its name (several of one kind are separated by commas), a description of its
    value, the reason, and the rule of `launchers.rules.RULES`."""

    name: str
    value: str
    because: str
    rule: str = "framework-environment"
    keeps: bool = False
    """An existing value is kept. Any other variable differs by process, and no recipe may set it."""
    instead: str = "take it out"
    """What a recipe can do instead of setting it."""
    option: str = ""
    """The property of the block that sets the value; empty if none does."""
    rivals: tuple[str, ...] = ()
    """Names that choose the same: the variable is not set if one of them is."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.name.split(", "))

    @property
    def file(self) -> bool:
        """Whether the value is a file's path; the variable is then set only on a node that has the file."""
        return self.name.endswith("_FILE")


class BlockFault(NamedTuple):
    """The reason why a block cannot be launched, or not as intended."""

    rule: str
    """The check that reports it."""
    key: str
    """A property of the block; COMMAND for the task's command, empty for the block itself."""
    text: str
    launchable: bool = False
    """Whether the launch is still made if the user silences the check."""


COMMAND = "command"


class FrameworkRule(NamedTuple):
    """A check of `config.check` that reports the faults of a block."""

    name: str
    sentence: str
    source: str


class Scripts(NamedTuple):
    """The bare scripts that a framework launches, and where they run."""

    imports: tuple[str, ...] = ()
    """Modules whose import means the framework."""
    weak_imports: tuple[str, ...] = ()
    """Modules that mean it if the imports mean no other framework."""
    level: int = 0
    """How far it is above the frameworks of level 0: the imports of the highest level decide."""
    image: str = ""
    """The image of docker/, which also has a local environment."""
    image_for: tuple[str, ...] = ()
    """If there is an image for each framework below, whose name follows: these frameworks, the default one first."""
    spawns: tuple[str, ...] = ()
    """Functions that start the processes of a training themselves."""
    packages: tuple[str, ...] = ()
    """Packages of PyPI that bring the framework: a list with one of them needs nothing else."""
    keras_backend: str = ""
    """The value of KERAS_BACKEND with which Keras 3 uses the framework."""
    joined_by: tuple[str, ...] = ()
    """Words of programs whose processes exchange something, the usual way first, beside the imports of other
    frameworks: without one, each trains alone. Empty if the framework itself joins them."""


# --- a block --------------------------------------------------------------------------------------------------------


class Nodes(Block, frozen=True, kw_only=True):
    """The common properties of every framework's block."""

    processes_per_node: Annotated[
        int | str | None,
        says(
            "Processes per node: a number, `auto` (one per GPU, or one), or a shell command run on each node.",
            LAUNCH,
            example="auto",
        ),
    ] = None
    processes: Annotated[
        AllProcesses | None,
        says("Processes of all nodes together, in place of `processes_per_node`; a multiple of the number of nodes.",
             LAUNCH),
    ] = None  # fmt: skip
    binding: Annotated[
        Literal["auto", "none"],
        says("Bind each process to its own cores, near its GPU. `none` leaves binding to the program.", LAUNCH),
    ] = "auto"
    interface: Annotated[
        Text | None,
        says(
            "Network interface of the processes. Default: detected.",
            "batchtrain: GLOO_SOCKET_IFNAME / NCCL_SOCKET_IFNAME / DMLC_INTERFACE",
            example="eth0",
        ),
    ] = None
    port: Annotated[
        FreePort | None,
        says(
            "Rendezvous port on the primary (not 6000, which Batch uses). Default: a free port.",
            "batchtrain: MASTER_PORT / DMLC_PS_ROOT_PORT / JAX_COORDINATOR_ADDRESS",
            example="29500",
        ),
    ] = None
    barrier_seconds: Annotated[
        Patience, says("Maximum seconds to wait for the nodes; then the missing ones are named.", LAUNCH)
    ] = 120
    grace_seconds: Annotated[
        Seconds, says("Seconds from SIGTERM to SIGKILL when the task is terminated from outside.", LAUNCH)
    ] = 5
    leave_unset: Annotated[
        tuple[Text, ...],
        says("Names of implicit variables that batchtrain must not set; `config explain` lists them.",
             LAUNCH, example=["NCCL_DEBUG"]),
    ] = ()  # fmt: skip

    name: ClassVar[str]
    """The name of the block, here and on the nodes."""
    source: ClassVar[str]
    """The documentation of its variables."""
    variables: ClassVar[tuple[Variable, ...]]
    """Every variable that the node launcher sets for a process of this framework."""
    node_module: ClassVar[str] = "from .base import Framework\n\nFRAMEWORK = Framework()\n"
    """For a framework of another package: the text of the module that sets these variables on a node, as the files in
    `runtime/launch/frameworks` do (Python 3.6, standard library). Default: no variables."""
    passed_on: ClassVar[tuple[str, ...]] = ()
    """Properties that the node launcher receives."""
    reserved_names: ClassVar[tuple[tuple[str, str], ...]] = ()
    """More variables that no recipe may set: a pattern, and what to do instead."""
    rules: ClassVar[tuple[FrameworkRule, ...]] = ()
    each: ClassVar[int | str] = 1
    """The default of `processes_per_node`."""
    why_each: ClassVar[str] = ""
    """The reason for this default; empty for one process per GPU, or one for all."""
    nccl: ClassVar[bool] = True
    """Whether its processes on several nodes exchange data through NCCL if there are GPUs."""
    waits: ClassVar[bool] = False
    """Whether its interpreter waits for all other processes when it ends, even after an exception."""
    scripts: ClassVar[Scripts] = Scripts()
    """Which bare scripts are launched by this block."""
    script: ClassVar[str] = "train.py ..."
    """The arguments of `python` in a command that needs no launcher of its own."""
    commands: ClassVar[tuple[str, ...]] = ()
    """Patterns of the framework's own launchers, as a command starts them."""
    modules: ClassVar[tuple[str, ...]] = ()
    """The same for `python -m`."""
    ranks: ClassVar[tuple[str, ...]] = ()
    """Variables with the number of a process, for which another launcher has its own value."""
    sizes: ClassVar[tuple[str, ...]] = ()
    """Variables with a number of processes."""
    own_launcher: ClassVar[tuple[str, str]] = ("", "")
    """A launcher that the block can start, and the property for it."""
    idle_fabric: ClassVar[str] = ""
    """How its processes could use InfiniBand without GPUs."""

    @property
    def over_mpi(self) -> OverMpi | None:
        """The MPI launch under this one; None if the node launcher starts the processes."""
        return None

    @property
    def ucx(self) -> bool:
        """Whether the processes exchange data through UCX."""
        return False

    @property
    def settles(self) -> bool:
        """Whether the interpreter must wait for the threads of gloo before it ends."""
        return False

    @property
    def threads(self) -> bool:
        """Whether the launch sets the number of threads; torchrun sets its own."""
        return True

    @property
    def defaults(self) -> tuple[Variable, ...]:
        """Additional variables of this framework's processes, with their values."""
        return ()

    @property
    def meeting(self) -> dict[str, Any]:
        """The rendezvous of the processes: settings of their endpoint."""
        return {"port": self.port, "interface": self.interface}

    def roles(self, command: str, instances: int) -> tuple[Role, ...]:
        return (Role("worker", command),)

    def settings(self) -> dict[str, Any]:
        """Further input of the node launcher besides the roles."""
        return {name: getattr(self, name) for name in self.passed_on}

    def shown_variables(self) -> tuple[Variable, ...]:
        """The entries of `variables` that this launch sets, for display."""
        result = []
        for variable in self.variables:
            if setting := self.given(variable.option) if variable.option else None:
                because = f"set by `{variable.option}`"
                because = because if variable.value else variable.because or because
                variable = variable._replace(value=str(setting), because=because)
            result += [variable] if variable.value else []
        return tuple(result)

    def given(self, option: str) -> Any:
        """The value of a property; None if the launch chooses it."""
        value = getattr(self, option, None)
        return None if value == AUTO else value

    def faults(self, command: str, instances: int | None) -> Iterator[BlockFault]:
        """The reasons why this cannot be launched. instances: the number of nodes; None if unknown."""
        if self.meeting["port"] == BATCHS_PORT:
            text = f"Batch uses port {BATCHS_PORT} on the primary; use another, or remove the port"
            yield BlockFault("launch-port", "port" if self.port else "", text)
        if self.processes is not None and self.processes_per_node is not None:
            text = "`processes_per_node` also sets the number of processes; keep one of them"
            yield BlockFault("processes-divide", "processes", text)
        elif instances and (wrong := counts.uneven(self.processes or 0, instances)):
            yield BlockFault("processes-divide", "processes", wrong)

    @classmethod
    def why_reserved(cls) -> dict[str, str]:
        """Patterns of the names that no recipe may set, each with what to do instead."""
        reasons = {
            name: variable.instead
            for variable in cls.variables
            for name in variable.names
            if not variable.keeps and re.fullmatch(r"[A-Z]\w+", name)
        }
        return reasons | dict(cls.reserved_names)


class OverMpi(NamedTuple):
    """A launch of a framework by an MPI's own launcher."""

    runtime: str
    executable_path: str
    options: tuple[str, ...]
    allow_singletons: bool
    environment: tuple[Variable, ...]
    """Variables of the ranks."""


NUMBER_OF_THREADS = Variable("OMP_NUM_THREADS", AUTO, "each process gets its share of the node's cores", "omp-threads")
_INTERFACE = "`interface`, or the one with the node's own address"
GLOO_SOCKET = Variable("GLOO_SOCKET_IFNAME", _INTERFACE, "gloo would use the interface of the host name", keeps=True)
NCCL_SOCKET = Variable("NCCL_SOCKET_IFNAME", _INTERFACE, "NCCL would choose an interface itself", keeps=True)
SOCKETS = (GLOO_SOCKET, NCCL_SOCKET)
