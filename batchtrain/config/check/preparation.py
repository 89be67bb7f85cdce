"""Rules about the preparation of nodes: the length of the commands, and the signatures of images."""

from __future__ import annotations

from batchtrain.config import node_preparation
from batchtrain.config.check.subject import Subject
from batchtrain.config.check.table import ERROR, GLOBAL, POOL, Found, Rule


def _length(subject: Subject) -> Found:
    if message := node_preparation.overlong(subject.pool.additional_node_prep.commands):
        yield (*POOL, "additional_node_prep", "commands"), message


def _signing_keys(subject: Subject) -> Found:
    for number, image in enumerate(subject.recipe.resources.singularity_images.signed):
        if image.signing_key is None:
            yield (
                ("global_resources", "singularity_images", "signed", number),
                f"`{image.image}` has no `signing_key`; give its `fingerprint`, or list the image under `unsigned`",
            )


RULES = (
    Rule("node-preparation", ERROR, POOL,
         f"The preparation of a node has at most {node_preparation.MOST_COMMANDS:,} bytes.",
         "azure-batch 15.1, StartTask.environmentSettings; execve(2)", _length),
    Rule("signing-key", ERROR, GLOBAL, "A signed image names the key that signed it.", "Apptainer: verify",
         _signing_keys),
)  # fmt: skip
