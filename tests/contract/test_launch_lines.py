"""A real bash runs the launch texts against a stand-in `mpirun` that records its arguments and environment."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.frameworks.mpi import MPIS
from batchtrain.launchers.launch import Launch
from tests import machines
from tests.launching import launched

pytestmark = pytest.mark.process

HOSTS = ("10.0.0.4", "10.0.0.5")
SERVICE_ORDER = "10.0.0.5,10.0.0.4"
PRIMARY_FIRST = "10.0.0.4,10.0.0.5"
RANKS = {"integer": 4, "command": "nvidia-smi -L | wc -l", "absent": None}
STAND_INS = {
    "mpirun": """if [ "$1" = -V ]; then echo "${MPI_VERSION-Intel(R) MPI Library, Version 2018 Update 4}"; exit; fi
printf '%s\\0' "$@" >"$RECORD/argv"; env -0 >"$RECORD/environment"; exit "${MPI_CODE-0}" """,
    "ssh": """printf '%s\\n' "$*" >>"$RECORD/ssh"
for word; do case $word in 10.* | 127.*) host=$word; break ;; esac; done
case " ${DEAD-} " in *" $host "*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255 ;; esac
case " ${SHUT-} " in *" $host "*) echo "root@$host: Permission denied (publickey)." >&2; exit 255 ;; esac""",
    "nvidia-smi": "for i in 0 1 2 3; do echo GPU $i; done",
    "python": '[ -z "${NO_MPI4PY-}" ]',
}


class Ran(NamedTuple):
    """What a text did."""

    code: int
    stderr: str
    argv: list[str] | None
    """The stand-in's, or None when it was never started."""
    environment: dict[str, str]
    stdout: str = ""


