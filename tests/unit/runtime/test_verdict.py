"""What NCCL's own lines say of its network. Samples: tests/data/nccl, in the forms of NCCL 2.18 to 2.32."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.runtime import verdict

SAMPLES = Path(__file__).parents[2] / "data/nccl"
HERE = "node tvm-2 (10.0.0.5)"


def heard(name: str, **other: object) -> verdict.Heard:
    return verdict.hear((SAMPLES / f"{name}.txt").read_text().split("\n")) | other


def judged(*nodes: tuple[str, list[verdict.Heard]]) -> list[str]:
    return ["warning: " * is_warning + sentence for sentence, is_warning in verdict.judge(list(nodes))]


def said(*names: str) -> list[str]:
    return judged((HERE, [heard(name) for name in names]))


def test_infiniband_is_said_with_its_cards_and_gpudirect() -> None:
    assert said("infiniband") == ["NCCL used IB on 8 HCAs with GPUDirect RDMA"]


def test_without_gpudirect_it_says_where_the_data_goes_and_what_to_look_at() -> None:
    [line] = said("infiniband-2.32")
    assert line.startswith("NCCL used IB on 1 HCA without GPUDirect RDMA (node tvm-2 (10.0.0.5), rank 1)")
    assert "nvidia_peermem" in line


def test_a_process_that_only_sends_does_not_speak_against_gpudirect() -> None:
    """Without NVLink a GPU is sent from through memory, and received into directly."""
    enabled = "x [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_ib0'"
    first = ["x [0] NCCL INFO Channel 00 : 7[e00000] -> 0[100000] [receive] via NET/IB/0/GDRDMA", enabled]
    last = ["x [0] NCCL INFO Channel 00 : 3[e00000] -> 4[100000] [send] via NET/IB/0", enabled]
    assert judged((HERE, [verdict.hear(first), verdict.hear(last)])) == ["NCCL used IB with GPUDirect RDMA"]


def test_data_that_is_received_through_memory_speaks_against_gpudirect() -> None:
    lines = ["x [0] NCCL INFO Channel 00/0 : 7[7] -> 0[0] [receive] via NET/IB/0"]
    assert verdict.hear(lines)["direct"] is False


@pytest.mark.parametrize(
    ("name", "place", "why", "advice"),
    [
        ("socket", f"{HERE}, rank 3", "NET/IB : No device found.", "--device=/dev/infiniband"),
        ("no-libibverbs", HERE, "Failed to open libibverbs.so[.1]", "rdma-core"),
    ],
)
def test_a_socket_is_warned_of_with_the_line_that_tells_most_and_what_to_do(
    name: str, place: str, why: str, advice: str
) -> None:
    [line] = said("infiniband", name)
    start = f'warning: NCCL used Socket on an RDMA pool ({place}: "{why}"; 1 of 2 processes): '
    assert line.startswith(start)
    assert advice in line


def test_a_socket_that_nothing_forced_shows_its_own_line() -> None:
    lines = [line for line in (SAMPLES / "socket.txt").read_text().split("\n") if "No device" not in line]
    [line] = judged((HERE, [verdict.hear(lines)]))
    assert '"NET/Socket : Using [0]eth0:10.0.0.5<0>"' in line
    assert "NCCL_NET" in line


def test_ranks_are_those_of_the_largest_communicator() -> None:
    assert heard("infiniband")["rank"] == 3


def test_what_is_sent_counts_more_than_what_was_chosen() -> None:
    lines = ["x [0] NCCL INFO Using network IB", "x [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"]
    assert verdict.hear(lines)["network"] == "Socket"


def test_a_plugins_name_is_said_as_it_is() -> None:
    lines = ["x [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IBext_v8/0/GDRDMA"]
    assert judged((HERE, [verdict.hear(lines)])) == ["NCCL used IBext_v8 with GPUDirect RDMA"]


def test_a_node_with_fewer_cards_than_the_others_is_warned_of() -> None:
    nodes = [(HERE, [heard("infiniband")]), ("node tvm-3 (10.0.0.6)", [heard("infiniband", cards=["mlx5_ib0:1"])])]
    [line] = judged(*nodes)
    assert line.startswith("warning: NCCL used IB on 8 HCAs with GPUDirect RDMA; on node tvm-3 (10.0.0.6) only 1:")


def test_nccls_warnings_come_back_once_each_before_the_verdict() -> None:
    lines = said("warned")
    assert len(lines) == 2
    assert lines[0].startswith("NCCL on node tvm-2 (10.0.0.5): NET/IB : Got completion from peer 10.0.0.4")
    assert lines[1] == "NCCL used IB on 1 HCA"


@pytest.mark.parametrize("text", ["", "what a program wrote itself\n\0\xff", "x [0] NCCL INFO Bootstrap : Using eth0"])
def test_nothing_is_said_of_what_names_no_network(text: str) -> None:
    assert judged((HERE, [verdict.hear(text.split("\n"))])) == []


def test_what_gang_sh_collects_is_told_apart_by_file() -> None:
    lines = "\n".join(
        f"{name}:{line}"
        for name in ("nccl.a.1.txt", "nccl.a.2.txt")
        for line in (SAMPLES / "socket.txt").read_text().splitlines()
    )
    node, found = verdict.collected(f"{HERE}\n{lines}\n")
    assert (node, [one["network"] for one in found]) == (HERE, ["Socket", "Socket"])
