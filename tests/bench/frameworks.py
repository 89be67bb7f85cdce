"""Print our launch of a framework beside a bare one: `python tests/bench/frameworks.py [--turns N]`. Not a test.

The same program on the same two emulated nodes, as many processes as the machine has cores (at least one a node: with
more, chance says which of them wait), in turns: once as batchtrain launches it, once as a person would by hand (each
process with its variables, over ssh on the second node; CNTK by `mpirun`). `first step` is
the time from the start on the primary to the end of rank 0's first step, held to the bare one and half a second;
`steps` are those a second after it, held to 0.98 of the bare ones. A ratio is ours to bare. The best of
the turns is shown: what else the machine does (PyTorch alone takes 1.1 to 1.7 s to import) only makes one slower.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from batchtrain.frameworks.base import Shape  # noqa: E402
from batchtrain.launchers.launch import File, Launch  # noqa: E402
from tests import environments  # noqa: E402
from tests.contract.gang_of_nodes import Gang, gang_of  # noqa: E402
from tests.launching import launched  # noqa: E402

TWO = Shape(2)
SECONDS = 240
"""For one launch; then something hangs."""
MORE_SECONDS = 0.5
SLOWER = 0.98
STEPS = 2000
EACH = max(1, (os.cpu_count() or 1) // 2)
"""Processes of a node."""
ALL = 2 * EACH
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
"""Of both launches: an emulated node has all the machine's cores, and would give its processes as many threads."""

TIMED = f"""
import sys, time
def run(rank, step):
    step()
    first = time.time()
    for _ in range({STEPS}):
        step()
    if rank == 0:
        took = time.time() - first
        sys.stdout.write("first=%.3f rate=%.2f\\n" % (first, {STEPS} / took))
        sys.stdout.flush()
"""
"""In front of each program: what it says, and when."""
TORCH = """
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
images, learner = torch.ones(16, 64), torch.optim.SGD(model.parameters(), 0.01)
def step():
    learner.zero_grad()
    model(images).square().mean().backward()
    learner.step()
run(dist.get_rank(), step)
dist.destroy_process_group()
time.sleep(0.05)  # threads of gloo may abort the end of Python otherwise
"""
MXNET = """
import os, mxnet as mx
store = mx.kv.create("dist_sync")
weights = mx.nd.ones((64, 10))
store.init("w", weights)
def step():
    store.push("w", weights)
    store.pull("w", weights)
    weights.wait_to_read()
run(store.rank, step)
"""
CNTK = """
import cntk as C, numpy as np
from cntk.train.distributed import Communicator, data_parallel_distributed_learner
x, y = C.input_variable(64), C.input_variable(10)
z = C.layers.Dense(10)(x)
loss = C.cross_entropy_with_softmax(z, y)
trainer = C.Trainer(z, loss, [data_parallel_distributed_learner(C.sgd(z.parameters, 0.01))])
images, labels = np.ones((16, 64), np.float32), np.eye(10, dtype=np.float32)[np.zeros(16, int)]
run(Communicator.rank(), lambda: trainer.train_minibatch({x: images, y: labels}))
Communicator.finalize()
"""

PROGRAM = "$AZ_BATCH_TASK_SHARED_DIR/program.py"
COMMAND = f"python -u {PROGRAM}"
BARE = (
    f"EACH={EACH}\n"
    + """\
first=${AZ_BATCH_MASTER_NODE%%:*}
for host in ${AZ_BATCH_HOST_LIST//,/ }; do [ "$host" = "$first" ] || second=$host; done
here() { env "$@" python -u $AZ_BATCH_TASK_SHARED_DIR/program.py & }
there() {
  own="PATH=$PATH OMP_NUM_THREADS=$OMP_NUM_THREADS $*"
  ssh "$second" "env $own python -u $AZ_BATCH_TASK_SHARED_DIR/program.py" </dev/null &
}
"""
)
"""How a person starts a process on this node, and on the other."""
TORCH_BARE = """
for rank in $(seq 0 $((EACH - 1))); do
  meet="MASTER_ADDR=$first MASTER_PORT=29411 WORLD_SIZE=$((2 * EACH)) GLOO_SOCKET_IFNAME=lo"
  here $meet RANK=$rank LOCAL_RANK=$rank
  there $meet RANK=$((rank + EACH)) LOCAL_RANK=$rank
done
wait
"""
MXNET_BARE = """
meet="DMLC_PS_ROOT_URI=$first DMLC_PS_ROOT_PORT=29412 DMLC_NUM_SERVER=2 DMLC_NUM_WORKER=$((2 * EACH))"
here $meet DMLC_ROLE=scheduler DMLC_NODE_HOST=$first
for role in server $(yes worker | head -n $EACH); do
  here $meet DMLC_ROLE=$role DMLC_NODE_HOST=$first
  there $meet DMLC_ROLE=$role DMLC_NODE_HOST=$second
done
wait
"""
CNTK_PREFIX = (
    'export OPAL_PREFIX="$(dirname "$(dirname "$(command -v mpirun)")")"; export LD_LIBRARY_PATH="$OPAL_PREFIX/lib"'
)
CNTK_BARE = f"""
{CNTK_PREFIX}
mpirun --prefix $OPAL_PREFIX --allow-run-as-root -host ${{AZ_BATCH_HOST_LIST//,/:{EACH},}}:{EACH} -np {ALL} \
  --map-by ppr:{EACH}:node --bind-to none -x PATH -x OPAL_PREFIX -x LD_LIBRARY_PATH -x OMP_NUM_THREADS \
  -x AZ_BATCH_TASK_SHARED_DIR python -u {PROGRAM}
"""


