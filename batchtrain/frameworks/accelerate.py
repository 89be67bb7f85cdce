"""Hugging Face Accelerate: PyTorch's environment, and the variables that `accelerate launch` would set.

Source: Accelerate, The Command Line (accelerate launch) and utils/launch.py; measured with Accelerate 1.15 on CPUs.
"""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from batchtrain.frameworks.base import COMMAND, BlockFault, FrameworkRule, Role, Runner, Scripts, Text, Variable, says
from batchtrain.frameworks.pytorch import ENVIRONMENT, Torch


class AccelerateBlock(Torch, frozen=True, kw_only=True):
    """Accelerate and Transformers' Trainer: `python train.py`; batchtrain replaces `accelerate launch`."""

    mixed_precision: Annotated[
        Literal["no", "fp16", "bf16", "fp8"] | None,
        says("Precision of the forward pass. Default: the choice of the program.",
             "batchtrain: ACCELERATE_MIXED_PRECISION"),
    ] = None  # fmt: skip
    gradient_accumulation_steps: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        says("Batches between two steps of the optimizer. Default: the choice of the program.",
             "batchtrain: ACCELERATE_GRADIENT_ACCUMULATION_STEPS"),
    ] = None  # fmt: skip
    options: Annotated[
        tuple[Text, ...],
        says("Options of `accelerate launch` that set up Accelerate (FSDP, DeepSpeed, TorchDynamo, Megatron-LM, a"
             " `--config_file`); the shell of each process expands them. Counts and addresses are the launch's.",
             "batchtrain: accelerate launch", example=["--config_file fsdp.yaml"]),
    ] = ()  # fmt: skip
    name: ClassVar[str] = "accelerate"
    source: ClassVar[str] = "Accelerate: utils/launch.py"
    scripts: ClassVar[Scripts] = Scripts(
        imports=("accelerate", "transformers", "trl", "peft"),
        level=1,
        image="accelerate",
        packages=("torch", "accelerate"),
        spawns=("accelerate.notebook_launcher", "accelerate.debug_launcher"),
    )
    commands: ClassVar[tuple[str, ...]] = (r"accelerate(?:\s+|-)launch",)
    modules: ClassVar[tuple[str, ...]] = (r"accelerate\.commands\.\w+",)
    passed_on: ClassVar[tuple[str, ...]] = ("backend", "mixed_precision", "gradient_accumulation_steps")
    rules: ClassVar[tuple[FrameworkRule, ...]] = (
        FrameworkRule("accelerate-options", "Options of Accelerate are for a command that starts with Python.",
                      "Accelerate: utils/launch.py"),
    )  # fmt: skip
    variables: ClassVar[tuple[Variable, ...]] = (
        *ENVIRONMENT,
        Variable("ACCELERATE_MIXED_PRECISION", "", "", keeps=True, option="mixed_precision"),
        Variable("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "", "", keeps=True, option="gradient_accumulation_steps"),
    )

    def roles(self, command: str, instances: int) -> tuple[Role, ...]:
        """With options, Accelerate itself turns them into variables, before the command."""
        if not self.options:
            return (Role("worker", command),)
        words = (*self.options, "--")
        return (Role("worker", command, runner=Runner("accelerate", "accelerate", words, "accelerated.py")),)

    def faults(self, command: str, instances: int | None) -> Iterator[BlockFault]:
        yield from super().faults(command, instances)
        if self.options and not re.match(r"\S*python[\d.]*\s", command.strip()):
            text = "with `options` of `accelerate`, the command starts with Python, which reads them: `python train.py`"
            yield BlockFault("accelerate-options", COMMAND, text)
