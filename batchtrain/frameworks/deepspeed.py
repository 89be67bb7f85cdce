"""DeepSpeed: PyTorch's environment for `python train.py --deepspeed ...`, in place of its own launcher and host file.

Source: DeepSpeed, Getting started (launching without its launcher: deepspeed.init_distributed reads the same
variables as torch.distributed); measured with DeepSpeed 0.19 on CPUs.
"""

from typing import Annotated, ClassVar, Literal

from batchtrain.frameworks.base import SOCKETS, Scripts, Variable, says
from batchtrain.frameworks.pytorch import BACKEND, CPU, MEETING, Torch


class DeepSpeedBlock(Torch, frozen=True, kw_only=True):
    """DeepSpeed: `python train.py --deepspeed ...`; batchtrain replaces its launcher and host file."""

    backend: Annotated[
        Literal["auto", "nccl", "gloo", "ccl"],
        says("Value of BATCHTRAIN_BACKEND; `auto` is nccl on GPUs, gloo without.", "batchtrain: BATCHTRAIN_BACKEND"),
    ] = "auto"
    accelerator: Annotated[
        Literal["auto", "cuda", "cpu", "xpu", "hpu"],
        says(
            "DS_ACCELERATOR; `auto` leaves it to DeepSpeed on GPUs and is `cpu` without.", "batchtrain: DS_ACCELERATOR"
        ),
    ] = "auto"

    name: ClassVar[str] = "deepspeed"
    source: ClassVar[str] = "DeepSpeed: init_distributed"
    scripts: ClassVar[Scripts] = Scripts(imports=("deepspeed",), level=2, image="deepspeed")
    commands: ClassVar[tuple[str, ...]] = ("deepspeed",)
    modules: ClassVar[tuple[str, ...]] = (r"deepspeed(?:\.launcher\.\w+)?",)
    passed_on: ClassVar[tuple[str, ...]] = ("backend", "accelerator")
    variables: ClassVar[tuple[Variable, ...]] = (
        *MEETING,
        *SOCKETS,
        Variable("LOCAL_SIZE, CROSS_RANK, CROSS_SIZE", "of the node; of the same local rank",
                 "as its MPI discovery calls them"),
        BACKEND,
        CPU,
        Variable("DS_ACCELERATOR", "cpu on nodes without GPUs", "DeepSpeed may guess otherwise", keeps=True,
                 option="accelerator"),
    )  # fmt: skip
    script: ClassVar[str] = "train.py --deepspeed ..."
