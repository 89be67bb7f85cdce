"""What the documents show that this project was asked to support: each line, on real frameworks and emulated nodes."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from batchtrain.config.load import load
from tests.raw_server import free_port

from .test_frameworks import COMMAND, GANG, SHARED, mapped, recorded, run

pytestmark = [pytest.mark.process, pytest.mark.framework]
Prepared = Callable[[str], str]


@pytest.fixture
def prepared(batchtrain: Any, framework_environment: Callable[[str], Path]) -> Prepared:
    """Maps a recipe's images to real environments and gives its directory; skips where one cannot be had."""
    return functools.partial(mapped, batchtrain.home, framework_environment)


# Document 1: CNTK over InfiniBand with Intel MPI

CNTK = "CNTK-GPU-Infiniband-IntelMPI"
TODAY = (
    ("pool_specification.vm_size", "Standard_NC80adis_H100_v5"),
    ("pool_specification.vm_configuration.platform_image.publisher", "microsoft-dsvm"),
    ("pool_specification.vm_configuration.platform_image.offer", "ubuntu-hpc"),
    ("pool_specification.vm_configuration.platform_image.sku", "2404"),
)
"""The size and the image of the nodes, which Azure has retired. This size has two GPUs: four ranks for two cores."""
IMAGE_FILES = """
root=$(mktemp -d) here=$(pwd) cntk=$1 intel=$2; shift 2
mount --make-rprivate /; mount -t tmpfs tmpfs "$root"; mkdir "$root/opt" "$root/opt/intel" "$root/cntk"
for entry in /* /opt/*; do case $entry in /opt|/opt/intel|/cntk) continue;; esac
  if [ -L "$entry" ]; then cp -P "$entry" "$root$entry"
  elif [ -d "$entry" ]; then mkdir -p "$root$entry"; mount --rbind "$entry" "$root$entry"; fi
done
mount --rbind "$cntk" "$root/cntk"; mount --rbind "$intel" "$root/opt/intel"
cd "$root"; pivot_root . .; umount -l .; cd "$here"; exec "$@"
"""
"""The command line sees the image's /cntk and /opt/intel where the image has them, and else the machine's files."""


@pytest.fixture
def in_the_image(batchtrain: Any, framework_environment: Callable[[str], Path]) -> Any:
    files = framework_environment("cntk-intelmpi")
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("a mount namespace cannot be made here; it takes root's rights")
    batchtrain.through = ("unshare", "--mount", "sh", "-ec", IMAGE_FILES, "sh", files / "cntk", files / "intel")
    return batchtrain


def test_the_cntk_recipe_trains_over_intel_mpi_as_the_document_shows_it(in_the_image: Any, prepared: Prepared) -> None:
    directory = prepared(CNTK)
    one, all_32 = (resnet(bits, in_the_image, directory) for bits in (1, 32))
    assert one != all_32  # gradients of one bit are others: ranks that do not exchange any would end alike


def resnet(bits: int, in_the_image: Any, directory: str) -> str:
    """Train on two nodes; the weights on which all ranks agree."""
    (task,) = load(directory).recipe.jobs[0].tasks
    small = "-s False -e 3 -es 256"
    written = " ".join((task.command or "").split())
    assert " -q 1 -a 0 --datadir /cntk/Examples/Image/DataSets/CIFAR-10 " in written
    printed = said(in_the_image, directory, *TODAY, (COMMAND, f"{written.replace('-q 1', f'-q {bits}')} {small}"))
    assert "using 4 out of 4 MPI nodes on multiple hosts" in printed
    losses = re.findall(r"^Finished Epoch\[(\d) of 3\]: \[Training\] loss = (\S+) \* 256, metric", printed, re.M)
    assert sorted(int(epoch) for epoch, _ in losses) == [1] * 4 + [2] * 4 + [3] * 4
    assert len(set(losses)) == 3
    first, second, last = (float(loss) for _, loss in sorted(set(losses)))
    assert last < second < first
    ends = re.findall(rf"^rank (\d) of 4 host (\S+) learner {bits}-bit weights ([0-9a-f]{{64}})$", printed, re.M)
    assert sorted(int(rank) for rank, _, _ in ends) == [0, 1, 2, 3]
    assert sorted(Counter(host for _, host, _ in ends).values()) == [2, 2]
    assert recorded(in_the_image.cwd / "runs/latest") >= {"loss", "accuracy", "test_accuracy"}
    (weights,) = {weights for _, _, weights in ends}
    return weights


# Document 2: PyTorch's ImageNet example

