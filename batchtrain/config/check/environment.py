"""Rules about environment variables: invalid names, reserved names, values that are not expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial

from batchtrain.catalog import successors
from batchtrain.config.check.subject import LONGEST_READ, Gang, Path, Subject
from batchtrain.config.check.table import BOTH, ERROR, INFO, JOBS, POOL, WARNING, Found, Rule
from batchtrain.config.patterns import late
from batchtrain.frameworks import FRAMEWORKS, transports
from batchtrain.frameworks.mpi import MPIS

POSSIBLE = r"[^=\s\x00]+"
NOT_OF_SHELL = rf"(?![A-Za-z_][A-Za-z0-9_]*\Z){POSSIBLE}"
BATCHS = r"AZ_BATCH_\w*|CCP_NODES"
OURS = r"BATCHTRAIN_\w*|bt_\w*"
EXPANDED = r"\$(\w+|\{\w+\})"
SEARCH_PATHS = frozenset({"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD"})
RANKS = frozenset({"SLURM_PROCID"}).union(
    *((*mpi.rank, *mpi.ranks) for mpi in MPIS.values()), *(block.ranks for block in FRAMEWORKS.values())
)
SIZES = frozenset({"SLURM_NTASKS"}).union(
    *(mpi.sizes for mpi in MPIS.values()), *(block.sizes for block in FRAMEWORKS.values())
)
PLACING = (
    r"(?:OMPI|PRTE|PMIX)_MCA_(?:plm|ras|rmaps|orte|prte)_\w+|(?:I_MPI_)?HYDRA_(?:HOST_FILE|LAUNCHER|BOOTSTRAP|RMK)\w*"
    r"|I_MPI_PERHOST"
)
"""Variables by which mpirun starts ranks and places them."""
BATCHS_PORT = "6000"
MOST_BYTES = 900_000
"""Bytes of variables in a request (1 MB), with room for the rest of a task."""


def _everywhere(subject: Subject) -> Iterator[tuple[Path, dict[str, str]]]:
    prep = subject.pool.additional_node_prep
    yield (*POOL, "additional_node_prep", "environment_variables"), prep.environment_variables
    for path, job in subject.jobs:
        yield (*path, "environment_variables"), job.environment_variables
        for name, part in job.parts:
            yield (*path, name, "environment_variables"), part.environment_variables
    for path, _, task in subject.tasks:
        yield (*path, "environment_variables"), task.environment_variables


def _named(pattern: str, message: str, subject: Subject, *, fits: bool = True) -> Found:
    """Variables whose name fits a pattern, or does not; each name is judged once."""
    fullmatch = cache(lambda name: re.fullmatch(pattern, name))
    for path, variables in _everywhere(subject):
        for name in variables:
            if (fullmatch(name) is not None) is fits:
                yield (*path, name), f"`{name}` {message}"


def _searched(subject: Subject) -> Found:
    for path, variables in _everywhere(subject):
        for name in SEARCH_PATHS.intersection(variables):
            if re.search(EXPANDED, variables[name]):
                message = f"Batch does not expand `$...` in `{name}`; set it in the command or `pre_execution_command`"
                yield (*path, name), message
            elif name == "PATH":
                yield (*path, name), "this replaces the PATH of the image; programs elsewhere are not found"


def _literal(subject: Subject) -> Found:
    for path, variables in _everywhere(subject):
        for name, value in variables.items():
            if "$" in value and name not in SEARCH_PATHS and re.search(EXPANDED, value):
                message = "Batch does not expand `$...` in values; the command may, where a shell reads it again"
                yield (*path, name), message


def _own(subject: Subject) -> Iterator[tuple[Gang, Path, str, str]]:
    """The variables of gangs without a framework's block, for which `environment-reserved` reports them."""
    for gang in subject.gangs:
        if not gang.framework:
            yield from ((gang, *variable) for variable in gang.variables)


def _ranks(subject: Subject) -> Found:
    for _, path, name, _ in _own(subject):
        if name in RANKS:
            yield path, f"`{name}` would be the same in every process, and each needs its own; the launcher sets it"


def _launch(subject: Subject) -> Found:
    for gang, path, name, _ in _own(subject):
        if gang.options.mpi is not None and name in SIZES:
            count = "the launch counts the processes itself (`processes_per_node`); a program reads the MPI's count"
            yield path, f"`{name}`: {count}"
        elif gang.options.mpi is not None and re.fullmatch(PLACING, name):
            how = "controls how ranks are started and placed, which the launch does; use `mpi.options`, or remove it"
            yield path, f"`{name}` {how}"


def _port(subject: Subject) -> Found:
    for _, path, name, value in _own(subject):
        if name == "MASTER_PORT" and value.strip() == BATCHS_PORT:
            yield path, f"Batch uses port {BATCHS_PORT} on the primary; use another, such as 29500"


