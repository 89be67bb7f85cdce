"""Numbers in the output of programs: lines as the programs printed them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchtrain.runs import extract
from batchtrain.runs.extract import (
    PROGRAMS,
    RATE,
    Extractor,
    Pattern,
    Point,
    of_json,
    split,
)
from batchtrain.runtime.batchtrain_sweep import lower_is_better
from tests import examples


def points(*lines: str, own: tuple[Pattern, ...] = ()) -> list[Point]:
    return list(Extractor(own).feed(lines, 0.0))


def only(*lines: str) -> Point:
    (point,) = points(*lines)
    return point


LINES = {
    "INFO:root:Epoch[0] Batch [20-40]\tSpeed: 3723.46 samples/sec\taccuracy=1.000000": Point(
        {"samples_per_second": 3723.46, "accuracy": 1.0}, epoch=0, step=40
    ),
    "INFO:root:Epoch[1] Batch [40]\tSpeed: 31.5 samples/sec": Point({"samples_per_second": 31.5}, epoch=1, step=40),
    "INFO:root:Epoch[0] Train-accuracy=0.977764": Point({"accuracy": 0.977764}, epoch=0),
    "INFO:root:Epoch[0] Validation-accuracy=0.97": Point({"validation_accuracy": 0.97}, epoch=0),
    "INFO:root:Epoch[0] Time cost=0.461": Point({"time_cost": 0.461}, epoch=0),
    "100\timages/sec: 54.7 +/- 0.0 (jitter = 0.3)\t7.809": Point({"images_per_second": 54.7, "loss": 7.809}, step=100),
    "10\timages/sec: 54.7 +/- 0.0 (jitter = 0.3)\t7.809\t0.1\t0.5": Point(
        {"images_per_second": 54.7, "loss": 7.809, "acc1": 0.1, "acc5": 0.5}, step=10
    ),
    "step 22/60 loss 0.75, lr: 1e-3 301.2 images/sec": Point(
        {"loss": 0.75, "lr": 0.001, "images_per_second": 301.2}, step=22
    ),
    "total images/sec: 109.34": Point({"total_images_per_second": 109.34}),
    "Finished Epoch[1 of 160]: [Training] loss = 2.346140 * 3200, metric = 90.09% * 3200 0.103s (31068.0 samples/s);": (
        Point({"loss": 2.34614, "error_percent": 90.09, "total_samples_per_second": 31068.0}, epoch=1)
    ),
    "Finished Evaluation [1]: Minibatch[1-50]: metric = 89.00% * 3200;": Point({"test_error_percent": 89.0}),
    "Epoch: [0][  11/5005]\tTime  0.605 ( 0.806)\tData  0.000 ( 0.165)\tLoss 6.97e+00 (7.01e+00)\tAcc@1 0.00 ( 0.18)": (
        Point({"batch_seconds": 0.605, "data_seconds": 0.0, "loss": 6.97, "acc1": 0.0}, epoch=0, step=11)
    ),
    "Test: [  1/196]\tTime  0.605 ( 0.806)\tLoss 6.97e+00 (7.01e+00)": Point(
        {"test_batch_seconds": 0.605, "test_loss": 6.97}, step=1
    ),
    " *   Acc@1 28.080 Acc@5 52.670": Point({"test_acc1": 28.08, "test_acc5": 52.67}),
    "Iter #3: 1785.2 img/sec per GPU": Point({"images_per_second": 1785.2}, step=3),
    "Img/sec per GPU: 1785.2 +-3.1": Point({"images_per_second": 1785.2}),
    "Total img/sec on 8 GPU(s): 14281.2 +-25.0": Point({"total_images_per_second": 14281.2}),
    "1875/1875 - 2s - 1ms/step - accuracy: 0.8235 - loss: 0.5004": Point(
        {"step_ms": 1.0, "accuracy": 0.8235, "loss": 0.5004}
    ),
    "__results.time__=103.7": Point({"results.time": 103.7}),
    "\t __results.throughput__ = 909": Point({"results.throughput": 909.0}),
    "# Avg bus bandwidth    : 194.675": Point({"average_busbw": 194.675}),
    "Bcast\tBytes:\t16384\tIters:\t314\tAvg:\t123.6885\tMin:\t100.1\tMax:\t150.5": Point(
        {"bcast_avg_us": 123.6885, "bcast_min_us": 100.1, "bcast_max_us": 150.5}, step=16384
    ),
    "epoch 3 loss 0.1931 accuracy 0.9425": Point({"loss": 0.1931, "accuracy": 0.9425}, epoch=3),
    "test accuracy 0.9617": Point({"test_accuracy": 0.9617}),
    '{"step": 10, "loss": 0.5, "note": "x", "ok": true}': Point({"loss": 0.5}, step=10),
    "{'loss': '0.4512', 'grad_norm': 1.5, 'epoch': 0.5}": Point({"loss": 0.4512, "grad_norm": 1.5}, epoch=0.5),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_gives_its_numbers(line: str) -> None:
    assert only(line) == LINES[line]


def test_each_program_has_a_line_here() -> None:
    text = "\n".join(LINES)
    assert [p.name for p in PROGRAMS if not re.search(p.pattern.pattern, text, re.MULTILINE)] == []


@pytest.mark.parametrize(
    "line",
    [
        "__exp.num_gpus__=2",
        "__results.time__=12.3 ms",
        '__results.status__="failure"',
        "__results.ok__=true",
        '{"level": "info", "port": 29500}',
        "{not json}",
        "3/1875 ━━━━ 1s 2ms/step - loss: 0.9",
        "loss",
        "",
        "epoch 1 of 3 begins",
        "epoch 1 of 3",
        "epoch 1 rank 0 node n0 weights abc",
        "42 is the answer",
    ],
)
def test_other_lines_give_nothing(line: str) -> None:
    assert points(line) == []


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[0:3] epoch 1 loss 0.5", 3),
        ("[1:worker 2] epoch 1 loss 0.5", 2),
        ("[0:scheduler] epoch 1 loss 0.5", None),
        ("[1,5]<stdout>:epoch 1 loss 0.5", 5),
        ("[1,5]<stderr>: epoch 1 loss 0.5", 5),
        ("epoch 1 loss 0.5", None),
    ],
)
def test_the_prefix_of_a_launcher_is_the_rank(line: str, rank: int | None) -> None:
    assert only(line) == Point({"loss": 0.5}, rank=rank, epoch=1)


def test_a_clock_of_mxnet_is_no_rank() -> None:
    assert split("[11:14:02] src/io.cc") == (None, "[11:14:02] src/io.cc")


def test_a_redrawn_line_counts_in_its_last_state() -> None:
    line = "[0:1] \x1b[1m1/2\x1b[0m - 0s - 9ms/step - loss: 0.9\r\b\b\x1b[1m2/2\x1b[0m - 1s - 1ms/step - loss: 0.25\r"
    assert only(line) == Point({"step_ms": 1.0, "loss": 0.25}, rank=1)


def test_keras_counts_its_epochs_for_each_rank() -> None:
    lines = [
        "[0:0] Epoch 2/5", "[0:1] Epoch 3/5",
        "[0:0] 5/5 - 2s - 100us/step - loss: 0.5", "[0:1] 5/5 - 2s - 2s/step - loss: 0.4",
    ]  # fmt: skip
    assert points(*lines) == [
        Point({"step_ms": 0.1, "loss": 0.5}, rank=0, epoch=2),
        Point({"step_ms": 2000.0, "loss": 0.4}, rank=1, epoch=3),
    ]


def test_rows_of_osu_have_the_names_of_their_columns() -> None:
    table = ["# OSU MPI Latency Test v7.4", "# Datatype: MPI_CHAR.", "# Size          Latency (us)"]
    assert points(*table, "0                       1.27", "1024      2.5") == [
        Point({"osu_latency_us": 1.27}, step=0),
        Point({"osu_latency_us": 2.5}, step=1024),
    ]


def test_rows_of_nccl_tests_give_the_bus_bandwidth_of_each_size() -> None:
    table = (
        "#       (B)    (elements)                               (us)  (GB/s)  (GB/s)  #wrong     (us)  (GB/s)  (GB/s)"
    )
    head = (
        "#      size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw"
    )
    row = "  1048576   262144  float   sum  -1    40.11   26.14   45.75       0    39.70   26.41   46.22   0"
    assert points(head, table, row) == [Point({"busbw": 45.75}, step=1048576)]
    assert points(row) == []


def test_a_pattern_of_the_user_gives_value_step_and_epoch() -> None:
    own = Pattern("perplexity", r"step=(?P<step>\d+) .*ppl=(?P<value>\S+)", "")
    assert points("[0:2] step=40 of 80 ppl=12.5", own=(own,)) == [Point({"perplexity": 12.5}, rank=2, step=40)]
    assert points("step=40 of 80 ppl=soon", own=(own,)) == []


def test_a_pattern_of_the_user_does_not_hide_a_known_line() -> None:
    assert points("test accuracy 0.5", own=(Pattern("mine", r"accuracy (\S+)"),)) == [
        Point({"mine": 0.5}),
        Point({"test_accuracy": 0.5}),
    ]


def test_what_is_not_finite_is_kept_as_none() -> None:
    assert only("epoch 1 loss nan").values == {"loss": None}
    assert only('{"step": 1, "loss": NaN, "lr": Infinity, "acc": 1}').values == {"loss": None, "lr": None, "acc": 1.0}
    assert of_json(b'{"step": 1e400, "loss": 1}') == Point({"loss": 1.0, "step": None})


@pytest.mark.parametrize(
    "line", ["[1]", "3", "{", '{"step": 1}', '{"loss": "low"}', "\x00", '{"loss": [1]}', "{'a': 1}"]
)
def test_a_line_that_is_no_metric_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        of_json(line)


def test_of_too_many_lines_some_are_read_and_the_last_result_always() -> None:
    extractor = Extractor()
    lines = [f"epoch {number} loss 0.5" for number in range(1_000_000)] + ["total images/sec: 7"]
    found = list(extractor.feed(lines, 5.0))
    assert RATE < len(found) < 10 * RATE
    assert len(found) + extractor.skipped == len(lines)
    assert found[-1].values == {"total_images_per_second": 7.0}
    assert len(list(extractor.feed(lines[:10], 6.0))) == 10


KINDS = ("total images/sec: 7", "__results.time__=1", "Epoch 2/3", *(f"epoch {n} loss 0.5" for n in range(6)))
"""Lines at the end of a training, and others."""


@pytest.mark.property
@examples.of(100)
@given(st.lists(st.tuples(st.integers(0, 1), st.lists(st.sampled_from(KINDS), max_size=40)), max_size=9))
def test_of_lines_in_batches_the_same_are_read_as_one_by_one(batches: list[tuple[int, list[str]]]) -> None:
    """Each batch comes a second after the one before, or in the same second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extract, "RATE", 4)
        extractor = Extractor()
        found, expected, count, now = list[Point](), list[Point](), 0, 0
        for gap, lines in batches:
            now, count = now + gap, 0 if gap else count
            found += extractor.feed(lines, now)
            for line in lines:
                count += 1
                if count <= 4 or count % (count // 4 + 1) == 0 or any(text in line for text in extract.FINAL):
                    expected += points(line)
        assert found == expected


def test_a_point_is_a_line_with_its_time() -> None:
    assert Point({"loss": 0.5}, rank=1, step=2).line(3.0) == {"t": 3.0, "rank": 1, "step": 2, "loss": 0.5}
    assert of_json(b'{"t": 1.5, "loss": 1, "node": "a"}') == Point({"loss": 1.0}, t=1.5, node="a")


def test_losses_and_times_are_best_at_their_lowest() -> None:
    assert lower_is_better("validation_loss") and lower_is_better("results.time") and not lower_is_better("accuracy")


def test_a_step_is_a_whole_number_and_an_epoch_may_be_a_part() -> None:
    point = of_json('{"step": 2.0, "rank": 3.0, "epoch": 0.5, "loss": 1}')
    assert point is not None and repr((point.step, point.rank, point.epoch)) == "(2, 3, 0.5)"


def test_of_two_lines_that_ran_into_each_other_the_first_is_read() -> None:
    line = "Epoch[0] Batch [20]\tSpeed: 10 samples/sec\taccuracy=1 Epoch[0] Time cost=2"
    assert only(line) == Point({"samples_per_second": 10.0, "accuracy": 1.0}, epoch=0, step=20)
