"""Experiments: expanded, measured, compared; and the exports of a run."""

from __future__ import annotations

import io
import json
import math
import re
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.errors import UsageError
from batchtrain.records import Metric
from batchtrain.runs import compare, directory, export, scaling_report
from batchtrain.runs.compare import Statistics, statistics_of
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.experiment import COMMAND, COUNT, cases, experiment_of, of_dlbs
from batchtrain.runs.scaling_report import Measured

from .batch_server import START
from .made import made


def test_a_matrix_is_the_product_of_its_values() -> None:
    data = {
        "recipe": "r", "command": "train --batch {batch}", "set": {"a.b": True},
        "matrix": {"nodes": [1, 2], "batch": [16, 32], "job_specifications[0].priority": [3]},
    }  # fmt: skip
    found = list(cases(experiment_of(data, "e.yaml")))
    assert [case.name for case in found][:2] == [
        "nodes=1 batch=16 job_specifications[0].priority=3",
        "nodes=1 batch=32 job_specifications[0].priority=3",
    ]
    assert dict(found[3].settings) == {
        "a.b": "true", COUNT: "2", "job_specifications[0].priority": "3", COMMAND: "train --batch 32",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"matrix": {}}, "`matrix` needs a list of values for at least one name"),
        ({"matrix": {"nodes": []}}, "`matrix` needs a list of values for nodes"),
        ({"matrix": {"nodes": [0]}}, "0 is not a number of nodes"),
        ({"matrix": {"batch": [1]}}, "matrix.batch changes nothing"),
        ({"matrx": 1}, "matrx"),
        ({"recipe": 3}, "recipe"),
    ],
)
def test_a_wrong_experiment_says_where(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as raised:
        experiment_of({"recipe": "r", "matrix": {"nodes": [1]}, **change}, "e.yaml")
    assert str(raised.value).startswith("e.yaml: ")


def test_a_file_that_is_no_mapping_describes_no_experiment() -> None:
    with pytest.raises(UsageError, match=r"train.py describes no experiment: it needs `recipe` and `matrix`"):
        experiment_of("import os", "train.py")


def test_a_config_of_dlbs_gives_its_matrix_and_what_does_not_apply() -> None:
    data = {
        "parameters": {
            "exp.framework": "mxnet", "exp.model": {"val": "alexnet", "type": "str"}, "exp.docker": True,
            "exp.id": "${exp.model}",
        },
        "variables": {"exp.num_nodes": [1, 2], "exp.replica_batch": [16, 32]},
        "extensions": [{"condition": {}, "parameters": {}}],
    }  # fmt: skip
    found, left = of_dlbs(data, "r", "config.json")
    assert found.matrix == {"model": ('"alexnet"',), "nodes": (1, 2), "replica_batch": ("16", "32")}
    assert next(cases(found)).arguments == """-Pexp.model='"alexnet"' -Pexp.replica_batch='16'"""
    assert [text.partition(":")[0] for text in left] == ["extensions", "exp.docker", "exp.id"]


def measured(nodes: int, rate: float | None, batch: int = 8) -> Measured:
    return Measured((("nodes", str(nodes)), ("batch", str(batch))), nodes, rate, f"run{nodes}")


def test_weak_scaling_is_against_the_smallest_run() -> None:
    table = scaling_report.rows([measured(4, 270.0), measured(1, 100.0), measured(2, 180.0)])
    assert [(row.nodes, row.speedup, row.efficiency) for row in table if row.scaling == "weak"] == [
        (1, 1.0, 100.0), (2, 1.8, 90.0), (4, 2.7, 67.5),
    ]  # fmt: skip


def test_strong_scaling_is_among_runs_of_the_same_batch_of_all_nodes() -> None:
    table = scaling_report.rows([measured(1, 100.0, 16), measured(2, 150.0, 8), measured(2, 180.0, 16)])
    strong = [row for row in table if row.scaling == "strong"]
    assert [(row.case, row.nodes, row.efficiency) for row in strong] == [
        ("effective_batch=16", 1, 100.0), ("effective_batch=16", 2, 75.0),
    ]  # fmt: skip


def test_a_run_without_a_rate_has_an_empty_line() -> None:
    (row, other) = scaling_report.rows([measured(1, None), measured(2, 50.0)])[:2]
    assert (row.speedup, other.speedup, other.efficiency) == (None, 1.0, 100.0)


def test_the_report_is_csv_and_one_page_without_network() -> None:
    table = scaling_report.rows([measured(1, 100.0), measured(2, 180.0)])
    assert scaling_report.as_csv(table).splitlines()[1].startswith("weak,batch=8,1,100.0,1.0,100.0,")
    page = scaling_report.as_html("<x>", "images/s", table)
    assert page.count("<svg") == 1 and "&lt;x&gt;" in page and "http" not in page.replace("http-equiv", "")


def test_statistics_leave_the_warm_up_out() -> None:
    assert statistics_of([999.0, 1.0, 2.0, 3.0, 4.0]) == Statistics(2.5, 2.5, 4.0, pytest.approx(1.118, abs=0.001))
    assert statistics_of([3.0]) == Statistics(3.0, 3.0, 3.0, 0.0)
    assert statistics_of([]) is None


# --- runs that have ended -------------------------------------------------------------------------------------------


def measured_run(root: Path, **summary: Metric) -> RunDirectory:
    return made(root, ended=START + timedelta(seconds=90), nodes=2, settings={"batch": "8"}, summary=summary)


def test_a_sweep_is_one_line_with_its_best_value(tmp_path: Path) -> None:
    values = {f"t{n}/{name}": Metric(n / 10, 1) for n in range(1, 6) for name in ("throughput", "loss")}
    assert compare.row(measured_run(tmp_path, **values).record()).results == "5 tasks, best last loss 0.1"


def test_accuracy_comes_before_throughput(tmp_path: Path) -> None:
    run = measured_run(tmp_path, throughput=Metric(909, 909), accuracy=Metric(0.5, 0.5))
    assert compare.row(run.record()).results == "accuracy 0.5, throughput 909"


def test_a_run_shows_what_it_cost_and_without_prices_its_node_hours(tmp_path: Path) -> None:
    run, other = measured_run(tmp_path), measured_run(tmp_path)
    record = run.record()
    cost = directory.Cost(currency="USD", region="westeurope", dedicated=0.2, spot=None, hour=0.8, run=1.25)
    priced = msgspec.structs.replace(record, node_hours=6.25, cost=cost)
    row = compare.row(priced)
    assert (row.cost, row.node_hours, compare.row(record).cost) == ("1.25 USD", 6.25, "")
    other.write(priced)
    rows = {row.name: row.values for row in compare.compare([run, other])}
    assert (rows["cost"], rows["node_hours"]) == (("", "1.25 USD"), ("", "6.25"))


def dlbs_parse(text: str) -> dict[str, Any]:
    """DLBS's own rules: anchored at the line's start, the shortest key, the value is JSON or the parse ends."""
    found = {}
    for line in text.splitlines():
        if match := re.match(r"[ \t]*__(.+?)__[ \t]*=(.+)", line):
            found[match[1].strip()] = json.loads(match[2].strip() or "null")
    return found


def test_the_export_for_dlbs_is_read_by_its_rules(tmp_path: Path) -> None:
    run = measured_run(tmp_path)
    log = run.path / "logs/train/stdout.txt"
    log.parent.mkdir(parents=True)
    log.write_text(
        "[0:0] __exp.model__=\"alexnet\"\n[0:0] __results.time__=12.3 ms\n[0:0] __results.time__=103.7\n"
        "[1:1] __exp.status__=\"failure\"\n[0:0] __results.throughput__= 909\nhello\n"
    )  # fmt: skip
    written = export.write_dlbs(run, tmp_path / "out")
    assert [path.name for path in written] == ["rank_0.log", "rank_1.log"]
    assert all(line.startswith("__") for path in written for line in path.read_text().splitlines())
    assert dlbs_parse(written[0].read_text()) == {
        "exp.model": "alexnet", "results.time": 103.7, "results.throughput": 909,
    }  # fmt: skip


def test_the_export_for_dlbs_takes_each_rank_from_its_own_file(tmp_path: Path) -> None:
    run = measured_run(tmp_path)
    ranks = run.logs("train") / "ranks"
    ranks.mkdir(parents=True)
    (run.logs("train") / "stdout.txt").write_text("__results.time__=1\n__results.time__=2\n")  # mpirun has no prefix
    (ranks / "0.stdout.txt").write_text("__exp.gpus__=\n  __results.time__ = [1.5, 2] \nx __no__=1\n")
    (ranks / "10.stdout.txt").write_text('__exp.status__="failure"\n')
    written = export.write_dlbs(run, tmp_path / "out")
    assert {path.name: dlbs_parse(path.read_text()) for path in written} == {
        "rank_0.log": {"results.time": [1.5, 2]}, "rank_10.log": {"exp.status": "failure"},
    }  # fmt: skip


def test_a_run_without_lines_of_dlbs_exports_its_throughput_or_says_that_there_is_nothing(tmp_path: Path) -> None:
    run = measured_run(tmp_path, throughput=Metric(10.5, 10.5), batch_seconds=Metric(0.25, 0.25))
    (written,) = export.write_dlbs(run, tmp_path / "out")
    found = dlbs_parse(written.read_text())
    assert (written.name, found["exp.num_nodes"], found["exp.status"]) == ("rank_0.log", 2, "ok")
    assert (found["results.throughput"], found["results.time"], found["exp.num_gpus"]) == (10.5, 250.0, 2)
    with pytest.raises(UsageError, match="nothing for DLBS"):
        export.write_dlbs(measured_run(tmp_path), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def metrics(run: RunDirectory) -> None:
    path = run.metrics_file("train")
    path.parent.mkdir(parents=True)
    path.write_text('{"t": 5.5, "rank": 1, "step": 300, "loss": 0.5}\n{"t": 6, "rank": 1, "step": 301, "loss": null}\n')


def test_the_export_to_csv_has_a_line_for_each_value(tmp_path: Path) -> None:
    run, file = measured_run(tmp_path), io.StringIO()
    metrics(run)
    assert export.write_csv(run, file) == 2
    assert file.getvalue().splitlines() == [
        "task,t,rank,node,step,epoch,metric,value", "train,5.5,1,,300,,loss,0.5", "train,6,1,,301,,loss,",
    ]  # fmt: skip


def test_the_export_to_tensorboard_is_records_with_checksums(tmp_path: Path) -> None:
    run = measured_run(tmp_path)
    metrics(run)
    assert export.write_tensorboard(run, tmp_path / "tb") == 2
    (file,) = (tmp_path / "tb/train/rank_1").iterdir()
    assert b"brain.Event:2" in file.read_bytes() and b"loss" in file.read_bytes()
    # the check value of CRC-32C for these digits is e3069283; rotated and masked as TFRecord has it
    crc = 0xE3069283
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert export._checksum(b"123456789") == masked.to_bytes(4, "little")


def records(content: bytes) -> list[bytes]:
    """The records of a file of events, without their checksums."""
    found = []
    while content:
        length = int.from_bytes(content[:8], "little")
        assert content[8:12] == export._checksum(content[:8])
        body, content = content[12 : 12 + length], content[12 + length :]
        assert content[:4] == export._checksum(body)
        found.append(body)
        content = content[4:]
    return found


@pytest.mark.parametrize(
    ("line", "folder", "step"),
    [
        ('{"step": 300, "loss": 0.5}', "train/rank_0", b"\x10\xac\x02"),
        ('{"step": 0, "epoch": 7, "loss": 0.5, "rank": 2}', "train/rank_2", b"\x10\x00"),
        ('{"epoch": 7, "loss": 0.5}', "train/rank_0", b"\x10\x07"),
        ('{"loss": 0.5, "node": "n1"}', "train/n1", b"\x10\x00"),
        ('{"step": 127, "loss": 0.5}', "train/rank_0", b"\x10\x7f"),
        ('{"step": 128, "loss": 0.5}', "train/rank_0", b"\x10\x80\x01"),
    ],
)
def test_an_event_of_tensorboard_has_its_time_step_and_value(
    tmp_path: Path, line: str, folder: str, step: bytes
) -> None:
    run = measured_run(tmp_path)
    directory.replace(run.metrics_file("train"), line.replace("{", '{"t": 2.0, ').encode())
    assert export.write_tensorboard(run, tmp_path / "tb") == 1
    (file,) = (tmp_path / "tb" / folder).iterdir()
    assert file.name == f"events.out.tfevents.0.{run.name}"
    version, event = records(file.read_bytes())
    assert version == b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2"
    value = b"\x0a\x04loss\x15" + struct.pack("<f", 0.5)
    summary = b"\x0a" + bytes([len(value)]) + value
    assert event == b"\x09" + struct.pack("<d", 2.0) + step + b"\x2a" + bytes([len(summary)]) + summary


def test_a_value_too_large_for_tensorboard_is_no_number_there(tmp_path: Path) -> None:
    run = measured_run(tmp_path)
    directory.replace(run.metrics_file("train"), b'{"t": 2.0, "step": 1, "loss": 1e39}')
    assert export.write_tensorboard(run, tmp_path / "tb") == 1
    (file,) = (tmp_path / "tb" / "train" / "rank_0").iterdir()
    assert b"\x0a\x04loss\x15" + struct.pack("<f", math.nan) in file.read_bytes()


def test_a_case_knows_its_number_of_nodes() -> None:
    data = {"recipe": "r", "matrix": {"a.b": [1], "nodes": [4]}}
    assert [case.nodes for case in cases(experiment_of(data, "e"))] == [4]
    assert [case.nodes for case in cases(experiment_of({"recipe": "r", "matrix": {"a.b": [1]}}, "e"))] == [None]


def test_a_config_of_dlbs_may_have_no_variables_and_then_has_one_run() -> None:
    experiment, left = of_dlbs({"parameters": {"exp.model": "x"}}, "r", "c.json")
    assert (experiment.recipe, experiment.matrix, left) == ("r", {"model": ('"x"',)}, ())
    empty, left = of_dlbs({"parameters": {"exp.framework": "mxnet", "exp.log": "${x}"}}, "r", "c.json")
    assert (empty.matrix, empty.arguments) == ({"nodes": (1,)}, "")
    assert left == ("exp.log: an expression, which only DLBS evaluates",)


def test_the_framework_of_a_config_of_dlbs_chooses_the_recipe_unless_the_user_does() -> None:
    data = {"parameters": {"exp.framework": "mxnet"}, "variables": {"exp.num_nodes": [2]}}
    (chosen,) = cases(of_dlbs(data, "", "c")[0])
    assert (chosen.recipe, chosen.nodes) == ("MXNet-Benchmark", 2)
    (own,) = cases(of_dlbs(data, "mine", "c")[0])
    assert (own.recipe, own.values) == ("mine", (("nodes", "2"),))


def test_a_config_of_dlbs_needs_a_framework_with_a_recipe() -> None:
    with pytest.raises(UsageError, match=r"c: it has no exp\.framework; name the recipe with --recipe DIR"):
        of_dlbs({}, "", "c")
    with pytest.raises(UsageError, match=r"exp\.framework `x` has no recipe that takes it"):
        of_dlbs({"parameters": {"exp.framework": "x"}}, "", "c")


def test_a_variable_of_dlbs_is_a_list_of_values_and_a_parameter_is_one() -> None:
    data = {"parameters": {"exp.gpus": [0, 1]}, "variables": {"exp.num_nodes": [1, 2], "exp.phase": "training"}}
    experiment, _ = of_dlbs(data, "r", "c")
    assert experiment.matrix == {"gpus": ("[0, 1]",), "nodes": (1, 2), "phase": ('"training"',)}


def test_the_names_of_a_run_do_not_lead_an_export_out_of_its_directory(tmp_path: Path) -> None:
    run, outside, target = measured_run(tmp_path), tmp_path / "outside", tmp_path / "tb"
    outside.mkdir()
    target.mkdir()
    (target / "linked").symlink_to(outside)
    nodes = ("../../../outside", "/abs", "..\\..\\x", "N", "n", "a\0b")
    lines = [json.dumps({"t": 2.0, "step": 1, "loss": 0.5, "node": node}) for node in nodes]
    directory.replace(run.metrics_file("train"), "\n".join(lines).encode())
    assert export.write_tensorboard(run, target) == len(nodes)
    assert len([path for path in (target / "train").rglob("events*") if path.is_file()]) == len(nodes)
    directory.replace(run.metrics_file("linked"), lines[0].encode())
    with pytest.raises(OSError, match="`linked` is a link"):
        export.write_tensorboard(run, target)
    assert list(outside.iterdir()) == []
