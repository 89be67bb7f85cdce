"""PyTorch: env://, or one torchrun per node."""

import re

from ..process_end import End
from ..processes import ending
from ..spec import Gang, Node, Process, Spec, Values, address_of
from .base import Framework, env, torch_defaults


class PyTorch(Framework):
    def variables(self, gang: Gang, process: Process) -> Values:
        """torchrun sets the variables of env:// itself."""
        if under_torchrun(gang.spec):
            return {"BATCHTRAIN_TORCHRUN": " ".join(torchrun(gang, process))}
        return env(gang, process)

    def defaults(self, gang: Gang, process: Process) -> Values:
        return torch_defaults(gang, process)

    def processes_of_one(self, spec: Spec, node: Node) -> int:
        return node.processes if under_torchrun(spec) else 1

    def failure(self, gang: Gang, process: Process, printed: bytes, ended: bool) -> "End | None":
        return torchruns_failure(gang, process, printed, ended)


FRAMEWORK = PyTorch()


def under_torchrun(spec: Spec) -> bool:
    return bool(spec.options.get("launcher") == "torchrun")


def torchrun(gang: Gang, process: Process) -> "list[str]":
    """The options of torchrun on a node. With `c10d`, torchrun assigns the ranks itself."""
    options, planned = gang.spec.options, gang.spec.instances
    least = options.get("min_instances") or planned
    words = [
        f"--nnodes={f'{least}:{planned}' if least < planned else len(gang.nodes)}",
        f"--nproc-per-node={process.node.processes}",
        f"--max-restarts={options.get('max_restarts') or 0}",
        f"--local-addr={address_of(process.node, options.get('interface'))}",
        "--monitor-interval=0.1",
        f"--log-dir={process.node.folder}/torchelastic",
    ]
    if options.get("rendezvous") == "c10d":
        return [*words, "--rdzv-backend=c10d", f"--rdzv-endpoint={gang.address}:{gang.port}", "--rdzv-id=batchtrain"]
    return [*words, f"--node-rank={process.node.index}", f"--master-addr={gang.address}", f"--master-port={gang.port}"]


TORCHRUNS_WORD = re.compile(rb"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: ")
"""torchrun prints this line as soon as a rank fails; it exits many seconds later."""


def torchruns_failure(gang: Gang, process: Process, printed: bytes, ended: bool) -> "End | None":
    """The end of the rank that failed for good. If torchrun restarts ranks, this is the last failure before torchrun
    ends. Its own exit code is always 1."""
    options = gang.spec.options
    if not under_torchrun(gang.spec) or (options.get("max_restarts") and not ended):
        return None
    failures = TORCHRUNS_WORD.findall(printed)
    if not failures:
        return None
    code, local = (int(word) for word in failures[-1])
    code = 128 - code if code < 0 else code
    rank = sum(node.processes for node in gang.nodes[: process.node.index]) + local
    words = f"{ending(code)}, and no restart was left" if options.get("max_restarts") else ""
    if options.get("rendezvous") == "c10d":
        return End(f"local rank {local}", -1, process.node, code, words)
    return End(f"rank {rank}", rank, process.node, code, words)