class Node:
    """A primary's directories, the stand-ins on its PATH, and what of /sys and /dev its text may see."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.task, self.record = folder / "bin", folder / "task", folder / "record"
        self.sys, self.dev = folder / "sys", folder / "dev"
        for made in (self.bin, self.task / "wd", self.record, self.sys / "class/net/eth0", self.dev):
            made.mkdir(parents=True)
        for name, text in STAND_INS.items():
            self.program(name, text)
        self.machine = machines.write(folder / "machine", machines.CPUs(packages=2, cores=4))

    def program(self, name: str, text: str) -> None:
        """A program on PATH."""
        (self.bin / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.bin / name).chmod(0o755)

    def infiniband(self, *devices: tuple[str, str, str, str]) -> None:
        """Devices as (name, link layer, state, partition key)."""
        (self.dev / "infiniband").mkdir(exist_ok=True)
        for name, layer, state, key in devices:
            port = self.sys / "class/infiniband" / name / "ports/1"
            (port / "pkeys").mkdir(parents=True)
            (port / "link_layer").write_text(f"{layer}\n")
            (port / "state").write_text(f"{state}\n")
            (port / "pkeys/0").write_text(f"{key}\n")
            (port / "pkeys/1").write_text("0x7fff\n")

    def run(self, launch: Launch, environment: Mapping[str, str] | None = None) -> Ran:
        """The application text, as the plan has it run."""
        for file in launch.files:
            path = self.task / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(file.data.decode()))
            path.chmod(file.mode)
        (self.task / ".batchtrain/launch.sh").write_text(self._here(launch.application))
        variables = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.task),
            "RECORD": str(self.record),
            "AZ_BATCH_NODE_ID": "tvm-0",
            "AZ_BATCH_TASK_SHARED_DIR": str(self.task),
            "AZ_BATCH_TASK_WORKING_DIR": str(self.task / "wd"),
            "AZ_BATCH_HOST_LIST": SERVICE_ORDER,
            "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000",
            "BATCHTRAIN_BARRIER_SECONDS": "1",
            **(environment or {}),
        }
        done = subprocess.run(
            ["/bin/bash", self.task / ".batchtrain/launch.sh"],
            env=variables, cwd=self.task / "wd", capture_output=True, text=True, errors="replace",
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        argv, seen = self._recorded("argv"), self._recorded("environment") or []
        return Ran(
            done.returncode,
            done.stderr.replace(f"{self.dev}/", "/dev/"),
            argv,
            dict(pair.split("=", 1) for pair in seen),
            done.stdout,
        )

    def _here(self, text: str) -> str:
        return (
            self.machine.seen_by(text)
            .replace("/sys/class", f"{self.sys}/class")
            .replace("/dev/infin", f"{self.dev}/infin")
            .replace("/dev/kfd", f"{self.dev}/kfd")
            .replace("/etc/nccl.conf", f"{self.record}/nccl.conf")
        )

    def _recorded(self, name: str) -> list[str] | None:
        path = self.record / name
        return path.read_text().split("\0")[:-1] if path.exists() else None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def launch(runtime: str = "mpich", command: str = "./solve", shape: Shape | None = None, **options: object) -> Launch:
    options.setdefault("processes_per_node", 1)
    options.setdefault("preflight", False)  # the hosts are not there
    return launched("mpi", command, shape or Shape(2), runtime=runtime, **options)


# --- the table --------------------------------------------------------------------------------------------------

EACH = {"integer": "4", "command": "4", "absent": "1"}
TOTAL = {"integer": "8", "command": "8", "absent": "2"}
PLACE = {
    "intelmpi": "-hosts {hosts} -np {total} -perhost {each}",
    "intelmpi-ofa": "-hosts {hosts} -np {total} -perhost {each}",
    "mpich": "-hosts {hosts} -np {total} -ppn {each}",
    "mvapich": "-hosts {hosts} -np {total} -ppn {each}",
    "openmpi": "-host {slots} -np {total} --map-by ppr:{each}:node{pe}",
}
BOUND = {"mpich": "-bind-to core:2", "mvapich": "-bind-to core:2", "openmpi": "--bind-to core"}
"""Four ranks on a node of eight cores."""
DAPL = {
    "I_MPI_FALLBACK": "0",
    "I_MPI_FABRICS": "shm:dapl",
    "I_MPI_DAPL_PROVIDER": "ofa-v2-ib0",
    "I_MPI_DYNAMIC_CONNECTION": "0",
    "I_MPI_DAPL_TRANSLATION_CACHE": "0",
    "MANPATH": "/usr/share/man:/usr/local/man",
}
UCX = {"UCX_IB_PKEY": "0x0123", "UCX_NET_DEVICES": "mlx5_ib0:1"}
UCX_TCP = {"UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "eth0"}
LIBFABRIC_TCP = {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
TCP: dict[str, dict[str, str]] = {
    "intelmpi": LIBFABRIC_TCP,
    "intelmpi-ofa": {**LIBFABRIC_TCP, "I_MPI_FABRICS": "shm:tcp"},
    "mpich": {**UCX_TCP, **LIBFABRIC_TCP},
    "mvapich": {**UCX_TCP, **LIBFABRIC_TCP},
    "openmpi": UCX_TCP,
}
ENVIRONMENT: dict[tuple[str, Fabric], dict[str, str]] = {
    ("intelmpi", Fabric.SR_IOV): {"I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": "mlx", **UCX},
    ("intelmpi-ofa", Fabric.SR_IOV): {"I_MPI_FALLBACK": "0", "I_MPI_FABRICS": "shm:ofa"},
    ("mpich", Fabric.SR_IOV): UCX,
    ("mvapich", Fabric.SR_IOV): UCX,
    ("openmpi", Fabric.SR_IOV): UCX,
    ("intelmpi", Fabric.NETWORK_DIRECT): DAPL,
    ("intelmpi-ofa", Fabric.NETWORK_DIRECT): DAPL,
    **{(runtime, Fabric.NETWORK_DIRECT): TCP[runtime] for runtime in ("mpich", "mvapich", "openmpi")},
    **{(runtime, Fabric.ETHERNET): variables for runtime, variables in TCP.items()},
}
OPENMPI_INTERFACE = ["--mca", "btl_tcp_if_include", "eth0"]
OPENMPI_TCP = [
    *OPENMPI_INTERFACE, "--mca", "pml", "ob1", "--mca", "btl", "^openib,uct,ofi", "--mca", "coll", "^hcoll,ucc",
]  # fmt: skip
OPENMPI_FABRIC = {
    Fabric.SR_IOV: ["--mca", "pml", "ucx", "--mca", "btl", "^vader,tcp,openib"],
    Fabric.NETWORK_DIRECT: OPENMPI_TCP,
    Fabric.ETHERNET: OPENMPI_TCP,
    Fabric.IMAGE: OPENMPI_INTERFACE,
}
FABRIC_NAMES = ("I_MPI_", "FI_", "UCX_", "MANPATH")


def without_exports(argv: list[str]) -> list[str]:
    """Open MPI's arguments but for `-x NAME`."""
    places = [index for index, word in enumerate(argv) if word == "-x"]
    drop = {*places, *(place + 1 for place in places)}
    return [word for index, word in enumerate(argv) if index not in drop]


@pytest.mark.parametrize("container", [False, True], ids=["host", "container"])
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("fabric", Fabric, ids=lambda fabric: fabric.value)
@pytest.mark.parametrize("runtime", PLACE)
def test_a_row_of_the_table(runtime: str, fabric: Fabric, ranks: str, container: bool, node: Node) -> None:
    node.infiniband(("mlx5_an0", "Ethernet", "4: ACTIVE", "0xffff"), ("mlx5_ib0", "InfiniBand", "4: ACTIVE", "0x8123"))
    shape = Shape(2, fabric, container)
    made = launch(runtime, "./solve -q 1", shape, options=("-own A",), processes_per_node=RANKS[ranks])
    ran = node.run(made)
    assert ran.code == 0, ran.stderr
    assert ran.argv is not None
    each, shared = EACH[ranks], EACH[ranks] != "1"
    slots = ",".join(f"{host}:{each}" for host in HOSTS)
    expected = (
        PLACE[runtime]
        .format(hosts=PRIMARY_FIRST, slots=slots, total=TOTAL[ranks], each=each, pe=":pe=2" * shared)
        .split()
    )
    expected += BOUND.get(runtime, "").split() if shared else []
    argv = ran.argv
    if runtime == "openmpi":
        expected += [] if shared else ["--bind-to", "none"]
        expected += ["--allow-run-as-root"] if container else []
        expected += ["--prefix", str(node.bin.parent), *OPENMPI_FABRIC[fabric]]
        argv = without_exports(argv)
    assert argv == ["-own", "A", *expected, "sh", f"{node.task}/.batchtrain/rank.sh", "./solve", "-q", "1"]
    wanted = ENVIRONMENT.get((runtime, fabric), {})
    assert wanted.items() <= ran.environment.items()
    if not wanted:
        assert not [name for name in ran.environment if name.startswith(FABRIC_NAMES)]
    said = "1 rank on each node" in ran.stderr
    assert said is (ranks == "absent")


