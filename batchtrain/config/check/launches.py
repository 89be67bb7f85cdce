"""Rules about the blocks that launch a gang: only one block, roles that work together, reserved variables.

A framework's block finds its own faults (`frameworks`); the rules add the paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from batchtrain.config import schema
from batchtrain.config.check import launcher_advice
from batchtrain.config.check.gangs import NESTED
from batchtrain.config.check.subject import LONGEST_READ, Gang, Path, Subject, command_of
from batchtrain.config.check.table import BOTH, ERROR, JOBS, WARNING, Found, Rule
from batchtrain.config.types import whole_number
from batchtrain.frameworks import FRAMEWORKS, launcher_options, plugins
from batchtrain.frameworks.base import COMMAND, Nodes
from batchtrain.frameworks.mpi import MPIS, MpiBlock, named_in, runs_cntk

ONE_NODE = (
    r"(?<![A-Za-z])(?:nn\.)?DataParallel\b|--data[-_]parallel\b|--strategy[=\s]+[\"']?(?:dp|mirrored)\b"
    r"|--accelerator[=\s]+dp\b|--distribution_strategy[=\s]+[\"']?(?:mirrored|one_device)\b|\bMirroredStrategy\b"
)
"""Words for several GPUs of one node; DistributedDataParallel and MultiWorkerMirrored are others."""


def _frameworks(subject: Subject) -> Iterator[tuple[Gang, Nodes]]:
    """Gangs with a framework's block, and the block."""
    for gang in subject.gangs:
        for _, block in gang.options.launches:
            if isinstance(block, Nodes):
                yield gang, block


# --- who launches ---------------------------------------------------------------------------------------------------


def _one_launch(subject: Subject) -> Found:
    for path, _, _, gang in subject.gangs:
        names = [name for name, _ in gang.launches]
        if len(names) > 1:
            message = f"a command is launched in one way; keep one of {', '.join(f'`{name}`' for name in names)}"
            yield (*path, *gang.path(names[1])), message


def _inside(subject: Subject) -> Found:
    for gang, block in _frameworks(subject):
        command = command_of(gang.task).strip()
        match = re.search(NESTED, command)
        if match:
            launcher = " ".join(match["launcher"].split())
            usual = next(iter(launcher_options.launcher(launcher).blocks), block.name)
            instead = f", or an `{usual}` block in place of this one" if usual != block.name else ""
            if launcher == block.own_launcher[0]:
                instead = f", and {block.own_launcher[1]} in the block if {launcher} is intended"
            line, places = launcher_advice.advice(match["launcher"], command, match.start("launcher"), block.name)
            text = line or f"python {block.script}"
            options = f"; its options: {places}" if places else ""
            yield (
                (*gang.task_path, "command"),
                f"the command starts `{launcher}` itself, and `{block.name}` starts the command once per process:"
                f" each process would start its own launch; write `{text}`{instead}{options}",
            )


# --- frameworks of other packages -----------------------------------------------------------------------------------


def _plugins(subject: Subject) -> Found:
    for gang in subject.gangs:
        for name, settings in gang.options.framework.items():
            path = (*gang.path, *gang.options.path(name))
            if name in ("mpi", *FRAMEWORKS):
                yield path, f"`{name}` is a block of `multi_instance` itself; write it beside `framework`, not below it"
                continue
            framework = plugins.kind_or_fault(name)
            if isinstance(framework, str):
                yield path, framework
                continue
            try:
                block = plugins.block(name, settings)
            except plugins.UnusableFramework:
                from batchtrain.config import judge  # jsonschema takes 60 ms and is needed only for a mistake

                for flaw in judge.mistakes_of(framework, settings, path):
                    yield flaw.path, f"{flaw.message}. {schema.advice(flaw).hint}".strip()
                continue
            for fault in block.faults(command_of(gang.task), subject.instances(gang)):
                if fault.rule not in _COMMON_RULES:
                    yield (*gang.task_path, "command") if fault.key == COMMAND else (*path, fault.key), fault.text


_COMMON_RULES = ("launch-port", "processes-divide")
"""The rules about faults of a block that any framework can have."""


# --- what is the launcher's own -------------------------------------------------------------------------------------


def _reserved(subject: Subject) -> Found:
    for gang, block in _frameworks(subject):
        names = block.why_reserved()
        pattern = "|".join(names)
        for path, variable, _ in gang.variables:
            if re.fullmatch(pattern, variable):
                yield path, _why(variable, block.name, names)
        before_launch = gang.options.pre_execution_command or ""
        texts: dict[Path, str] = {
            (*gang.task_path, "command"): command_of(gang.task).strip(),
            (*gang.path, "pre_execution_command"): before_launch.strip()[:LONGEST_READ],
        }
        for path, text in texts.items():
            if match := re.search(rf"{_BEFORE}({pattern})=", text):
                yield path, _why(match[1], block.name, names)