class Case(NamedTuple):
    """A framework: its environment, the program, and both ways to launch it."""

    environment: str
    program: str
    ours: Launch
    bare: str


CASES: Mapping[str, Case] = {
    "PyTorch DDP": Case("torch", TORCH, launched("pytorch", COMMAND, TWO, processes=ALL, interface="lo"), TORCH_BARE),
    "MXNet dist_sync": Case("mxnet", MXNET, launched("mxnet", COMMAND, TWO, processes=ALL, servers=2), MXNET_BARE),
    "CNTK over Open MPI": Case(
        "cntk",
        CNTK,
        launched("mpi", COMMAND, TWO, runtime="openmpi", processes_per_node=EACH, pre_execution_command=CNTK_PREFIX),
        CNTK_BARE,
    ),
}


class Measured(NamedTuple):
    """Seconds to the first step, and steps a second after it."""

    first: float
    rate: float


def main() -> None:
    parser = argparse.ArgumentParser(description="Our launches beside bare ones, in turns.")
    parser.add_argument("--turns", type=int, default=8, help="launches of each kind (default: %(default)s)")
    parser.add_argument("words", nargs="*", help="only the cases with one of these in their names")
    options = parser.parse_args()
    for name, case in CASES.items():
        if options.words and not any(word in name for word in options.words):
            continue
        try:
            prefix = environments.prefix(case.environment)
        except environments.Missing as missing:
            print(f"{name}: {missing}")
            continue
        with tempfile.TemporaryDirectory() as folder, gang_of(Path(folder), prefix) as gang:
            pairs = [in_turn(gang, case) for _ in range(options.turns)]
        ours, bare = (best(each) for each in zip(*pairs, strict=True))
        show(name, ours, bare)


def in_turn(gang: Gang, case: Case) -> tuple[Measured, Measured]:
    program = File("program.py", (TIMED + case.program).encode())
    ours = case.ours._replace(files=(*case.ours.files, program))
    return measure(gang, ours), measure(gang, ours._replace(application=BARE + case.bare))


def measure(gang: Gang, launch: Launch) -> Measured:
    done = gang._loop.run_until_complete(asyncio.wait_for(gang.run(launch, ENVIRONMENT), SECONDS))
    said = re.search(r"first=(\S+) rate=(\S+)", done.stdout)
    if done.code != 0 or said is None:
        sys.exit(f"exit code {done.code}\n{done.stdout}\n{done.stderr}")
    return Measured(float(said[1]) - (done.ended - done.seconds), float(said[2]))


def best(each: Sequence[Measured]) -> Measured:
    return Measured(min(one.first for one in each), max(one.rate for one in each))


def show(name: str, ours: Measured, bare: Measured) -> None:
    more, ratio = ours.first - bare.first, ours.rate / bare.rate
    early, fast = "ok" if more <= MORE_SECONDS else "OVER", "ok" if ratio >= SLOWER else "UNDER"
    print(f"{name:20} first step {ours.first:8.2f} s   bare {bare.first:8.2f}  more  {more:5.2f}  {early}")
    print(f"{'':20} steps      {ours.rate:8.1f} /s  bare {bare.rate:8.1f}  ratio {ratio:5.2f}  {fast}")
    print(f"{'':20} at a load of {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)


if __name__ == "__main__":
    main()