# --- fabric -----------------------------------------------------------------------------------------------------

RDMA = [
    row for row in itertools.product(PLACE, (Fabric.SR_IOV, Fabric.NETWORK_DIRECT)) if MPIS[row[0]].on(row[1]).device
]


@pytest.mark.parametrize(("runtime", "fabric"), RDMA)
def test_rdma_without_the_device_stops_with_the_reason(runtime: str, fabric: Fabric, node: Node) -> None:
    ran = node.run(launch(runtime, shape=Shape(2, fabric)))
    assert (ran.code, ran.argv) == (1, None)
    assert "no /dev/infiniband" in ran.stderr


@pytest.mark.parametrize(("runtime", "fabric"), RDMA)
def test_rdma_on_the_emulator_is_tcp_said_once(runtime: str, fabric: Fabric, node: Node) -> None:
    ran = node.run(launch(runtime, shape=Shape(2, fabric)), {"BATCHTRAIN_EMULATED_NODE": str(node.task)})
    assert ran.code == 0
    assert ran.stderr.count("the ranks talk over tcp") == 1
    assert not [name for name in ran.environment if name.startswith(FABRIC_NAMES)]
    assert "--mca" not in (ran.argv or [])


@pytest.mark.parametrize("fabric", Fabric)
def test_ranks_of_open_mpi_on_one_machine_talk_over_its_loopback_interface(fabric: Fabric, node: Node) -> None:
    """Where all nodes share it; the others may go away under a job, as Docker's bridges do."""
    here = {
        "BATCHTRAIN_EMULATED_NODE": str(node.task),
        "AZ_BATCH_HOST_LIST": "127.0.0.4,127.0.0.5",
        "AZ_BATCH_MASTER_NODE": "127.0.0.4:6000",
    }
    ran = node.run(launch("openmpi", shape=Shape(2, fabric)), here)
    assert ran.argv is not None, ran.stderr
    assert ran.argv[ran.argv.index("--mca") :][:3] == ["--mca", "btl_tcp_if_include", "lo"]
    assert "eth0" not in ran.argv


def test_every_active_infiniband_port_is_used_and_no_other(node: Node) -> None:
    node.infiniband(
        ("mlx5_0", "Ethernet", "4: ACTIVE", "0xffff"),
        ("mlx5_ib0", "InfiniBand", "4: ACTIVE", "0xffff"),
        ("mlx5_ib1", "InfiniBand", "1: DOWN", "0xffff"),
        ("mlx5_ib2", "InfiniBand", "4: ACTIVE", "0xffff"),
    )
    ran = node.run(launch("openmpi", shape=Shape(2, Fabric.SR_IOV)))
    assert ran.environment["UCX_NET_DEVICES"] == "mlx5_ib0:1,mlx5_ib2:1"
    assert "UCX_IB_PKEY" not in ran.environment  # the default key needs no word
    assert "UCX_NET_DEVICES" in (ran.argv or [])


def test_a_port_whose_partitions_cannot_be_read_is_used_all_the_same(node: Node) -> None:
    node.infiniband(("mlx5_ib0", "InfiniBand", "4: ACTIVE", "0x8013"))
    for key in node.sys.rglob("pkeys/*"):
        key.unlink()
    ran = node.run(launch("openmpi", shape=Shape(2, Fabric.SR_IOV)))
    assert ran.environment["UCX_NET_DEVICES"] == "mlx5_ib0:1"
    assert "ucx" in (ran.argv or [])


@pytest.mark.parametrize("runtime", ["intelmpi", "openmpi"])
def test_nccl_in_an_mpis_ranks_is_kept_to_those_ports(runtime: str, node: Node) -> None:
    node.infiniband(("mlx5_0", "Ethernet", "4: ACTIVE", "0xffff"), ("mlx5_ib0", "InfiniBand", "4: ACTIVE", "0xffff"))
    gpus = Shape(2, Fabric.SR_IOV, family="ND H100 v5", gpus=8, gpu_vendor="nvidia")
    assert node.run(launch(runtime, shape=gpus)).environment["NCCL_IB_HCA"] == "=mlx5_ib0:1"
    assert node.run(launch(runtime, shape=gpus), {"NCCL_IB_HCA": "x"}).environment["NCCL_IB_HCA"] == "x"
    assert "NCCL_IB_HCA" not in node.run(launch(runtime, shape=Shape(2, Fabric.SR_IOV))).environment


def test_no_active_port_stops_with_the_reason(node: Node) -> None:
    node.infiniband(("mlx5_ib0", "InfiniBand", "1: DOWN", "0xffff"))
    ran = node.run(launch("openmpi", shape=Shape(2, Fabric.SR_IOV)))
    assert (ran.code, ran.argv) == (1, None)
    assert "no InfiniBand port of this node is active" in ran.stderr


def test_a_fabric_variable_that_is_set_keeps_its_value(node: Node) -> None:
    node.infiniband(("mlx5_ib0", "InfiniBand", "4: ACTIVE", "0xffff"))
    ran = node.run(launch("intelmpi", shape=Shape(2, Fabric.SR_IOV)), {"FI_PROVIDER": "verbs"})
    assert (ran.environment["FI_PROVIDER"], ran.environment["I_MPI_FABRICS"]) == ("verbs", "shm:ofi")


