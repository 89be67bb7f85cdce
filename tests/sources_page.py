"""`docs/reference/sources.md`, made of the tables that the tests run: `python -m tests.generated_files`.

A row that names a test is tested; a test of the page fails if the test does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.e2e import test_frameworks as frameworks
from tests.e2e import test_sources as sources

HEAD = """\
# The five documents

batchtrain was asked to support what five public documents show. `python -m tests.generated_files` generates this page
from the tables of the tests; a test fails if it is stale. In the last column, *tested* names the test, and *in its
place* is what the test uses instead of what the document shows. Tests of trainings run the real framework on emulated
nodes with CPUs (`pytest --all`; `test_a_variant_…` with `BATCHTRAIN_TEST_VARIANTS=1`). *Planned only* means that no
machine of the tests has the hardware (GPUs with NCCL, InfiniBand): tests compare the plan and the text of the launch.
*Not done* says why.
"""
SOURCES = "tests/e2e/test_sources.py"
MODES = "tests/e2e/test_frameworks.py"
DESCRIBED = "tests/e2e/test_described.py"
GPUS = "planned only: GPUs"
FABRIC = "planned only: InfiniBand; `tests/unit/launchers/test_mpi_golden.py` compares the launch"
CNTK = "recipe `CNTK-GPU-Infiniband-IntelMPI`"
SIZE = f"`{dict(sources.TODAY)['pool_specification.vm_size']}`"
CPUS = "CPUs"
MACHINE = "the system of the test's machine"
SYNTHETIC = "synthetic data of the shape of CIFAR-10"
DIGITS = "pictures of digits"


class Row(NamedTuple):
    """One thing that a document shows, what does it here, and the test, or why there is none."""

    shown: str
    here: str
    test: str = ""
    """file::function"""
    without: str = ""
    imitation: str = ""
    """What the test uses instead of what the document shows."""

    @property
    def state(self) -> str:
        _, _, name = self.test.partition("::")
        in_its_place = f"; in its place: {self.imitation}" if self.imitation else ""
        return f"tested: `{name}`{in_its_place}" if name else self.without


def of_modes(document: Iterable[tuple[str, str]]) -> tuple[Row, ...]:
    """Rows of the table of frameworks, by the names of its modes."""
    return tuple(Row(shown, *_mode(name)) for shown, name in document)


def _mode(name: str) -> tuple[str, str]:
    if name in frameworks.MODES:
        test = frameworks.test_a_framework_trains_on_two_nodes_and_all_processes_agree
        return f"recipe `{frameworks.MODES[name].recipe}` ({name})", f"{MODES}::{test.__name__}"
    test = frameworks.test_a_variant_trains_on_two_nodes_too
    return f"recipe `{frameworks.MORE_MODES[name].recipe}` ({name})", f"{MODES}::{test.__name__}"


def _of_mxnet(arguments: str) -> str:
    """What the test of a command line of the MXNet document uses instead."""
    store = ", `--kv-store device` for NCCL" if "nccl" in arguments else ""
    layers = "" if arguments == sources.MXNET_LINES[sources.FIFTY_LAYERS] else ", 18 layers"
    return f"CPUs{store}{f', {DIGITS}' if 'TRAIN' in arguments else ''}{layers}, small images and batches"


RESNET = f"{SOURCES}::{sources.test_the_cntk_recipe_trains_over_intel_mpi_as_the_document_shows_it.__name__}"
ALONE = f"{SOURCES}::{sources.test_tf_cnn_benchmarks_trains_on_the_devices_of_one_node.__name__}"
PLACED = f"{SOURCES}::{sources.test_operations_run_where_they_are_placed_on_a_subset_of_the_gpus.__name__}"
BOARD = f"{SOURCES}::{sources.test_tensorboard_reads_the_loss_and_the_graph_of_a_run.__name__}"
LINE = f"{SOURCES}::{sources.test_a_command_line_of_the_mxnet_document_runs.__name__}"
CLUSTER = f"{SOURCES}::{sources.test_the_mxnet_benchmark_runs_on_two_nodes_and_worker_0_alone_prints_results.__name__}"
DATA_PARALLEL = sources.test_the_imagenet_program_takes_dataparallel_alone_and_continues_its_checkpoint.__name__
DDP = f"{SOURCES}::{sources.test_the_imagenet_program_trains_by_ddp_on_two_nodes.__name__}"
GUIDE = "tests/unit/test_described.py::test_the_guides_file_runs_with_another_import"
BUILT = "tests/unit/test_described.py::test_a_described_job_is_loaded_from_its_files_as_an_equal_value"
VARIABLES = "tests/unit/runtime/test_framework_variables.py::test_a_framework_sets_the_variables_that_its_block_names"
BENCHMARK = "recipe `MXNet-Benchmark`"

DOCUMENTS: dict[str, tuple[Row, ...]] = {
    "1. CNTK on GPUs over InfiniBand with Intel MPI (Batch Shipyard)": (
        Row("`vm_size` with GPUs and RDMA", CNTK, RESNET, "",
            f"{SIZE}, which has GPUs but no InfiniBand, on nodes with CPUs"),
        Row("`platform_image` with GPU and RDMA drivers", "`microsoft-dsvm:ubuntu-hpc:2404`", RESNET, "", MACHINE),
        Row("`inter_node_communication_enabled`, `task_slots_per_node`", f"properties of pool.yaml; {CNTK}", RESNET),
        Row("`docker_images`: CNTK 2.1 with Intel MPI", "CNTK 2.7 as in `docker/cntk-intelmpi`", RESNET, "",
            "the files of the image, not the image"),
        Row("reference data of CIFAR-10 in the image", "`docker/cntk-intelmpi/make_cifar10.py`", RESNET, "", SYNTHETIC),
        Row("reference data of MNIST in the image", "–", "", "not done: the recipe reads only CIFAR-10"),
        Row("`multi_instance`: `num_instances`, `pre_execution_command`", CNTK, RESNET),
        Row("`coordination_command` unset, `resource_files` empty", CNTK, RESNET),
        Row("`mpi`: `runtime: intelmpi`, `nvidia-smi -L \\| wc -l`", CNTK, RESNET, "", "the emulator's `nvidia-smi`"),
        Row("ResNet-20 on CIFAR-10 by 1-bit SGD (`-q 1 -a 0`)", f"{CNTK}; also with 32 bits", RESNET, "", SYNTHETIC),
        Row("`infiniband` and `gpus` implicit", "`batchtrain config explain` lists them", "", FABRIC),
        Row("Dockerfile", "`docker/cntk-intelmpi`", "", "not tested: needs a network; linters check its files"),
    ),
    "2. Several GPUs in TensorFlow, Keras, CNTK and PyTorch": (
        Row("`tf.device`, logged placement", "recipe `TensorFlow-GPU`: `placement.py`", PLACED, "", CPUS),
        Row("`CUDA_VISIBLE_DEVICES=0,1,4,5`", "`environment_variables` of the task", PLACED, "", CPUS),
        Row("the graph in TensorBoard", "recipe `TensorFlow-Benchmarks-CPU` with `--train_dir`", BOARD),
        *(
            Row(f"tf_cnn_benchmarks: {name}", f"recipe `TensorFlow-Benchmarks-CPU` with `{flags}`", ALONE, "",
                "CPUs, which sum the gradients" if "nccl" in flags else CPUS)
            for name, (flags, _) in sources.TF_ALONE.items()
        ),
        Row("NCCL between GPUs", "`--all_reduce_spec=nccl`; without GPUs the CPU sums", "", GPUS),
        *of_modes((
            ("tf_cnn_benchmarks: parameter_server on several nodes", "TensorFlow 1 parameter_server"),
            ("tf_cnn_benchmarks: distributed_replicated", "TensorFlow 1 distributed_replicated"),
            ("tf_cnn_benchmarks: collective_all_reduce", "TensorFlow 1 collective_all_reduce"),
        )),
        Row("CIFAR-10 Estimator", *_mode("TensorFlow 1 Estimator"), "", DIGITS),
        Row("CIFAR-10 tutorial with the parameters on the CPU", "`--local_parameter_device=cpu`", ALONE, "",
            f"{DIGITS}, CPUs"),
        Row("StagingArea", "recipe `TensorFlow-Benchmarks`: tf_cnn_benchmarks stages batches of `--data_dir` on"
            " their way to a GPU, and variables with `--staged_vars`", "", GPUS),
        *of_modes((
            ("Keras over MXNet", "Keras over MXNet"),
            ("Keras over MXNet, image network", "Keras over MXNet, convolutions"),
            ("Keras over CNTK", "Keras over CNTK"),
            ("Keras over CNTK on several workers", "Keras over CNTK, convolutions"),
            ("CNTK: synchronous SGD", "CNTK 32-bit"),
            ("CNTK: 1-bit SGD", "CNTK 1-bit SGD"),
            ("CNTK: block momentum", "CNTK block momentum"),
        )),
        Row(
            "CNTK: asynchronous SGD", "–", "",
            "not done: CNTK's Python API has none; BrainScript's `parallelTrain` has, but no `cntk` binary can be had",
        ),
        Row("ImageNet (250 GB) and ResNet-50", "`--network resnet-v1`, `imagenet.py -a resnet50`", "", GPUS),
        Row("`torch.nn.DataParallel`", "recipe `PyTorch-CPU`: `imagenet.py`", f"{SOURCES}::{DATA_PARALLEL}", "",
            f"{DIGITS}, CPUs"),
        Row("PyTorch's ImageNet example", "recipe `PyTorch-CPU`: `imagenet.py`", DDP, "", f"{DIGITS}, CPUs"),
        *of_modes((("PyTorch: gradients averaged by DDP", "PyTorch DDP"),)),
    ),
    "3. Azure Machine Learning's distributed GPU guide": (
        Row("the file of the guide", "`from batchtrain import command, MpiDistribution`", GUIDE),
        Row("`command(...)` with `MpiDistribution`, run", "`client.run(bt.command(...))`",
            f"{DESCRIBED}::test_a_described_mpi_job_trains_on_two_nodes"),
        Row("`PyTorchDistribution`, run", "`client.run(bt.command(...))`",
            f"{DESCRIBED}::test_the_processes_of_a_described_pytorch_job_meet_on_two_nodes"),
        Row("`TensorFlowDistribution`", "`bt.TensorFlowDistribution`, `bt.TensorFlow`", BUILT),
        Row("`code`, `inputs`, `instance_count`, `display_name`", "the same words", GUIDE),
        Row("`environment`: a curated environment", "its image below `mcr.microsoft.com`", "",
            "planned only: no test pulls it"),
        Row("`environment`: an image of your own with an MPI", "`image`",
            f"{DESCRIBED}::test_a_described_mpi_job_trains_on_two_nodes"),
        Row("`compute`", "the id of a pool, or a VM size",
            "tests/unit/test_described.py::test_a_vm_size_and_a_pool_are_told_apart"),
        Row("`mpirun` is built by the service", "`bt.Mpi`, all MPIs of jobs.yaml",
            "tests/unit/launchers/test_mpi_golden.py::test_the_whole_text_is_as_it_was_read_last"),
        *of_modes((
            ("Horovod, PyTorch", "Horovod over MPI"), ("Horovod, TensorFlow", "Horovod with TensorFlow over MPI"),
            ("DeepSpeed", "DeepSpeed ZeRO 2"),
        )),
        Row("variables of Open MPI and Azure ML", "[environment variables](environment-variables.md)",
            f"{DESCRIBED}::test_a_rank_of_an_mpi_finds_its_node_in_azure_mls_words"),
        Row("variables of PyTorch and TensorFlow", "[environment variables](environment-variables.md)", VARIABLES),
        Row("the notebook's MNIST example", "recipe `Horovod-TensorFlow`",
            f"{MODES}::{frameworks.test_a_variant_trains_on_two_nodes_too.__name__}", "", DIGITS),
        Row("InfiniBand for GPU training", "sizes with RDMA", "", FABRIC),
    ),
    "4. DLBS: distributed MXNet": (
        Row("building the image on one node", "`batchtrain images build mxnet`", "",
            "not tested: its packages need a network"),
        Row("`docker save` and `docker load` to the other nodes", "nodes pull; archives: `batchtrain images save`",
            "tests/e2e/test_images.py::test_an_archive_brings_an_image_back"),
        Row("`exp.num_nodes` in `config.json`", f"{BENCHMARK}: `-Pexp.num_nodes=2`, `--config FILE`", CLUSTER),
        Row("`mxnet.rendezvous`: `INTERFACE:IP_ADDRESS:29500`", "`mxnet: {rendezvous: ...}`", CLUSTER),
        Row("`exp.gpus`", f"{BENCHMARK}: `--gpus 0,1`", CLUSTER, "", CPUS),
        Row("GPUs and `ib0`", "`rendezvous: ib0:10.0.0.4:29500`", "", "planned only: GPUs, InfiniBand"),
        Row("`./run 0` and `./run 1`, each on its node", "one command: `batchtrain run`", CLUSTER),
        Row("a scheduler on rank 0; a worker and a server on each node", f"{BENCHMARK}", CLUSTER),
        Row("`DMLC_ROLE`, `DMLC_PS_ROOT_URI` … `DMLC_INTERFACE`", "[environment variables](environment-variables.md)",
            VARIABLES),
        Row("DLBS's result lines", "[its keys](dlbs.md)", CLUSTER),
    ),
    "5. NVIDIA: MXNet with NCCL": (
        Row("`LD_LIBRARY_PATH` of NCCL", "`environment_variables` of the task", "", GPUS),
        Row("building MXNet with `USE_NCCL=1`", "–", "", "not done: wheels of MXNet 1.9.1 are used"),
        *(
            Row(f"`train_imagenet.py {arguments}`", f"{BENCHMARK}; {name}", LINE, "", _of_mxnet(arguments))
            for name, arguments in sources.MXNET_LINES.items()
        ),
        Row("NCCL itself", "`--kv-store nccl`; without GPUs `device` takes its place", "", GPUS),
        Row("`--batch-size` is the global batch size", f"{BENCHMARK}: `exp.effective_batch`", LINE),
        Row("fewer iterations with synthetic data", f"{BENCHMARK}: `--num-batches`", LINE),
        Row("`.rec` files in `--data-train`, `--data-val`", f"{BENCHMARK}: `digits_rec.py`", LINE, "", DIGITS),
        *(Row(f"several nodes: `--kv-store {store}`", BENCHMARK, CLUSTER) for store in sources.MXNET_CLUSTER),
    ),
}  # fmt: skip


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *(_table(title, rows) for title, rows in DOCUMENTS.items())))


def _table(title: str, rows: Iterable[Row]) -> str:
    lines = (f"| {row.shown} | {row.here} | {row.state} |" for row in rows)
    return "\n".join((f"## {title}\n", "| shown | here | state |", "|---|---|---|", *lines, ""))