FOLDER = "$AZ_BATCH_TASK_WORKING_DIR/digits"
IMAGENET = (
    f"sh -c 'python {SHARED}/digits_folder.py {FOLDER}-$RANK 240 && cd $AZ_BATCH_TASK_WORKING_DIR &&"
    f" python -u {SHARED}/imagenet.py {FOLDER}-$RANK -a resnet18 -j 0 --image-size 32 --lr 0.02 -p 2 ARGUMENTS'"
)
TORCH_LINE = (
    r"Epoch: \[\d\]\[\d+/\d+\]\tTime +\S+ \( *\S+\)\tData +\S+ \( *\S+\)\tLoss (\S+) \(\S+\)"
    r"\tAcc@1 +\S+ \( *\S+\)\tAcc@5 +\S+ \( *\S+\)$"
)


def imagenet(arguments: str) -> tuple[str, str]:
    return COMMAND, IMAGENET.replace("ARGUMENTS", arguments)


def test_the_imagenet_program_trains_by_ddp_on_two_nodes(batchtrain: Any, prepared: Prepared) -> None:
    one = (f"{GANG}.pytorch.processes_per_node", "1")
    printed = said(batchtrain, prepared("PyTorch-CPU"), one, imagenet("--epochs 2 -b 16 --seed 1 --dist-url env://"))
    losses = {rank: re.findall(rf"^\[\d:{rank}\] {TORCH_LINE}", printed, re.M) for rank in range(2)}
    assert all(float(own[-1]) < float(own[0]) for own in losses.values())
    ends = re.findall(r"^\[\d:(\d)\]  \*   Acc@1 (\S+) Acc@5 (\S+)$", printed, re.M)
    assert sorted(rank for rank, _, _ in ends) == sorted("01" * 2)
    assert recorded(batchtrain.cwd / "runs/latest") >= {"epoch", "step", "loss", "acc1", "test_acc1"}
    assert len({(first, fifth) for _, first, fifth in ends}) <= 2  # one pair for each epoch: the accuracy is the gang's


def test_the_imagenet_program_starts_its_own_processes_on_each_node(batchtrain: Any, prepared: Prepared) -> None:
    arguments = "--epochs 1 -b 16 --dist-url env:// --multiprocessing-distributed"
    one = (f"{GANG}.pytorch.processes_per_node", "1")
    printed = said(batchtrain, prepared("PyTorch-CPU"), one, imagenet(arguments))
    assert {place for place, _ in re.findall(rf"^\[(\d:\d)\] {TORCH_LINE}", printed, re.M)} == {"0:0", "1:1"}


def test_the_imagenet_program_takes_dataparallel_alone_and_continues_its_checkpoint(
    batchtrain: Any, prepared: Prepared
) -> None:
    resume = "--evaluate --resume output/model_best.pth.tar"
    again = f"python -u {SHARED}/imagenet.py {FOLDER}-$RANK -j 0 --image-size 32 {resume}"
    printed = said(batchtrain, prepared("PyTorch-CPU"), WITHOUT_GANG, imagenet(f"--epochs 2 -b 16 && {again}"))
    assert "=> using DataParallel" in printed
    assert "=> loaded checkpoint" in printed
    accuracies = [float(found) for found in re.findall(r"^ \*   Acc@1 (\S+) Acc@5", printed, re.M)]
    assert len(accuracies) == 3
    assert accuracies[2] == max(accuracies[:2])


# Document 5: NVIDIA's MXNet with NCCL

MXNET_ALL = "--gpu 0,1,2,3,4,5,6,7 --batch-size 1024 --num-epochs 1 "
MXNET_SYNTHETIC = MXNET_ALL + "--disp-batches 100 --network resnet-v1 --num-layers 50 --dtype float16 --benchmark 1"
MXNET_REAL = (
    MXNET_ALL + "--data-train TRAIN --data-val VAL --disp-batches 100 --network resnet-v1 --num-layers 50"
    " --data-nthreads 40 --min-random-scale 0.533 --max-random-shear-ratio 0 --max-random-rotate-angle 0"
    " --max-random-h 0 --max-random-l 0 --max-random-s 0 --dtype float16"
)
MXNET_LINES: Mapping[str, str] = {
    "without NCCL": MXNET_SYNTHETIC,
    "NCCL all-reduce": f"{MXNET_SYNTHETIC} --kv-store nccl_allreduce",
    "NCCL reduce-scatter and all-gather": f"{MXNET_SYNTHETIC} --kv-store nccl",
    "real data without NCCL": MXNET_REAL,
    "real data, NCCL all-reduce": f"{MXNET_REAL} --kv-store nccl_allreduce",
    "real data, NCCL": f"{MXNET_REAL} --kv-store nccl",
}
"""The command lines of the document as they stand there; TRAIN and VAL are its two RecordIO files."""
SMALL = "--batch-size 8 --disp-batches 2 --image-shape 3,32,32 --num-classes 10 --num-examples 32 --num-batches 4"
"""Added to each: the size that two cores can bear."""
FIFTY_LAYERS = "without NCCL"
"""The line that builds the document's whole network; the others differ in their data and their exchange."""
WITHOUT_GANG = (GANG, "null")
REC = "$AZ_BATCH_TASK_WORKING_DIR"
DIGITS = f'if [ -n "$BATCHTRAIN_RANK$ALONE" ]; then python {SHARED}/digits_rec.py {REC}/train.rec {REC}/val.rec; fi; '
"""Servers have no rank, and read nothing."""


