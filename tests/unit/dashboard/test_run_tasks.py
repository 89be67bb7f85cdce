"""A task of a run as its directory has it: output, curves, ranks, a search, and what its run was made of."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.dashboard import recorded
from batchtrain.dashboard.reading import topic
from batchtrain.dashboard.run_tasks import _Cache
from batchtrain.runs import curves, source_copy
from tests import dashboards
from tests.dashboards import GANG
from tests.unit.dashboard.asking import BEARER, NEAR, Client, Service, dashboard

TASK = f"/runs/{GANG}/tasks/train"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    dashboards.record_gang(root, GANG, 8, hung=5)
    return root


def change(runs: Path, **fields: Any) -> None:
    path = runs / GANG / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_the_rank_that_stood_still_is_first_with_what_it_is_behind(client: Client) -> None:
    document = client.get(f"{TASK}/ranks")
    first = document["rows"][0]
    assert (first["rank"], first["node"], first["condition"], first["behind"]) == (5, "n0", "stands", 20)
    assert (document["count"], document["leader"], document["slowest"], document["tiles"]) == (8, 60, 40, [])
    assert document["progress"] == {"unit": "step", "at": 40, "of": 120}
    assert document["nodes"]["n0"]["memory_gib"] == 11.5


def test_the_ranks_of_a_run_that_succeeded_have_ended(client: Client, runs: Path) -> None:
    change(runs, state="completed")
    assert {row["condition"] for row in client.get(f"{TASK}/ranks")["rows"]} == {"ended"}


def test_a_configuration_lists_the_files_of_the_source(client: Client, runs: Path) -> None:
    file = source_copy.SourceFile("train.py", 3, 0o644, "")
    record = source_copy.SourceRecord(kept=True, sources=(source_copy.SourceDirectory("program", "0", (file,)),))
    (runs / GANG / source_copy.RECORD).write_bytes(msgspec.json.encode(record))
    assert client.get(f"/runs/{GANG}/configuration")["source"] == [{"path": "program/train.py", "size": 3}]


def test_without_a_record_of_the_ranks_their_metrics_tell_them(client: Client, runs: Path) -> None:
    (runs / GANG / "metrics/train.ranks.json").write_text("{")
    rows = client.get(f"{TASK}/ranks")["rows"]
    assert sorted((row["rank"], row["step"]) for row in rows)[5:7] == [(5, "40"), (6, "60")]


def test_of_a_large_gang_ten_ranks_and_a_tile_for_each_are_sent(tmp_path: Path) -> None:
    dashboards.record_gang(tmp_path, GANG, 100, hung=70, steps=25)
    with dashboard(tmp_path) as client:
        document = client.get(f"{TASK}/ranks")
        curves = client.get(f"{TASK}/metrics")["loss"]
    assert (len(document["rows"]), len(document["tiles"])) == (10, 100)
    assert document["tiles"][70][:3] == [70, "n8", 5]
    assert (list(curves), curves[""]["ranks"]) == ([""], 100)
    low, mean, high = (curves[""][key] for key in ("low", "value", "high"))
    assert all(a <= b <= c for a, b, c in zip(low, mean, high, strict=True))


def test_of_many_steps_of_many_ranks_all_are_in_the_band() -> None:
    lines = {str(rank): [(step, float(step), step * 1.0, None) for step in range(5000)] for rank in range(17)}
    band = curves.band(lines)
    assert (band["low"][0], band["step"][-1], band["high"][-1]) == (0, 4999, 4999)
    assert len(band["step"]) <= curves.MOST_POINTS


def test_curves_tell_where_they_were_undefined_and_which_are_of_nodes(client: Client) -> None:
    curves = client.get(f"{TASK}/metrics")
    assert curves["loss"]["2"]["undefined"][0][0] == 9 and 9 not in curves["loss"]["2"]["step"]
    assert curves["cpu_percent"]["n0"]["system"] is True and "system" not in curves["loss"]["0"]


def test_curves_are_read_again_only_when_their_file_has_changed(client: Client, runs: Path) -> None:
    path = runs / GANG / "metrics/train.jsonl"
    before, status = client.get(f"{TASK}/metrics"), path.stat()
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"loss": 0', b'"lose": 0'))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert client.get(f"{TASK}/metrics") == before
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert "lose" in client.get(f"{TASK}/metrics")


def test_what_was_read_of_the_last_files_is_kept_and_of_no_others(tmp_path: Path) -> None:
    cache, reads = _Cache(), list[str]()

    def read(path: Path) -> str:
        reads.append(path.name)
        return path.name

    names = [str(number) for number in range(_Cache.MOST)]
    for name in (*names, *names, "other"):
        assert cache.of(tmp_path / name, read) == name
    assert reads == [*names, "other"]
    cache.of(tmp_path / names[1], read)
    cache.of(tmp_path / names[0], read)
    assert reads == [*names, "other", names[0]]


def test_the_output_is_read_by_parts_and_searched(client: Client) -> None:
    part = client.get(f"{TASK}/logs?limit=100&rank=7")
    assert part["text"].endswith("step 59/120 loss 0.1335\n") and part["end"] == part["size"]
    found = client.get(f"{TASK}/search?find=step%2040/&rank=5")
    assert found["matches"] == 1
    assert client.get(f"{TASK}/logs?start={found['lines'][0]}&limit=30")["text"].startswith("[0:5] step 40/120")
    assert client.get(f"{TASK}/files") == ["stderr.txt", "stdout.txt"]


@pytest.mark.parametrize("file", ["../../run.json", "/etc/passwd", "none.txt", "", "ranks", "link.txt"])
def test_no_path_and_no_link_leads_out_of_the_logs_or_to_what_is_no_file(client: Client, runs: Path, file: str) -> None:
    (runs / GANG / "logs/train/ranks").mkdir()
    (runs / "secret").write_text("secret")
    (runs / GANG / "logs/train/link.txt").symlink_to(runs / "secret")
    expected = 200 if file in ("", "../../run.json") else 404  # a file of the same run is no secret
    assert client("GET", f"/api/v1{TASK}/logs?file={file}", **BEARER).status == expected
    assert client("GET", f"/api/v1{TASK}/search?file={file}&find=secret", **BEARER).status == expected


def test_the_output_that_is_followed_grows_with_its_file_and_costs_no_request(client: Client, runs: Path) -> None:
    log = topic(client.connection, f"{TASK}/logs")
    log.read()
    news = log.since("")
    assert news is not None and not log.remote
    with (runs / GANG / "logs/train/stdout.txt").open("a") as file:
        file.write("one more\n")
    log.read()
    more = log.since(news.position)
    assert more is not None and json.loads(more.body)["text"] == "one more\n"


def test_a_run_is_live_only_on_the_account_of_the_dashboard(runs: Path, service: Service) -> None:
    change(runs, state="running", account="near", endpoint="http://127.0.0.1:1")
    (runs / GANG / "lease.json").write_text(json.dumps({"host": "elsewhere", "process": 1}))
    assert recorded.shown(runs, GANG, NEAR)["live"] is True
    assert recorded.shown(runs, GANG, None)["live"] is False
    change(runs, account="other")
    assert recorded.shown(runs, GANG, NEAR)["live"] is False


@pytest.mark.parametrize("state", ["detached", "left"])
def test_a_run_without_its_command_goes_on(state: str, runs: Path) -> None:
    change(runs, state=state)
    assert recorded.shown(runs, GANG, None)["goes_on"] is True
    change(runs, state="completed")
    assert recorded.shown(runs, GANG, None)["goes_on"] is False


def test_a_configuration_has_what_differs_from_the_run_of_the_same_job_before(tmp_path: Path) -> None:
    dashboards.record_three(tmp_path)
    config = tmp_path / "20261122T131502Z-digits-1c2e/config"
    config.mkdir()
    (config / "effective.yaml").write_text("pool_specification: {id: cpu, ssh: null}\n")
    with dashboard(tmp_path) as client:
        document = client.get("/runs/20261122T131502Z-digits-1c2e/configuration")
        first = client.get("/runs/20261122T111502Z-digits-7f3a/configuration")
    assert document["settings"] == "pool_specification.id=cpu"
    assert document["previous"] == "20261122T111502Z-digits-7f3a"
    assert {"name": "learning_rate", "values": ["0.1", "0.01"], "diverged": []} in document["differences"]
    assert (first["previous"], first["differences"], first["plan"], first["source"]) == ("", [], "", [])


def test_a_job_that_is_gone_leads_to_its_newest_run(runs: Path, service: Service) -> None:
    with dashboard(runs, NEAR) as client:
        assert client.get("/jobs/digits/run") == {"run": GANG}
        assert client.get("/jobs/other/run") == {"run": ""}
        service.documents["/jobs/digits"] = {"id": "digits", "creationTime": "2020-01-01T00:00:00Z"}
        assert client.get("/jobs/digits/run") == {"run": ""}  # another job of this id


def test_the_times_of_a_part_of_its_output_are_those_of_its_client(client: Client) -> None:
    assert client.get(f"{TASK}/times?start=0&end=10") == {"at": [0], "time": [dashboards.BEGUN]}
    assert client.get(f"{TASK}/times?file=stderr.txt") == {"at": [], "time": []}


def test_the_times_that_its_gang_noted_come_first(client: Client, runs: Path) -> None:
    stream = runs / GANG / "logs/train/ranks/stream.jsonl"
    stream.parent.mkdir()
    stream.write_text('{"file": "stdout", "at": 0, "time": 5}\n{"rank": 1, "file": "stdout", "at": 3, "time": 7}\n')
    assert client.get(f"{TASK}/times?end=1") == {"at": [0], "time": [5.0]}
    assert client.get(f"{TASK}/times?file=ranks/1.stdout.txt") == {"at": [3], "time": [7.0]}
