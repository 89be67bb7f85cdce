"""DeepSpeed: PyTorch's env://, and the variables that its MPI discovery would set."""

from ..spec import Gang, Process, Values
from .base import Framework, env, torch_defaults


class DeepSpeed(Framework):
    def variables(self, gang: Gang, process: Process) -> Values:
        rank, size = gang.cross(process)
        variables = {"LOCAL_SIZE": str(len(gang.local(process))), "CROSS_RANK": str(rank), "CROSS_SIZE": str(size)}
        return dict(env(gang, process), **variables)

    def defaults(self, gang: Gang, process: Process) -> Values:
        values = torch_defaults(gang, process)
        chosen = gang.spec.options.get("accelerator") or "auto"
        if chosen != "auto" or not process.node.real_gpus:
            values["DS_ACCELERATOR"] = "cpu" if chosen == "auto" else chosen
        return values


FRAMEWORK = DeepSpeed()
