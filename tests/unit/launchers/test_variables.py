"""Which variables a launch sets by itself, by the size of its nodes."""

from __future__ import annotations

import pytest

from batchtrain.catalog.sizes import SIZES
from batchtrain.frameworks.base import AUTO, Fabric, Shape, Variable
from batchtrain.frameworks.mpi import runs_cntk
from batchtrain.launchers import variables

H100 = Shape(2, Fabric.SR_IOV, size="S", family="ND H100 v5", gpus=8, gpu_vendor="nvidia")
PLAIN = {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"}


def names(rows: tuple[Variable, ...]) -> set[str]:
    return {row.name for row in rows}


@pytest.mark.parametrize(
    ("gpus", "vendor", "more"),
    [(0, "", set()), (8, "amd", {"NCCL_DEBUG"}), (8, "nvidia", {"NCCL_DEBUG", "CUDA_DEVICE_ORDER"})],
)
def test_every_process_is_told_of_gpus_only_where_there_are_some(gpus: int, vendor: str, more: set[str]) -> None:
    rows = variables.everywhere(Shape(2, size="S", gpus=gpus, gpu_vendor=vendor))
    assert names(rows) == {"OMP_NUM_THREADS", "PYTHONUNBUFFERED"} | more


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("", set()),
        ("ND GB300 v6", {
            "NCCL_NVLS_ENABLE", "NCCL_SHM_DISABLE", "NCCL_DMABUF_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_NET_CHUNKSIZE",
            "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SL", "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_C2C",
        }),
        ("NDv2", set()),
        ("ND H100 v5", {
            "NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_PXN_DISABLE", "NCCL_MIN_NCHANNELS", "NCCL_P2P_NET_CHUNKSIZE",
            "NCCL_IB_QPS_PER_CONNECTION",
        }),
    ],
)  # fmt: skip
def test_a_family_has_the_settings_of_its_own_images(family: str, more: set[str]) -> None:
    shape = H100._replace(family=family)
    assert names(variables.on_infiniband(shape)) == PLAIN | more


FOLDER = "/opt/microsoft"


@pytest.mark.parametrize("fabric", [Fabric.SR_IOV, Fabric.ETHERNET])
@pytest.mark.parametrize(
    ("family", "gpus", "expected"),
    [
        ("", 8, {}),
        ("NDv2", 8, {"NCCL_TOPO_FILE": f"{FOLDER}/ndv2/topo.xml"}),
        ("ND H200 v5", 8, {"NCCL_TOPO_FILE": f"{FOLDER}/ndv5/topo.xml"}),
        ("NC A100 v4", 4,
         {"NCCL_TOPO_FILE": f"{FOLDER}/ncv4/topo.xml", "NCCL_GRAPH_FILE": f"{FOLDER}/ncv4/graph.xml"}),
        ("NC A100 v4", 2, {"NCCL_GRAPH_FILE": "/dev/null"}),
        ("ND GB300 v6", 4, {"NCCL_MNNVL_ENABLE": AUTO}),
    ],
)  # fmt: skip
def test_a_node_has_what_its_image_tells_nccl_of_its_gpus_on_any_network(
    fabric: Fabric, family: str, gpus: int, expected: dict[str, str]
) -> None:
    rows = variables.of_node(H100._replace(fabric=fabric, family=family, gpus=gpus), AUTO)
    affinity = {"NCCL_IGNORE_CPU_AFFINITY": "1"} if family and gpus > 2 else {}
    assert variables.values(rows) == {**expected, **affinity}
    assert variables.of_node(H100._replace(family=family, gpus=0), AUTO) == ()


@pytest.mark.parametrize(
    "shape", [H100._replace(fabric=Fabric.ETHERNET), H100._replace(fabric=Fabric.NETWORK_DIRECT), H100._replace(gpus=0)]
)
def test_nccl_is_told_nothing_without_gpus_on_sr_iov(shape: Shape) -> None:
    assert variables.on_infiniband(shape) == ()
    assert variables.of_transport(shape, (), "") == ()
    assert variables.step_of_ranks(variables.of_ranks(shape, frozenset())).text == ""


def test_ucx_is_told_of_its_cards_also_without_gpus() -> None:
    assert names(variables.of_ucx(H100._replace(gpus=0))) == {"UCX_NET_DEVICES", "UCX_IB_PKEY"}


@pytest.mark.parametrize("fabric", [Fabric.ETHERNET, Fabric.NETWORK_DIRECT])
def test_without_infiniband_nccl_and_ucx_use_tcp(fabric: Fabric) -> None:
    shape = H100._replace(fabric=fabric)
    assert variables.values(variables.on_ethernet(shape)) == {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}
    assert variables.on_ethernet(shape._replace(gpus=0)) == variables.on_ethernet(H100) == ()
    ucx = {"UCX_TLS": "tcp,self,sm,cuda", "UCX_NET_DEVICES": AUTO}
    assert variables.values(variables.of_ucx(shape)) == ucx
    assert variables.values(variables.of_ucx(shape._replace(gpus=0)))["UCX_TLS"] == "tcp,self,sm"