GPUS = Shape(2, size="Standard_NC96ads_A100_v4", family="NC A100 v4", gpus=4, gpu_vendor="nvidia")
USERS = [
    ("mpich", "UCX_TLS", "rc", {"UCX_NET_DEVICES"}),
    ("mpich", "FI_PROVIDER", "sockets", set()),
    ("intelmpi", "FI_PROVIDER", "verbs", set()),
    ("intelmpi", "I_MPI_OFI_PROVIDER", "verbs", {"FI_PROVIDER"}),
    ("openmpi", "UCX_TLS", "rc", {"UCX_NET_DEVICES"}),
    ("openmpi", "NCCL_NET", "IB", {"NCCL_IB_DISABLE"}),
    ("openmpi", "NCCL_IB_DISABLE", "0", {"NCCL_NET"}),
]
"""A variable that chooses a transport, and those of ours that would contradict it."""


@pytest.mark.parametrize("how", ["variable", "pre_execution_command", "option"])
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize(("runtime", "name", "value", "left_out"), USERS)
def test_a_transport_that_the_user_chooses_is_not_overridden(
    runtime: str, name: str, value: str, left_out: set[str], explicit: bool, how: str, node: Node
) -> None:
    options: dict[str, dict[str, object]] = {
        "variable": {"own": frozenset({name})},
        "pre_execution_command": {"pre_execution_command": f"export {name}={value}"},
        "option": {"options": (f"-x {name}={value}" if runtime == "openmpi" else f"-genv {name} {value}",)},
    }
    made = launch(runtime, shape=GPUS._replace(explicit_fabric=explicit), **options[how])
    ran = node.run(made, {name: value} if how == "variable" else {})
    if how == "option":
        assert name not in ran.environment
        assert [word for word in ran.argv or [] if word.startswith(name)] == [
            name if runtime != "openmpi" else f"{name}={value}"
        ]
    else:
        assert ran.environment[name] == value
    assert how == "pre_execution_command" or not left_out & ran.environment.keys()


PML = ({"OMPI_MCA_pml": "cm"}, {"OMPI_MCA_mtl": "ofi"}, {"OMPI_MCA_btl": "tcp,self"})


@pytest.mark.parametrize("fabric", [Fabric.ETHERNET, Fabric.SR_IOV])
@pytest.mark.parametrize("variables", PML)
@pytest.mark.parametrize("how", ["variable", "pre_execution_command", "option", "image"])
def test_a_layer_of_open_mpi_that_is_chosen_is_not_overridden(
    how: str, variables: dict[str, str], fabric: Fabric, node: Node
) -> None:
    node.infiniband(("mlx5_ib0", "InfiniBand", "4: ACTIVE", "0xffff"))
    [(name, value)] = variables.items()
    options: dict[str, dict[str, object]] = {
        "variable": {"own": frozenset({name})},
        "pre_execution_command": {"pre_execution_command": f"export {name}={value}"},
        "option": {"options": (f"--mca {name[9:]} {value}",)},
        "image": {},
    }
    made = launch("openmpi", shape=Shape(2, fabric), **options[how])
    argv = node.run(made, variables if how in ("variable", "image") else {}).argv or []
    words = [argv[index + 1] for index, word in enumerate(argv) if word == "--mca"]
    assert not {"pml", "btl", "mtl"} & {*words} - ({name[9:]} if how == "option" else set())


@pytest.mark.parametrize(("explicit", "value"), [(False, "rc"), (True, "tcp,self,sm")])
def test_an_explicit_infiniband_counts_more_than_the_image_and_the_image_more_than_the_size(
    explicit: bool, value: str, node: Node
) -> None:
    made = launch("mpich", shape=Shape(2, explicit_fabric=explicit))
    assert node.run(made, {"UCX_TLS": "rc"}).environment["UCX_TLS"] == value


@pytest.mark.parametrize(("explicit", "expected"), [(False, None), (True, "Socket")])
def test_so_does_the_image_by_its_file_for_nccl(explicit: bool, expected: str | None, node: Node) -> None:
    (node.record / "nccl.conf").write_text("NCCL_NET=IB\nNCCL_TOPO_FILE=/opt/topo.xml\n")
    ran = node.run(launch("mpich", shape=GPUS._replace(explicit_fabric=explicit)))
    assert ran.environment.get("NCCL_NET") == expected
    assert "NCCL_TOPO_FILE" not in ran.environment


def test_ucx_is_kept_to_no_port_if_the_user_takes_it_over_tcp_on_infiniband(node: Node) -> None:
    node.infiniband(("mlx5_ib0", "InfiniBand", "4: ACTIVE", "0xffff"))
    made = launch("mpich", shape=Shape(2, Fabric.SR_IOV))
    assert "UCX_NET_DEVICES" not in node.run(made, {"UCX_TLS": "tcp,self,sm"}).environment
    assert node.run(made, {"UCX_TLS": "rc,self"}).environment["UCX_NET_DEVICES"] == "mlx5_ib0:1"


def test_ucx_keeps_the_transports_for_the_memory_of_gpus(node: Node) -> None:
    assert node.run(launch("mpich", shape=GPUS)).environment["UCX_TLS"] == "tcp,self,sm,cuda"


