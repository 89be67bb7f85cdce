"""Each rule of a diagnosis names the failure that was planted, and no other."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from msgspec.structs import replace

from batchtrain.cli import diagnose
from batchtrain.cli.options import Settings
from batchtrain.client import job
from batchtrain.client.session import Session
from batchtrain.config.source_directory import LINKS
from batchtrain.config.travel import LeftOut
from batchtrain.diagnosis import next_steps
from batchtrain.diagnosis.evidence import Evidence, ExaminedNode, ExaminedTask
from batchtrain.diagnosis.findings import judged
from batchtrain.diagnosis.missing_ranks import missing_ranks
from batchtrain.diagnosis.output_rules import OUTPUT_RULES, OutputRule
from batchtrain.diagnosis.service_rules import EXIT_CODES, LOST, NODE_STATES, RESIZE_CODES, TASK_CODES, UPLOAD
from batchtrain.errors import Finding
from batchtrain.records import Attempt, Failure, Job, Node, Pool, Task, TaskRequest
from batchtrain.records.failure import Detail
from batchtrain.records.rank_end import RankEnd
from batchtrain.service import failed as errors_of_tasks
from batchtrain.service.answers import MOST_REPEATS
from batchtrain.service.causes import cause

POOL = Pool("gpu", vm_size="STANDARD_ND96ASR_V4", dedicated=2, target_dedicated=2, inter_node=True)
NOTHING = RankEnd()
NAMES = {"job": "a", "task": "b", "pool": "c", "node": "d"}
LINES = {
    "gpu-lost": "NVRM: Xid (PCI:0001:00:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "gpu-remap-failed": "NVRM: Xid (PCI:0001:00:00): 64, pid=2311, Row Remapper: Error: row remapping failed",
    "gpu-memory-error": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "gpu-memory-error-contained": "NVRM: Xid (PCI:0001:00:00): 94, pid=2311, Contained: SM (0x1). RST: No, D-RST: No",
    "nvlink-error": "NVRM: Xid (PCI:0001:00:00): 74, pid=2311, NVLink: fatal error detected on link 6",
    "gpu-halted": "NVRM: Xid (PCI:0001:00:00): 119, pid=2311, Timeout after 6s of waiting for RPC response",
    "gpu-recovery": "NVRM: Xid (PCI:0000:04:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from"
    " 0x0 (None) to 0x2 (Node Reboot Required)",
    "gpu-program-fault": "RuntimeError: CUDA error: an illegal memory access was encountered",
    "bus-error": "launch.sh: line 9: 4711 Bus error               (core dumped) ./train",
    "segmentation-fault": "launch.sh: line 9: 4711 Segmentation fault      (core dumped) ./train",
    "duplicate-gpu": "n1:7:9 [0] init.cc:974 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA"
    " device 2000",
    "locked-memory": "libibverbs: Warning: RLIMIT_MEMLOCK is 32768 bytes.",
    "deepspeed-ssh": "RuntimeError: Using hostfile at hostfile but host=10.0.0.5 was not reachable via ssh. If you are"
    " running with a single node please remove hostfile or setup passwordless ssh.",
    "mpi-as-root": "mpirun has detected an attempt to run as root.",
    "mpi-option": "[mpiexec@vm] match_arg (lib/utils/args.c:166): unrecognized argument oversubscribe",
    "mpi-network": "MPIDI_NM_mpi_init_hook(719): OFI addrinfo() failed (ofi_init.h:719:MPIDI_NM_mpi_init_hook:No data"
    " available)",
    "horovod-not-built": "ImportError: Extension horovod.torch has not been built: /opt/horovod/torch/mpi_lib_v2"
    ".cpython-37m-x86_64-linux-gnu.so not found",
    "store-unreachable": "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect"
    " to (10.0.0.4, 29500).",
    "cuda-out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has …",
    "nccl-without-infiniband": "n1:7:9 [0] NCCL INFO NET/IB : No device found.",
    "gpu-missing": "AssertionError: Torch not compiled with CUDA enabled",
    "gpu-driver-missing": "RuntimeError: Found no NVIDIA driver on your system.",
    "rank-never-joined": "torch.distributed.DistStoreError: Timed out after 5 seconds waiting for clients. 2/3 clients"
    " joined.",
    "collective-timeout": "[rank1]:[E] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)",
    "connection-to-rank-lost": "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.5]:3",
    "shared-memory-too-small": "Unexpected bus error. This might be caused by insufficient shared memory (shm).",
    "disk-full": "OSError: [Errno 28] No space left on device",
    "container-out-of-memory": "Memory cgroup out of memory: Killed process 20094 (python3) total-vm:211880kB,"
    " anon-rss:58112kB, file-rss:6640kB, shmem-rss:0kB, UID:0 pgtables:176kB oom_score_adj:0",
    "host-out-of-memory": "terminate called after throwing an instance of 'std::bad_alloc'",
    "registry-refused": "Error response from daemon: pull access denied for contoso/train, repository does not exist",
    "image-not-found": "Error response from daemon: manifest for contoso/train:9 not found: manifest unknown",
    "wrong-image": "./train: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./train)",
    "sshd-missing": "ssh: connect to host 10.0.0.5 port 23: Connection refused",
    "mpi-mismatch": "check_MPIR_CVAR_PMI_VERSION(167):  Runtime environment uses unsupported PMI version PMIx.",
    "mpi-slots": "There are not enough slots available in the system to satisfy the 8 slots",
    "missing-module": "ModuleNotFoundError: No module named 'horovod'",
    "import-failed": "ImportError: cannot import name 'nosuch' from 'json' (/opt/python3.11/json/__init__.py)",
    "missing-library": "./train: error while loading shared libraries: libmpi.so.40: cannot open shared object file",
    "port-in-use": "OSError: [Errno 98] Address already in use",
    "host-not-resolved": "[proxy:0@vm] HYDU_sock_connect (sock.c:110): unable to get host address for vm",
    "name-not-resolved": "curl: (6) Could not resolve host: data.contoso.com",
    "missing-file": "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'",
    "permission-denied": "PermissionError: [Errno 13] Permission denied: '/mnt/data/x'",
    "script-line-ends": "/usr/bin/env: 'bash\\r': No such file or directory",
    "shell-function": "/bin/bash: line 3: module: command not found",
    "missing-command": "/bin/bash: line 1: mpirun: command not found",
    "preflight": "batchtrain: preflight: node n1 (10.0.0.5): only 3 of 8 GPUs answer",
    "stalled": "batchtrain: rank 1 on node n1 (10.0.0.5) stalled first, 62 s ago: no process printed anything for 60 s",
    "checkpoint-refused": "batchtrain: `checkpoint`: no checkpoint of run 20261130T052123Z-t-8470 is kept in /m",
    "not-a-number": "step 40: Loss is nan, stopping training",
}


def of_job(
    *tasks: ExaminedTask | Task, pool: Pool | None = POOL, logs: str = "", state: str = "active", **more: Any
) -> Evidence:
    examined = tuple(ExaminedTask(task) if isinstance(task, Task) else task for task in tasks)
    return Evidence(Job("digits", state, "gpu", failed=len(tasks), **more), pool, examined, logs=logs)


def failed(*lines: str, exit_code: int | None = 1, end: RankEnd = NOTHING, **more: Any) -> ExaminedTask:
    exited = Failure("FailureExitCode", "The task exited with an exit code representing a failure")
    fields: dict[str, Any] = {"id": "train", "failure": exited, **more}
    task = Task(state="completed", result="failure", exit_code=exit_code, node="tvmps_1", **fields)
    return ExaminedTask(task, cause(lines, end), lines)


def rules(evidence: Evidence) -> list[str]:
    return [finding.rule for finding in judged(evidence).findings]


def test_every_rule_about_output_has_an_example_here() -> None:
    assert set(LINES) == {rule.name for rule in OUTPUT_RULES}


@pytest.mark.parametrize("rule", OUTPUT_RULES, ids=lambda rule: str(rule.name))
def test_the_next_step_of_a_rule_takes_the_names_that_are_known(rule: OutputRule) -> None:
    step = next_steps.completed(rule.next_step, NAMES)
    assert not {"JOB", "TASK", "POOL", "NODE"} & {*re.findall(r"\w+", step)}


@pytest.mark.parametrize(
    "text", ["x", "1", " ", "x ", "/", "x/", ".", "x.y ", "'", "[", "(", ":", "x: ", "-", "=", "Error "]
)
def test_a_long_line_is_judged(text: str) -> None:
    """A rule that takes the square of its length would take minutes."""
    assert rules(of_job(failed(text * (250_000 // len(text)), exit_code=1))) == rules(of_job(failed("x", exit_code=1)))


def test_a_shell_that_lacks_an_option_has_no_wrong_line_ends() -> None:
    assert "script-line-ends" not in rules(of_job(failed("sh: 1: set: Illegal option -o pipefail", exit_code=2)))


FURTHER_LINES = {
    "script-line-ends": ("./run.sh: line 2: set: -", "./run.sh: cannot execute: required file not found"),
    "duplicate-gpu": (
        "Duplicate GPU detected : rank 3 and rank 0 both on CUDA device f000",
        "ncclInvalidUsage: Duplicate GPU detected: rank 0 and rank 1 both on CUDA device 2000",
    ),
    "locked-memory": (
        "allocate some locked memory.  This typically can indicate that the",
        "memlock limits are set too low.  For most HPC installations, the",
        "  Memlock limit: 65536",
        "ib_iface.c:1060 UCX  ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory",
        "ib_log.c:246  UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set max locked memory"
        " (ulimit -l) to 'unlimited' (current: 64 kbytes)",
        "n1:7:9 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    ),
    "mpi-as-root": (
        "prterun has detected an attempt to run as root.",
        "orterun has detected an attempt to run as root.",
    ),
    "mpi-option": (
        "[mpiexec@vm] match_arg (../../src/pm/i_hydra/libhydra/arg/hydra_arg.c:82): unrecognized argument bogus",
        'mpirun: Error: unknown option "-ppn"',
        "An unrecognized option was included on the mpirun command line:",
    ),
    "mpi-network": (
        "MPIDI_OFI_mpi_init_hook(1061): OFI addrinfo() failed (ofi_init.c:1061:MPIDI_OFI_mpi_init_hook:No data"
        " available)",
        "create_vni_context(2253).....: OFI endpoint open failed (ofi_init.c:2253:create_vni_context:Invalid argument)",
        "find_provider(170).........: OFI fi_getinfo() failure",
        "insert_addr_table_roots_only(473): OFI get address vector map failed",
        "ucp_worker.c:1415 UCX ERROR uct_iface_open(ud_verbs/mana_0:1) failed: Input/output error",
        "MPIDI_UCX_init_worker(86):  ucx function returned with failed status",
        "init_worker(71).............:  ucx function returned with failed status(ucx_init.c 71 init_worker Invalid"
        " parameter)",
        "No components were able to be opened in the pml framework.",
        "[n1:16586] PML ucx cannot be selected",
    ),
    "mpi-mismatch": (
        "[unset]: launcher not compatible with PMI1 client",
        "Your environment has OMPI_COMM_WORLD_SIZE=2 set, but mpi4py was built with Intel MPI.",
        "No PMIx server was reachable, but a PMI1/2 was detected.",
    ),
    "horovod-not-built": (
        "ImportError: Extension horovod.tensorflow has not been built.  If this is not expected, reinstall Horovod with"
        " HOROVOD_WITH_TENSORFLOW=1 to debug the build error.",
        "ValueError: Gloo support has not been built.  If this is not expected, ensure CMake is installed",
    ),
    "store-unreachable": (
        "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 10.0.0.4:1234",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to"
        " (gpu-0, 46229).",
        "[E socket.cpp:610] [c10d] The client socket has failed to connect to any network address of (gpu-0, 40323).",
        "[E521 TCPStore.cpp:318] [c10d] TCP client failed to connect/validate to host 10.0.0.4:37907 - timed out"
        " (try=1, timeout=600000ms)",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has"
        " failed. See inner exception for details.",
        "RuntimeError: connect() timed out. Original timeout was 1800000 ms.",
    ),
    "rank-never-joined": (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key:"
        " store_based_barrier_key:1 (world_size=4, worker_count=2, timeout=0:30:00)",
    ),
    "connection-to-rank-lost": (
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
        "Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that"
        " another task died; see the other task logs for more details.",
    ),
}
"""Further forms, as the sources and reports of other versions have them."""
SAMPLES = [*LINES.items()]
SAMPLES += [(name, line) for name, lines in FURTHER_LINES.items() for line in lines]


@pytest.mark.parametrize(("name", "line"), SAMPLES)
def test_a_line_of_output_names_its_cause(name: str, line: str) -> None:
    found = judged(of_job(failed("starting", line, "done")))
    assert [finding.rule for finding in found.findings] == [name]
    assert found.findings[0].evidence == line.strip()


@pytest.mark.parametrize(
    "rule", [rule for rule in OUTPUT_RULES if rule.name in FURTHER_LINES], ids=lambda rule: rule.name
)
def test_a_rule_fits_no_sample_of_another_rule(rule: OutputRule) -> None:
    assert [name for name, line in SAMPLES if name != rule.name and rule.pattern.search(line)] == []


def test_the_cause_of_a_sweep_is_the_most_frequent_one_and_numbers_make_no_other_cause() -> None:
    alone = failed("KeyError: 'lr'", id="t0")
    alike = [failed(f"ValueError: sample {n} of {n + 7} is empty", id=f"t{n}", exit_code=2) for n in range(1, 10)]
    diagnosis = judged(of_job(alone, *alike))
    first = diagnosis.first
    assert first is not None and first.subject.startswith("task t1,") and "sample 1 of 8" in first.evidence
    rows = [row for row in str(diagnosis).splitlines() if "exit code" in row]
    assert [" and 5 more: " in row for row in rows] == [False, True, False]


@pytest.mark.parametrize("exit_code", [143, 137])
def test_a_known_line_counts_more_than_the_signal_that_ended_the_program(exit_code: int) -> None:
    assert rules(of_job(failed(LINES["mpi-network"], exit_code=exit_code))) == ["mpi-network"]


def test_a_warning_is_the_cause_only_where_no_exception_is() -> None:
    traceback = ("Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "ValueError: no")
    assert rules(of_job(failed(LINES["locked-memory"], *traceback))) == ["exception"]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "OSError: [Errno 28] No space left on device: '/mnt/x/weights.pt'",
            "a disk of the node is full: /mnt/x/weights.pt",
        ),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/x,task=python3",
            "the program used more memory than its container may have",
        ),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task=python3",
            "the memory of the node is full",
        ),
        ("tee: log: No space left on device", "a disk of the node is full"),
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address."
            " port: 29777, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            "a port is taken by another program: 29777",
        ),
        (
            "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 29778): address already in use",
            "a port is taken by another program: 29778",
        ),
        (
            "OSError: [Errno 98] Address already in use (while attempting to bind on address ('127.0.0.1', 29555))",
            "a port is taken by another program: 29555",
        ),
        (
            "ImportError: cannot import name 'y' from partially initialized module 'a' (most likely due to a circular"
            " import) (/src/a.py)",
            "an import of Python fails: cannot import name 'y' from partially initialized module 'a'",
        ),
        (
            "ImportError: /opt/x/_C.so: undefined symbol: _ZN3c10",
            "an import of Python fails: /opt/x/_C.so: undefined symbol: _ZN3c10",
        ),
    ],
)
def test_a_cause_names_what_the_line_names(line: str, cause: str) -> None:
    """The lines were recorded from Python 3.11, PyTorch 2.13 and GNU tee."""
    assert judged(of_job(failed(line))).findings[0].cause == cause


@pytest.mark.parametrize(("memory", "rule"), [("cgroup", "container-out-of-memory"), ("node", "host-out-of-memory")])
def test_a_rank_that_the_kernel_killed_has_the_memory_that_was_full_as_its_cause(memory: str, rule: str) -> None:
    end = RankEnd("rank 1", 1, "tvm-2", signal=9, ending="was killed by signal 9, because …", full_memory=memory)
    (finding,) = judged(of_job(failed("[0:rank 0] loading", exit_code=137, end=end))).findings
    assert (finding.rule, finding.evidence) == (rule, "rank 1 was killed by signal 9, because …")


def test_a_gang_whose_ranks_are_alone_has_both_mpis_as_its_cause() -> None:
    words = "each of the 4 ranks is rank 0 of 1: the program uses Open MPI, and mpirun is the launcher of MPICH"
    end = RankEnd(exit_code=1, ending=words, cause="singletons")
    (finding,) = judged(of_job(failed("AssertionError", f"batchtrain: {words}", end=end))).findings
    assert (finding.rule, finding.cause) == ("mpi-mismatch", words)


def test_a_gang_that_stalled_has_its_end_as_the_cause_and_its_last_call_as_the_proof() -> None:
    """Whatever its processes printed before: an exception that a program has handled did not end it."""
    calls = ("load (train.py:28)", "<module> (train.py:40)")
    end = RankEnd("rank 1", 1, exit_code=124, ending="stalled first, 62 s ago: x", cause="stalled", calls=calls)
    lines = ("[0:rank 1] Traceback (most recent call last):", "[0:rank 1] ValueError: handled")
    task = failed(*lines, exit_code=124, end=end)
    (finding,) = judged(of_job(task)).findings
    assert finding[:1] + finding[2:4] == ("stalled", "rank 1 stalled first, 62 s ago: x", "in load (train.py:28)")
    assert "`ranks/stacks.jsonl`" in finding.next_step
    error = errors_of_tasks.failed("digits", task.task, lines, end)
    assert (error.cause, error.raised) == ("stalled", "")


@pytest.mark.parametrize("name", ["missing-module", "import-failed", "disk-full"])
def test_a_known_exception_is_shown_with_its_file_and_line(name: str) -> None:
    frame = '  File "/mnt/batch/tasks/workitems/digits/job-1/train/wd/train.py", line 12, in <module>'
    lines = ("Traceback (most recent call last):", frame, LINES[name])
    (finding,) = judged(of_job(failed(*lines))).findings
    assert (finding.rule, finding.evidence) == (name, f"train.py:12: {LINES[name]}")


def test_the_source_that_a_traceback_quotes_proves_nothing() -> None:
    frame = '  File "/mnt/batch/tasks/workitems/digits/job-1/train/wd/train.py", line 12, in <module>'
    lines = (frame, '    if "No space left on device" in text: raise', "", "ValueError: negative batch size")
    text = ("Traceback (most recent call last):", *lines)
    assert rules(of_job(failed(*text))) == ["exception"]
    both = (*text, *(f"batchtrain:     {line}" for line in text), *(f"[0:rank 0] {line}" for line in text))
    assert rules(of_job(failed(*both))) == ["exception"]


def test_the_next_step_of_a_job_whose_pool_is_gone_needs_no_pool() -> None:
    task = failed(LINES["gpu-memory-error"])
    (gone,), (there,) = judged(of_job(task, pool=None)).findings, judged(of_job(task)).findings
    assert "`batchtrain pool reboot gpu tvmps_1`" in there.next_step
    assert gone.next_step == "run it again, which creates new nodes; if the error returns, use another node"


KNOWN = (*(rule.next_step for rule in OUTPUT_RULES), *(row.next_step for row in TASK_CODES.values()))
KNOWN += tuple(row.next_step for row in (*RESIZE_CODES.values(), *NODE_STATES.values(), *LOST.values(), UPLOAD))


@pytest.mark.parametrize("step", sorted(set(KNOWN)))
def test_a_next_step_names_no_pool_that_is_deleted(step: str) -> None:
    text = next_steps.completed(step, NAMES, logs="runs/1", pool_is_deleted=True)
    assert "batchtrain pool" not in text and "batchtrain jobs" not in text
    assert "{" not in text


# --- the rank that the others waited for ----------------------------------------------------------------------------

WATCHDOG = (
    "[rank{0}]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=98, NumelOut=98, Timeout(ms)=600000) ran for 600020"
    " milliseconds before timing out."
)
DUMP = (
    "[rank{0}]:[E626 06:24:45.103881913 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {0}]"
    " Received a dump signal due to a collective timeout from  rank {1} and we will try our best to dump the"
    " debug info. Last enqueued NCCL work: {2}, last completed NCCL work: {2}.This is most likely caused by"
)
GLOO = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out"
    " waiting 4000ms for recv operation to complete"
)


@pytest.mark.parametrize(
    ("lines", "ranks"),
    [
        ((WATCHDOG.format(1, 808), WATCHDOG.format(0, 808), DUMP.format(2, 1, 807)), (2,)),
        ((WATCHDOG.format(1, 808), DUMP.format(0, 1, 812), DUMP.format(3, 1, 807), DUMP.format(2, 1, 800)), (2, 3)),
        (tuple(f"[1:rank {rank}] {WATCHDOG.format(rank, 5)}" for rank in (0, 1, 3)), (2,)),
        ((f"[0:rank 0] [rank0]: {GLOO}", f"[1:rank 1] [rank1]: {GLOO}", "[1:rank 2] loading"), (2,)),
        ((f"[rank0]: {GLOO}", "[rank1]: RuntimeError: Connection closed by peer"), ()),
        (("[rank0]: RuntimeError: [Rank 0]: Ranks 2, 5 failed to pass monitoredBarrier in 4000 ms",), (2, 5)),
        (("Stalled ranks:", "0: [DistributedAdam_Allreduce]", "3: [x]", "4 steps"), (0, 3)),
        ((WATCHDOG.format(0, 808), WATCHDOG.format(1, 808)), ()),
        (("12: [x]",), ()),
    ],
)  # fmt: skip
def test_a_timeout_names_the_ranks_that_are_missing(lines: tuple[str, ...], ranks: tuple[int, ...]) -> None:
    """The lines have the form of PyTorch 2.8 (NCCL) and of Horovod 0.28; those of gloo were recorded from 2.13."""
    assert missing_ranks(lines) == ranks


def test_the_missing_rank_of_a_timeout_is_its_cause_and_not_the_rank_that_gave_up_first() -> None:
    lines = (WATCHDOG.format(1, 808), WATCHDOG.format(0, 808), DUMP.format(2, 1, 807))
    (finding, *_) = judged(of_job(failed(*lines, end=RankEnd("rank 1", 1, "tvm-2", signal=6)))).findings
    assert (finding.rule, finding.cause) == ("collective-timeout", "the other ranks waited for rank 2, and gave up")


def test_an_input_that_cannot_be_reached_may_be_a_url_that_was_taken_for_local_storage() -> None:
    task = failed(exit_code=None, failure=Failure("BlobDownloadMiscError", "Name or service not known"))
    (finding,) = judged(of_job(task)).findings
    assert "with --local, a URL is not the storage of this machine" in finding.next_step


@pytest.mark.parametrize("code", TASK_CODES)
def test_a_code_of_the_service_wins_over_the_output(code: str) -> None:
    task = failed(LINES["disk-full"], exit_code=None, failure=Failure(code, "the service's words"))
    assert rules(of_job(task)) == [TASK_CODES[code].rule]


@pytest.mark.parametrize("code", EXIT_CODES)
def test_an_exit_code_counts_where_the_output_tells_nothing(code: int) -> None:
    assert rules(of_job(failed("working", exit_code=code))) == [EXIT_CODES[code].rule]
    assert rules(of_job(failed(LINES["port-in-use"], exit_code=code))) == ["port-in-use"]


def test_an_upload_that_failed_after_exit_code_0_is_named() -> None:
    task = failed(exit_code=0, failure=Failure("FileUploadContainerNotFound", "no such container"))
    assert rules(of_job(task)) == ["upload-failed"]


@pytest.mark.parametrize(("seconds", "rule"), [(59.5, "wall-clock"), (12.0, "terminated")])
def test_a_task_that_was_ended_is_told_apart_by_its_time(seconds: float, rule: str) -> None:
    ended, request = Failure("TaskEnded", "ended"), TaskRequest(wall_clock=60.0)
    task = failed(exit_code=None, failure=ended, seconds=seconds, request=request)
    assert rules(of_job(task))[0] == rule


def test_the_rank_that_failed_first_is_judged_and_not_its_victims() -> None:
    lines = (
        "[1:rank 1] torch.OutOfMemoryError: CUDA out of memory",
        "[0:rank 0] RuntimeError: Connection closed by peer",
        "batchtrain: rank 1 on node tvm-2 (10.0.0.5) exited with code 1",
        "batchtrain: rank 0 on node tvm-1 (10.0.0.4) exited with code 1",
    )
    found = judged(of_job(failed(*lines, end=RankEnd("rank 1", 1, "tvm-2"))))
    assert found.findings[0].rule == "cuda-out-of-memory"
    assert found.who == "rank 1 on node tvm-2"
    assert found.lines == ("torch.OutOfMemoryError: CUDA out of memory",)


LAUNCHER = (
    "=" * 83,
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
    "=   EXIT CODE: 3",
    "=" * 83,
    "[proxy:0:1@n2] HYD_pmcd_pmip_control_cmd_cb (proxy/pmip_cb.c:480): assert (!closed) failed",
    "[mpiexec@n1] main (mpiexec/mpiexec.c:270): process manager error waiting for completion",
)


def test_the_last_lines_of_a_program_are_not_those_of_its_mpi_launcher() -> None:
    found = judged(of_job(failed("reading", "the data is empty", *LAUNCHER, exit_code=3)))
    assert found.lines == ("reading", "the data is empty")
    assert found.findings[0].evidence == "the data is empty"


def test_a_launcher_that_failed_itself_is_shown() -> None:
    assert judged(of_job(failed(*LAUNCHER, exit_code=3))).lines == LAUNCHER[-5:]


def test_why_a_task_waits_comes_after_the_failure_of_another() -> None:
    waits = Finding("waits-for-failed-task", "task evaluate", "evaluate waits for train", "", "reactivate it")
    assert rules(of_job(failed("x"))._replace(waits=(waits,))) == ["unknown", "waits-for-failed-task"]


@pytest.mark.parametrize(("rule", "hints"), [("too-few-nodes", []), ("waits-for-turn", ["waits"])])
def test_the_emulator_says_why_a_task_waits_where_no_rule_knows_it(rule: str, hints: list[str]) -> None:
    waits = Finding(rule, "task evaluate", "x", "", "wait")
    assert rules(of_job(failed("x"))._replace(waits=(waits,), hints=("y",))) == ["unknown", rule, *hints]


def test_a_formula_without_samples_is_not_advised_to_be_corrected() -> None:
    sample = "Line 1, Col 9: Insufficient data from data set: $PendingTasks wanted 70%, received 0%"
    error = Failure("InsufficientSampleData", "too few", values=(Detail("Message", sample),))
    pool = replace(POOL, autoscale_error=error)
    (finding,) = judged(Evidence(None, pool)).findings
    assert sample in finding.evidence
    assert "GetSamplePercent" in finding.next_step


@pytest.mark.parametrize("code", [*RESIZE_CODES, "AccountCoreQuotaReached"])
def test_an_error_of_a_resize_is_named(code: str) -> None:
    pool = replace(POOL, dedicated=1, resize_errors=(Failure(code, "no"),))
    wanted = RESIZE_CODES[code].rule if code in RESIZE_CODES else "quota-reached"
    assert rules(Evidence(pool=pool)) == [wanted]


@pytest.mark.parametrize("change", [{}, {"allocation": "resizing", "dedicated": 1}])
def test_an_error_of_an_earlier_resize_is_history(change: dict[str, Any]) -> None:
    pool = replace(POOL, resize_errors=(Failure("AllocationFailed", "no"),), **change)
    assert rules(Evidence(pool=pool)) == []


@pytest.mark.parametrize("state", NODE_STATES)
def test_a_node_that_takes_no_tasks_is_named(state: str) -> None:
    nodes = (ExaminedNode(Node("tvmps_1", state)), ExaminedNode(Node("tvmps_2", "idle")))
    assert rules(Evidence(pool=POOL, nodes=nodes)) == [NODE_STATES[state].rule]


def test_a_failed_start_task_is_explained_by_its_output() -> None:
    node = ExaminedNode(Node("tvmps_1", "starttaskfailed", start_exit_code=1), (LINES["name-not-resolved"],))
    (finding,) = judged(Evidence(pool=POOL, nodes=(node,))).findings
    assert finding.rule == "start-task-failed"
    assert finding.cause == "the start task failed with exit code 1: a host name cannot be resolved on the node"


@pytest.mark.parametrize(
    ("attempt", "rule", "cause"),
    [
        (Attempt("train", 1, ("n1",), reason="preempted", lost="n2"), "spot-preempted", "Azure preempted node n2"),
        (Attempt("train", 1, ("n1",), reason="node lost", lost="n1"), "node-lost", "node n1 was lost"),
        (Attempt("train", 1, ("n1",), reason="requeued"), "task-requeued", "the service took it from node n1, and"),
        (Attempt("train", 1, reason="requeued"), "task-requeued", "the service took it from node (unknown), and"),
    ],
)
def test_a_task_that_was_started_again_says_why(attempt: Attempt, rule: str, cause: str) -> None:
    again = ExaminedTask(Task("train", "running", requeues=1), attempts=(attempt, Attempt("train", 2)))
    (finding,) = judged(of_job(again)).findings
    assert finding.rule == rule
    assert finding.cause.startswith(f"attempt 1 ended, and the task was started again: {cause}")


def test_of_a_task_that_was_started_again_and_again_the_last_attempts_are_findings_and_the_others_a_number() -> None:
    attempts = tuple(Attempt("train", number, reason="requeued") for number in range(1, MOST_REPEATS))
    findings = judged(of_job(ExaminedTask(Task("train", "running"), attempts=attempts))).findings
    assert [finding.cause[:13] for finding in findings] == [f"attempt {number}" for number in range(99_990, 100_000)]
    assert findings[-1].cause.endswith("; not listed: 99,989 earlier attempts")


def test_a_warning_of_the_launch_explains_a_slow_gang_and_comes_after_the_cause_of_a_failed_one() -> None:
    warned = ExaminedTask(Task("train", "running"), warnings=("node n1: GPUs are slowed down",))
    (finding,) = judged(of_job(warned)).findings
    assert (finding.rule, finding.subject) == ("launch-warning", "task train")
    assert finding.cause == "the launch of the gang warned: node n1: GPUs are slowed down"
    both = failed("step 40: Loss is nan")._replace(warnings=warned.warnings)
    assert [finding.rule for finding in judged(of_job(both)).findings] == ["not-a-number", "launch-warning"]


def test_a_retry_after_a_failure_is_no_finding() -> None:
    attempts = (Attempt("train", 1, reason="exit code", exit_code=3), Attempt("train", 2))
    assert judged(of_job(ExaminedTask(Task("train", "running", retries=1), attempts=attempts))).findings == ()


def test_the_page_keeps_control_characters_of_output_out() -> None:
    found = judged(of_job(failed("\x1b]52;c;YQ==\x07 No space left on device")))
    assert "\x1b" not in str(found) and "\x07" not in str(found)


def test_equal_causes_of_many_tasks_are_one_row() -> None:
    tasks = [failed(LINES["disk-full"], id=f"t{number}") for number in range(6)]
    rows = judged(of_job(*tasks)).rows()
    assert rows[-1] == "  task t1, task t2, task t3 and 2 more: a disk of the node is full [disk-full]"


def test_where_the_output_is_kept_is_named_in_place_of_a_command_that_needs_the_job() -> None:
    (gone,) = judged(of_job(failed("bye"), logs="runs/1/logs")).findings
    (there,) = judged(of_job(failed("bye"))).findings
    assert gone.next_step == "read its output in runs/1/logs/train"
    assert "`batchtrain jobs logs digits --task train`" in there.next_step


def test_the_next_step_of_the_page_repeats_the_target_and_output_stays(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("diagnose"), obj=Settings(local=True)):
        diagnose._show(judged(of_job(failed("see `batchtrain jobs list`"))), None, None)
    printed = capsys.readouterr().out
    assert "`batchtrain jobs logs digits --task train --local`" in printed
    assert "  | see `batchtrain jobs list`\n" in printed


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bash: /data/run.sh: No such file or directory", "/data/run.sh is not on the volume `shared`"),
        ("python: can't open file '/data/a/train.py': [Errno 2] No such file", "is not on the volume `shared`"),
        ("sh: 0: cannot open /batch/fsmounts/corpus/a.sh: No such file", "is not on the volume `corpus`"),
        (
            "python: can't open file '/batch/workitems/j/job-1/t/wd/train.py': [Errno 2]",
            "`default_working_dir: container`",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'a/b'", "if a/b is a file of the image"),
        ("bash: /opt/run.sh: No such file or directory", "bring the file with `source`"),
    ],
)
def test_a_missing_file_is_looked_for_where_the_task_has_it(line: str, words: str) -> None:
    request = TaskRequest(volumes=(("shared", "/data"),), starts_in_task_directory=True)
    examined_task = failed(line, exit_code=127)
    finding = judged(of_job(examined_task._replace(task=replace(examined_task.task, request=request)))).findings[0]
    assert finding.rule == "missing-file"
    assert words in f"{finding.cause}; {finding.next_step}"


@pytest.mark.parametrize(
    ("name", "left_out", "cause", "step"),
    [
        ("data/points.csv", LeftOut(".gitignore", ("data/",)), "data/points.csv was not sent: .gitignore leaves"
         " data/ out of the `source`", "write the line `!data/` into the .batchtrainignore of the source directory"),
        ("/batch/workitems/j/job-1/t/wd/a.csv", LeftOut(".batchtrainignore", ("a.csv",)), "a.csv was not sent",
         "`!a.csv`"),
        ("./data", LeftOut(".gitignore", ("data/",)), "the file data was not sent", "`!data/`"),
        ("data/a", LeftOut(LINKS, ("data/",)), "data/a was not sent", "copy the directory to data/"),
        ("other/a", LeftOut(".gitignore", ("data/",)), "the file other/a is not there", "bring the file"),
    ],
)  # fmt: skip
def test_a_missing_file_that_a_rule_left_out_of_the_source_has_the_line_that_sends_it(
    name: str, left_out: LeftOut, cause: str, step: str
) -> None:
    line = f"FileNotFoundError: [Errno 2] No such file or directory: '{name}'"
    finding = judged(of_job(failed(line))._replace(left_out=(left_out,))).findings[0]
    assert finding.rule == "missing-file"
    assert cause in finding.cause
    assert step in finding.next_step


@pytest.mark.parametrize(("node", "is_told"), [("tvmps_1", False), ("tvmps_2", True)])
def test_a_file_that_is_missing_on_another_node_of_a_gang_is_to_be_brought_to_every_node(
    node: str, is_told: bool
) -> None:
    end = RankEnd("rank 1", 1, node, exit_code=1)
    (finding,) = judged(of_job(failed(f"[0:rank 1] {LINES['missing-file']}", end=end))).findings
    assert ("reach the first node of its gang only" in finding.next_step) is is_told


@pytest.mark.parametrize(
    "line",
    [
        "/bin/bash: line 1: ./hello: No such file or directory",
        "/bin/sh: 1: ./hello: not found",
        "[proxy:0:1@n1] HYDU_create_process (create.c:75): execvp error on file ./hello (No such file or directory)",
    ],
)
def test_a_file_that_a_gang_misses_has_its_place_on_every_node(line: str) -> None:
    examined_task = failed(line, exit_code=127)
    task = replace(examined_task.task, request=TaskRequest(instances=2))
    (finding,) = judged(of_job(examined_task._replace(task=task))).findings
    assert "(the command then names it `$AZ_BATCH_TASK_SHARED_DIR/hello`)" in finding.next_step
    assert "(the file is then `$AZ_BATCH_JOB_PREP_WORKING_DIR/LOCAL_PATH/NAME`, and NAME its" in finding.next_step


def test_of_a_job_that_runs_the_diagnosis_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = (ExaminedTask(Task("t", "running")), ExaminedTask(Task("u", "active")))
    diagnosis = judged(Evidence(Job("j", "active", running=1, active=1), tasks=tasks))
    monkeypatch.setattr(job.diagnose, "job", lambda *_: diagnosis)
    monkeypatch.setattr(job, "progress", lambda batch, job_id, task, now: f"{task.id}: rank 1 stood still for 31 s")
    examined_job = job.Job(cast(Session, SimpleNamespace(batch=None)), "j")
    monkeypatch.setattr(examined_job, "recorded", lambda _: None)
    first, *others = str(examined_job.diagnose()).split("\n")
    assert first == "job j: active, tasks: 1 running, 1 waiting"
    assert others == ["no task has failed", "t: rank 1 stood still for 31 s"]