def mxnet(arguments: str, alone: bool = False) -> tuple[str, str]:
    """The recipe's command with these arguments; RecordIO files are made first where they are named."""
    files = arguments.replace("TRAIN", f"{REC}/train.rec").replace("VAL", f"{REC}/val.rec")
    made = ("ALONE=1; " if alone else "") + DIGITS if "TRAIN" in arguments else ""
    return COMMAND, f"{made}python -u {SHARED}/train_imagenet.py {files}"


@pytest.mark.parametrize("line", MXNET_LINES)
def test_a_command_line_of_the_mxnet_document_runs(line: str, batchtrain: Any, prepared: Prepared) -> None:
    arguments = f"{MXNET_LINES[line]} {SMALL}{'' if line == FIFTY_LAYERS else ' --num-layers 18'}"
    printed = said(batchtrain, prepared("MXNet-Benchmark"), WITHOUT_GANG, mxnet(arguments, alone=True))
    assert len(re.findall(r"^INFO:root:Epoch\[0\] Batch \[\d-\d\]\tSpeed: \S+ samples/sec\taccuracy=", printed, re.M))
    assert "8 CPU contexts take the place of --gpus 0,1,2,3,4,5,6,7" in printed
    assert ("--kv-store device takes the place of nccl" in printed) == ("nccl" in arguments)
    assert ("Epoch[0] Validation-accuracy=" in printed) == ("VAL" in arguments)
    names = recorded(batchtrain.cwd / "runs/latest")
    assert names >= {"epoch", "step", "samples_per_second", "accuracy"}
    assert ("validation_accuracy" in names) == ("VAL" in arguments)
    assert dlbs(printed)["exp.effective_batch"] == 8


MXNET_CLUSTER: Mapping[str, str] = {
    "dist_sync": "--benchmark 1",
    "dist_async": "--data-train TRAIN --data-val VAL",
    "dist_device_sync": "--benchmark 1 --gc-type 2bit",
}


@pytest.mark.parametrize("store", MXNET_CLUSTER)
def test_the_mxnet_benchmark_runs_on_two_nodes_and_worker_0_alone_prints_results(
    store: str, batchtrain: Any, prepared: Prepared
) -> None:
    small = "--network lenet --gpus 0,1 --num-epochs 1 -Pexp.num_nodes=2 " + SMALL
    command = mxnet(f"{small} --kv-store {store} {MXNET_CLUSTER[store]}")
    rendezvous = (f"{GANG}.mxnet.rendezvous", f"10.0.0.4:{free_port()}")
    printed = said(batchtrain, prepared("MXNet-Benchmark"), command, rendezvous)
    assert set(re.findall(r"^\[(\d:\d)\] INFO:root:Epoch\[0\] Batch .*Speed: ", printed, re.M)) == {"0:0", "1:1"}
    assert set(re.findall(r"^\[(\d:\d)\] __results\.", printed, re.M)) == {"0:0"}
    results = dlbs(re.sub(r"^\[0:0\] ", "", printed, flags=re.M))
    assert results["mxnet.kv_store"] == store
    assert set(results) == documented("MXNet-Benchmark")
    assert (results["exp.num_gpus"], results["exp.effective_batch"], results["exp.replica_batch"]) == (4, 16, 4)
    speed = results["exp.effective_batch"] / results["results.time"] * 1000
    assert results["results.throughput"] == pytest.approx(speed, rel=0.01, abs=1)  # both are rounded


# Document 2: the modes of tf_cnn_benchmarks

TF_CNN = f"python -u {SHARED}/tf_cnn_benchmarks.py --num_batches=200 --display_every=100 "
TF_ALONE: Mapping[str, tuple[str, str]] = {
    "parameters on the CPU": ("--num_gpus=2 --local_parameter_device=cpu", "Variables:   parameter_server"),
    "parameters on the first GPU": ("--num_gpus=2 --local_parameter_device=gpu", "Variables:   parameter_server"),
    "replicated": ("--num_gpus=2 --variable_update=replicated --all_reduce_spec=pscpu", "AllReduce:   pscpu"),
    "replicated by NCCL": (
        "--num_gpus=2 --variable_update=replicated --all_reduce_spec=nccl",
        "no GPU: gradients are summed on the CPU in place of NCCL",
    ),
}
"""Modes of one machine with several devices, and a line that proves each."""


