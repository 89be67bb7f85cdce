"""ends.py, as the processes of MXNet and JAX run under it: by a Python of its own, with real programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ENDS = Path(__file__).resolve().parents[2] / "batchtrain" / "runtime" / "ends.py"
WAITS = "import atexit, time\natexit.register(time.sleep, 600)\n"


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(ENDS), *arguments]
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize(
    ("fails", "code", "said"),
    [
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('no data')", 1, "no data"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("import sys; sys.exit(256 + 3)", 3, ""),
    ],
)
def test_what_is_not_caught_ends_the_process_though_its_exit_would_wait(
    fails: str, code: int, said: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{WAITS}print('begun')\n{fails}\n", encoding="utf-8")
    done = run(str(script))
    assert (done.returncode, done.stdout) == (code, "begun\n")
    assert said in done.stderr


@pytest.mark.parametrize("option", [(), ("--settle",)])
def test_a_traceback_begins_in_the_program(option: tuple[str, ...], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("1 / 0\n", encoding="utf-8")
    lines = run(*option, str(script)).stderr.splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", f'  File "{script}", line 1, in <module>']
    assert lines.count("ZeroDivisionError: division by zero") == 1


@pytest.mark.parametrize("ending", ["", "import sys; sys.exit()", "import sys; sys.exit(0)"])
def test_a_program_that_succeeds_ends_as_ever(ending: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import atexit\natexit.register(print, 'ended')\n{ending}\n", encoding="utf-8")
    done = run(str(script))
    assert (done.returncode, done.stdout) == (0, "ended\n")


def test_a_script_sees_what_python_shows_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("word = 'beside'\n", encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text("import sys, beside\nprint(__name__, __file__, sys.argv, beside.word)\n", encoding="utf-8")
    assert run(str(script), "--lr", "1").stdout == f"__main__ {script} {[str(script), '--lr', '1']} beside\n"


def settled(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """A program that has loaded something with the name of PyTorch's module."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "distributed.py").touch()
    script = tmp_path / "train.py"
    script.write_text(f"import torch.distributed\n{text}\n", encoding="utf-8")
    return run("--settle", str(script), "--lr", "1")


def test_threads_get_time_between_a_program_and_the_end_of_its_interpreter(tmp_path: Path) -> None:
    late = """
import atexit, threading, time
def let_go():
    ended.wait()
    time.sleep(0.01)
    print("let go", flush=True)
ended = threading.Event()
atexit.register(ended.set)
threading.Thread(target=let_go, daemon=True).start()
"""
    done = settled(late, tmp_path)
    assert (done.returncode, done.stdout) == (0, "let go\n")


def test_what_a_program_leaves_in_circles_is_gone_before_its_interpreter(tmp_path: Path) -> None:
    circle = """
import atexit, sys
class Model:
    def __init__(self):
        self.own = self
    def __del__(self):
        print("gone before the end:", not sys.is_finalizing())
Model()
"""
    assert settled(circle, tmp_path).stdout == "gone before the end: True\n"


@pytest.mark.parametrize(("fails", "code", "said"), [("1 / 0", 1, "ZeroDivisionError"), ("raise SystemExit(7)", 7, "")])
def test_a_settled_program_ends_as_ever(fails: str, code: int, said: str, tmp_path: Path) -> None:
    done = settled(f"import atexit, sys\natexit.register(print, sys.argv[1:])\n{fails}", tmp_path)
    assert (done.returncode, done.stdout) == (code, "['--lr', '1']\n")
    assert said in done.stderr


def test_a_module_sees_what_python_shows_it(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n", encoding="utf-8")
    assert run("-m", "training", "a", cwd=tmp_path).stdout == "__main__ ['a']\n"


def test_a_text_sees_what_python_shows_it() -> None:
    assert run("-c", "import sys; print(__name__, sys.argv)", "a").stdout == "__main__ ['-c', 'a']\n"


def test_processes_that_are_spawned_find_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(double, [1, 2]))\n",
        encoding="utf-8",
    )
    assert run(str(script)).stdout == "[2, 4]\n"
