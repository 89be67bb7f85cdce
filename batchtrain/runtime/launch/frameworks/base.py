"""The decisions of a framework about a launch, with defaults that fit most of them."""

from ..spec import Gang, Node, Process, Spec, Values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..channel import Loop
    from ..process_end import End


class Framework:
    """The variables of its processes, and the differences of its launch."""

    gpus = "all"
    """Which GPUs of its node a process sees: `all` (LOCAL_RANK selects one) or `each` its own."""
    linger = 1.0
    """Seconds that processes of roles that do not decide have to end by themselves."""

    def variables(self, gang: Gang, process: Process) -> Values:
        """Variables that replace existing ones."""
        return {}

    def defaults(self, gang: Gang, process: Process) -> Values:
        """Variables that a process gets unless the user has set them."""
        return {}

    def command(self, gang: Gang, process: Process) -> str:
        return process.role.command

    def processes_of_one(self, spec: Spec, node: Node) -> int:
        """How many processes one of ours starts, which share its GPUs and cores."""
        return 1

    def failure(self, gang: Gang, process: Process, printed: bytes, ended: bool) -> "End | None":
        """The end of a process that this one started and reports."""
        return None

    def serve(self, loop: "Loop", gang: Gang) -> None:
        """Start a server that the processes need on the primary."""


def env(gang: Gang, process: Process) -> Values:
    """torch.distributed's env://, which DDP, FSDP, Lightning, DeepSpeed and Accelerate read."""
    return {
        "MASTER_ADDR": gang.address,
        "MASTER_PORT": str(gang.port),
        "RANK": str(process.rank),
        "WORLD_SIZE": str(len(gang.ranked)),
        "LOCAL_RANK": str(process.local_rank),
        "LOCAL_WORLD_SIZE": str(len(gang.local(process))),
        "GROUP_RANK": str(process.node.index),
        "GROUP_WORLD_SIZE": str(len(gang.nodes)),
        "NODE_RANK": str(process.node.index),
        "TORCHELASTIC_ERROR_FILE": f"{process.node.folder}/{process.file}.error.json",
    }


def torch_defaults(gang: Gang, process: Process) -> Values:
    values = sockets(gang, process)
    if not process.node.real_gpus:
        values["ACCELERATE_USE_CPU"] = "true"
    return values


def sockets(gang: Gang, process: Process) -> "Values":
    """gloo uses the interface of the host name, and NCCL the first suitable one: set the right one for both."""
    name = gang.spec.options.get("interface") or process.node.interface
    if not name:
        return {}
    values = {"GLOO_SOCKET_IFNAME": name}
    return {**values, "NCCL_SOCKET_IFNAME": name} if process.node.gpus else values
