"""`gang`: what travels of a function, what its values become, and what cannot be sent."""

from __future__ import annotations

import json
import runpy
import statistics
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from batchtrain.errors import NotFound, TaskFailed, UsageError
from batchtrain.functions import gangs
from batchtrain.records import Table, Task
from batchtrain.runs.directory import FileRecord, RunDirectory
from batchtrain.runs.finished import Result
from batchtrain.runtime.call_function import TUPLE, pack, unpack

NESTED = {"a": [1, 2.5, None, True, "x"], "t": (1, (2,)), "array": numpy.arange(6).reshape(2, 3)}


def test_values_are_json_and_arrays_and_come_back_equal() -> None:
    arrays: dict[str, Any] = {}
    sent = json.loads(json.dumps(pack(NESTED, arrays)))
    found = unpack(sent, arrays)
    assert found["a"] == NESTED["a"]
    assert found["t"] == (1, (2,))
    assert (found["array"] == NESTED["array"]).all()


@pytest.mark.parametrize(
    "value",
    [numpy.float64(0.5), numpy.float32(0.5), numpy.int8(1), numpy.bool_(True), numpy.str_("a"), numpy.uint64(2**63)],
)
def test_a_numpy_scalar_is_plain_json(value: Any) -> None:
    packed = pack(value, {})
    assert packed == value
    assert type(packed) is type(value.item())


@pytest.mark.parametrize(
    "value",
    [
        numpy.longdouble("0.1"),
        numpy.complex64(1j),
        numpy.datetime64("2026-11-22"),
        numpy.bytes_(b"a"),
        numpy.arange(3).view(numpy.recarray),
        numpy.arange(3).view(type("Own", (numpy.ndarray,), {})),
    ],
)
def test_other_scalars_and_kinds_of_arrays_are_arrays(value: Any) -> None:
    arrays: dict[str, Any] = {}
    found = unpack(pack(value, arrays), arrays)
    assert type(found) is numpy.ndarray
    assert found.dtype == value.dtype
    assert (found == numpy.asarray(value)).all()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [threading.Lock()]}, r"the value\['a'\]\[0\] is a lock; use numbers, .*`unpickle=True`"),
        (object(), "the value is an object; use"),
        ({1: 2}, "is a dict whose keys are not all text"),
        ({"__batchtrain_pickle__": "x"}, "is a dict whose keys"),
        (numpy.array([object()]), "is an array of object"),
        (numpy.ma.array([1, 2], mask=[True, False]), r"is a masked array \(give its `data` and `mask`\)"),
    ],
)
def test_a_value_that_is_neither_is_named_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        pack(value, {})


def test_a_pickle_is_loaded_only_if_it_is_asked_for() -> None:
    packed = pack({1, 2}, {}, may_pickle=True)
    assert unpack(packed, {}, may_pickle=True) == {1, 2}
    with pytest.raises(TypeError, match="`unpickle=True` was not given"):
        unpack(packed, {})


# --- what cannot be sent --------------------------------------------------------------------------------------------


def around() -> Any:
    lock = threading.Lock()

    def inside() -> bool:
        return lock.locked()

    return inside