def _too_large(subject: Subject) -> Found:
    for path, variables in _everywhere(subject):
        if sum(map(len, variables.values())) * 4 <= MOST_BYTES:
            continue
        size = sum(len(name.encode()) + len(value.encode()) for name, value in variables.items())
        if size > MOST_BYTES:
            largest = max(variables, key=lambda name: len(variables[name]))
            advice = f"{MOST_BYTES:,} fit into a request; bring large values as a file (`resource_files`, `source`)"
            yield (*path, largest), f"the variables have {size:,} bytes together, and {advice}"


_OF_NETWORK_DIRECT = late(
    r"\bI_MPI_DAPL_\w+(?:[=\s]+[^\s;&|\"']+)?"
    r"|\bI_MPI_(?:FABRICS(?:_LIST)?|DEVICE)[=\s]+[\"']?[\w:,]*(?:dapl|rdma|rdssm)[\w:,]*"
)
"""A variable of Intel MPI with its value, as shells and the options of mpirun set it."""
_TODAY = " and ".join(f"`{variable.name}={variable.value}`" for variable in transports.INTELMPI_INFINIBAND)


def _network_direct(subject: Subject) -> Found:
    size = subject.size
    if size is None or size.rdma == "network-direct":
        return
    if size.rdma:
        where = f"and {size.name} has SR-IOV: remove it; `runtime: intelmpi` sets {_TODAY}"
        where += f". Where the command starts mpirun itself, write these. {successors.OLD_MPI_REASON.rstrip('.')}"
    else:
        where = f"and {size.name} has no InfiniBand: remove it"
    for path, text in _settings(subject):
        if (match := _OF_NETWORK_DIRECT.search(text[:LONGEST_READ])) is not None:
            yield path, f"`{match[0]}` works only with the Network Direct of retired sizes, {where}"


def _settings(subject: Subject) -> Iterator[tuple[Path, str]]:
    """The texts that may set variables of a gang's processes."""
    for path, variables in _everywhere(subject):
        yield from (((*path, name), f"{name}={value}") for name, value in variables.items())
    yield from subject.commands
    for path, _, task in subject.tasks:
        for number, option in enumerate(task.additional_docker_run_options):
            yield (*path, "additional_docker_run_options", number), option
    for gang in subject.gangs:
        options = gang.options.mpi.options if gang.options.mpi is not None else ()
        for number, option in enumerate(options):
            value = "".join(options[number + 1 : number + 2])  # `-genv`, the name and the value are three options
            if option.startswith("I_MPI_") or "I_MPI_" not in value:
                yield (*gang.path, "mpi", "options", number), f"{option} {value}"


_SETTING = "azure-batch 15.1, EnvironmentSetting"
_BATCH_VARIABLES = "Azure Batch: batch-compute-node-environment-variables"

RULES = (
    Rule("environment-name", ERROR, BOTH, "The name of an environment variable is not empty and has no `=`.",
         f"{_SETTING}.name; execve(2)",
         partial(_named, POSSIBLE, "cannot be the name of a variable: it is empty, or has a space or a `=`",
                 fits=False)),
    Rule("environment-shell", WARNING, BOTH,
         "The name of an environment variable has only letters, digits and underscores.",
         "POSIX: Environment variables",
         partial(_named, NOT_OF_SHELL,
                 "is set, but no shell can read it; write letters, digits and `_`, no digit first")),
    Rule("environment-batch", WARNING, BOTH, "Environment variables of Batch are not set by the user.",
         _BATCH_VARIABLES, partial(_named, BATCHS, "is reserved for Batch, which sets its value; use another name")),
    Rule("environment-launcher", ERROR, BOTH, "Environment variables of the launcher are not set by the user.",
         "batchtrain's launchers",
         partial(_named, OURS, "is reserved for the launcher and would break it; use another name")),
    Rule("environment-path", WARNING, BOTH, "Search paths are not replaced.", f"{_BATCH_VARIABLES}: not expanded",
         _searched),
    Rule("environment-literal", INFO, BOTH, "Environment variables in a value are not expanded.",
         f"{_BATCH_VARIABLES}: not expanded", _literal),
    Rule("environment-rank", WARNING, JOBS, "Ranks are numbered by the launcher.",
         "PyTorch: torchrun; Open MPI, MPICH and Horovod: variables of a rank", _ranks),
    Rule("environment-launch", WARNING, JOBS, "Environment variables that the launch sets are not set by the user.",
         "Open MPI: MCA parameters; Hydra: environment variables", _launch),
    Rule("environment-port", ERROR, JOBS, "Port 6000, which Batch uses, is not used by a launch.",
         "Azure Batch: AZ_BATCH_MASTER_NODE (port 6000)", _port),
    Rule("environment-network-direct", WARNING, BOTH, "Settings of Network Direct are used on sizes that have it.",
         "Intel MPI 2019: release notes; Microsoft Learn: Set up Message Passing Interface for HPC", _network_direct),
    Rule("environment-size", ERROR, JOBS, "A task's variables fit into a request.",
         "Azure Batch: 413 RequestBodyTooLarge (1 MB)", _too_large),
)  # fmt: skip