@pytest.mark.parametrize(("each", "replaced"), [(4, False), (2, True)])
def test_the_images_file_of_ways_between_four_gpus_is_not_used_with_fewer(
    each: int, replaced: bool, node: Node
) -> None:
    (node.record / "nccl.conf").write_text("NCCL_GRAPH_FILE=/opt/microsoft/ncv4/graph.xml\n")
    path = node.run(launch("openmpi", shape=GPUS, processes_per_node=each)).environment.get("NCCL_GRAPH_FILE")
    assert path == ("/dev/null" if replaced else None)
    mine = launch("openmpi", shape=GPUS, processes_per_node=each, own=frozenset({"NCCL_GRAPH_FILE"}))
    assert node.run(mine, {"NCCL_GRAPH_FILE": "mine"}).environment["NCCL_GRAPH_FILE"] == "mine"


# --- slots and cores ----------------------------------------------------------------------------------------------


def test_more_ranks_than_processors_are_slots_for_the_processors_and_that_is_said(node: Node) -> None:
    ran = node.run(launch("openmpi", processes_per_node=9))
    assert ran.argv is not None
    assert ran.argv[:3] == ["--oversubscribe", "-host", "10.0.0.4:8,10.0.0.5:8"]
    assert ran.argv[ran.argv.index("--bind-to") + 1] == "none"
    assert "9 ranks share the 8 processors of a node" in ran.stderr


@pytest.mark.parametrize(("each", "value"), [(8, None), (9, "3")])
def test_so_many_ranks_of_intel_mpi_yield(each: int, value: str | None, node: Node) -> None:
    ran = node.run(launch("intelmpi", processes_per_node=each))
    assert (ran.environment.get("I_MPI_THREAD_YIELD"), ran.environment.get("I_MPI_PIN")) == (value, value and "0")


BINDINGS = [
    ("openmpi", "--bind-to socket", "OMPI_MCA_hwloc_base_binding_policy", {"core", "none"}),
    ("openmpi", "--map-by socket:pe=4", "PRTE_MCA_hwloc_default_binding_policy", {"core", "none", "ppr:4:node:pe=2"}),
    ("mpich", "-bind-to numa", "HYDRA_BINDING", {"core:2"}),
    ("mvapich", "-genv MV2_ENABLE_AFFINITY 1", "MV2_CPU_MAPPING", {"core:2"}),
]


@pytest.mark.parametrize(("runtime", "option", "variable", "ours"), BINDINGS)
def test_a_binding_of_the_user_or_the_image_is_the_only_one(
    runtime: str, option: str, variable: str, ours: set[str], node: Node
) -> None:
    assert ours & {*(node.run(launch(runtime, processes_per_node=4)).argv or [])}
    by_option = node.run(launch(runtime, processes_per_node=4, options=(option,)))
    by_variable = node.run(launch(runtime, processes_per_node=4), {variable: "x"})
    for ran in (by_option, by_variable):
        assert not ours & {*(ran.argv or [])}
        assert "MV2_ENABLE_AFFINITY" not in ran.environment


@pytest.mark.parametrize("runtime", ["openmpi", "mpich", "mvapich", "intelmpi"])
def test_emulated_nodes_share_their_cores_so_no_rank_is_bound(runtime: str, node: Node) -> None:
    ran = node.run(launch(runtime, processes_per_node=4), {"BATCHTRAIN_EMULATED_NODE": str(node.task)})
    assert not {"core", "core:2"} & {*(ran.argv or [])}
    assert ran.environment.get("I_MPI_PIN") == ("0" if runtime == "intelmpi" else None)


def test_pre_execution_overrides_the_fabric(node: Node) -> None:
    node.infiniband(("mlx5_ib0", "InfiniBand", "4: ACTIVE", "0xffff"))
    made = launch("intelmpi", shape=Shape(2, Fabric.SR_IOV), pre_execution_command="export FI_PROVIDER=verbs")
    assert node.run(made).environment["FI_PROVIDER"] == "verbs"


NEW = {"MPI_VERSION": "Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20260101"}
REMOVED = [
    ("intelmpi", Fabric.NETWORK_DIRECT, "DAPL"),
    ("intelmpi-ofa", Fabric.NETWORK_DIRECT, "DAPL"),
    ("intelmpi-ofa", Fabric.SR_IOV, "OFA"),
]


@pytest.mark.parametrize(("runtime", "fabric", "removed"), REMOVED)
def test_what_intel_mpi_2019_removed_is_refused(runtime: str, fabric: Fabric, removed: str, node: Node) -> None:
    node.infiniband()
    ran = node.run(launch(runtime, shape=Shape(2, fabric)), NEW)
    assert (ran.code, ran.argv) == (1, None)
    assert f"Intel MPI 2021.18 has no {removed}" in ran.stderr


def test_the_emulator_says_what_would_be_refused_and_goes_on(node: Node) -> None:
    ran = node.run(
        launch("intelmpi", shape=Shape(2, Fabric.NETWORK_DIRECT)), {**NEW, "BATCHTRAIN_EMULATED_NODE": str(node.task)}
    )
    assert ran.code == 0
    assert ran.stderr.count("Intel MPI 2021.18 has no DAPL") == 1


