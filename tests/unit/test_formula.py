"""Autoscale formulas: the language of Azure Batch, one claim a test."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from batchtrain.formula import FormulaError, Result, Seen, evaluate, judge, parse
from tests import examples

NOW = datetime(2026, 11, 23, 13, 5, 7, tzinfo=timezone.utc)  # a Monday


def samples(*values: float, until: timedelta = timedelta(seconds=0)) -> tuple[tuple[datetime, float], ...]:
    """One sample every 30 seconds, the last one `until` ago."""
    last = NOW - until
    return tuple((last - timedelta(seconds=30) * (len(values) - 1 - n), value) for n, value in enumerate(values))


def run(text: str, **metrics: tuple[tuple[datetime, float], ...]) -> Result:
    return evaluate(text, Seen(NOW, {f"${name}": found for name, found in metrics.items()}, 2, 1))


def value(text: str, **metrics: tuple[tuple[datetime, float], ...]) -> str:
    return dict(run(f"x = {text};", **metrics).variables)["x"]


OPERATORS = [
    ("1 + 2 * 3", "7"), ("(1 + 2) * 3", "9"), ("10 - 4 - 3", "3"), ("12 / 4 / 3", "1"), ("-2 + 5", "3"), ("--2", "2"),
    ("!0 + !7", "1"), ("1 < 2 && 2 <= 2", "1"), ("0 || 3", "1"), ("1 ? 5 : 6", "5"), ("0 ? 1 : 0 ? 2 : 3", "3"),
    ('"a" < "b"', "1"), ("1 / 0 > 1000", "1"), ("1e2 + .5", "100.5"),
]  # fmt: skip
FUNCTIONS = [
    ("avg(1, 2, 6)", "3"), ("len(vec(1, 2), 3)", "3"), ("lg(8)", "3"), ("log(1000)", "3"), ("ln(1)", "0"),
    ("lg(vec(2, 4))", "[1,2]"), ("max(1, vec(7, 3))", "7"), ("min(4, 2)", "2"), ("norm(3, 4)", "5"),
    ("percentile(vec(1, 2, 3, 4), 50)", "2"), ("range(3, 9, 5)", "6"), ("std(1, 2, 3)", "1"), ("std(7)", "0"),
    ("std(1/0, 1)", "nan"), ("sum(1, vec(2, 3))", "6"), ("val(vec(5, 6, 7), 1)", "6"),
    ("vec(1, 2) + vec(3, 4)", "[4,6]"), ("vec(2, 4) / 2", "[1,2]"),
]  # fmt: skip
TIMES = [
    ("time().weekday", "1"),
    ("time().hour * 100 + time().minute", "1305"),
    ('time("2026-11-22T00:00:00Z").weekday', "0"),
    ('time("Sun, 22 Nov 2026 10:00:00 GMT").hour', "10"),
    ("time() - TimeInterval_Hour * 2", "2026-11-23T11:05:07.000Z"),
    ('time() > time("2026-01-01T00:00:00Z")', "1"),
    ("TimeInterval_Minute * 2 == 120 * TimeInterval_Second", "1"),
]
SAMPLES = [
    ("$ActiveTasks * 2", "6"),  # a metric as a number is its last sample
    ("sum($ActiveTasks.GetSample(60 * TimeInterval_Second))", "6"),
    ("sum($ActiveTasks.GetSample(2))", "5"),
    ("$ActiveTasks.GetSample(90 * TimeInterval_Second, 60 * TimeInterval_Second)", "[9,1]"),
    ("1 ? 2 : $PendingTasks", "2"),  # the branch that is not taken is not evaluated
]


@pytest.mark.parametrize(("text", "wanted"), [*OPERATORS, *FUNCTIONS, *TIMES, *SAMPLES])
def test_an_expression_has_the_value_that_it_has_in_the_service(text: str, wanted: str) -> None:
    assert value(text, ActiveTasks=samples(9, 1, 2, 3)) == wanted


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("$TargetDedicatedNodes = 3; $TargetLowPriorityNodes = 4; $NodeDeallocationOption = taskcompletion;",
         (3, 4, "taskcompletion")),
        ("x = 1;", (2, 1, "requeue")),  # what is not set stays as it is
        ("$TargetDedicated = 7; $TargetDedicatedNodes = 5;", (5, 1, "requeue")),  # wins over the older spelling
        ("$TargetDedicatedNodes = 5; $TargetDedicated = 7;", (5, 1, "requeue")),
        ("$TargetDedicatedNodes = 9; stop(); $TargetDedicatedNodes = 1;", (9, 1, "requeue")),
    ],
)  # fmt: skip
def test_the_targets_and_the_option_are_what_the_formula_sets_before_it_stops(
    text: str, targets: tuple[int, int, str]
) -> None:
    assert run(text)[:3] == targets


def test_the_percentage_is_of_one_sample_every_30_seconds() -> None:
    seen = samples(1, 1, 1, until=timedelta(seconds=60))
    assert value("$PendingTasks.GetSamplePercent(180 * TimeInterval_Second)", PendingTasks=seen) == "50"


def test_too_few_samples_end_the_evaluation() -> None:
    with pytest.raises(FormulaError, match=r"\$PendingTasks wanted 70%, received 50%"):
        value("$PendingTasks.GetSample(60 * TimeInterval_Second, 70)", PendingTasks=samples(1))


def test_the_documents_first_example_follows_the_tasks() -> None:
    text = """
        startingNumberOfVMs = 1; maxNumberofVMs = 25;  // as in the document
        percent = $PendingTasks.GetSamplePercent(180 * TimeInterval_Second);
        pending = percent < 70 ? startingNumberOfVMs : avg($PendingTasks.GetSample(180 * TimeInterval_Second));
        $TargetDedicatedNodes = min(maxNumberofVMs, pending);
        $NodeDeallocationOption = taskcompletion;
    """
    assert run(text, PendingTasks=samples(8, 8)).dedicated == 1
    assert run(text, PendingTasks=samples(8, 8, 8, 8, 8, 14)).dedicated == 9
    assert run(text, PendingTasks=samples(*[90] * 6)).dedicated == 25


def test_the_documents_second_example_replaces_preempted_nodes() -> None:
    text = """
        maxNumberofVMs = 25;
        $TargetDedicatedNodes = min(maxNumberofVMs, $PreemptedNodeCount.GetSample(180 * TimeInterval_Second));
        $TargetLowPriorityNodes = min(maxNumberofVMs, maxNumberofVMs - $TargetDedicatedNodes);
    """
    assert run(text, PreemptedNodeCount=samples(4, 4))[:2] == (4, 21)


def test_results_are_written_as_the_service_writes_them() -> None:
    made = run("$TargetDedicatedNodes = 3.9; days = time().weekday;")
    assert str(made) == ("$TargetDedicatedNodes=3;$TargetLowPriorityNodes=1;$NodeDeallocationOption=requeue;days=1")


@pytest.mark.parametrize(
    ("text", "said", "line", "column"),
    [
        ("$TargetDedicatedNodes = ;", "a value is missing before `;`", 1, 25),
        ("x = 1\ny = 2;", "`;` is missing before `y`", 2, 1),
        ("x = (1;", "`)` is missing before `;`", 1, 7),
        ("x = 1 # 2;", "`#` is not valid here", 1, 7),
        ('x = time(\\"2027-01-01\\");', 'a text of JSON is written with `"` in place of `\\"` here', 1, 10),
        ("x = foo(1);", "there is no function `foo`", 1, 5),
        ("x =\n  nobody;", "`nobody` was never set", 2, 3),
        ("x = 1 + time();", "`+` does not take a number and a timestamp", 1, 7),
        ("$ActiveTasks = 1;", "$ActiveTasks can only be read", 1, 1),
        ("$NodeDeallocationOption = 1;", "must be one of requeue", 1, 1),
        ("x = $ActiveTasks.GetSamples(1);", "has no `.GetSamples()`", 1, 18),
        ("x = $ActiveTasks;  y = x + 1;", "no sample of $ActiveTasks yet", 1, 26),
        ('x = time("soon");', "`soon` is not a time", 1, 5),
        ("x = val(vec(1), 3);", "number 3 does not exist", 1, 5),
        ("$TargetDedicatedNodes = $ActiveTasks;", "no sample of $ActiveTasks yet", 1, 1),
        ("$TargetDedicatedNodes = 1/0;", "must be a number, not inf", 1, 1),
        ("x = avg(1/0, -1/0);", "infinite or no number", 1, 5),
        ("x = sum(1/0, -1/0);", "infinite or no number", 1, 5),
        ("x = TimeInterval_Minute * (0/0);", "infinite or no number", 1, 25),
        ("x = percentile(vec(1, 2), 0/0);", "infinite or no number", 1, 5),
        ("x = $ActiveTasks.GetSample(0/0);", "infinite or no number", 1, 18),
        ("x = avg($ActiveTasks.GetSample(1));", "the argument has no number", 1, 5),
        ("x = vec(1, 2) + vec(1);", "have different lengths", 1, 15),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, said: str, line: int, column: int) -> None:
    with pytest.raises(FormulaError) as caught:
        run(text)
    assert said in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_the_limits_of_the_service_hold() -> None:
    with pytest.raises(FormulaError, match="at most 8192 bytes"):
        parse("x = 1;" + " " * 8200)
    with pytest.raises(FormulaError, match="at most 100 statements"):
        parse("x=1;" * 101)
    assert len(parse("x=1;" * 100)) == 100


def test_no_nesting_exhausts_the_stack() -> None:
    for text in ("(" * 4000 + "1", "x=" + "1?" * 2000 + "1", "x=" + "-" * 8000 + "1"):
        with pytest.raises(FormulaError):
            run(text)
    assert value("1" + "+1" * 4000) == "4001"


@pytest.mark.property
@examples.of(100)
@given(some.text(alphabet='$xTime().,;=+-*/<>!?:&|"1e0 \nActiveTasksGetSample', max_size=60))
def test_any_text_is_a_formula_or_a_formula_error(text: str) -> None:
    try:
        run(text, ActiveTasks=samples(1, 2))
    except FormulaError as error:
        assert error.line >= 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "$TargetDedicatedNode = 5;",
            "line 1, column 1: the service has no variable $TargetDedicatedNode; did you mean",
        ),
        ("$TargetDedicatedNodes = avrg(vec(1));", "column 25: there is no function `avrg`; did you mean `avg`?"),
        ("$TargetDedicatedNodes = tasks;", "`tasks` is not set above"),
        ("$CPUPercent = 1; $TargetDedicatedNodes = 1;", "$CPUPercent can only be read"),
        ("x = 1;", "it sets no target, such as $TargetDedicatedNodes"),
        ("$TargetDedicatedNodes = $PendingTask.GetSample(1);", "did you mean `$PendingTasks`?"),
        (
            "$TargetDedicatedNodes = $PendingTasks.GetSampel(1);",
            "there is no `.GetSampel()`; did you mean `GetSample`?",
        ),
        ("$TargetDedicatedNodes = min(5, 1;", "`,` or `)` is missing before `;`"),
        ("$TargetDedicatedNodes = TimeInterval_Hours;", "did you mean `TimeInterval_Hour`?"),
    ],
)
def test_a_mistake_is_found_without_samples(text: str, said: str) -> None:
    (error,) = judge(text)
    assert said in str(error)


def test_all_mistakes_of_a_formula_are_found() -> None:
    assert [error.line for error in judge("a = b;\nc = d();\n$TargetDedicatedNodes = a + c;")] == [1, 2]


def test_a_formula_that_can_be_evaluated_is_right() -> None:
    text = "$t = $PendingTasks.GetSample(TimeInterval_Minute * 5); n = $t > 3 ? 2 : 0; // so many\n"
    assert judge(text + "$TargetDedicated = n; $NodeDeallocationOption = taskcompletion;") == ()
