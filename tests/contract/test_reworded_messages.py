"""Nothing reads the sentences that the scripts on a node print: with other words, a failing gang ends the same way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import batchtrain
from tests import rewording

pytestmark = [pytest.mark.mpi, pytest.mark.process, pytest.mark.slow]

PACKAGE = Path(batchtrain.__file__).parent


def run(package: Path, folder: Path, prefix: Path) -> dict[str, dict[str, Any]]:
    """How the gangs end that use the scripts of this package. The folder's name is as short as that of a socket."""
    folder.mkdir()
    paths = os.pathsep.join(map(str, (package.parent, PACKAGE.parent)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.failing_gangs", str(folder), str(prefix)],
        env={**os.environ, "PYTHONPATH": paths}, cwd=folder, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    results: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return results


def test_a_failing_gang_ends_the_same_way_if_every_message_is_reworded(
    tmp_path: Path, mpi_environment: Callable[[str], Path]
) -> None:
    copy = tmp_path / "copy/batchtrain"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert rewording.reword_package(copy / "runtime") > 100
    prefix = mpi_environment("mpich")
    before, after = (run(package, tmp_path / name, prefix) for package, name in ((PACKAGE, "a"), (copy, "b")))
    for name, result in before.items():
        stderr, other = result.pop("stderr"), after[name].pop("stderr")
        assert "exited with code" in stderr or "was killed by" in stderr, name
        assert "detixe htiw" in other or "saw dellik" in other, name
        assert "exited with code" not in other and "was killed by" not in other, name
        assert (name, result["rank"], result["process"]) == (name, 3, "rank 3")
    assert after == before


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ('bt_say() { printf \'batchtrain: %s\\n\' "$*" >&2; }; bt_say "code $1 of it is" no', "code $1 fo ti si"),
        ('ending="exited with code $code"; echo "rank $rank $ending"', "detixe htiw edoc $code"),
        ('echo "ended $?"; grep "some words" file; printf -v text "some words"', None),
        ('line=$(grep "some words" file); echo "$line"', None),
        ('line=$(echo "some words" | head); echo "$line"', "emos sdrow"),
        ("case $line in 'some words'*) ;; esac; [ \"$line\" = 'some words' ]", None),
    ],
)
def test_what_a_shell_prints_is_found(text: str, other: str | None) -> None:
    printing = rewording.printing_functions([rewording.PARSER.parse(text.encode()).root_node])
    new = rewording.reword_shell(text.encode(), printing)[0].decode()
    assert new == text if other is None else other in new
