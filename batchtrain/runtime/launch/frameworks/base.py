"""What a framework decides of a launch, with the answers that most of them give."""

from ..spec import Gang, Node, Process, Spec, Values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..channel import Loop


class Framework:
    """What its processes are told, and where its launch differs."""

    gpus = "all"
    """Which GPUs of its node a process sees: `all`, for LOCAL_RANK chooses, or `each` its own."""
    linger = 1.0
    """Seconds that processes which do not decide have to end by themselves."""

    def variables(self, gang: Gang, process: Process) -> Values:
        """What a process is told, whatever was set before."""
        return {}

    def defaults(self, gang: Gang, process: Process) -> Values:
        """What a process is told where the user has set nothing."""
        return {}

    def command(self, gang: Gang, process: Process) -> str:
        return process.role.command

    def processes_of_one(self, spec: Spec, node: Node) -> int:
        """How many processes one of ours starts there, which share its GPUs and cores."""
        return 1

    def failure(self, gang: Gang, process: Process, printed: bytes, ended: bool) -> "tuple[str, int] | None":
        """(sentence, exit code) of a failure that a process tells of others, which it started."""
        return None

    def serve(self, loop: "Loop", gang: Gang) -> None:
        """Open what the processes need of the primary itself."""


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
    }


def torch_defaults(gang: Gang, process: Process) -> Values:
    values = sockets(gang, process)
    if not process.node.real_gpus:
        values["ACCELERATE_USE_CPU"] = "true"
    return values


def sockets(gang: Gang, process: Process) -> "Values":
    """gloo takes the interface that the host name resolves to, NCCL the first it likes: both are told the right one."""
    name = gang.spec.options.get("interface") or process.node.interface
    if not name:
        return {}
    values = {"GLOO_SOCKET_IFNAME": name}
    return {**values, "NCCL_SOCKET_IFNAME": name} if process.node.gpus else values