def test_on_an_unknown_size_nothing_chooses_a_transport() -> None:
    shape = H100._replace(fabric=Fabric.IMAGE)
    assert variables.on_ethernet(shape) == variables.on_infiniband(shape) == variables.of_ucx(shape) == ()


@pytest.mark.parametrize(
    ("gpus", "processes", "replaced"),
    [(1, "auto", True), (2, None, True), (4, "auto", False), (4, 4, False), (4, 2, True), (4, 1, True), (0, 1, False)],
)
def test_nccl_gets_no_description_of_more_gpus_than_a_node_uses(
    gpus: int, processes: int | str | None, replaced: bool
) -> None:
    shape = Shape(2, size="S", family="NC A100 v4", gpus=gpus, gpu_vendor="nvidia")
    value = variables.NO_GRAPH if replaced else variables.GRAPH
    assert variables.values(variables.of_graph(shape, processes)) == ({"NCCL_GRAPH_FILE": value} if gpus else {})
    assert variables.of_graph(shape._replace(family="ND A100 v4"), processes) == ()


@pytest.mark.parametrize(
    ("own", "text", "noted"),
    [
        ((), "python t.py", True),
        (("NCCL_DEBUG_FILE",), "", False),
        (("OTHER",), "", True),
        ((), "X=$NCCL_DEBUG", False),
    ],
)
def test_a_log_of_the_users_own_is_left_alone(own: tuple[str, ...], text: str, noted: bool) -> None:
    rows = variables.of_transport(H100, own, text, "/f")
    assert [row.name for row in rows] == list(variables.NOTES) * noted
    assert not rows or rows[2].value == "/f"
    assert bool(variables.step_of_transport(rows).text) is noted


def test_the_ranks_of_an_mpi_have_the_ports_of_the_primary_and_leave_out_what_the_user_sets() -> None:
    rows = variables.of_ranks(H100, frozenset({"NCCL_PXN_DISABLE", "NCCL_P2P_NET_CHUNKSIZE"}))
    of_nccl = "NCCL_IB_PCI_RELAXED_ORDERING=1 NCCL_MIN_NCHANNELS=32 NCCL_IB_QPS_PER_CONNECTION=4"
    expected = dict(word.split("=") for word in of_nccl.split())
    assert variables.values(rows) == {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "=$bt_ports", **expected}
    lines = variables.step_of_ranks(rows).text.splitlines()
    assert "  bt_find_ports" in lines
    assert f'  bt_default NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA="=$bt_ports" {of_nccl}' in lines
    without = variables.step_of_ranks(variables.of_ranks(H100, frozenset({"NCCL_IB_HCA"}))).text
    assert "bt_find_ports" not in without


def test_a_file_is_only_named_where_it_can_be_read() -> None:
    lines = variables.step_of_node(variables.of_node(H100, AUTO)).text.splitlines()
    topology = variables.topology(H100)
    assert topology is not None and topology.file
    assert f"  bt_default_file NCCL_TOPO_FILE {topology.value}" in lines
    assert all("NCCL_TOPO_FILE" not in line for line in lines if line.startswith("  bt_default "))


def test_the_plan_shows_what_is_found_on_the_node_in_words() -> None:
    rows = variables.implicit((Variable("A", AUTO, "why", "rule"), Variable("B", "1", "so", "other")))
    told = [(row.what, row.value, row.because, row.rule) for row in rows]
    assert told == [("A", "auto (found on each node)", "why", "rule"), ("B", "1", "so", "other")]


@pytest.mark.parametrize(
    ("command", "image", "is_cntk"),
    [
        ("python train.py", "a/b", False),
        ("CNTK x", "a/b", True),
        ("python train.py", "microsoft/CNTK:2", True),
        ("python train.py", "a/1bitsgd", True),
    ],
)
def test_cntk_is_known_by_its_command_or_its_image(command: str, image: str, is_cntk: bool) -> None:
    assert runs_cntk(command, image) is is_cntk


TABLES = {
    "topology": variables.TOPOLOGIES, "ordering": variables.RELAXED_ORDERING, "launch": variables.LAUNCH_FILES,
}  # fmt: skip
DECIDED = {
    "NC": "", "NCv2": "", "NCv3": "", "ND": "", "NDv2": "topology",
    "ND A100 v4": "topology ordering", "NDm A100 v4": "topology ordering",
    "ND H100 v5": "topology ordering launch", "ND H200 v5": "topology ordering launch",
    "ND GB200 v6": "launch", "ND GB300 v6": "launch",
}  # fmt: skip
"""Which tables have a series. A new series needs a decision: Azure's HPC images (topologies) and its launch files."""


def test_the_settings_of_nccl_are_decided_for_each_series_with_infiniband() -> None:
    families = {size.family for size in SIZES if size.gpu_vendor == "nvidia" and size.rdma}
    found = {family: [name for name, table in TABLES.items() if family in table] for family in families}
    assert found == {family: words.split() for family, words in DECIDED.items()}
