"""Rules about the preparation of nodes: the commands and what they install with, and the signatures of images."""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.catalog.vm_images import PACKAGE_MANAGERS, package_managers
from batchtrain.config import node_preparation
from batchtrain.config.check.gangs import RUNNERS
from batchtrain.config.check.subject import LONGEST_READ, Path, Subject
from batchtrain.config.check.table import BOTH, ERROR, GLOBAL, POOL, WARNING, Found, Rule
from batchtrain.config.patterns import late


def _length(subject: Subject) -> Found:
    if message := node_preparation.overlong(subject.pool.additional_node_prep.commands):
        yield (*POOL, "additional_node_prep", "commands"), message


_INSTALLERS = sorted({name for names in PACKAGE_MANAGERS.values() for name in names}, key=len, reverse=True)
_INSTALLS = late(
    r"(?:^|[\n;&|({][ \t]*|-c[ \t]+[\"'][ \t]*)"
    rf"(?:\w+=\S*[ \t]+|{RUNNERS}[ \t]+(?:-\S+[ \t]+)*)*(?:/usr/bin/|/bin/)?(?P<name>{'|'.join(_INSTALLERS)})(?=[ \t])"
)
"""A package manager at the beginning of a command."""


def _package_manager(subject: Subject) -> Found:
    fitting = package_managers(subject.node_agent)
    for path, text in _on_hosts(subject) if fitting else ():
        names = [match["name"] for match in _INSTALLS.finditer(text[:LONGEST_READ])]
        if names and not set(names) & set(fitting):  # a command with both chooses by the system
            yield (
                path,
                f"the image of the nodes (`{subject.node_agent}`) has no `{names[0]}`; write `{fitting[0]}`, with the"
                f" names that the packages have there, or take an image with `{names[0]}`: `batchtrain catalog images`"
                " lists them",
            )


def _on_hosts(subject: Subject) -> Iterator[tuple[Path, str]]:
    """The commands that run on the node itself, and not in a container."""
    commands = subject.pool.additional_node_prep.commands
    for name, texts in (("pre", commands.pre), ("post", commands.post)):
        for number, text in enumerate(texts):
            yield (*POOL, "additional_node_prep", "commands", name, number), text
    for path, job in subject.jobs:
        for name, part in job.parts:
            if part.docker_image is None:
                yield (*path, name, "command"), part.command or ""
    for path, _, task in subject.tasks:
        if task.docker_image is None and task.singularity_image is None:
            yield (*path, "command"), task.command or ""


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
    Rule("package-manager", WARNING, BOTH, "Commands install packages as the system of the nodes does.",
         "azhpc-images; Ubuntu: apt-get(8); Red Hat: dnf(8)", _package_manager),
    Rule("signing-key", ERROR, GLOBAL, "A signed image names the key that signed it.", "Apptainer: verify",
         _signing_keys),
)  # fmt: skip