@pytest.mark.parametrize("version", ["Version 5.1.3 Build 20160120", "Version 2018 Update 4 Build 20180823"])
def test_older_intel_mpis_have_dapl(version: str, node: Node) -> None:
    node.infiniband()
    ran = node.run(
        launch("intelmpi", shape=Shape(2, Fabric.NETWORK_DIRECT)), {"MPI_VERSION": f"Intel(R) MPI, {version}"}
    )
    assert ran.code == 0


# --- pre_execution_command --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["source", "."])
@pytest.mark.parametrize("text", ["{how} /not/there.sh", "true; {how} '/not/there.sh' -a", "A=/not; {how} $A/there.sh"])
def test_a_sourced_file_that_is_missing_stops_the_task(how: str, text: str, node: Node) -> None:
    ran = node.run(launch(pre_execution_command=text.format(how=how)))
    assert (ran.code, ran.argv) == (1, None)
    assert "/not/there.sh is not there" in ran.stderr


def test_a_missing_file_stops_what_follows_it_in_the_text(node: Node) -> None:
    ran = node.run(launch(pre_execution_command="source /not/there.sh; touch $RECORD/went-on"))
    assert not (node.record / "went-on").exists()
    assert ran.code == 1


def test_sourced_files_keep_their_arguments_globals_and_names_on_path(node: Node) -> None:
    (node.bin / "activate").write_text('declare GLOBAL="$1"\nexport SEEN=yes\n')
    ran = node.run(launch(pre_execution_command='source activate "a b"; export COPY="$GLOBAL"'))
    assert (ran.environment["SEEN"], ran.environment["COPY"]) == ("yes", "a b")


def test_a_test_before_the_source_is_honoured(node: Node) -> None:
    assert node.run(launch(pre_execution_command="[ -f /not/there ] && source /not/there")).code == 0


def test_a_non_zero_end_is_a_warning(node: Node) -> None:
    ran = node.run(launch(pre_execution_command="export A=1; (exit 3)"))
    assert (ran.code, ran.environment["A"]) == (0, "1")
    assert "warning: pre_execution_command ended with code 3" in ran.stderr


def test_strict_shell_options_of_the_text_do_not_reach_the_launch(node: Node) -> None:
    assert node.run(launch("openmpi", pre_execution_command="set -u")).code == 0


def test_names_that_the_text_uses_for_itself_do_no_harm(node: Node) -> None:
    text = "stop() { :; }; IFS=/; hosts=x; line=y; code=9; event=z; host=q; launcher=1"
    assert node.run(launch(pre_execution_command=text)).code == 0


QUOTED = "single ' double \" dollar $ back` slash \\ end"


def test_quotes_survive_in_the_text_and_in_the_payload(node: Node) -> None:
    made = launch(
        command="./solve 'a  b' \"$A\" $AZ_BATCH_TASK_WORKING_DIR/output /bin/bash -c 'echo \"$0\"'",
        pre_execution_command="export A='single '\\'' double \" dollar $ back` slash \\ end'",
        options=("-genv 'B C' \"$A\"",),
    )
    ran = node.run(made)
    assert ran.environment["A"] == QUOTED
    assert ran.argv is not None
    assert ran.argv[:3] == ["-genv", "B C", QUOTED]
    tail = ran.argv[ran.argv.index("./solve") + 1 :]
    assert tail == ["a  b", QUOTED, f"{node.task}/wd/output", "/bin/bash", "-c", 'echo "$0"']


def test_executable_path_is_taken_as_written(node: Node) -> None:
    (node.bin / "MyMPI").mkdir()
    shutil.copy(node.bin / "mpirun", node.bin / "MyMPI/MPIexec.Hydra")
    made = launch(executable_path="$HERE/MyMPI/MPIexec.Hydra", pre_execution_command=f"HERE={node.bin}")
    assert node.run(made).argv is not None


# --- ranks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "printed"),
    [("echo 0", "'0'"), ("true", "''"), ("echo four", "'four'"), ("printf '2\\n3\\n'", "'2 3'"), ("echo -1", "'-1'")],
)
def test_a_command_that_prints_no_number_of_ranks_stops_the_task(command: str, printed: str, node: Node) -> None:
    ran = node.run(launch(processes_per_node=command))
    assert (ran.code, ran.argv) == (1, None)
    assert f"`{command}` printed {printed}" in ran.stderr


MIG = "GPU 0: A100 (UUID: GPU-0)\n  MIG 3g.20gb Device 0: (UUID: MIG-0)\n  MIG 3g.20gb Device 1: (UUID: MIG-1)\n"


@pytest.mark.parametrize(
    ("program", "ranks"),
    [("for i in 0 1 2 3; do echo GPU $i; done", 4), (f"printf '{MIG}'", 2), ("echo NVIDIA-SMI has failed; exit 9", 1)],
)
def test_auto_is_the_gpus_that_ranks_can_have(program: str, ranks: int, node: Node) -> None:
    node.program("nvidia-smi", program)
    argv = node.run(launch(processes_per_node="auto")).argv or []
    assert argv[argv.index("-ppn") + 1] == str(ranks)


def test_no_driver_is_named_as_the_likely_reason(node: Node) -> None:
    node.program("nvidia-smi", "exit 9")
    ran = node.run(launch(processes_per_node="nvidia-smi -L | wc -l"))
    assert ran.code == 1
    assert "`nvidia-smi -L | wc -l` printed '0'" in ran.stderr
    assert "no driver" in ran.stderr