@pytest.mark.parametrize("mode", TF_ALONE)
def test_tf_cnn_benchmarks_trains_on_the_devices_of_one_node(mode: str, batchtrain: Any, prepared: Prepared) -> None:
    arguments, line = TF_ALONE[mode]
    printed = said(batchtrain, prepared("TensorFlow-Benchmarks-CPU"), WITHOUT_GANG, (COMMAND, TF_CNN + arguments))
    assert line in printed
    assert re.search(r"^200\timages/sec: \S+ \+/- \S+ \(jitter = \S+\)\t0\.\d+$", printed, re.M)
    assert float(re.findall(r"^worker 0 of 1 .* accuracy (\S+)$", printed, re.M)[0]) >= 0.9
    assert dlbs(printed)["exp.effective_batch"] == 128


def test_total_images_is_the_clusters_and_worker_0_alone_prints_results(batchtrain: Any, prepared: Prepared) -> None:
    printed = said(batchtrain, prepared("TensorFlow-Benchmarks-CPU"), (COMMAND, TF_CNN))
    totals = [float(total) for total in re.findall(r"total images/sec: (\S+)$", printed, re.M)]
    own = [float(rate) for rate in re.findall(r"^\[\S+\] 200\timages/sec: (\S+)", printed, re.M)]
    assert sorted(totals) == pytest.approx([2 * rate for rate in sorted(own)], rel=0.01)
    assert set(re.findall(r"^\[(\d:\d)\] __results\.", printed, re.M)) == {"0:0"}
    results = dlbs(re.sub(r"^\[0:0\] ", "", printed, flags=re.M))
    assert (results["exp.num_gpus"], results["exp.effective_batch"], results["exp.num_batches"]) == (2, 128, 200)
    assert results["results.throughput"] in totals
    assert set(results) == documented("TensorFlow-Benchmarks-CPU")


SUMMARIES = (
    "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as A;"
    ' a = A("SHARED_BY_NODES").Reload(); print("graph", a.Tags()["graph"]);'
    ' [print("loss", event.step, event.value) for event in a.Scalars("total_loss")]'
)


def test_tensorboard_reads_the_loss_and_the_graph_of_a_run(batchtrain: Any, prepared: Prepared) -> None:
    command = f"{TF_CNN}--train_dir=SHARED_BY_NODES && python -c '{SUMMARIES}'"
    printed = said(batchtrain, prepared("TensorFlow-Benchmarks-CPU"), WITHOUT_GANG, (COMMAND, command))
    losses = re.findall(r"^loss (\d+) (\S+)$", printed, re.M)
    assert "graph True" in printed
    assert [int(step) for step, _ in losses] == list(range(10, 201, 10))
    assert float(losses[-1][1]) < float(losses[0][1]) / 2


def test_operations_run_where_they_are_placed_on_a_subset_of_the_gpus(batchtrain: Any, prepared: Prepared) -> None:
    settings = (
        ("pool_specification.vm_size", "Standard_ND96asr_v4"),
        ("job_specifications[0].tasks[0].environment_variables", "{CUDA_VISIBLE_DEVICES: '0,1,4,5'}"),
        (COMMAND, f"python -u {SHARED}/placement.py"),
    )
    printed = said(batchtrain, prepared("TensorFlow-GPU"), *settings)
    found = re.findall(r"^device (\d) of 4 is GPU (\d) of the node: MatMul ran on \S+:CPU:(\d)$", printed, re.M)
    assert found == [("0", "0", "0"), ("1", "1", "1"), ("2", "4", "2"), ("3", "5", "3")]
    assert re.findall(r"^MatMul: \(MatMul\): \S+:CPU:(\d)$", printed, re.M) == ["0", "1", "2", "3"]  # TensorFlow's log


def said(batchtrain: Any, directory: str, *settings: tuple[str, str]) -> str:
    """Both streams of a run that ended well."""
    return run(batchtrain, directory, settings, errors=True)


DLBS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "dlbs.md"


def documented(recipe: str) -> set[str]:
    """The result keys that the page promises of a recipe."""
    _, _, text = DLBS_PAGE.read_text(encoding="utf-8").partition("## Result keys")
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return {row[0] for row in rows[2:] if row[rows[0].index(recipe)] == "yes"}


DLBS_LINE = re.compile(r"[ \t]*__(.+?)__[ \t]*=(.+)")


def dlbs(log: str) -> dict[str, Any]:
    """What DLBS's parser reads in a log: lines that begin with a key, whose values must be JSON."""
    found = (DLBS_LINE.match(line) for line in log.splitlines())
    return {match[1].strip(): json.loads(match[2]) for match in found if match}
