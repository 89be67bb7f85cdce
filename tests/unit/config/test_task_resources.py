"""What a task takes of its node, which the rules and the planner ask alike."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.catalog import sizes
from batchtrain.config import task_resources
from batchtrain.config.types import Job, Task

H100, CPU = sizes.find("ND96isr_H100_v5"), sizes.find("D8s_v5")
SMALL, SHARE = sizes.find("A1"), sizes.find("NV4as_v4")


def task(**more: Any) -> Task:
    return msgspec.convert({"command": "x", "docker_image": "a", **more}, Task)


@pytest.mark.parametrize(
    ("word", "seen"),
    [(None, None), ("all", None), ("disable", ()), ("0", ()), ("2", ("0", "1")), ("device=1,3", ("1", "3")),
     ('"device=GPU-a"', ("GPU-a",))],
)  # fmt: skip
def test_a_word_chooses_gpus(word: str | None, seen: tuple[str, ...] | None) -> None:
    assert task_resources.gpus_seen(word) == seen


def test_a_number_without_end_makes_no_list_without_end() -> None:
    assert len(task_resources.gpus_seen("999999") or ()) == task_resources.MOST_GPUS


@pytest.mark.parametrize(("gpus", "count"), [("all", 8), ("4", 4), ("20", 8), ("disable", 0)])
def test_a_container_may_use_the_gpus_it_sees(gpus: str, count: int) -> None:
    assert task_resources.gpus(Job(id="j", gpus=gpus), task(), H100) == count


def test_a_task_on_the_host_sees_all_gpus_or_none() -> None:
    assert task_resources.gpus(Job(id="j"), task(docker_image=None, gpus="4"), H100) == 8
    assert task_resources.gpus(Job(id="j"), task(docker_image=None, gpus="disable"), H100) == 0


@pytest.mark.parametrize(
    ("size", "gpus", "least", "chosen"),
    [(CPU, "all", 0, 1024), (None, "all", 0, 1024), (SMALL, "all", 0, 896), (H100, "1", 0, 8192),
     (H100, "all", 256, 65536), (SHARE, "all", 0, 7168), (H100, "disable", 0, 1024)],
)  # fmt: skip
def test_a_container_has_room_for_the_workers_of_its_loaders(
    size: sizes.VmSize | None, gpus: str, least: int, chosen: int
) -> None:
    """Of a small node half; more is not there."""
    needed = task_resources.shared_memory(Job(id="j"), task(gpus=gpus), size)
    assert (needed.least, needed.chosen) == (least, chosen)


@pytest.mark.parametrize(
    ("ranks", "least", "chosen"),
    [(1, 0, 1024), (2, 256, 1024), (30, 256, 1920), ("nproc", 256, 1024), ("auto", 0, 1024)],
)
def test_ranks_of_a_node_share_memory(ranks: int | str, least: int, chosen: int) -> None:
    gang = {"num_instances": 2, "mpi": {"runtime": "mpich", "processes_per_node": ranks}}
    needed = task_resources.shared_memory(Job(id="j"), task(multi_instance=gang), CPU)
    assert (needed.least, needed.chosen) == (least, chosen)


@pytest.mark.parametrize(
    ("text", "plain", "size"),
    [
        ("8 GiB", "8g", 8 * 2**30),
        ("256M", "256m", 256 * 2**20),
        ("1.5g", "1.5g", 3 * 2**29),
        ("banana", "banana", None),
    ],
)
def test_a_size_is_one_word(text: str, plain: str, size: int | None) -> None:
    assert (task_resources.plain_size(text), task_resources.bytes_of(text)) == (plain, size)
