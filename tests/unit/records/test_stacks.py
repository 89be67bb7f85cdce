"""Where the Python processes of a gang stand: as nodes read them, and as views group them."""

from __future__ import annotations

from batchtrain.records.stacks import Stack, alike
from batchtrain.runtime.launch.stacks import threads_in

PY_SPY = b"""\
Process 23000: python3 hang.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 23075 (idle): "Thread-1 (worker)"
    worker (hang.py:2)
    Thread.run (threading.py:982)
Thread 23000 (idle): "MainThread"
    wait_for_data (hang.py:3)
    <module> (hang.py:5)
"""


def test_the_main_thread_of_py_spy_comes_first() -> None:
    assert threads_in(PY_SPY, r"    (.+)", '"MainThread"') == [
        ["wait_for_data (hang.py:3)", "<module> (hang.py:5)"],
        ["worker (hang.py:2)", "Thread.run (threading.py:982)"],
    ]


def test_the_ranks_that_differ_from_most_come_first_and_equal_ones_are_one_group() -> None:
    waits, reads = ("all_reduce (d.py:9)", "main (t.py:2)"), ("read (t.py:7)", "main (t.py:1)")
    stacks = [Stack(str(rank), 10 + rank, threads=(reads if rank == 5 else waits,)) for rank in (10, *range(8))]
    assert [(group.ranks, group.calls) for group in alike(stacks)] == [
        (("5",), reads),
        (("0", "1", "2", "3", "4", "6", "7", "10"), waits),
    ]
