"""What a training leaves comes home: the model loads and has the accuracy that was printed; files are byte for byte."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import SCRIPT

RECIPE = Path(__file__).resolve().parents[2] / "recipes/mpi4py-MPICH"

pytestmark = [pytest.mark.process, pytest.mark.mpi]

LOADED = """
import sys
import numpy
sys.path.insert(0, sys.argv[1])
import train
parts = numpy.load(sys.argv[2])
weights = numpy.concatenate([parts[name].ravel() for name in ("w1", "b1", "w2", "b2")])
print(f"test accuracy {train.accuracy(weights, *train.load()[1]):.4f}")
"""


ODD = """
pool_specification: {id: p, vm_size: STANDARD_D2S_V5, vm_count: {dedicated: 1}, vm_configuration: {
  platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}}
job_specifications: [{id: j, tasks: [{id: t, command: "mkdir output; touch 'output/\u00e4 \u00f6' $'output/\\\\xff'"}]}]
"""


def test_a_machine_whose_file_names_are_ascii_gets_results_of_any_name(batchtrain: Any, tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/config.yaml").write_text(ODD, encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    batchtrain("run", "odd", "--local", environment=plain)
    found = sorted(path.name for path in (tmp_path / "runs/latest/outputs/t").iterdir())
    assert found == ["%C3%A4 %C3%B6", "%FF"]


@pytest.mark.slow
def test_a_digits_model_of_two_nodes_comes_home_and_has_the_printed_accuracy(trained: Any, tmp_path: Path) -> None:
    done = trained("run", str(RECIPE), "--local", "--keep")
    (accuracy,) = re.findall(r"^test accuracy [\d.]+$", done.stdout, flags=re.M)
    home = tmp_path / "runs/latest"
    model = home / "outputs/train/weights.npz"
    assert re.fullmatch(r"results: \S+-digits-\w{4}: 2 files, [\d.]+ KiB in outputs/", done.stderr.splitlines()[-1])

    program = tmp_path / "loaded.py"
    program.write_text(LOADED)
    loaded = subprocess.run(
        [sys.executable, str(program), str(RECIPE / "src"), str(model)], capture_output=True, text=True, check=False
    )
    assert loaded.stdout.strip() == accuracy, loaded.stderr

    record = json.loads((home / "run.json").read_text())
    assert (record["state"], record["job"], record["nodes"]) == ("completed", "digits", 2)
    nodes = json.loads((home / "nodes.json").read_text())
    assert [node["ranks"] for node in nodes] == [{"train": [0, 1]}, {"train": [2, 3]}]
    ranks = home / "logs/train/ranks"
    assert sorted(path.name for path in ranks.iterdir()) == [
        *(f"{rank}.{stream}.txt" for rank in range(4) for stream in ("stderr", "stdout")),
        "attempts.jsonl",
        "stream.jsonl",
    ]
    assert accuracy in (ranks / "0.stdout.txt").read_text()

    _check_files(trained, model, tmp_path)


def _check_files(trained: Any, model: Path, tmp_path: Path) -> None:
    """The same file by each of the other ways."""
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    file = "wd/output/weights.npz"
    (row,) = json.loads(trained("jobs", "get", "digits", "output/*.npz", "-d", "got", "--local", "-o", "json").stdout)
    assert (row["path"], row["sha256"]) == (file, digest)
    assert (tmp_path / row["local"]).read_bytes() == model.read_bytes()
    listed = json.loads(trained("jobs", "files", "digits", "train", "--all-nodes", "--local", "-o", "json").stdout)
    assert len({row["node"] for row in listed}) == 2

    piped = subprocess.run(
        [SCRIPT, "jobs", "logs", "digits", "--file", file, "--local"],
        cwd=tmp_path, env=trained.environment, capture_output=True, check=False,
    )  # fmt: skip
    assert piped.stdout == model.read_bytes()
    code, screen = _on_terminal(trained, "jobs", "logs", "digits", "--file", file, "--local")
    assert code == 2
    assert f"{file} is no text" in screen
    assert f"jobs get digits {file} --local` downloads it" in " ".join(screen.split())


def _on_terminal(trained: Any, *arguments: str) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [SCRIPT, *arguments], cwd=trained.cwd, env=trained.environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
    os.close(ours)
    return process.returncode, shown.decode()
