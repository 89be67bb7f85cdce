"""The node launcher's small decisions: CPUs, ports, GPUs, words, and what Horovod's server answers."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.runtime.launch import kernel
from batchtrain.runtime.launch.frameworks.horovod import Scopes
from batchtrain.runtime.launch.gpus import choose_gpus
from batchtrain.runtime.launch.kernel import cpu_numbers, port_range, share_cpus
from batchtrain.runtime.launch.primary import Primary, remote_text, sentence
from batchtrain.runtime.launch.process_end import Failure, error_of
from batchtrain.runtime.launch.processes import prepared
from batchtrain.runtime.launch.screen import SCREEN, Screen
from batchtrain.runtime.launch.spec import LaunchError
from tests.memory_kills import KILLS

TWO_NODES = {0: [0, 4, 1, 5], 1: [2, 6, 3, 7]}


def test_the_lines_of_a_rank_have_passed_once_others_have_printed_a_screen_of_lines() -> None:
    silent: Any = SimpleNamespace(watch=lambda *_, **__: None, forget=lambda _: None, write=lambda *_, **__: None)
    screen = Screen(silent)
    screen.sinks, screen.prefixes = (silent, silent), {0: b"", 3: b""}
    screen.show(3, 1, b"ValueError: no\n")
    screen.show(0, 0, b"step\n" * SCREEN)
    assert not screen.has_passed(3)
    screen.show(0, 0, b"step\n")
    assert (screen.has_passed(3), screen.has_passed(0)) == (True, False)


@pytest.mark.parametrize(
    ("homes", "shares"),
    [
        ([-1], [[]]),
        ([-1, -1], [[0, 4, 1, 5], [2, 6, 3, 7]]),
        ([1, 1, 0, 0], [[2, 6], [3, 7], [0, 4], [1, 5]]),
        ([1, 1, 1], [[2], [6], [3]]),
        ([0, 0, 0, 0, 0], [[0], [4], [1], [5], [2]]),
        ([-1] * 9, [[]] * 9),
    ],
)
def test_cpus_are_shared_near_each_ranks_gpu_and_only_where_there_are_enough(
    homes: list[int], shares: list[list[int]]
) -> None:
    assert share_cpus(TWO_NODES, homes) == shares


@pytest.mark.parametrize(
    ("given_out", "ours"),
    [((32768, 60999), (20000, 32768)), ((16000, 65000), (10000, 16000)), ((1024, 50000), (50001, 65535))],
)
def test_ports_are_taken_beside_the_range_that_the_kernel_gives_out(
    given_out: tuple[int, int], ours: tuple[int, int]
) -> None:
    assert port_range(*given_out) == ours


@pytest.mark.parametrize(("visible", "chosen"), [("3,0", ["3", "0"]), ("GPU-8f2a", ["GPU-8f2a"])])
def test_the_users_gpus_are_taken_in_their_order_and_by_their_names(visible: str, chosen: list[str]) -> None:
    assert choose_gpus(["0", "1", "2", "3"], visible) == chosen


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"CUDA_VISIBLE_DEVICES=0,4 names GPU 4, and there are 2"):
        choose_gpus(["0", "1"], "0,4")


def test_a_list_of_cpus_is_read_as_the_kernel_writes_it() -> None:
    assert cpu_numbers("0-2,8") == [0, 1, 2, 8]


@pytest.mark.parametrize(
    ("names", "said"), [(["a"], "node a"), (["a", "b"], "nodes a and b"), (["a", "b", "c"], "nodes a, b and c")]
)
def test_nodes_are_named_in_a_sentence(names: list[str], said: str) -> None:
    assert sentence(names) == said


def test_the_command_for_another_node_is_one_word_of_shell_with_nothing_secret() -> None:
    text = remote_text("/mnt/it's/.batchtrain", {"AZ_BATCH_NODE_ROOT_DIR": "/mnt", "TOKEN": "secret"}, "ab-1")
    assert "secret" not in text
    assert text.startswith("exec /bin/sh -c '")


def test_a_command_without_preparation_is_as_it_was() -> None:
    assert prepared(" ", "train") == "train"


# --- Horovod's server -----------------------------------------------------------------------------------------------


def scopes() -> Scopes:
    return Scopes({"global": 2})


def put(known: Scopes, path: str, body: bytes) -> bytes | None:
    return known.answer(b"PUT %s HTTP/1.1\r\nContent-length: %d\r\n\r\n%s" % (path.encode(), len(body), body))


def ask(known: Scopes, verb: str, path: str) -> bytes | None:
    return known.answer(f"{verb} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


MISSING = b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"
DONE = b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"


def test_a_value_is_given_back_as_it_was_put() -> None:
    known = scopes()
    assert put(known, "/global/0", b"\r\n\r\n\0") == DONE
    assert ask(known, "GET", "/global/0") == b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n\r\n\r\n\0"


def test_a_key_that_is_not_there_yet_is_not_found() -> None:
    assert ask(scopes(), "GET", "/global/0") == MISSING


def test_a_request_that_is_not_whole_is_not_answered_yet() -> None:
    assert scopes().answer(b"PUT /global/0 HTTP/1.1\r\nContent-Length: 3\r\n\r\nab") is None


def test_a_scope_is_forgotten_when_all_its_ranks_have_left() -> None:
    known = scopes()
    put(known, "/global/0", b"a")
    ask(known, "DELETE", "/global/0")
    assert ask(known, "GET", "/global/0") != MISSING
    ask(known, "DELETE", "/global/1")
    assert ask(known, "GET", "/global/0") == MISSING


def test_of_a_scope_that_ranks_made_up_a_key_is_forgotten() -> None:
    known = scopes()
    put(known, "/mine/a", b"1")
    put(known, "/mine/b", b"2")
    ask(known, "DELETE", "/mine/a")
    assert (ask(known, "GET", "/mine/a"), ask(known, "GET", "/mine/b") == MISSING) == (MISSING, False)


@pytest.mark.parametrize(
    "request_", [b"GET /global HTTP/1.1\r\n\r\n", b"POST /a/b HTTP/1.1\r\n\r\n", b"\r\n\r\n",
                 b"PUT /a/b HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"x" * 70000],
)  # fmt: skip
def test_what_no_rank_says_is_a_bad_request(request_: bytes) -> None:
    assert (scopes().answer(request_) or b"").startswith(b"HTTP/1.0 400")


# --- nodes that do not join -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reasons", "greeted", "text"),
    [
        (["no answer"], False, "node b of 3 did not answer ssh in 4 s"),
        (["b: Permission denied (publickey)."], False, "node b of 3 accepted no ssh connection in 4 s"),
        (["b: Permission denied", "no answer"], False, "nodes b and c of 3 did not answer ssh in 4 s"),
        (["no answer", "it answered"], True, "nodes b and c of 3 were not ready in 4 s"),
    ],
)
def test_the_failure_at_the_barrier_says_how_far_the_missing_nodes_came(
    reasons: list[str], greeted: bool, text: str
) -> None:
    lines: list[str] = []
    failures: list[Failure] = []
    missing = [
        SimpleNamespace(address=address, node=None, greeted=greeted, why_not_here=lambda reason=reason: reason)
        for address, reason in zip("bc", reasons, strict=False)
    ]
    there = [SimpleNamespace(address=address, node=object()) for address in "acb"[: 3 - len(missing)]]
    primary: Any = SimpleNamespace(
        gang=None, ending=False, sessions=[*there, *missing], joined=there, tell_faults=lambda sessions: False,
        screen=SimpleNamespace(say=lines.append), spec=SimpleNamespace(barrier=4.0, options={}), fail=failures.append,
    )  # fmt: skip
    Primary.on_barrier(primary)
    assert lines == [f"{address}: {reason}" for address, reason in zip("bc", reasons, strict=False)]
    assert [failure.what for failure in failures] == [text]


# --- what a program told torchelastic -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"message": "no luck"}', {"message": "no luck"}),
        ('{"message": {"message": "OSError: no", "extraInfo": {"timestamp": "1700000000"}}}',
         {"message": "OSError: no", "time": "2023-11-14T22:13:20.000000Z"}),
        ('{"message": []}', {"message": "[]"}),
        ('{"message": {}}', None),
        ("{", None),
    ],
)  # fmt: skip
def test_the_error_that_a_program_wrote_is_read_and_no_other_text(
    text: str, error: dict[str, str] | None, tmp_path: Path
) -> None:
    file = tmp_path / "rank-3.error.json"
    file.write_text(text)
    assert error_of(str(tmp_path / "rank-*.error.json")) == ({"file": str(file), **error} if error else {})


def test_of_the_errors_of_several_processes_the_earliest_counts(tmp_path: Path) -> None:
    for number, name in enumerate(("later", "first")):
        (tmp_path / name).write_text(f'{{"message": "{name}"}}')
        os.utime(tmp_path / name, (2 - number, 2 - number))
    assert error_of(str(tmp_path / "*"))["message"] == "first"


# --- memory that was full -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("files", "cgroup"), KILLS)
def test_kills_for_memory_are_counted_for_our_cgroups_and_for_the_node(
    files: dict[str, str], cgroup: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "text_of", lambda path: files.get(path, ""))
    assert kernel.killed_for_memory() == {"cgroup": cgroup, "node": 5}
    monkeypatch.setenv("BATCHTRAIN_EMULATED_NODE", "/nodes/n0")
    assert kernel.killed_for_memory() == {"cgroup": 0, "node": 5}


def test_what_the_image_sets_for_nccl_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/etc/nccl.conf": "# of the image\nNCCL_MIN_NCHANNELS=8\nNCCL_TOPO_FILE = /x.xml"}
    monkeypatch.setattr(kernel, "text_of", lambda path: files.get(path, ""))
    assert kernel.nccl_settings_of_image() == ["NCCL_MIN_NCHANNELS", "NCCL_TOPO_FILE"]
