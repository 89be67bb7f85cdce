"""DeepSpeed: PyTorch's environment for `python train.py --deepspeed ...`, in place of its own launcher and host file.

Source: DeepSpeed, Getting started (launching without its launcher: deepspeed.init_distributed reads the same
variables as torch.distributed); measured with DeepSpeed 0.19 on CPUs.
"""

from __future__ import annotations

from batchtrain.launchers import nodes, pytorch
from batchtrain.launchers.environment import Variable
from batchtrain.launchers.nodes import Framework, Role
from batchtrain.launchers.types import DeepSpeed, Launch, Shape

_RULE = "framework-environment"
_ACCELERATOR = Variable("DS_ACCELERATOR", "cpu on nodes without GPUs", "DeepSpeed may guess otherwise", _RULE)

_PLACES = Variable(
    "LOCAL_SIZE, CROSS_RANK, CROSS_SIZE",
    "of the node; of the same local rank",
    "as its MPI discovery calls them",
    _RULE,
)


def launch(options: DeepSpeed, command: str, shape: Shape) -> Launch:
    """The launch with a `deepspeed` block."""
    chosen = _ACCELERATOR._replace(value=options.accelerator, because="`accelerator` says it")
    said = options.accelerator != "auto"
    framework = Framework(
        name="deepspeed",
        roles=(Role("worker", command),),
        options={"backend": pytorch.backend(options.backend), "accelerator": options.accelerator},
        each=nodes.AUTO,
        told=(
            *pytorch.MEETING,
            *pytorch.sockets(options.nodes, shape),
            _PLACES,
            pytorch.BACKEND,
            pytorch.CPU,
            chosen if said else _ACCELERATOR,
        ),
        settles=pytorch.may_be_gloo(options.backend),
    )
    return nodes.launch(framework, options.nodes, command, shape)
