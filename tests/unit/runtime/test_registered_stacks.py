"""The sitecustomize of the Pythons of a gang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from batchtrain import runtime
from batchtrain.runtime import registered_stacks
from batchtrain.runtime.launch import stacks

PROGRAM = """\
import sitecustomize, sys
sys.path.insert(0, LAUNCH)
import os, stacks
print(sitecustomize.MINE, stacks.catches(os.getpid()), len(stacks.files(os.getpid())))
"""


def test_a_python_writes_its_stacks_at_the_signal_and_the_sitecustomize_of_the_user_runs_too(tmp_path: Path) -> None:
    for name, data in (("ours", runtime.read("registered_stacks.py")), ("theirs", b"MINE = 1\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_bytes(data)
    program = PROGRAM.replace("LAUNCH", repr(str(Path(stacks.__file__).parent)))
    path = {"PYTHONPATH": f"{tmp_path / 'ours'}:{tmp_path / 'theirs'}"}
    done = subprocess.run([sys.executable, "-c", program], env=path, capture_output=True, text=True, check=True)
    assert done.stdout == "1 True 1\n"


def test_both_ends_name_the_same_signal() -> None:
    assert registered_stacks.SIGNAL == stacks.SIGNAL


def test_the_calls_of_batchtrain_and_of_runpy_that_lead_to_a_program_are_left_out() -> None:
    places = (
        "/w/wd/train.py", "/w/wd/runpy.pyc.py", "<frozen runpy>", "/lib/python3.6/runpy.py", "/w/.batchtrain/ends.py",
    )  # fmt: skip
    text = "\n".join(["Current thread 0x1 (most recent call first):", *(f'  File "{f}", line 1 in f' for f in places)])
    own = 'Thread 0x2 (most recent call first):\n  File "/w/.batchtrain/ends.py", line 1 in settle'
    frame = r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)'
    first, second = stacks.threads_in(f"{text}\n{own}".encode(), frame)
    assert first == ["f (/w/wd/train.py:1)", "f (/w/wd/runpy.pyc.py:1)"]
    assert second == ["settle (/w/.batchtrain/ends.py:1)"]