_BEFORE = r"(?:^|[;&|(\n][ \t]*|(?<!\S)(?:export|env)[ \t]+)(?:\w+=[^\s;&|(]*[ \t]+)*"
"""Where a shell may set a variable: before a command, after other variables, with export or env. Takes linear time."""


def _why(variable: str, name: str, names: dict[str, str]) -> str:
    instead = names.get(variable) or next(how for pattern, how in names.items() if re.fullmatch(pattern, variable))
    return f"`{variable}` is set for each process by the `{name}` launch; {instead}"


# --- how many -------------------------------------------------------------------------------------------------------


def _over_gpus(subject: Subject) -> Found:
    for gang, block in _frameworks(subject):
        gpus, nodes = subject.gpus(gang.job, gang.task), subject.instances(gang)
        key, each = "processes_per_node", whole_number(block.processes_per_node)
        if block.processes is not None and nodes:
            key, each = "processes", -(-block.processes // nodes)
        if gpus and each is not None and each > gpus:
            yield (
                (*gang.path, *gang.options.path(block.name), key),
                f"{each} processes a node, and {gpus} GPU{'s' if gpus > 1 else ''}: two processes cannot share a GPU"
                f" (NCCL refuses it); write `auto` or at most {gpus}",
            )


# --- what works together --------------------------------------------------------------------------------------------


def _faults(rule: str, subject: Subject) -> Found:
    """The faults of one rule that the blocks find."""
    for gang, block in _frameworks(subject):
        for fault in block.faults(command_of(gang.task), subject.instances(gang)):
            if fault.rule == rule:
                path = (*gang.path, *gang.options.path(block.name), *filter(None, (fault.key,)))
                yield (*gang.task_path, "command") if fault.key == COMMAND else path, fault.text


def _one_node(subject: Subject) -> Found:
    for gang in subject.gangs:
        match = re.search(ONE_NODE, command_of(gang.task))
        if match and subject.instances(gang) != 1:
            yield (
                (*gang.task_path, "command"),
                f"`{' '.join(match[0].split())}` uses the GPUs of one node, so each node would train alone; use"
                " DistributedDataParallel or MultiWorkerMirroredStrategy, or an ordinary task on one node",
            )


def _cntk_mpi(subject: Subject) -> Found:
    for gang in subject.gangs:
        image = (gang.task.docker_image or gang.task.singularity_image or "").lower()
        mpi_name = named_in(image) if runs_cntk(command_of(gang.task), image) else ""
        for name, block in gang.options.launches:
            if mpi_name and isinstance(block, MpiBlock) and MPIS[mpi_name].starts != block.mpi.starts:
                yield (
                    (*gang.path, name, "runtime"),
                    f"by the name of the image, its CNTK was built on {mpi_name}; with {block.runtime} each rank would"
                    f" train alone; write `runtime: {mpi_name}`",
                )


_LAUNCH = "batchtrain's node launcher"

RULES = (
    Rule("gang-one-launch", ERROR, JOBS, "A command is launched in one way.", _LAUNCH, _one_launch),
    Rule("framework-plugin", ERROR, JOBS, "The framework of another package can be loaded and fits its block.",
         f"the entry-point group `{plugins.GROUP}`", _plugins),
    Rule("launcher-inside", ERROR, JOBS, "A command under a launcher starts no launcher.",
         f"{_LAUNCH}; it takes the place of torchrun, deepspeed, horovodrun and mpirun", _inside),
    Rule("environment-reserved", ERROR, JOBS, "Rank and rendezvous variables are not set by the user.",
         "PyTorch: env://; TensorFlow: TF_CONFIG; ps-lite, Horovod and JAX: environment variables", _reserved),
    Rule("launch-port", ERROR, JOBS, "Port 6000, which Batch uses, is not used by a launch.",
         "Azure Batch: AZ_BATCH_MASTER_NODE (port 6000)", partial(_faults, "launch-port")),
    Rule("processes-divide", ERROR, JOBS, "The number of processes is a multiple of the number of nodes.", _LAUNCH,
         partial(_faults, "processes-divide")),
    Rule("ranks-over-gpus", ERROR, BOTH, "No two processes share a GPU.",
         "NCCL: Creating a communicator (duplicate GPU)", _over_gpus),
    Rule("one-node-strategy", WARNING, JOBS, "A program for the GPUs of one node runs on one.",
         "PyTorch: DataParallel; TensorFlow: MirroredStrategy", _one_node),
    *(Rule(rule.name, ERROR, JOBS, rule.sentence, rule.source, partial(_faults, rule.name))
      for block in FRAMEWORKS.values() for rule in block.rules),
    Rule("cntk-mpi", WARNING, JOBS, "CNTK is started by the MPI it was built on.",
         "CNTK: Multiple GPUs and machines; Batch Shipyard's recipes for CNTK", _cntk_mpi),
)  # fmt: skip
