"""`on_bad_node: replace`: a node whose check before the launch finds a fault is replaced while its gang waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import batchtrain as bt
from batchtrain import runtime
from batchtrain.client.client import Client
from batchtrain.emulator import mapped_images
from batchtrain.launchers import steps
from batchtrain.launchers.launch import File
from batchtrain.records.events import Event

from .conftest import Shell

pytestmark = pytest.mark.process
POOL = """\
pool_specification:
  id: p
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404', native: {native}}}
  vm_size: Standard_ND96isr_H100_v5
  vm_count: {dedicated: 2}
  inter_node_communication_enabled: true
  on_bad_node: replace
"""
JOBS = """\
job_specifications:
- id: j
  max_task_retries: 0
  allow_run_on_missing_image: true
  tasks:
  - id: t
    multi_instance:
      num_instances: pool_specification_vm_count_dedicated
      {launch}
    command: {command}
"""
LAUNCHES = {
    "pytorch": ("pytorch: {processes_per_node: 1}", "python3 -c \"print('trained')\""),
    "mpich": ("mpi: {runtime: mpich, processes_per_node: 1}", "echo trained\n    docker_image: example/mpich:digits"),
}
FAKE = """
[ ! -r "$here/environment" ] || . "$here/environment"
fake=$(mktemp -d) state='4: ACTIVE' errors=0
case $AZ_BATCH_NODE_ID in @BAD@) @FAULT@ ;; esac
mkdir "$fake/bin"
for number in 0 1 2 3 4 5 6 7; do
  port=$fake/infiniband/mlx5_ib$number/ports/1
  mkdir -p "$port/pkeys"
  echo InfiniBand >"$port/link_layer" && echo '4: ACTIVE' >"$port/state" && echo '400 Gb/sec (4X NDR)' >"$port/rate"
  echo 0x8001 >"$port/pkeys/0"
done
echo "$state" >"$port/state"
cat >"$fake/bin/nvidia-smi" <<END
case \\$* in
  -L) for number in 0 1 2 3 4 5 6 7; do echo "GPU \\$number: NVIDIA H100 80GB HBM3 (UUID: GPU-\\$number)"; done ;;
  *volatile.sram*) echo '0, 0'; echo '1, $errors' ;;
  *clocks_event_reasons*) echo '0, 0x0000000000000004'; echo '1, 0x0000000000000001' ;;
esac
END
chmod +x "$fake/bin/nvidia-smi"
PATH=$fake/bin:$PATH
unset 'want[memlock]'
"""
FAULTS = {
    "seven of eight ports": ("state='1: DOWN'", "7 of 8 InfiniBand ports work (mlx5_ib7: 1: DOWN"),
    "an ECC error": ("errors=3", "GPU 1 has 3 uncorrected ECC errors in SRAM"),
}


def fake_hardware(monkeypatch: pytest.MonkeyPatch, bad: str, fault: str) -> None:
    """Preflight sees eight ports and eight GPUs on each emulated node, and a fault on one."""
    text = runtime.read("preflight.sh").decode().replace("/sys/class/infiniband", "$fake/infiniband")
    begin = "for pair; do want[${pair%%=*}]=${pair#*=}; done\n"
    assert begin in text
    text = text.replace(begin, begin + FAKE.replace("@BAD@", bad).replace("@FAULT@", fault))
    text = text.replace('if [ -z "${want[emulated]-}" ]; then\n    if', "if true; then\n    if")
    monkeypatch.setattr(steps, "PREFLIGHT", File(".batchtrain/preflight.sh", text.encode()))


@pytest.fixture
def client(batchtrain: Shell, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("BATCHTRAIN_EMULATOR_DIR", str(batchtrain.home))
    return bt.connect(local=True)


@pytest.fixture
def recipe(
    request: pytest.FixtureRequest, batchtrain: Shell, tmp_path: Path, mpi_environment: Callable[[str], Path]
) -> bt.Recipe:
    """A gang of either engine."""
    if request.param == "mpich":
        mapped_images.map_image(batchtrain.home, "example/mpich:digits", mpi_environment("mpich"))
    block, command = LAUNCHES[request.param]
    (tmp_path / "pool.yaml").write_text(POOL.replace("{native}", str(request.param == "mpich").lower()))
    (tmp_path / "jobs.yaml").write_text(JOBS.replace("{launch}", block).replace("{command}", command))
    return bt.load(tmp_path, local=True)


@pytest.mark.parametrize(
    ("recipe", "fault"),
    [("pytorch", "seven of eight ports"), pytest.param("mpich", "an ECC error", marks=pytest.mark.mpi)],
    indirect=["recipe"],
)
def test_a_node_with_a_fault_is_replaced_and_the_gang_runs_without_a_retry(
    client: Client, recipe: bt.Recipe, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    said = list[Event]()
    client.pools.add(recipe)
    first, bad = (node.id for node in client.pools.nodes("p"))
    change, finding = FAULTS[fault]
    fake_hardware(monkeypatch, bad, change)
    (task,) = client.run(recipe, reuse=True, tell=said.append).tasks
    assert (task.exit_code, task.retries, task.requeues) == (0, 0, 1)
    nodes = [node.id for node in client.pools.nodes("p")]
    assert first in nodes and bad not in nodes and len(nodes) == 2
    texts = [event.text for event in said]
    assert any(finding in text for text in texts)
    assert [event.kind for event in said].count("nodes.replace") == 1
    assert any(text.endswith("trained") for text in texts)
