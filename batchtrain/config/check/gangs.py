"""Rules about multi-instance tasks: their nodes, processes, GPUs, network, and who launches what."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from batchtrain.config import task_paths, task_resources, travel
from batchtrain.config.check import launcher_advice
from batchtrain.config.check.subject import LONGEST_READ, Gang, Path, Subject, command_of
from batchtrain.config.check.table import BOTH, ERROR, INFO, JOBS, WARNING, Found, Rule
from batchtrain.config.patterns import late
from batchtrain.config.types import INSTANCES, whole_number
from batchtrain.frameworks import FRAMEWORKS, counts
from batchtrain.frameworks.base import AUTO, Fabric
from batchtrain.frameworks.horovod import HorovodBlock
from batchtrain.frameworks.mpi import MPIS, MpiBlock

# Words that users write for a number, and their meaning; no image has such commands.
NUMBER_WORDS = {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "all": "auto", "gpu": "auto", "gpus": "auto", "ngpus": "auto", "cpu": "nproc", "cpus": "nproc", "core": "nproc",
    "cores": "nproc", "ncpus": "nproc",
}  # fmt: skip
SHORTEST_STALL = 60
"""Seconds: the shortest limit of `stop_when`."""
FOR_EVERY_NODE = {
    "resource_files": f"`resource_files` of its `multi_instance`, which lie in `{task_paths.SHARED}`",
    "input_data": f"`input_data` of the job, which lies in `{task_paths.JOB_INPUT}/LOCAL_PATH`",
}
"""What brings files to each node of a gang, in place of a property of its task."""
COUNTING = frozenset({"nproc", "auto"})
A_PROCESS_A_GPU = frozenset({"mpi", *(name for name, block in FRAMEWORKS.items() if block.each == AUTO)})
"""Blocks whose processes use one GPU each; a process of other blocks uses all GPUs of its node."""
OF_MPIS = frozenset(name for mpi in MPIS.values() for name in mpi.launchers)
"""The launchers of MPIs."""
_COMMANDS = (command for block in FRAMEWORKS.values() for command in block.commands)
_LAUNCHERS = "|".join((*map(re.escape, sorted(OF_MPIS)), *_COMMANDS, "srun"))
_MODULES = "|".join(module for block in FRAMEWORKS.values() for module in block.modules)
RUNNERS = (
    r"(?:/[\w./-]*/)?(?:exec|time|env|nohup|sudo|timeout|nice|ionice|numactl|taskset|chrt|setsid|stdbuf|if|then|do|else"
    r"|while|!|(?:conda|mamba|micromamba|uv|pixi|poetry|pipenv|pdm|hatch)\s+run)"
)
_CALL = (
    rf"(?:[\w./-]*/)?(?P<launcher>{_LAUNCHERS}|python[\d.]*\s+(?:-\w\s+)*-m\s+(?:{_MODULES}))"
    r"(?=[\s;&|)\"']|$)"
)
_OPTION = rf"-\S*\s+(?:(?![-\d])(?!{RUNNERS}\s)(?!{_CALL.replace('?P<launcher>', '?:')})[^\s=]+\s+)?"
"""An option of a runner, with its value if that is a separate word."""
# A launcher at the beginning of a command (of a line, after a separator, in `bash -c '...'`), after variables that are
# set for it and runners with their options. A text matches in only one way, so it takes linear time.
NESTED = (
    r"(?:^|[\n;&|(][ \t]*|-c\s+(?:[\"']\s*)?)"
    rf"(?:\w+=\S*\s+|{RUNNERS}\s+(?:{_OPTION}|\d\S*\s+|\w+=\S*\s+)*)*{_CALL}"
)
COUNTS = frozenset(
    {"-n", "-np", "--np", "-perhost", "-ppn", "--map-by", "-hosts", "-host", "--host", "-hostfile", "--hostfile"}
)


# --- nodes ----------------------------------------------------------------------------------------------------------


def _num_instances(subject: Subject) -> Found:
    for path, _, _, gang in subject.gangs:
        instances = str(gang.num_instances)
        if not whole_number(instances) and instances not in INSTANCES:
            hint = subject.nearest(instances, INSTANCES) or f": a number from 1 up or one of {', '.join(INSTANCES)}"
            yield (*path, "num_instances"), f"`{instances}` is not a number of instances{hint}"


def _inter_node(subject: Subject) -> Found:
    if subject.recipe.pool and not subject.pool.inter_node_communication_enabled:
        for path, *_ in subject.gangs:
            yield path, "without `inter_node_communication_enabled: true` of the pool, the task would wait for ever"


def _slots(subject: Subject) -> Found:
    if subject.pool.task_slots_per_node > 1:
        for path, *_ in subject.gangs:
            yield path, "without `task_slots_per_node: 1` of the pool, the task would wait for ever"


def _nodes(subject: Subject) -> Found:
    most = subject.most_nodes.total
    for path, _, _, gang in subject.gangs:
        count, symbol = whole_number(gang.num_instances), str(gang.num_instances)
        if count is not None and most is not None and count > most:
            message = f"{count} instances need {count} nodes, the pool has {most}; the task would wait for ever"
            yield (*path, "num_instances"), message
        if symbol in INSTANCES and task_resources.instances(symbol, subject.recipe.pool) == 0:
            kind = task_resources.kind_of(symbol)
            yield (*path, "num_instances"), f"the pool file has no {kind} nodes, so `{symbol}` is 0"


def _scaling(subject: Subject) -> Found:
    for path, _, _, gang in subject.gangs:
        if subject.scaling is not None and gang.num_instances in INSTANCES:
            message = f"the pool scales, so `{gang.num_instances}` may be too few when the job is added; write a number"
            yield (*path, "num_instances"), message


def _alone(subject: Subject) -> Found:
    for gang in subject.gangs:
        if whole_number(gang.options.num_instances) == 1 and not gang.framework:
            message = "one instance needs no multi-instance task; an ordinary task starts sooner"
            yield (*gang.path, "num_instances"), message


def _primary_files(subject: Subject) -> Found:
    for gang in subject.gangs:
        task, options = gang.task, gang.options
        has_steps = options.coordination_command or options.pre_execution_command  # they may need them on the primary
        if not options.launches or has_steps or task.shared_data_volumes or subject.instances(gang) in (0, 1):
            continue
        for name, files in (("resource_files", task.resource_files), ("input_data", task.input_data.azure_storage)):
            if files:
                remedy = f"for every node, use {FOR_EVERY_NODE[name]}, or a volume"
                yield (*gang.task_path, name), f"only the first node of the gang gets these files; {remedy}"


def _shared_files(subject: Subject) -> Found:
    for gang in subject.gangs:
        options, texts = gang.options, {(*gang.task_path, "command"): gang.task.command}
        texts |= {
            (*gang.path, name): getattr(options, name) for name in ("coordination_command", "pre_execution_command")
        }
        if any(task_paths.SHARED.lstrip("$") in (text or "") for text in texts.values()):
            continue  # it knows the place, and may go there or copy from it
        others = {posixpath.normpath(file.file_path or "") for file in gang.task.resource_files}
        names = [posixpath.normpath(file.file_path) for file in options.resource_files if file.file_path]
        for path, text in texts.items():
            words = travel.paths_in((text or "")[:LONGEST_READ])
            name = next((each for each in names if each in words and each not in others), None)
            if name is not None:
                message = f"the file is `{task_paths.SHARED}/{name}` on every node; write this in place of `{name}`"
                yield path, f"`resource_files` of `multi_instance` are not where a command starts: {message}"


# --- processes ------------------------------------------------------------------------------------------------------


def _given(subject: Subject) -> Iterator[tuple[Gang, Path, str, str]]:
    """Gangs with the processes per node as written, its path and its block."""
    for gang in subject.gangs:
        for name, block in gang.options.launches:
            if block.processes_per_node is not None:
                text = str(block.processes_per_node).strip()
                yield gang, (*gang.path, *gang.options.path(name), "processes_per_node"), text, name


def _processes(subject: Subject) -> Found:
    for _, path, text, _ in _given(subject):
        if wrong := counts.fault(text):
            yield path, wrong
        elif text.lower() in NUMBER_WORDS:
            yield path, f"`{text}` is neither a number nor a command; write `{NUMBER_WORDS[text.lower()]}`"
        elif re.fullmatch(r"[0-9]*\.[0-9]+", text):
            yield path, f"`{text}` is not a whole number of processes"


def _processes_word(subject: Subject) -> Found:
    for _, path, text, name in _given(subject):
        if re.fullmatch(r"[A-Za-z_]+", text) and text not in COUNTING and text.lower() not in NUMBER_WORDS:
            where = "the primary" if name == "mpi" else "each node"
            yield (
                path,
                f"`{text}` is run as a command on {where}, and its output is the number; does this command exist?"
                " Known commands: `nproc`, `nvidia-smi -L | wc -l`; or write `auto`",
            )


def _processes_nvidia(subject: Subject) -> Found:
    size = subject.size
    for _, path, text, _ in _given(subject):
        if size is not None and size.gpu_vendor != "nvidia" and "nvidia-smi" in text:
            yield path, f"{size.name} has no NVIDIA GPU, so `nvidia-smi` counts 0; write a number, or `nproc`"


def _processes_gpus(subject: Subject) -> Found:
    for path, processes, gpus, name in _counted(subject):
        if gpus and processes > gpus and name == "mpi":  # other blocks refuse it: `ranks-over-gpus`
            yield (path, f"{processes} processes share the {gpus} GPUs of a node, so some processes share a GPU")


def _gpus_idle(subject: Subject) -> Found:
    for path, processes, gpus, name in _counted(subject):
        if 0 < processes < gpus and name in A_PROCESS_A_GPU:
            yield path, f"a node uses {processes} of its {gpus} GPUs, because each process uses one"


def _stop_when(subject: Subject) -> Found:
    for path, job in subject.jobs:
        if job.stop_when is None:
            continue
        limits, where = job.stop_when.limits, (*path, "stop_when")
        if not limits:
            yield where, "it has no limit; set `silent`, `gpu_below` or both"
        if any(0 <= limits.get(name, SHORTEST_STALL) < SHORTEST_STALL for name in ("silent", "idle")):
            yield where, f"a limit is shorter than {SHORTEST_STALL} s, in which a program may only be starting"
        if "idle" in limits and subject.size is not None and not subject.size.gpus:
            yield (*where, "gpu_below"), f"{subject.size.name} has no GPUs; remove it, and use `silent`"
        if not job.is_watched:
            yield where, "only gangs of a framework's block (such as `pytorch`) are watched, and the job has none"


def _processes_cores(subject: Subject) -> Found:
    size = subject.size
    for path, processes, _, _ in _counted(subject):
        if size is not None and size.cores and processes > size.cores:
            yield path, f"{processes} processes share the {size.cores} cores of {size.name}"


def _counted(subject: Subject) -> Iterator[tuple[Path, int, int, str]]:
    """Processes per node that are written as a number: the path, the number, the GPUs of a node, and the block."""
    for gang, path, text, name in _given(subject):
        processes = whole_number(text)
        if processes is not None:
            yield path, processes, subject.gpus(gang.job, gang.task), name


# --- network --------------------------------------------------------------------------------------------------------


def _infiniband(subject: Subject) -> Found:
    size, has_network = subject.size, subject.pool.inter_node_communication_enabled
    for path, owner in subject.owners if size is not None else ():
        if size is not None and owner.infiniband and size.rdma is None:
            advice = "omit `infiniband`, or choose a size of `batchtrain catalog sizes --infiniband`"
            yield (*path, "infiniband"), f"`infiniband: true`, but {size.name} has none; {advice}"
        elif owner.infiniband and not has_network:
            yield (*path, "infiniband"), "`infiniband: true` needs `inter_node_communication_enabled: true` in the pool"


def _network_direct(subject: Subject) -> Found:
    size = subject.size
    if size is None or size.rdma != "network-direct" or not subject.pool.inter_node_communication_enabled:
        return
    for path, job, task, gang in subject.gangs:
        infiniband = task.infiniband if task.infiniband is not None else job.infiniband
        for name, block in gang.launches if infiniband is not False else ():
            if isinstance(block, MpiBlock) and Fabric.NETWORK_DIRECT in block.mpi.fabric:
                continue
            what, key = (block.runtime, ("runtime",)) if isinstance(block, MpiBlock) else (name, ())
            message = f"InfiniBand of {size.name} (Network Direct) needs Intel MPI up to 2018; {what} uses tcp"
            yield (*path, *gang.path(name), *key), message


# --- launching ------------------------------------------------------------------------------------------------------


def _nested(subject: Subject) -> Found:
    for path, _, task, gang in subject.gangs:
        command = command_of(task).strip()
        match = re.search(NESTED, command) if gang.mpi is not None else None
        if match:
            _, places = launcher_advice.advice(match["launcher"], command, match.start("launcher"), "mpi")
            options = f"; its options: {places}" if places else ""
            yield (
                (*path[:-1], "command"),
                f"the command starts `{' '.join(match['launcher'].split())}` itself, and `mpi` starts the command"
                " once per rank: each rank would start its own launch; remove the launcher from the command, or `mpi`"
                f" from `multi_instance`{options}",
            )


_ON_PATH = late(r"\b(?:module|ml|spack|conda|source)\b|\bPATH=|(?:^|[\s;&|])\.\s")


def _module(subject: Subject) -> Found:
    image, commands = subject.image, subject.pool.additional_node_prep.commands
    if image is None or "hpc" not in image.offer or any("mpi" in text for text in (*commands.pre, *commands.post)):
        return
    for path, _, task, gang in subject.gangs:
        block, on_host = gang.mpi, task.docker_image is None and task.singularity_image is None
        if block is None or not on_host or block.executable_path != "mpirun":
            continue
        if _ON_PATH.search(gang.pre_execution_command or "") is None:
            step = f"write `pre_execution_command: module load {block.mpi.module}`"
            absent = (
                f"they have no {block.mpi.library}: install it by `additional_node_prep`, and set `executable_path`"
            )
            yield (
                (*path, "mpi"),
                "no `mpirun` is on PATH: the HPC images have their MPIs as environment modules;"
                f" {step if block.mpi.module else absent}",
            )


def _counted_twice(subject: Subject) -> Found:
    for path, _, _, gang in subject.gangs:
        for name, block in gang.launches:
            if not isinstance(block, MpiBlock | HorovodBlock) or (name == "mpi" and block.processes_per_node is None):
                continue
            for number, option in enumerate(block.options):
                word = re.split(r"[\s=]", option.strip(), maxsplit=1)[0]
                if word in COUNTS:
                    message = f"`{word}` is also set by the launch, which has `processes_per_node`; remove one of them"
                    yield (*path, name, "options", number), message


_MULTI = "Azure Batch: batch-mpi"
_MPI = "batchtrain's launches; Batch Shipyard: `mpi`"

RULES = (
    Rule("num-instances", ERROR, JOBS, "The number of instances is a number or a known word.",
         "Batch Shipyard: `num_instances`", _num_instances),
    Rule("gang-inter-node", ERROR, BOTH, "Multi-instance tasks need inter-node communication.", _MULTI, _inter_node),
    Rule("gang-slots", ERROR, BOTH, "Multi-instance tasks need one task slot a node.",
         f"{_MULTI}; Azure/Batch issue 109", _slots),
    Rule("gang-nodes", ERROR, BOTH, "A multi-instance task fits into its pool.", _MULTI, _nodes),
    Rule("gang-autoscale", WARNING, BOTH, "The nodes of a gang exist when the gang is counted.",
         "Batch Shipyard issue 343", _scaling),
    Rule("gang-alone", INFO, JOBS, "A multi-instance task has several instances.", _MULTI, _alone),
    Rule("gang-files", WARNING, BOTH, "The files of a gang reach all nodes that have ranks.",
         f"{_MULTI}: resourceFiles, commonResourceFiles", _primary_files),
    Rule("gang-shared-files", WARNING, JOBS, "A command names a file of every node where Batch puts it.",
         f"{_MULTI}: commonResourceFiles", _shared_files),
    Rule("mpi-module", WARNING, BOTH, "A launch by an MPI of the image loads its environment module.",
         "azhpc-images: README, modules below /usr/share/modules/modulefiles/mpi", _module),
    Rule("processes-per-node", ERROR, JOBS, "Processes a node are a number from 1 up, `auto`, or a command.", _MPI,
         _processes),
    Rule("processes-word", WARNING, JOBS, "A command that counts processes is a known one.", _MPI, _processes_word),
    Rule("processes-nvidia", ERROR, BOTH, "`nvidia-smi` counts GPUs only on sizes with NVIDIA GPUs.",
         "NVIDIA: nvidia-smi", _processes_nvidia),
    Rule("processes-over-gpus", WARNING, BOTH, "Each process has a GPU.",
         "one process per GPU: PyTorch DDP, Horovod, CNTK", _processes_gpus),
    Rule("gpus-idle", INFO, BOTH, "Each GPU has a process.", "one process per GPU: PyTorch DDP, Horovod, CNTK",
         _gpus_idle),
    Rule("stop-when", ERROR, BOTH, "`stop_when` has limits that its gangs and their nodes can reach.",
         "batchtrain: the node launcher watches the processes of a gang", _stop_when),
    Rule("processes-over-cores", WARNING, BOTH, "Each process has a core.", "Azure: Sizes for virtual machines",
         _processes_cores),
    Rule("infiniband-impossible", ERROR, BOTH, "InfiniBand is requested only for sizes that have it.",
         "Azure: Enable InfiniBand; Batch Shipyard's rule for `infiniband`", _infiniband),
    Rule("network-direct", WARNING, BOTH, "The MPI reaches the InfiniBand of the size.",
         "Batch Shipyard's table of MPI options; Azure: setup-mpi", _network_direct),
    Rule("nested-launch", WARNING, JOBS, "A command under a launcher starts no launcher.", _MPI, _nested),
    Rule("mpi-count-twice", WARNING, JOBS, "The number of processes is set only once.", _MPI, _counted_twice),
)  # fmt: skip
