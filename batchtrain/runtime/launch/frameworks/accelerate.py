"""Accelerate: PyTorch's env://, and the variables that `accelerate launch` sets."""

from ..spec import Gang, Process, Values
from .base import Framework, env, torch_defaults


class Accelerate(Framework):
    def variables(self, gang: Gang, process: Process) -> Values:
        return env(gang, process)

    def defaults(self, gang: Gang, process: Process) -> Values:
        options, values = gang.spec.options, torch_defaults(gang, process)
        for name in ("mixed_precision", "gradient_accumulation_steps"):
            if options.get(name) is not None:
                values["ACCELERATE_" + name.upper()] = str(options[name])
        return values


FRAMEWORK = Accelerate()
