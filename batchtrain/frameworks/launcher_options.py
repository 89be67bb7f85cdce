"""The replacement of each option of other launchers, whose place a block takes.

An option that is not in the table goes to the `options` of the block, or is named as one that has no place.

Sources: PyTorch: torch/distributed/run.py; Accelerate 1.15: commands/launch.py; DeepSpeed 0.19: launcher/runner.py;
Horovod 0.28: runner/launch.py, common/util/config_parser.py; Open MPI 5: PRRTE, schizo/ompi/schizo_ompi.c; MPICH 5:
pm/hydra/mpiexec/options.c; Slurm 22.05: srun(1); Pyxis 0.9: README. Options that only Intel MPI or older versions have
are `any other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Option(NamedTuple):
    """Names of an option, and its replacement; `{value}` is its value."""

    names: tuple[str, ...]
    becomes: str
    takes_value: bool = True
    values: Mapping[str, str] = MappingProxyType({})
    """Values that have other names here."""


class Launcher(NamedTuple):
    """A launcher of commands."""

    options: tuple[Option, ...]
    others: str
    """The replacement of any other option."""
    blocks: tuple[str, ...] = ()
    """Blocks with options of this launcher; the first one is the usual one."""
    starts_python: bool = True
    """Whether the command after its options is a script of Python."""
    one_dash: bool = False
    """Each option may begin with one dash or with two; the table has those with one."""


_SET = "the launch sets it"
_NODES = "`num_instances` of `multi_instance`"
_EACH = "`processes_per_node: {value}`"
_LOGS = "each process has files of its own below `ranks/`"
_OF_BLOCK = "`options` of the `{block}` block"
_NO_PLACE = "no property has its place; the launch starts the script itself"

_NO_SLURM = "no property has its place: nodes of Azure Batch have no Slurm"
_ELASTIC = "no property has its place: the nodes of a gang are fixed; `max_task_retries` of the task"
_HOROVOD_VALUES = {
    "cycle-time-ms": "CYCLE_TIME", "cache-capacity": "CACHE_CAPACITY", "autotune-log-file": "AUTOTUNE_LOG",
    "autotune-warmup-samples": "AUTOTUNE_WARMUP_SAMPLES", "autotune-steps-per-sample": "AUTOTUNE_STEPS_PER_SAMPLE",
    "autotune-bayes-opt-max-samples": "AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
    "autotune-gaussian-process-noise": "AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "timeline-filename": "TIMELINE",
    "stall-check-warning-time-seconds": "STALL_CHECK_TIME_SECONDS",
    "stall-check-shutdown-time-seconds": "STALL_SHUTDOWN_TIME_SECONDS", "num-nccl-streams": "NUM_NCCL_STREAMS",
    "thread-affinity": "THREAD_AFFINITY", "gloo-timeout-seconds": "GLOO_TIMEOUT_SECONDS", "log-level": "LOG_LEVEL",
}  # fmt: skip
_HOROVOD_FLAGS = {
    f"{prefix}{name}": f"{variable}: {value}"
    for name, variable in (
        ("hierarchical-allreduce", "HIERARCHICAL_ALLREDUCE"), ("hierarchical-allgather", "HIERARCHICAL_ALLGATHER"),
        ("torus-allreduce", "TORUS_ALLREDUCE"), ("autotune", "AUTOTUNE"),
        ("timeline-mark-cycles", "TIMELINE_MARK_CYCLES"), ("mpi-threads-disable", "MPI_THREADS_DISABLE"),
    )
    for prefix, value in (("", 1), ("no-", 0))
} | {
    "no-stall-check": "STALL_CHECK_DISABLE: 1", "stall-check": "STALL_CHECK_DISABLE: 0",
    "log-with-timestamp": "LOG_HIDE_TIME: 0", "log-without-timestamp": "LOG_HIDE_TIME: 1",
    "log-hide-timestamp": "LOG_HIDE_TIME: 1", "no-log-hide-timestamp": "LOG_HIDE_TIME: 0",
}  # fmt: skip

LAUNCHERS = {
    "torchrun": Launcher((
        Option(("--nproc-per-node",), _EACH, values={"gpu": "auto", "cpu": "nproc"}), Option(("--nnodes",), _NODES),
        Option(("--node-rank", "--monitor-interval", "--start-method", "--role"), _SET),
        Option(("--master-addr", "--rdzv-endpoint", "--rdzv-id", "--local-addr", "--rdzv-conf"), _SET),
        Option(("--master-port",), "`port: {value}`"), Option(("--standalone", "--use-env"), _SET, False),
        Option(("--rdzv-backend",), "`launcher: torchrun` with `rendezvous: {value}`"),
        Option(("--max-restarts",), "`launcher: torchrun` with `max_restarts: {value}`"),
        Option(("--log-dir", "-r", "--redirects", "-t", "--tee", "--local-ranks-filter"), _LOGS),
        Option(("-m", "--module"), "`python -m`", False),
        Option(("--run-path", "--virtual-local-rank"), _NO_PLACE, False),
        Option(("--no-python",), "the command without `python`", False),
        Option(("--numa-binding",), "`binding`"),
    ), _NO_PLACE),
    "accelerate launch": Launcher((
        Option(("--num-processes",), "`processes: {value}`"), Option(("--num-machines",), _NODES),
        Option(("--machine-rank", "--main-process-ip", "--rdzv-backend", "--rdzv-conf"), _SET),
        Option(("--main-process-port",), "`port: {value}`"),
        Option(("--multi-gpu", "--cpu", "--same-network"), _SET, False),
        Option(("--gpu-ids",), "CUDA_VISIBLE_DEVICES in `environment_variables`"),
        Option(("--num-cpu-threads-per-process",), "OMP_NUM_THREADS in `environment_variables`"),
        Option(("--enable-cpu-affinity",), "`binding: auto`", False),
        Option(("--max-restarts", "--monitor-interval"), "`max_task_retries` of the task"),
        Option(("--role", "--log-dir", "--tee"), _LOGS), Option(("-m", "--module"), "`python -m`", False),
        Option(("--no-python",), "the command without `python`", False), Option(("-q", "--quiet"), _LOGS, False),
        Option(("--debug", "--use-fsdp", "--use-deepspeed", "--use-megatron-lm", "--use-parallelism-config", "--tpu",
                "--dynamo-use-fullgraph", "--dynamo-use-dynamic", "--dynamo-use-regional-compilation",
                "--downcast-bf16", "--fp8-use-autocast-during-eval", "--tpu-cluster", "--no-tpu-cluster",
                "--tpu-use-sudo"),
               _OF_BLOCK, False),
    ), _OF_BLOCK, ("accelerate",)),
    "deepspeed": Launcher((
        Option(("--num-gpus", "--num-accelerators"), _EACH), Option(("--num-nodes",), _NODES),
        Option(("-H", "--hostfile", "--launcher", "--launcher-args", "--master-addr", "--node-rank",
                "--ssh-port", "--venv-script"), _SET),
        Option(("--master-port",), "`port: {value}`"),
        Option(("--force-multi", "--no-ssh", "--no-ssh-check", "--no-local-rank"), _SET, False),
        Option(("-i", "--include", "-e", "--exclude"), "CUDA_VISIBLE_DEVICES in `environment_variables`"),
        Option(("--bind-cores-to-rank",), "`binding: auto`", False), Option(("--bind-core-list",), "`binding`"),
        Option(("--module",), "`python -m`", False), Option(("--no-python",), "the command without `python`", False),
        Option(("--enable-each-rank-log", "--log-level"), _LOGS), Option(("--save-pid", "-q", "--quiet"), _LOGS, False),
    ), _NO_PLACE),
    "horovodrun": Launcher((
        Option(("-np", "--num-proc"), "`processes: {value}`"),
        Option(("-H", "--hosts", "-hostfile", "--hostfile", "-p", "--ssh-port", "-i", "--ssh-identity-file"), _SET),
        Option(("--network-interface", "--network-interfaces"), "`interface: {value}`"),
        Option(("--gloo",), "`over: gloo`", False), Option(("--mpi", "--jsrun"), "`over: mpi`", False),
        Option(("--mpi-args", "--binding-args"), "`options` of the `horovod` block, with `over: mpi`"),
        Option(("--tcp",), "`infiniband: false` of the task", False),
        Option(("--start-timeout",), "`barrier_seconds: {value}`"), Option(("--output-filename",), _LOGS),
        Option(("--verbose", "-prefix-timestamp", "--prefix-output-with-timestamp"), _LOGS, False),
        Option(("--disable-cache",), "the preflight checks the nodes before every launch", False),
        Option(("--config-file",), "each setting of the file as its HOROVOD_ variable in `environment_variables`"),
        Option(("--min-np", "--min-num-proc", "--max-np", "--max-num-proc", "--slots-per-host", "--elastic-timeout",
                "--reset-limit", "--host-discovery-script", "--blacklist-cooldown-range"), _ELASTIC),
        Option(("-v", "--version", "-cb", "--check-build"), "a task of its own: it prints and ends", False),
        Option(("--fusion-threshold-mb",), "`HOROVOD_FUSION_THRESHOLD` in `environment_variables`, in bytes"),
        *(Option((f"--{name}",), f"`HOROVOD_{variable}: {{value}}` in `environment_variables`")
          for name, variable in _HOROVOD_VALUES.items()),
        *(Option((f"--{name}",), f"`HOROVOD_{setting}` in `environment_variables`", False)
          for name, setting in _HOROVOD_FLAGS.items()),
    ), "its HOROVOD_ variable in `environment_variables`", starts_python=False),
    "mpirun": Launcher((
        Option(("-n", "-np", "-c"), "`processes_per_node`, or `-n` in `options` of the `mpi` block"),
        Option(("-ppn", "-perhost", "-npernode", "-N"), _EACH), Option(("-pernode",), "`processes_per_node: 1`", False),
        Option(("-hosts", "-host", "-H", "-hostlist", "-f", "-hostfile", "-default-hostfile", "-machine", "-machines",
                "-machinelist", "-machinefile"), _SET),
        Option(("-launcher", "-launcher-exec", "-bootstrap", "-bootstrap-exec", "-rmk", "-launch-agent"), _SET),
        Option(("-x",), "`environment_variables`: each rank has the variables of the launch"),
        Option(("-genvlist", "-envlist"), "each rank has the variables of the launch"),
        Option(("-genvall", "-envall"), "each rank has the variables of the launch", False),
        Option(("-allow-run-as-root",), _SET, False),
        Option(("-output-filename", "-output-directory", "-outfile", "-errfile", "-outfile-pattern",
                "-errfile-pattern"), _LOGS),
        Option(("-app", "-configfile"), "no property has its place: an `mpi` block starts one program"),
        Option(("-V", "-version", "-h", "-help", "-info"), "a task of its own: it prints and ends", False),
        Option((  # of Open MPI
            "-oversubscribe", "-nooversubscribe", "-nolocal", "-use-hwthread-cpus", "-bind-to-core", "-bynode",
            "-bycore", "-byslot", "-tag-output", "-timestamp-output", "-merge-stderr-to-stdout", "-xml",
            "-report-bindings", "-display-map", "-display-allocation", "-display-devel-map",
            "-display-devel-allocation", "-display-comm", "-display-comm-finalize", "-q", "-s", "-preload-binary",
            "-p", "-parsable", "-parseable", "-noprefix", "-no-app-prefix", "-no-aggregate-help",
            "-leave-session-attached", "-debug-daemons", "-debug-daemons-file", "-do-not-launch", "-do-not-resolve",
            "-enable-recovery", "-disable-recovery", "-continuous", "-stop-on-exec", "-stop-in-init",
            "-get-stack-traces", "-report-state-on-timeout", "-show-progress", "-report-child-jobs-separately",
            "-uniform-nodes", "-hetero-nodes", "-soft",
        ), _OF_BLOCK, False),
        Option((  # of MPICH
            "-genvnone", "-envnone", "-prepend-rank", "-l", "-print-all-exitcodes", "-enable-x", "-disable-x",
            "-enable-auto-cleanup", "-disable-auto-cleanup", "-enable-hostname-propagation",
            "-disable-hostname-propagation", "-hybrid-hosts", "-pmi-port", "-skip-launch-node", "-profile", "-debug",
            "-v", "-verbose",
        ), _OF_BLOCK, False),
    ), _OF_BLOCK, ("mpi", "horovod"), starts_python=False, one_dash=True),
    "srun": Launcher((
        Option(("-n", "--ntasks"), "`num_instances` times `processes_per_node`"), Option(("-N", "--nodes"), _NODES),
        Option(("--ntasks-per-node", "--ntasks-per-gpu", "--ntasks-per-socket", "--ntasks-per-core"), _EACH),
        Option(("-c", "--cpus-per-task"), "OMP_NUM_THREADS in `environment_variables`"),
        Option(("-G", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket", "--cpus-per-gpu", "--gres",
                "--mem", "--mem-per-gpu", "--mem-per-cpu", "--mincpus", "--tmp", "-C", "--constraint", "--prefer",
                "-B", "--extra-node-info", "--cores-per-socket", "--sockets-per-node", "--threads-per-core"),
               "`vm_size` of the pool"),
        Option(("--cpu-bind", "--mem-bind", "--gpu-bind", "-m", "--distribution", "--hint", "--accel-bind"),
               "`binding`"),
        Option(("-t", "--time"), "`max_wall_time: {value}`"), Option(("--container-image",), "`docker_image: {value}`"),
        Option(("--container-mounts",), "`data_volumes` of the task"),
        Option(("--container-workdir", "--container-name", "--container-save"), "properties of the container"),
        Option(("--container-mount-home", "--no-container-mount-home", "--container-remap-root",
                "--no-container-remap-root", "--container-entrypoint", "--no-container-entrypoint"),
               "properties of the container", False),
        Option(("--export",), "`environment_variables`: each rank has the variables of the launch"),
        Option(("-o", "--output", "-e", "--error", "--open-mode"), _LOGS),
        Option(("-l", "--label", "-u", "--unbuffered", "-Q", "--quiet"), _LOGS, False),
        Option(("--mpi", "-w", "--nodelist", "-F", "--nodefile", "-x", "--exclude", "--jobid", "-D", "--chdir",
                "--het-group", "-r", "--relative", "-T", "--threads", "-W", "--wait"), _SET),
        Option(("-p", "--partition", "-A", "--account", "-q", "--qos", "-J", "--job-name", "-M", "--clusters",
                "--reservation", "--priority", "--comment", "-d", "--dependency"),
               "properties of the job and the pool"),
        Option(("--prolog", "--task-prolog"), "`pre_execution_command` of `multi_instance`"),
        Option(("-K", "--kill-on-bad-exit", "--exclusive", "--exact", "--overlap", "-v", "--verbose", "-O",
                "--overcommit", "-s", "--oversubscribe", "-E", "--preserve-env", "-X", "--disable-status", "-k",
                "--no-kill", "--bcast", "--propagate", "--resv-ports", "--contiguous", "--spread-job",
                "--use-min-nodes"), _SET, False),
        Option(("--multi-prog", "--pty", "--x11", "--test-only"), _NO_SLURM, False),
        Option(("-V", "--version", "-h", "--help", "--usage"), "a task of its own: it prints and ends", False),
    ), _NO_SLURM, starts_python=False),
}  # fmt: skip
"""The launchers of frameworks and MPIs. Names are compared with `-` in place of `_`."""
TWO_VALUES = (
    *(f"{dash}{name}" for dash in ("-", "--") for name in ("mca", "gmca", "omca", "gomca", "prtemca", "pmixmca")),
    "-genv", "-env", "--blacklist-cooldown-range",
)  # fmt: skip
"""Options with two values."""


def launcher(name: str) -> Launcher:
    """The launcher behind a program or a module of Python."""
    aliases = {
        "accelerate": "accelerate launch",
        "deepspeed": "deepspeed",
        "horovod": "horovodrun",
        "torch": "torchrun",
        "srun": "srun",
    }
    return next((LAUNCHERS[full] for word, full in aliases.items() if word in name), LAUNCHERS["mpirun"])