@pytest.mark.parametrize("command", ["echo ' 08 '", "echo 8 # eight", "echo 4 |\nawk '{ print $1 * 2 }'"])
def test_a_number_in_any_clothes_is_taken(command: str, node: Node) -> None:
    argv = node.run(launch(processes_per_node=command)).argv or []
    assert argv[argv.index("-np") : argv.index("-np") + 4] == ["-np", "16", "-ppn", "8"]


# --- hosts ------------------------------------------------------------------------------------------------------


def test_a_list_without_the_primary_stops_the_task(node: Node) -> None:
    ran = node.run(launch(), {"AZ_BATCH_HOST_LIST": "10.0.0.5,10.0.0.6"})
    assert (ran.code, ran.argv) == (1, None)
    assert "10.0.0.4 is not in AZ_BATCH_HOST_LIST" in ran.stderr


def test_hosts_that_do_not_answer_are_named(node: Node) -> None:
    hosts = ",".join(f"10.0.0.{number}" for number in range(2, 10))
    ran = node.run(
        launch(shape=Shape(8)),
        {"AZ_BATCH_HOST_LIST": hosts, "DEAD": "10.0.0.7 10.0.0.5", "BATCHTRAIN_BARRIER_SECONDS": "1"},
    )
    assert (ran.code, ran.argv) == (1, None)
    assert "batchtrain: nodes 10.0.0.5 and 10.0.0.7 of 8 did not answer ssh in 1 s\n" in ran.stderr
    assert "10.0.0.5: ssh: connect to host 10.0.0.5 port 22: No route to host" in ran.stderr


def test_hosts_that_let_nobody_in_are_told_from_those_that_do_not_answer(node: Node) -> None:
    given = {"BATCHTRAIN_BARRIER_SECONDS": "1"}
    shut = node.run(launch(), {**given, "SHUT": "10.0.0.5"})
    assert "batchtrain: node 10.0.0.5 of 2 accepted no ssh connection in 1 s; " in shut.stderr
    assert "`batchtrain images check`" in shut.stderr
    both = node.run(launch(shape=Shape(3)), {**given, "AZ_BATCH_HOST_LIST": "10.0.0.4,10.0.0.5,10.0.0.6",
                                             "SHUT": "10.0.0.5", "DEAD": "10.0.0.6"})  # fmt: skip
    assert "nodes 10.0.0.5 and 10.0.0.6 of 3 did not answer ssh in 1 s\n" in both.stderr


def test_a_single_instance_asks_nobody(node: Node) -> None:
    ran = node.run(launch(shape=Shape(1)), {"AZ_BATCH_HOST_LIST": "10.0.0.4"})
    assert ran.code == 0
    assert not (node.record / "ssh").exists()


def test_ssh_is_batchtrains_own_with_port_23_in_a_container(node: Node) -> None:
    node.program("mpirun", "ssh 10.0.0.5 true")
    node.run(launch(shape=Shape(2, container=True)))
    lines = (node.record / "ssh").read_text().splitlines()
    assert lines
    assert all(line.startswith("-p 23 -o BatchMode=yes -o StrictHostKeyChecking=no") for line in lines)


def test_on_the_emulator_the_ssh_of_path_stays(node: Node) -> None:
    node.program("mpirun", "ssh 10.0.0.5 true")
    node.run(launch(shape=Shape(2, container=True)), {"BATCHTRAIN_EMULATED_NODE": str(node.task)})
    assert "10.0.0.5 true" in (node.record / "ssh").read_text().splitlines()


# --- environment for Open MPI -----------------------------------------------------------------------------------


def test_open_mpi_is_told_every_exported_variable_but_the_nodes_own(node: Node) -> None:
    made = launch("openmpi", pre_execution_command="export FROM_PRE=1; export -f true_ 2>/dev/null; LOCAL=2")
    given = {"FROM_TASK": "a;b\nc", "OMPI_MCA_x": "1", "SSH_TTY": "x", "TERM": "x", "BASH_FUNC_f%%": "() { :; }"}
    argv = node.run(made, given).argv or []
    named = {argv[index + 1] for index, word in enumerate(argv) if word == "-x"}
    assert {"FROM_PRE", "FROM_TASK", "PATH", "BATCHTRAIN_HOST_LIST"} <= named
    assert not named & {"LOCAL", "OMPI_MCA_x", "SSH_TTY", "TERM", "HOME", "PWD", "SHLVL", "_", "BASH_FUNC_f%%"}
    assert not [name for name in named if name.startswith("AZ_BATCH_")]


# --- Python -----------------------------------------------------------------------------------------------------


def test_mpi4py_is_put_in_where_it_is(node: Node) -> None:
    assert " ".join(node.run(launch(command="python -u train.py")).argv or []).endswith("python -u -m mpi4py train.py")


def test_a_python_without_mpi4py_is_left_alone_and_said(node: Node) -> None:
    ran = node.run(launch(command="python -u train.py"), {"NO_MPI4PY": "1"})
    assert (ran.argv or [])[-3:] == ["python", "-u", "train.py"]
    assert "python has no mpi4py" in ran.stderr


# --- ends -------------------------------------------------------------------------------------------------------


