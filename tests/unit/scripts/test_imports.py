"""What is read of a script and of the files that it imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.errors import UsageError
from batchtrain.scripts.imports import read


def script(home: Path, text: str, **files: str) -> Path:
    for name, content in {"train__py": text, **files}.items():
        path = home / name.replace("__", ".")
        path.write_text(content, encoding="utf-8")
    return home / "train.py"


def imported(home: Path, text: str, **files: str) -> list[tuple[str, str, int]]:
    return [(place.name, place.file.name, place.line) for place in read(script(home, text, **files)).imports]


def test_modules_of_python_and_of_the_directory_are_left_out(tmp_path: Path) -> None:
    text = "import os, model\nfrom torch import nn\nimport numpy as np\n"
    assert imported(tmp_path, text, model__py="") == [("torch.nn", "train.py", 2), ("numpy", "train.py", 3)]


def test_the_files_of_the_directory_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name, text in (("__init__", ""), ("net", "import jax\n")):
        (tmp_path / "parts" / f"{name}.py").write_text(text)
    assert imported(tmp_path, "from parts import net\n") == [("jax", "net.py", 1)]


def test_imports_in_functions_count_and_those_for_type_checkers_do_not(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jax\ndef main():\n    import torch\n"
    assert imported(tmp_path, text) == [("torch", "train.py", 5)]


def test_an_import_in_a_function_is_certain_if_the_script_calls_the_function(tmp_path: Path) -> None:
    text = "def used():\n    import torch\ndef unused():\n    import jax\nused()\n"
    certain = {place.name: place.certain for place in read(script(tmp_path, text)).imports}
    assert certain == {"torch": True, "jax": False}


def test_a_relative_import_names_a_module_of_its_package(tmp_path: Path) -> None:
    (tmp_path / "nets" / "parts").mkdir(parents=True)
    texts = {"__init__": "from .layers import *\n", "layers": "import jax\n", "parts/head": "from ..layers import f\n"}
    for name, text in texts.items():
        (tmp_path / "nets" / f"{name}.py").write_text(text, encoding="utf-8")
    assert imported(tmp_path, "import nets.parts.head\n") == [("jax", "layers.py", 1)]


@pytest.mark.parametrize(("package", "python_path"), [("mine", "."), ("src/mine", "src"), ("mine/deep", ".")])
def test_a_package_above_the_script_is_read_within_the_repository(
    package: str, python_path: str, tmp_path: Path
) -> None:
    for name, text in {f"{package}/net.py": "import jax\n", "tools/run/train.py": f"import {MINE[package]}\n"}.items():
        (tmp_path / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repo" / name).write_text(text, encoding="utf-8")
    script_above = tmp_path / "repo/tools/run/train.py"
    assert read(script_above).root == script_above.parent
    (tmp_path / "repo/.git").mkdir()
    read_script = read(script_above)
    assert (read_script.root, read_script.python_path) == (tmp_path / "repo", python_path)
    assert [place.name for place in read_script.imports] == ["jax"]


MINE = {"mine": "mine.net", "src/mine": "mine.net", "mine/deep": "mine.deep.net"}


def test_a_circle_of_imports_ends(tmp_path: Path) -> None:
    assert imported(tmp_path, "import a\n", a__py="import b\n", b__py="import a, ray\n") == [("ray", "b.py", 1)]


@pytest.mark.parametrize(
    "text",
    ["import torch.multiprocessing as mp\nmp.spawn(main)", "from torch.multiprocessing import spawn\nspawn(main)"],
)
def test_calls_have_their_full_names(text: str, tmp_path: Path) -> None:
    (place,) = read(script(tmp_path, text)).calls
    assert (place.name, place.line) == ("torch.multiprocessing.spawn", 2)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("import subprocess\nsubprocess.run(['mpirun', '-n', str(2)])", "mpirun -n"),
        ("import subprocess, sys\nsubprocess.run(args=[sys.executable, '-m', 'a'])", "python -m a"),
        ("from os import system\nsystem('/opt/bin/torchrun train.py')", "/opt/bin/torchrun train.py"),
    ],
)
def test_programs_that_are_started_are_read_as_far_as_they_are_written_out(
    text: str, program: str, tmp_path: Path
) -> None:
    (place,) = read(script(tmp_path, text)).programs
    assert (place.name, place.line) == (program, 2)


@pytest.mark.parametrize(
    "text", ["import os\nos.path.join('deepspeed', 'x')", "from os import makedirs\nmakedirs('mpirun')"]
)
def test_other_functions_of_os_start_no_program(text: str, tmp_path: Path) -> None:
    assert read(script(tmp_path, text)).programs == ()


def test_a_shell_script_is_answered_with_what_to_name(tmp_path: Path) -> None:
    for name, text in (("run.sh", "x=1\ntorchrun train.py"), ("launch", "#!/bin/bash\ntorchrun train.py\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match="is no Python script; name the script that it starts"):
            read(tmp_path / name)


def test_a_computed_command_is_not_read(tmp_path: Path) -> None:
    assert read(script(tmp_path, "import os\nos.system(command)")).programs == ()


def test_a_syntax_error_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"/model\.py:2: .*correct the line"):
        read(script(tmp_path, "import model\n", model__py="x = 1\ny = (\n"))


def test_a_directory_and_a_missing_file_are_errors_with_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory without a configuration; name the script in it"):
        read(tmp_path)
    with pytest.raises(UsageError, match="does not exist; name a recipe directory or a Python script"):
        read(tmp_path / "train.py")
