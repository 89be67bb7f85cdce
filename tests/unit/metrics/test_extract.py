"""Numbers in the output of programs: lines as the programs printed them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchtrain import runtime
from batchtrain.metrics import extract
from batchtrain.metrics.extract import RATE, Extractor, Pattern, split
from batchtrain.metrics.point import UNITS, of_json
from batchtrain.metrics.programs import PROGRAMS
from batchtrain.records import Point
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
    "8/8 - 2s - loss: 0.9135 - accuracy: 0.3730 - 2s/epoch - 218ms/step": Point(
        {"step_ms": 218.0, "loss": 0.9135, "accuracy": 0.373}
    ),
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
    "{'eval_loss': '5.549', 'eval_samples_per_second': '513.1'}": Point(
        {"eval_loss": 5.549, "eval_samples_per_second": 513.1}
    ),
    "{'loss': '5.7', 'rewards/chosen': '0.4', 'memory/max_active (GiB)': '3.2', 'epoch': '1'}": Point(
        {"loss": 5.7, "rewards/chosen": 0.4, "memory/max_active (GiB)": 3.2}, epoch=1.0
    ),
    "[rank0]:[titan] 2026-11-24 10:00:00,123 - root - INFO - step: 20  loss:  2.71828  grad_norm:  0.9000"
    "  memory:  8.10GiB(50.00%)  tps: 6,500  tflops: 0.48  mfu: 0.15%": Point(
        {"loss": 2.71828, "grad_norm": 0.9, "memory_gib": 8.1, "tokens_per_second": 6500, "tflops": 0.48, "mfu": 0.15},
        rank=0,
        step=20,
    ),
    "step 250: train loss 1.9650, val loss 2.0121": Point({"train_loss": 1.965, "val_loss": 2.0121}, step=250),
    "iter 260: loss 1.8801, time 41.20ms, mfu 3.15%": Point(
        {"loss": 1.8801, "step_time": 0.0412, "mfu": 3.15}, step=260
    ),
    "iter 35: loss 3.4": Point({"loss": 3.4}, step=35),
    "step 10 loss 0.5 time=0:01:02 elapsed 1 day, 0:01:23 eta: 9.5 remaining time: 0:12:34": Point(
        {"loss": 0.5}, step=10
    ),
    "step 10 loss=0.5, acc=tensor(0.5, device='cuda:0') on device cuda:0": Point({"loss": 0.5}, step=10),
    "INFO:__main__:step 1 loss 0.3": Point({"loss": 0.3}, step=1),
    "2024-01-01 00:00:00,000 - my.train - INFO - step 1 loss 0.3": Point({"loss": 0.3}, step=1),
    "01/01/2024 12:00:00 - INFO - __main__ - step 1: loss 0.3": Point({"loss": 0.3}, step=1),
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.30": Point({"loss": 2.3}, epoch=1.0, step=640),
    "[Epoch 1/9][Step 5] loss 0.5": Point({"loss": 0.5}, step=5, epoch=1.0),
    "batch 10 loss 0.5": Point({"loss": 0.5}, step=10),
    "global step 10 loss 0.5": Point({"loss": 0.5}, step=10),
    "Step #10 loss=0.5 on GPU #0": Point({"loss": 0.5}, step=10),
    "epoch 1 step 100 loss 0.5": Point({"loss": 0.5}, step=100, epoch=1.0),
    "Epoch 3: val loss 0.25": Point({"val_loss": 0.25}, epoch=3.0),
    "2026-11-24 10:00:00 INFO step 7/10, mean reward = 12.5": Point({"mean_reward": 12.5}, step=7),
    " [2026-11-24 10:00:00] iteration      100/    5000 | consumed samples:        25600 | elapsed time per iteration"
    " (ms): 812.4 | learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 6.871200E+00 | grad norm: 1.203"
    " | number of skipped iterations:   0 | number of nan iterations:   0 |": Point(
        {"step_time": 0.8124, "learning_rate": 1.5e-4, "lm_loss": 6.8712, "grad_norm": 1.203}, step=100
    ),
    "Training epoch 0, iteration 19/999 | lr: 2e-05 | global_batch_size: 32 | global_step: 19"
    " | reduced_train_loss: 7.31 | train_step_timing in s: 1.92": Point(
        {"lr": 2e-5, "reduced_train_loss": 7.31, "step_time": 1.92}, step=19, epoch=0.0
    ),
    "Epoch 1 | iter 40 step 10 | loss train: 2.315, val: n/a | iter time: 310.55 ms (step)": Point(
        {"train_loss": 2.315, "step_time": 0.31055}, step=10, epoch=1.0
    ),
    "Epoch 2: 45%|████▌ | 9/20 [00:03<00:04, 2.7it/s, v_num=0, train_loss=0.41]": Point(
        {"train_loss": 0.41, "iterations_per_second": 2.7}, step=9, epoch=2
    ),
    "train: 30%|███ | 30/100 [00:10<00:23, 4s/it, loss=0.52, acc=0.81]": Point(
        {"loss": 0.52, "acc": 0.81, "iterations_per_second": 0.25}, step=30
    ),
    "[2026-11-24 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.001],"
    " mom=[(0.9, 0.999)]": Point({"lr": 0.001}, step=10),
    "epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=85.1, CurrSamplesPerSec=88.0, MemAllocated=0.1GB,"
    " MaxMemAllocated=0.2GB": Point({"total_samples_per_second": 88.0, "memory_gib": 0.1}, step=10, epoch=0.0),
    "[I 2026-11-23 23:44:29,421] Trial 39 finished with value: 5.87 and parameters: {'x': -2.42}. Best is trial 33 with"
    " value: 0.0009.": Point({"value": 5.87, "best_value": 0.0009}, step=39),
    "[3]\ttraining's binary_logloss: 0.19284\tvalid_0's auc: 0.99753": Point(
        {"training_binary_logloss": 0.19284, "valid_0_auc": 0.99753}, step=3
    ),
    "[0]\ttrain-rmse:0.5+0.01\teval-ndcg@5:nan": Point({"train_rmse": 0.5, "eval_ndcg5": None}, step=0),
    "Throughput: 12.34 requests/s, 5678.90 total tokens/s, 1234.50 output tokens/s": Point(
        {"requests_per_second": 12.34, "total_tokens_per_second": 5678.9, "output_tokens_per_second": 1234.5}
    ),
    "Mean TTFT (ms):                          45.10": Point({"mean_ttft_ms": 45.1}),
    "P99 ITL (ms): 12.3": Point({"p99_itl_ms": 12.3}),
    "WR11C2R4       20000   192     2     2              52.10              1.024e+02": Point(
        {"gflops": 102.4, "seconds": 52.1}, step=20000
    ),
    "Train: 0 [  50/1251 (  4%)]  Loss: 6.943 (6.95)  Time: 0.345s,  741.21/s  (0.345s)  LR: 1.000e-05": Point(
        {"batch_seconds": 0.345, "total_images_per_second": 741.21, "loss": 6.943, "lr": 1e-05}, epoch=0, step=50
    ),
    "Test: [   0/48]  Time: 1.234 (1.234)  Loss:   0.543 ( 0.543)  Acc@1:  86.719 ( 86.719)": Point(
        {"test_batch_seconds": 1.234, "test_loss": 0.543, "test_acc1": 86.719}, step=0
    ),
    "Test set: Average loss: 0.0516, Accuracy: 9833/10000 (98%)": Point({"test_loss": 0.0516, "test_accuracy": 0.9833}),
    "Epoch 3, global step 469: 'val_loss' reached 0.08120 (best 0.08120), saving model to '/x/e=3.ckpt' as top 1": (
        Point({"val_loss": 0.0812}, epoch=3, step=469)
    ),
    "steps: 10 loss: 3.4521 iter time (s): 0.512 samples/sec: 31.250": Point(
        {"loss": 3.4521, "step_time": 0.512, "samples_per_second": 31.25}, step=10
    ),
    "step 100 loss 2.31 tokens/s 5000": Point({"loss": 2.31, "tokens_per_second": 5000.0}, step=100),
    "step 100 loss 2.31 12.5k tok/s": Point({"loss": 2.31, "tokens_per_second": 12500.0}, step=100),
    "step 100 val_loss 2.5 (prev step 90 2.6), next eval at step 200": Point({"val_loss": 2.5}, step=100),
    "Epoch: 1, Loss: 0.5, Accuracy: 9913/10000 (99%), shard 2/8": Point({"loss": 0.5, "accuracy": 0.9913}, epoch=1.0),
    "step 250 | HellaSwag accuracy: 2500/10000=0.25": Point({"hellaswag_accuracy": 0.25}, step=250),
    "{'eval_loss': '0.3', 'eval_cosine_ndcg@10': '0.82', 'eval_f1': np.float64(0.7), 'epoch': '1'}": Point(
        {"eval_loss": 0.3, "eval_cosine_ndcg@10": 0.82, "eval_f1": 0.7}, epoch=1.0
    ),
    '{"epoch": 1, "update": 0.021, "loss": "12.3"}': Point({"update": 0.021, "loss": 12.3}, epoch=1),
    "Epoch 0: :  10%|█  | 10/100 [00:10<01:30, 2.5kit/s, reduced_train_loss=10.90, global_step=9.000,"
    " consumed_samples=80.0, train_step_timing in s=0.512]": Point(
        {"reduced_train_loss": 10.9, "step_time": 0.512, "iterations_per_second": 2500.0}, epoch=0, step=10
    ),
    "iteration 100/ 5000 | elapsed time per iteration (ms): 300.5 | throughput per GPU (TFLOP/s/GPU): 412.3 |": Point(
        {"step_time": 0.3005, "throughput_per_gpu": 412.3}, step=100
    ),
    "Accuracy: 0.9650": Point({"accuracy": 0.965}),
    "INFO:root:Final test accuracy = 0.84": Point({"final_test_accuracy": 0.84}),
    "ROC AUC score: 0.99": Point({"roc_auc_score": 0.99}),
    "F1: 88.5 %": Point({"f1": 88.5}),
    "val_loss = 0.25": Point({"val_loss": 0.25}),
    "Accuracy: 9833/10000 (98%)": Point({"accuracy": 0.9833}),
    "Final Summary::HPCG result is VALID with a GFLOP/s rating of=1.94": Point({"gflops": 1.94}),
}
"""Lines of programs, with the point of each."""


@pytest.mark.parametrize("line", LINES)
def test_a_line_gives_its_numbers(line: str) -> None:
    assert only(line) == LINES[line]


@pytest.mark.parametrize(
    "line",
    [
        f"step={' ' * 2_000_000}x",
        f"1/1{' 1s -' * 400_000} /s",
        *(f"{text * 4_000}step" for text in ("INFO:a:", "INFO:10:00:00 ", "- INFO ", "[Epoch 1] ", "- ")),
    ],
)
def test_a_line_that_almost_is_a_metric_is_read_in_one_pass(line: str) -> None:
    assert points(line) == []  # a pattern that begins again at each place would need days


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
        "data: 30%|███ | 30/100 [00:10<00:23, 3.0it/s]",
        "starting step 3 of 5",
        "step 3/5",
        "Epoch 1: val_loss improved from inf to 0.50000, saving model to m.keras",
        "Epoch 2: val_loss did not improve from 0.50000",
        "Epoch 3 finished in 12.5 s, evaluation took 3 s",
        "saved step 3",
        "batch=32, lr=0.1",
        "loss: mse",
        "Learning rate: 0.1",
        "precision: 16",
        "target: accuracy: 0.9 of the test set",
        "the accuracy of 0.95: reached",
        "Epoch 4, global step 500: 'val_loss' was not in top 1",
        "epoch 2 rank 3 fails with code 7",
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


def test_keras_lines_after_a_training_are_of_a_test_or_a_prediction() -> None:
    training = ["Epoch 1/1", "3/3 ━━ 1s 9ms/step - loss: 0.5", "3/3 ━━ 1s 9ms/step - loss: 0.5 - val_loss: 0.4"]
    assert points(*training, "2/2 ━━ 0s 4ms/step - loss: 1.9", "2/2 ━━ 3s 900ms/step") == [
        Point({"step_ms": 9.0, "loss": 0.5}, epoch=1),
        Point({"step_ms": 9.0, "loss": 0.5, "val_loss": 0.4}, epoch=1),
        Point({"test_loss": 1.9}),
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


def test_rows_of_imb_have_the_names_of_their_columns() -> None:
    lines = [
        "# Benchmarking Allreduce", "# #processes = 4",
        "   #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]", "     1024   1000    3.10    3.22    3.15",
        "# Benchmarking PingPong",
        "   #bytes #repetitions  t[usec]   Mbytes/sec", "    4096  1000  2.5  1638.4",
    ]  # fmt: skip
    assert points(*lines) == [
        Point({"imb_allreduce_min_us": 3.1, "imb_allreduce_max_us": 3.22, "imb_allreduce_avg_us": 3.15}, step=1024),
        Point({"imb_pingpong_us": 2.5, "imb_pingpong_mb_per_second": 1638.4}, step=4096),
    ]


def test_trials_of_ray_tune_have_the_metrics_after_their_iteration() -> None:
    lines = [
        "│ Trial name          status         x     iter     total time (s)       loss │",
        "├──────────────────────────────────────────────────────────────────────────────┤",
        "│ f_496b8_00000       TERMINATED   0.5        3             0.0053  0.0833333 │",
    ]
    assert points(*lines) == [Point({"total_time_s": 0.0053, "loss": 0.0833333}, step=3)]


def test_results_of_lm_eval_are_named_by_task_and_filter() -> None:
    lines = [
        "|  Tasks  |Version|     Filter     |n-shot|  Metric   |   |Value |   |Stderr|",
        "|---------|------:|----------------|-----:|-----------|---|-----:|---|-----:|",
        "|hellaswag|      1|none            |     0|acc        |↑  |0.2860|±  |0.0045|",
        "|         |       |none            |     0|acc_norm   |↑  |0.3110|±  |0.0046|",
        "|gsm8k    |      3|strict-match    |     5|exact_match|↑  |0.5000|±  |0.0100|",
    ]
    assert [point.values for point in points(*lines)] == [
        {"hellaswag/acc": 0.286}, {"hellaswag/acc_norm": 0.311}, {"gsm8k/exact_match,strict-match": 0.5},
    ]  # fmt: skip


def test_a_pattern_of_the_user_gives_value_step_and_epoch() -> None:
    own = Pattern("perplexity", r"at=(?P<step>\d+) .*ppl=(?P<value>\S+)", "")
    assert points("[0:2] at=40 of 80 ppl=12.5", own=(own,)) == [Point({"perplexity": 12.5}, rank=2, step=40)]
    assert points("at=40 of 80 ppl=soon", own=(own,)) == []


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
    assert all(map(lower_is_better, ("validation_loss", "test_rmse", "results.time")))
    assert not lower_is_better("accuracy")


def test_a_step_is_a_whole_number_and_an_epoch_may_be_a_part() -> None:
    point = of_json('{"step": 2.0, "rank": 3.0, "epoch": 0.5, "loss": 1}')
    assert point is not None and repr((point.step, point.rank, point.epoch)) == "(2, 3, 0.5)"


def test_of_two_lines_that_ran_into_each_other_the_first_is_read() -> None:
    line = "Epoch[0] Batch [20]\tSpeed: 10 samples/sec\taccuracy=1 Epoch[0] Time cost=2"
    assert only(line) == Point({"samples_per_second": 10.0, "accuracy": 1.0}, epoch=0, step=20)


def test_each_number_that_a_node_prints_has_a_unit_and_is_on_the_page_of_metrics() -> None:
    printed = set(re.findall(r'"(\w+)": %s\' "\$\(hundredths', runtime.read("node.sh").decode()))
    page = (Path(__file__).resolve().parents[3] / "docs/reference/metrics.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| nodes \| (.*) \|$", page, re.M)
    assert printed == set(re.findall(r"`(\w+)`", row))
    assert printed - UNITS.keys() == set()
