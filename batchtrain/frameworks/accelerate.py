"""Hugging Face Accelerate: PyTorch's environment, and the variables that `accelerate launch` would set.

Source: Accelerate, The Command Line (accelerate launch) and utils/launch.py; measured with Accelerate 1.15 on CPUs.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from batchtrain.frameworks.base import Scripts, Variable, says
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
    name: ClassVar[str] = "accelerate"
    source: ClassVar[str] = "Accelerate: utils/launch.py"
    scripts: ClassVar[Scripts] = Scripts(
        imports=("accelerate", "transformers", "trl", "peft"),
        level=1,
        image="accelerate",
        packages=("torch", "accelerate"),
        spawns=("accelerate.notebook_launcher", "accelerate.debug_launcher"),
    )
    commands: ClassVar[tuple[str, ...]] = (r"accelerate\s+launch",)
    modules: ClassVar[tuple[str, ...]] = (r"accelerate\.commands\.\w+",)
    passed_on: ClassVar[tuple[str, ...]] = ("backend", "mixed_precision", "gradient_accumulation_steps")
    variables: ClassVar[tuple[Variable, ...]] = (
        *ENVIRONMENT,
        Variable("ACCELERATE_MIXED_PRECISION", "", "", keeps=True, option="mixed_precision"),
        Variable("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "", "", keeps=True, option="gradient_accumulation_steps"),
    )