def test_the_launchers_own_failure_is_its_code_and_said(node: Node) -> None:
    ran = node.run(launch(), {"MPI_CODE": "3"})
    assert ran.code == 3
    assert "mpirun ended with code 3, and no rank reported a failure" in ran.stderr


def test_a_launcher_that_is_not_there_is_127(node: Node) -> None:
    (node.bin / "mpirun").unlink()
    ran = node.run(launch())
    assert ran.code == 127
    assert "batchtrain: there is no mpirun on PATH" in ran.stderr
    assert "mpi.executable_path" in ran.stderr


def test_stderr_passes_unchanged_in_partial_lines_floods_and_bytes(node: Node) -> None:
    flood = "head -c 3000000 /dev/zero | tr '\\0' x"
    node.program("mpirun", rf"(printf 'no newline'; {flood}; printf '\377\n\000end') >&2")
    assert node.run(launch()).stderr == "no newline" + "x" * 3_000_000 + "\N{REPLACEMENT CHARACTER}\n\0end"


def test_redirections_and_pipes_of_the_command_work_as_written(node: Node) -> None:
    node.program("mpirun", "echo out; echo err >&2; exit ${MPI_CODE-0}")
    ran = node.run(launch(command="x 2>errors | tee copy"), {"MPI_CODE": "4"})
    assert (ran.code, ran.stdout) == (4, "out\n")
    assert (node.task / "wd/copy").read_text() == "out\n"
    assert (node.task / "wd/errors").read_text() == "err\n"
    assert ran.stderr == "batchtrain: mpirun ended with code 4, and no rank reported a failure\n"


@pytest.mark.parametrize("waiting", ["sleep 20", "while :; do sleep 0.1; done"])
def test_a_launcher_that_must_be_killed_is_not_remarked_on(waiting: str, node: Node) -> None:
    line = "batchtrain: rank 0 on node tvm-0 (10.0.0.4) exited with code 9"
    note = "mkdir -p $AZ_BATCH_TASK_SHARED_DIR/.batchtrain/ranks; cd $AZ_BATCH_TASK_SHARED_DIR/.batchtrain/ranks"
    note += "; echo 1700000000.5 0 9 tvm-0 10.0.0.4 >0.failed"
    node.program("mpirun", f"trap '' TERM; {note}; echo '{line}' >&2; {waiting}")
    ran = node.run(launch())
    assert (ran.code, ran.stderr) == (9, f"{line}\n")


@pytest.mark.parametrize("code", [0, 205])
def test_a_node_that_open_mpi_has_lost_is_a_failure_though_its_launcher_ends_well(code: int, node: Node) -> None:
    node.program("mpirun", "echo PRTE has lost communication with a remote daemon. >&2; exit $MPI_CODE")
    ran = node.run(launch("openmpi"), {"MPI_CODE": str(code)})
    assert ran.code == (code or 1)
    assert ran.stderr.splitlines()[-1].startswith("batchtrain: mpirun lost a node: its daemon there is gone")


def test_stdin_reaches_the_launcher(node: Node) -> None:
    node.program("mpirun", "cat")
    assert node.run(launch(command="x <<<hello")).stdout == "hello\n"


# --- without mpi ------------------------------------------------------------------------------------------------


def test_a_plain_command_runs_after_pre_execution_and_gives_its_code(node: Node) -> None:
    made = launched("plain", "echo \"$A\" 'b  c'; exit 5", Shape(1), pre_execution_command="export A='it'\\''s'")
    ran = node.run(made)
    assert (ran.code, ran.stdout) == (5, "it's b  c\n")


def test_a_plain_commands_missing_source_stops_it(node: Node) -> None:
    ran = node.run(launched("plain", "touch $RECORD/ran", Shape(1), pre_execution_command="source /not/there"))
    assert ran.code == 1
    assert not (node.record / "ran").exists()


# --- coordination -----------------------------------------------------------------------------------------------


def coordinate(node: Node, made: Launch, **environment: str) -> subprocess.CompletedProcess[str]:
    node.run(made)  # lays the files
    variables = {"PATH": "/usr/bin:/bin", "AZ_BATCH_TASK_SHARED_DIR": str(node.task), **environment}
    return subprocess.run(
        ["/bin/bash", "-c", made.coordination],
        env=variables,
        cwd=node.task,
        capture_output=True,
        text=True,
        check=False,
    )


def test_coordination_keeps_this_nodes_values_in_any_shells_words(node: Node) -> None:
    value = 'it\'s "a" $x `y` \\ \n end'
    assert coordinate(node, launch(), AZ_BATCH_NODE_ID=value, OTHER="x").returncode == 0
    shown = subprocess.run(
        ["/bin/sh", "-c", '. "$0"; printf %s "$AZ_BATCH_NODE_ID"', node.task / ".batchtrain/environment"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout == value
    kept = (node.task / ".batchtrain/environment").read_text()
    assert "OTHER" not in kept
    assert (node.task / ".batchtrain/environment").stat().st_mode & 0o777 == 0o600


def test_a_coordination_command_decides_how_it_ends(node: Node) -> None:
    assert coordinate(node, launch(coordination_command="exit 4")).returncode == 4


def test_the_emulator_needs_no_sshd(node: Node) -> None:
    done = coordinate(node, launch(shape=Shape(2, container=True)), BATCHTRAIN_EMULATED_NODE=str(node.task))
    assert (done.returncode, done.stderr) == (0, "")