def yields() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (lambda: 1, (), "a lambda has no source"),
        (print, (), "builtin_function_or_method; give a function"),
        (yields, (), "yields is asynchronous or a generator"),
        (
            around(),
            (),
            r"`lock`, which inside uses, is a lock; [^;]*, or create it in the function, or give it as an argument$",
        ),
        (statistics.mean, (1, threading.Lock()), "argument 2 is a lock"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_created(
    function: Any, args: tuple[Any, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        gangs.write(tmp_path, function, args, {}, unpickle=False)


# --- what travels ---------------------------------------------------------------------------------------------------

SCRIPT = """\
import functools
import numpy as np
import near
from package.part import name
from batchtrain.functions import gangs
from pathlib import Path

LIMIT = 7
TABLE = np.ones(3)

def keep(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)
    return call

@keep
def helper(x: "Unknown" = LIMIT):
    return near.twice(x)

class Point:
    def __init__(self, x):
        self.x = x

def outer():
    offset = 3
    def work(count, scale=1):
        import later
        if count == 0:
            return []
        values = work(count - 1)
        return [*values, Point(helper() * scale + offset).x, name, later.WORD, TABLE]
    return work

gangs.write(Path("sent"), outer(), (1,), {"scale": 10}, unpickle=False)
"""


def test_a_function_of_a_script_travels_with_all_that_it_uses(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "near.py").write_text("import deep\ntwice = deep.twice\n")
    (tmp_path / "deep.py").write_text("def twice(x): return 2 * x\n")
    (tmp_path / "later.py").write_text("WORD = 'later'\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "package/part.py").write_text("def name(): pass\nname.__qualname__ = 'name'\n")
    script = SCRIPT.replace("name, later.WORD", "name(), later.WORD")
    (tmp_path / "script.py").write_text(script)
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, check=True)
    sent = {str(path.relative_to(tmp_path / "sent")) for path in (tmp_path / "sent").rglob("*") if path.is_file()}
    assert sent == {
        "arrays.npz", "batchtrain_function.py", "call.json", "call_function.py", "deep.py", "later.py", "near.py",
        "package/__init__.py", "package/part.py",
    }  # fmt: skip
    answer = called(tmp_path / "sent")
    assert answer["value"][:3] == [143, None, "later"]
    assert (answer["rank"], answer["size"], answer["arrays"]) == (3, 1, 1)


def test_a_local_variable_is_not_the_global_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
        import threading
        data = model = threading.Lock()
        dir = "a global with the name of a built-in"
        def open(): return threading.Lock()
        open.__module__ = "IPython.core.interactiveshell"  # IPython has its own

        class Kept:
            model = __name__
            same = model

        def work(data: model = 1):
            open
            return data, [model for model in "ab"], dir, Kept.same
    """
    name = "a global with the name of a built-in"
    assert returned(script, tmp_path, monkeypatch) == [1, ["a", "b"], name, "batchtrain_function"]


def test_helpers_travel_with_their_decorators_closures_and_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrapping.py").write_text(WRAPPING)
    script = """
        import functools
        from wrapping import doubled

        STEP = 1

        @functools.lru_cache
        def cached(x): return x + STEP

        @doubled
        def twice(x): return x + STEP

        def odd(n): return n > 0 and pair(n - 1)
        def even(n): return n == 0 or odd(n - 1)
        pair = even
        add = lambda x: x + STEP

        def outer():
            offset = 100
            def shifted(x): return x + offset
            class Point:
                def get(self): return offset
            def work():
                return renamed(1), cached(1), twice(1), pair(4), add(1), Point().get(), work.__name__
            renamed = shifted
            return work
        work = outer()
    """
    assert returned(script, tmp_path, monkeypatch) == [101, 2, 4, True, 2, 100, "work"]


def test_decorators_below_gang_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
        import functools
        import batchtrain as bt

        def doubled(function):
            @functools.wraps(function)
            def call(): return 2 * function()
            return call
        remote = bt.gang(nodes=2)

        @remote
        @doubled
        def work(): return 4
        work = work.__wrapped__  # what gang was given
    """
    assert returned(script, tmp_path, monkeypatch) == 8


def test_a_module_of_a_package_and_what_a_module_makes_of_its_own_types_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
        import xml.dom.minidom
        from os import environ
        from random import randint as number, random
        def work():
            tag = xml.dom.minidom.parseString("<a/>").documentElement.tagName
            return tag, number(3, 3), random() < 1, hasattr(environ, "keys")
    """
    assert returned(script, tmp_path, monkeypatch) == ["a", 3, True, True]


def test_modules_of_a_package_without_an_init_file_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spread/inner").mkdir(parents=True)
    (tmp_path / "spread/inner/part.py").write_text("from spread import other\nWORD = other.WORD\n")
    (tmp_path / "spread/other.py").write_text("WORD = 'far'\n")
    script = """
        from spread.inner import part
        def work(): return part.WORD
    """
    assert returned(script, tmp_path, monkeypatch) == "far"


def test_processes_that_the_function_starts_have_its_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
        import multiprocessing
        import numpy as np

        LIMIT = 40
        TABLE = np.arange(3)

        def child(x): return x + LIMIT + int(TABLE.sum())
        def work():
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                return pool.map(child, [1])
    """
    assert returned(script, tmp_path, monkeypatch) == [44]


WRAPPING = """
import functools
STEP = 1000
def doubled(function):
    @functools.wraps(function)
    def call(x):
        return 2 * function(x) + 0 * STEP
    return call
def bare(function):
    def call(x):
        return 2 * function(x)
    return call
def adder(step):
    def add(x):
        return x + step
    return add
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("helper = bare(helper)", "uses two things that are called `helper`.*functools.wraps"),
        ("helper = adder(1); other = adder(2)", "uses two things that are called `add`"),
        ("helper = functools.lru_cache(helper)", "the wrapper of `helper` is not in its source.*@"),
        ("helper = [lambda x: x][0]", "the source of <lambda> is not known"),
        ("def helper(x): from . import near", "helper imports `.`, .* its full name"),
        ("def helper(x): from .near import y", "helper imports `.near`, .* its full name"),
        ("import __main__ as helper", "`helper`, which work uses, is a module"),
    ],
)
def test_a_helper_that_would_travel_wrongly_is_refused(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrapping.py").write_text(WRAPPING)
    script = f"""
        import functools
        from wrapping import adder, bare
        def helper(x): return x
        other = None
        {line}
        def work(): return helper(1), other
    """
    with pytest.raises(UsageError, match=message):
        returned(script, tmp_path, monkeypatch)


def returned(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the function `work` of a script returns on a node; tuples are lists."""
    monkeypatch.chdir(folder)
    end = "from batchtrain.functions import gangs\ngangs.write(Path('sent'), work, (), {}, unpickle=False)\n"
    (folder / "script.py").write_text(f"from pathlib import Path\n{textwrap.dedent(script)}\n{end}")
    with monkeypatch.context() as during:
        during.syspath_prepend(folder)
        runpy.run_path("script.py", run_name="__main__")
    value = called(folder / "sent")["value"]
    return value.get(TUPLE, value) if isinstance(value, dict) else value


def test_an_exception_is_an_answer_with_the_functions_own_traceback(tmp_path: Path) -> None:
    gangs.write(tmp_path, statistics.mean, ([],), {}, unpickle=False)
    answer = called(tmp_path, code=1)
    assert (answer["type"], answer["rank"]) == ("StatisticsError", 3)
    assert answer["message"] == "mean requires at least one data point"
    assert "raise StatisticsError" in answer["traceback"]
    assert "call_function.py" not in answer["traceback"]


def test_a_node_with_another_python_says_both_versions(tmp_path: Path) -> None:
    gangs.write(tmp_path, statistics.mean, ([1],), {}, unpickle=False)
    call = json.loads((tmp_path / "call.json").read_text())
    (tmp_path / "call.json").write_text(json.dumps({**call, "python": [3, 5]}))
    assert "was sent by Python 3.5, and the node runs Python 3." in called(tmp_path, code=1)["message"]


def called(folder: Path, code: int = 0) -> dict[str, Any]:
    """The answer of rank 3, as a node calls the function."""
    environment = {"BATCHTRAIN_RANK": "3", "AZ_BATCH_TASK_WORKING_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "call_function.py"], cwd=folder, env=environment, check=False)
    assert done.returncode == code
    answer: dict[str, Any] = json.loads((folder / "output/rank-3.json").read_text())
    return answer


ROOT = Path(__file__).parents[2]


# --- what comes back ------------------------------------------------------------------------------------------------


def result(tmp_path: Path, answers: list[dict[str, Any]], failure: TaskFailed | None = None) -> Result:
    run = RunDirectory(tmp_path)
    run.write_tasks([Task("task", "completed")])
    for number, answer in enumerate(answers):
        path = run.outputs("task") / f"n{number}/rank-{answer['rank']}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(answer))
    return Result(Table(), [run], failure)


def test_values_come_back_in_the_order_of_the_ranks_without_files_that_the_function_wrote(tmp_path: Path) -> None:
    fetched = result(tmp_path, [{"rank": 1, "value": "b"}, {"rank": 0, "value": "a"}])
    (fetched.output / "n0/rank-stats.json").write_text("{}")
    (fetched.output / "n0/deep").mkdir()
    (fetched.output / "n0/deep/rank-0.json").write_text('{"rank": 0, "value": "other", "time": 9}')
    found = gangs.read(fetched, unpickle=False, size=2)
    assert (found, found.result.runs[0].path) == (("a", "b"), tmp_path)


def test_a_rank_without_a_value_is_named_with_the_run_directory(tmp_path: Path) -> None:
    fetched = result(tmp_path, [{"rank": 0, "value": "a"}, {"rank": 2, "value": "c", "size": 5}])
    for size, ranks in ((4, "1, 3 of 4"), (None, "1, 3, 4 of 5")):
        with pytest.raises(NotFound, match=f"the values of ranks {ranks} are not in {tmp_path}"):
            gangs.read(fetched, unpickle=False, size=size)


def test_arrays_that_were_not_fetched_are_named_with_the_reason(tmp_path: Path) -> None:
    fetched = result(tmp_path, [{"rank": 0, "value": {"__batchtrain_array__": "a0"}, "arrays": 1}])
    with pytest.raises(NotFound, match=r"the arrays of rank 0 are not in .*: rank-0.npz is missing$"):
        gangs.read(fetched, unpickle=False)
    record = FileRecord(task="task", path="wd/output/rank-0.npz", size=9, reason="`results.max_size` is 5; fetch it")
    fetched.directory.write_files([record])
    with pytest.raises(NotFound, match=r"rank-0.npz was not fetched, because `results.max_size` is 5$"):
        gangs.read(fetched, unpickle=False)


def test_the_exception_of_the_rank_that_failed_first_is_raised_or_the_failure_of_the_gang(tmp_path: Path) -> None:
    raised = {"type": "KeyError", "traceback": "T"}
    said = [{"rank": rank, "message": f"m{rank}", "time": -rank, **raised} for rank in (0, 1)]
    with pytest.raises(TaskFailed, match="rank 0 raised KeyError: m0\n\nT") as caught:
        gangs.read(result(tmp_path, said, TaskFailed("x", rank=0)), unpickle=False)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(TaskFailed, match="killed"):
        gangs.read(result(tmp_path / "died", [], TaskFailed("killed")), unpickle=False)


def test_the_words_of_a_rank_cannot_control_the_terminal_of_a_traceback(tmp_path: Path) -> None:
    hostile = "\x1b]52;c;YQ==\x07\x1b[2J\u202e"
    answer = {"rank": 0, "message": hostile, "time": 0, "type": "ValueError", "traceback": f"line 1\n{hostile}"}
    with pytest.raises(TaskFailed) as caught:
        gangs.read(result(tmp_path, [answer], TaskFailed("x", rank=0)), unpickle=False)
    for error in (caught.value, caught.value.__cause__):
        assert str(error).replace("\n", "").isprintable()
    assert str(caught.value).splitlines()[2] == "line 1"


@pytest.mark.parametrize("kind", ["UnicodeDecodeError", "ExceptionGroup", "SystemExit", "OwnError"])
def test_an_exception_that_cannot_be_made_again_keeps_its_traceback(kind: str, tmp_path: Path) -> None:
    raised = {"rank": 0, "message": "m", "time": 0, "type": kind, "traceback": "T"}
    with pytest.raises(TaskFailed, match=f"rank 0 raised {kind}: m\n\nT") as caught:
        gangs.read(result(tmp_path, [raised], TaskFailed("x", rank=0)), unpickle=False)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [((), {}, "missing a required argument: 'rate'"), ((0.1,), {"epoch": 2}, "unexpected keyword argument 'epoch'")],
)
def test_a_wrong_argument_is_refused_before_anything_is_sent(
    tmp_path: Path, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    def train(rate: float, epochs: int = 1) -> float:
        return rate * epochs

    with pytest.raises(TypeError, match=message):
        gangs.write(tmp_path, train, args, kwargs, unpickle=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match="processes_per_node"):
        gangs.gang(proceses_per_node=2)  # type: ignore[call-arg]
