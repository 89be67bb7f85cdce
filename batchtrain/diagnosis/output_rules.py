"""Causes that a line of a program's output proves. A table: the first rule that fits a task wins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from batchtrain.config.patterns import late
from batchtrain.launchers import shell_functions
from batchtrain.service.causes import LOST, NOT_JOINED, UNREACHED, WAITED


class OutputRule(NamedTuple):
    """A cause and the pattern of the line that proves it. Groups of the pattern are words of the cause."""

    name: str
    pattern: re.Pattern[str]
    cause: str
    next_step: str
    """With the fields of `next_steps`."""
    is_consequence: bool = False
    """Whether the failure of another process usually causes it."""
    is_warning: bool = False
    """Whether a program may continue after such a line."""


def _rule(name: str, pattern: str, cause: str, next_step: str, *, is_warning: bool = False) -> OutputRule:
    return OutputRule(name, late(pattern), cause, next_step, is_warning=is_warning)


_SAME_MPI = (
    "set `runtime` to the MPI of the program and let the node find its launcher (`pre_execution_command`,"
    " `executable_path`), or build the program on the MPI of the launcher; `allow_singletons: true` lets each rank be"
    " alone"
)
_FUNCTIONS = "|".join(function.name for function in shell_functions.FUNCTIONS)
_REPLACE = "do not use this node again: {new_pool}, and report the node to Azure"

OUTPUT_RULES = (
    _rule("preflight",
        r"batchtrain: preflight: (?P<name>.+)",
        "a check of the nodes failed: {name}",
        "{reboot}, or skip the check with `preflight: false`"),
    _rule("checkpoint-refused",
        r"batchtrain: `checkpoint`: ",
        "the program was not started, because the task cannot use its checkpoints",
        "do what the line says; `--fresh` starts anew, and `batchtrain runs list` shows the runs to `--resume`"),
    _rule("stalled",
        r"batchtrain: (?P<name>.+ stalled first, \d+ s ago: .+)",
        "{name}",
        "look at what this process waits for{output}; `ranks/stacks.jsonl` has the calls of every process; a program"
        " that only pauses needs longer limits in `stop_when`"),
    _rule("gpu-lost",
        r"Xid \(PCI:[^)]*\): 79\b|GPU has fallen off the bus|GPU is lost",
        "a GPU has fallen off the bus of the node",
        f"{_REPLACE}; Azure calls this fault XID79FallenOffBus"),
    _rule("gpu-remap-failed",
        r"Xid \(PCI:[^)]*\): 64\b",
        "a GPU can no longer replace faulty rows of its memory (Xid 64)",
        f"{_REPLACE}; Azure calls this fault HpcRowRemapFailure"),
    _rule("gpu-memory-error",
        r"Xid \(PCI:[^)]*\): (?:48|95|140|171|172)\b|uncorrectable ECC error encountered",
        "the memory of a GPU has an error that cannot be corrected (ECC)",
        "{reboot}; if the error returns, use another node"),
    _rule("gpu-memory-error-contained",
        r"Xid \(PCI:[^)]*\): 94\b",
        "the memory of a GPU had an error that ended only this program (Xid 94, ECC)",
        "run the task again (`max_task_retries`); if it returns on the same node, reboot the node"),
    _rule("nvlink-error",
        r"Xid \(PCI:[^)]*\): (?:74|14[4-9]|150)\b|uncorrectable NVLink error",
        "an NVLink between the GPUs of the node has an error",
        "{reboot}; if the error returns, use another node"),
    _rule("gpu-halted",
        r"Xid \(PCI:[^)]*\): (?P<name>46|62|109|119|120|136|143|158)\b",
        "a GPU has stopped answering (Xid {name})",
        "{reboot}; if it returns, replace the node"),
    _rule("gpu-program-fault",
        r"Xid \(PCI:[^)]*\): (?:11|13|25|31|32|137)\b|an illegal memory access was encountered"
        r"|device-side assert triggered",
        "the program made an access on the GPU that is not allowed",
        "run it with CUDA_LAUNCH_BLOCKING=1 in `environment_variables`, which names the line; suspect the GPU only if"
        " other programs fail on it, too"),
    _rule("gpu-recovery",
        r"Xid \(PCI:[^)]*\): 154\b.* to 0x\w+ \((?P<name>[^)]+)\)",
        "the driver asks for a recovery of a GPU: {name} (Xid 154)",
        "{reboot}; if it returns, replace the node"),
    _rule("cuda-out-of-memory",
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUDNN_STATUS_ALLOC_FAILED"
        r"|cudaMalloc failed: out of memory|OOM when allocating tensor",
        "the memory of a GPU is full",
        "lower the batch size of each process, use mixed precision or gradient checkpointing, or choose a size whose"
        " GPUs have more memory (`batchtrain catalog sizes`)"),
    _rule("duplicate-gpu",  # init.cc of NCCL and RCCL
        r"Duplicate GPU detected ?: (?P<name>rank \d+ and rank \d+)|Duplicate GPU detected",
        "two ranks use the same GPU: {name}",
        "start at most one rank for each GPU (`processes_per_node: auto`), and select the GPU of LOCAL_RANK in the"
        " program (`torch.cuda.set_device`)"),
    _rule("locked-memory",  # Open MPI: help-mpi-btl-openib.txt; libibverbs: init.c; UCX: ib_log.c; NCCL: ibvwrap.cc
        r"RLIMIT_MEMLOCK is \d+|[Mm]emlock limits? (?:are|is) set too low|allocate some locked memory|Memlock limit: \d"
        r"|set max locked memory \(ulimit -l\)|(?:ibv|fi)_\w+.*Cannot allocate memory",
        "the limit of locked memory is too low for InfiniBand",
        "a container needs `--ulimit memlock=-1:-1` (`additional_docker_run_options`), and a task on the host an image"
        " for InfiniBand, such as ubuntu-hpc, and a pool whose start task raises the limit of the agent (create it"
        " again with this version); or set `infiniband: false`",
        is_warning=True),
    _rule("nccl-without-infiniband",
        r"NCCL.*(?:NET/IB ?: No device found|No IB devices|ibv_\w+ failed|Failed to initialize any NET plugin)"
        r"|NCCL WARN .*(?:NET/IB|ibv_)",
        "NCCL finds no usable InfiniBand",
        "check that the pool's size has InfiniBand and that its image has the drivers (`batchtrain doctor`,"
        " `batchtrain config explain`); NCCL_DEBUG=INFO in `environment_variables` shows what NCCL tries"),
    _rule("gpu-missing",
        r"Torch not compiled with CUDA enabled|Attempting to deserialize object on a CUDA device"
        r"|(?:NCCL is only supported with GPUs|doesn't have NCCL built in)"
        r"|Unknown backend:? '?(?:gpu|cuda)'? requested|device:GPU:\d+ unknown device"
        r"|Compile with USE_CUDA=1|mixed precision requires a GPU",
        "the program needs a GPU, and its framework finds none",
        "let the program choose by what is there: `cpu` where `torch.cuda.is_available()` is false, and"
        " `init_process_group()` with the backend of BATCHTRAIN_BACKEND, which is gloo on nodes without GPUs; on Azure,"
        " take a size with GPUs (`--size`, `vm_size`) and a build of the framework for them"),
    _rule("gpu-driver-missing",
        r"CUDA driver version is insufficient|no CUDA-capable device is detected|Found no NVIDIA driver"
        r"|NVIDIA-SMI has failed|Failed to initialize NVML|libcuda\.so\.1: cannot open shared object file",
        "no GPU driver works on the node",
        "on a machine without a GPU, let the program use the CPU where `torch.cuda.is_available()` is false; on Azure,"
        " check that the image has a driver for the size, or set `gpu` in pool.yaml{start_task}"),
    OutputRule("rank-never-joined",
        NOT_JOINED,
        "only {name} of the processes have joined the process group",
        "look at the ranks that print nothing{output}: they are slower, have ended"
        " before, or cannot reach the primary's node",
        is_consequence=True),
    OutputRule("store-unreachable",
        UNREACHED,
        "a process could not connect to the store of the process group: {name}",
        "look at rank 0{output}, which serves the store: it has not started yet, has ended before, or has another"
        " address or port (MASTER_ADDR, MASTER_PORT)",
        is_consequence=True),
    OutputRule("collective-timeout",
        WAITED,
        "the ranks wait for one that does not answer",
        "look at the rank that is missing{output}: it is slower, has ended, or did not reach the same collective",
        is_consequence=True),
    OutputRule("connection-to-rank-lost",
        LOST,
        "a rank lost the connection to another one",
        "look for a rank that ended before, in the same output: this one is usually only its victim",
        is_consequence=True),
    _rule("shared-memory-too-small",
        r"insufficient shared memory|out of shared memory|unable to open shared memory object",
        "the container's shared memory is too small",
        "set `shm_size` of the task, for example 8g"),
    _rule("disk-full",
        r"No space left on device(?:: '(?P<name>[^']+)')?|Disk quota exceeded|ENOSPC",
        "a disk of the node is full: {name}",
        "write less, clean up in the task, or choose a size with a larger local disk{node_files}"),
    _rule("container-out-of-memory",
        r"Memory cgroup out of memory: Killed process|oom-kill:constraint=CONSTRAINT_MEMCG"
        r"|the container was ended because it used more memory",
        "the program used more memory than its container may have",
        "raise the limit (`--memory` in `additional_docker_run_options`), or start fewer processes on each node and"
        " load less data at once"),
    _rule("host-out-of-memory",
        r"std::bad_alloc|^MemoryError|\bMemoryError\b|Cannot allocate memory|[Oo]ut of memory: Killed process|oom-kill",
        "the memory of the node is full",
        "start fewer processes on each node, load less data at once, or choose a size with more memory"),
    _rule("registry-refused",
        r"pull access denied|unauthorized: authentication required|denied: requested access|toomanyrequests"
        r"|failed to authorize",
        "the container registry refuses the image",
        "check server, user name and password in `credentials.docker_registry`; `batchtrain images check` pulls it"),
    _rule("image-not-found",
        r"manifest (?:for \S+ not found|unknown)|repository .* not found|No such image",
        "the registry does not have the container image",
        "check the image's name and tag in `docker_image`; `batchtrain images check` pulls it"),
    _rule("wrong-image",
        r"[Ee]xec format error|version [`']GLIBC(?:XX)?_[\d.]+' not found|cannot execute binary file"
        r"|no /bin/bash runs in this image",
        "the program does not run on this image",
        "build it for the node's processor and the image's C library, or use an image that has it"),
    _rule("sshd-missing",
        r"ssh: connect to host \S+ port \d+: Connection refused|ssh: command not found|sshd: (?:command )?not found"
        r"|Host key verification failed|Permission denied \(publickey",
        "the nodes of the gang cannot reach each other over ssh",
        "the image of a gang needs sshd on port 23 and the pool's key (docs/how-to/container-images.md);"
        " `batchtrain images check` tests it"),
    _rule("deepspeed-ssh",  # runner.py of DeepSpeed
        r"host=(?P<name>\S+) was not reachable via ssh",
        "the launcher of DeepSpeed cannot reach the node {name} over ssh",
        "use a `deepspeed` block, which starts the program on all nodes, in place of the command `deepspeed`"),
    _rule("mpi-as-root",  # orterun.c and schizo_base_stubs.c of Open MPI
        r"\b(?P<name>\w+) has detected an attempt to run as root",
        "Open MPI refuses to run as root: {name}",
        "use an `mpi` block, which adds `--allow-run-as-root` in a container, or add this option to the command"),
    _rule("mpi-option",  # args.c and hydra_arg.c of MPICH and Intel MPI, cmd_line.c and help-cli.txt of Open MPI
        r"match_arg \(.*\): unrecognized argument (?!pmi_args)(?P<name>\S+)"
        r"|(?:mpirun|mpiexec|orterun|prterun|prun): Error: unknown option \"(?P<other>[^\"]+)"
        r"|An unrecognized option was included on the (?P<third>\S+) command line",
        "the launcher of the MPI does not know an option: {name}",
        "remove it from `options`, or set the `runtime` of the MPI that has it: `-ppn` and `-hosts` are options of"
        " MPICH and Intel MPI, `--map-by` and `--host` of Open MPI"),
    _rule("mpi-network",  # errnames.txt of MPICH and Intel MPI, ucp_worker.c of UCX, help-mca-base.txt of Open MPI
        r"OFI (?:addrinfo\(\) failed|fi_getinfo\(\) failure|get address vector map failed)"
        r"|OFI [\w ()]+ failed \(ofi_init|uct_iface_open\((?P<name>[^)]+)\) failed"
        r"|(?:init_worker|mpi_init_hook)\(\d+\)\.*: +ucx function returned with failed status"
        r"|No components were able to be opened in the pml framework|PML \S+ cannot be selected",
        "the MPI finds no network that it can use: {name}",
        "`FI_PROVIDER=tcp` (libfabric: Intel MPI, MPICH) or `UCX_TLS=tcp,self,sm` (UCX: MPICH, Open MPI) in"
        " `environment_variables` selects Ethernet; InfiniBand needs a size that has it and an image with the drivers"
        " (`batchtrain config explain`)"),
    _rule("mpi-mismatch",  # mpir_pmi.c of MPICH 5, pmi1_init of MPICH 4.3
        r"Runtime environment uses unsupported PMI version PMIx|launcher not compatible with PMI1 client",
        "the program uses MPICH, and the launcher of Open MPI started it",
        _SAME_MPI),
    _rule("mpi-mismatch",  # __init__.py of mpi4py, help-mpi-runtime.txt of Open MPI
        r"Your environment has (?P<name>\w+=\d+ set, but mpi4py was built with .*?)\.?$"
        r"|(?P<other>No PMIx server was reachable, but a PMI1/2 was detected)",
        "the program uses another MPI than that of its launcher: {name}",
        _SAME_MPI,
        is_warning=True),
    _rule("mpi-slots",
        r"There are not enough slots available",
        "Open MPI has fewer slots than processes",
        "lower `processes_per_node`, or add `--oversubscribe` to the MPI's `options`"),
    _rule("missing-module",
        r"ModuleNotFoundError: No module named '(?P<name>[^']+)'|ImportError: No module named (?P<other>\S+)",
        "Python has no module {name}",
        "a task without an image has only the Python of its node: give it a `docker_image`, as a recipe by `batchtrain"
        " init SCRIPT` has one. With an image, list the module in requirements.txt of the source, which scripts and"
        " local environments install, or install it in the image; a module of the recipe must be below `source`"),
    _rule("import-failed",
        r"ImportError: (?P<name>cannot import name '[^']+' from (?:partially initialized module )?'[^']+')"
        r"|ImportError: (?P<other>\S+: undefined symbol: \S+)|ImportError: (?P<third>\S+ failed to import)",
        "an import of Python fails: {name}",
        "install versions that fit together in the image, or in the recipe's environment; a file of the source that is"
        " named as a library hides it"),
    _rule("horovod-not-built",  # util.py and launch.py of Horovod
        r"Extension (?P<name>horovod\.\w+) has not been built|(?P<other>Gloo|MPI) support has not been built",
        "Horovod was installed without a part that the program needs: {name}",
        "install Horovod with it (HOROVOD_WITH_PYTORCH=1, HOROVOD_WITH_TENSORFLOW=1, HOROVOD_WITH_MPI=1, …), or use an"
        " image of batchtrain (`batchtrain images build`)"),
    _rule("missing-library",
        r"error while loading shared libraries: (?P<name>[^:]+):|(?P<other>lib\S+\.so\S*): cannot open shared object",
        "the library {name} is not on the node",
        "install it in the image, or set LD_LIBRARY_PATH in `environment_variables`"),
    _rule("port-in-use",
        r"failed to listen on any local network address\. port: (?P<name>\d+).*EADDRINUSE"
        r"|attempting to bind on address \('[^']*', (?P<other>\d+)[,)].*[Aa]ddress already in use"
        r"|[Aa]ddress already in use \(while attempting to bind on address \('[^']*', (?P<third>\d+)[,)]"
        r"|[Aa]ddress already in use|EADDRINUSE",
        "a port is taken by another program: {name}",
        "wait until an earlier task of the node has ended, use one slot a node, or another port"),
    _rule("host-not-resolved",
        r"unable to get host address for (?P<name>\S+)|[Cc]ould not resolve hostname (?P<other>[^\s:]+)",
        "a node cannot resolve the host name {name}",
        "check the name; for a node of the gang, add it to the name server of your virtual network. On local nodes"
        " without namespaces (`batchtrain doctor --local`), add this machine's name:"
        " `echo 127.0.0.1 $(hostname) | sudo tee -a /etc/hosts`"),
    _rule("name-not-resolved",
        r"Name or service not known|Temporary failure in name resolution|Could not resolve host|getaddrinfo failed",
        "a host name cannot be resolved on the node",
        "check the name, and the subnet's name servers and rules for outgoing connections"),
    _rule("script-line-ends",  # bash: execute_cmd.c (a missing interpreter), set.def; env(1)
        r"(?<![\w./-])(?P<name>[\w./-]+): cannot execute: required file not found"
        r"|(?<![\w./-])(?P<other>[\w./-]+): \S+(?:\^M|\r): bad interpreter"
        r"|\\r['’]: No such file|\$'\\r': command not found|set: (?:Illegal option )?-$",
        "the first line of a script names no program of the node, or its lines end as on Windows (CR LF): {name}",
        "convert it (`dos2unix`, or `*.sh text eol=lf` in .gitattributes) where it comes from, or correct its first"
        " line, and send it again"),
    _rule("missing-file",
        r"FileNotFoundError: \[Errno 2\] No such file or directory: '?(?P<name>[^']*)'?"
        r"|can't open file '(?P<other>[^']+)'|cannot open '?(?P<third>[^\s:']+)'?: No such file"
        r"|(?:^|/)\w*sh: (?:line \d+: )?(?P<fourth>(?!cd: )[^\s:]+): No such file or directory$"
        r"|execvp error on file (?P<fifth>\S+) \(No such file",
        "the file {name} is not there",
        "paths are relative to the task's directory: bring the file with `source`, `resource_files` or `input_data`, or"
        " use the path of a volume"),
    _rule("permission-denied",
        r"PermissionError: \[Errno 13\] Permission denied: '?(?P<name>[^']*)'?"
        r"|(?<!\S)(?P<other>\S+): Permission denied",
        "the task's user may not use {name}",
        "make the file readable or executable in the source, or run the task as administrator (`user_identity`)"),
    _rule("shell-function",
        rf"(?:^|: )(?P<name>{_FUNCTIONS}): (?:command )?not found$|the shell function `(?P<other>\w+)`"
        r"|(?:Run|run) '(?P<third>conda|mamba|micromamba) init' before",
        "{name} is a function of login shells, which this shell does not have",
        "in `command` and `pre_execution_command` batchtrain loads it, if the image has it; begin a script that calls"
        " it with `#!/bin/bash -l`, or read its file in the script"),
    _rule("missing-command",
        r"(?:^|: )(?P<name>[\w./+-]+): (?:command )?not found$",
        "the command {name} is not on the node",
        "install it in the image, or name it by its path"),
    _rule("bus-error",
        r"\bBus error\b|SIGBUS",
        "the program accessed memory that is not there (bus error)",
        "if it maps files or shares memory between processes, check the disk's and the container's room (`shm_size`)"),
    _rule("segmentation-fault",
        r"[Ss]egmentation fault|SIGSEGV",
        "native code of the program accessed memory that is not its own (segmentation fault)",
        "set PYTHONFAULTHANDLER=1 in `environment_variables`, which names the line of Python; check that the libraries"
        " of the image fit together"),
    _rule("not-a-number",
        r"[Ll]oss is (?:nan|NaN|inf)|NaN loss|Loss diverged",
        "the loss is no number any more",
        "lower the learning rate, or look at the data of that step"),
)  # fmt: skip


LONGEST_LINE = 20_000
"""Characters of a line that are judged: a rule may take the square of them."""


class Match(NamedTuple):
    """A rule that fits a line: its cause in words, the line, and the name in it."""

    rule: OutputRule
    cause: str
    line: str
    name: str


def matches(lines: Iterable[str]) -> Iterator[Match]:
    """Each rule that fits a line, in the order of the table, with the first line."""
    kept = tuple(line[:LONGEST_LINE] for line in lines)
    for rule in OUTPUT_RULES:
        for line in kept:
            if match := rule.pattern.search(line):
                name = next(filter(None, match.groupdict().values()), "")
                yield Match(rule, rule.cause.format(name=name).removesuffix(": "), line, name)
                break
