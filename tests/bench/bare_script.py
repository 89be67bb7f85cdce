"""The seconds of one bare script on several processes: by batchtrain and by TorchX, in turn.

`python -m tests.bench.bare_script TORCHX [NODESxPROCESSES] [ROUNDS]`, where TORCHX is the program of an environment
with `torchx` and `torch`. By default two nodes of two processes. Our environment is made before the first round.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "data" / "scripts" / "nanogpt"
ARGUMENTS = ("--", "--epochs", "8")
ROUNDS = "5"


def main(torchx: str, shape: str = "2x2", rounds: str = ROUNDS) -> None:
    ours, (nodes, processes) = str(Path(sys.executable).with_name("batchtrain")), shape.split("x")
    options = ("--nodes", nodes, "--processes-per-node", processes, "--local")
    words = {
        "batchtrain": (ours, "run", "train.py", *options, *ARGUMENTS),
        "TorchX": (torchx, "run", "-s", "local_cwd", "dist.ddp", "-j", shape, "--script", "train.py", *ARGUMENTS),
    }
    path = f"{Path(torchx).resolve().parent}{os.pathsep}{os.environ['PATH']}"
    variables: dict[str, Mapping[str, str]] = {"batchtrain": os.environ, "TorchX": {**os.environ, "PATH": path}}
    seconds: dict[str, list[float]] = {name: [] for name in words}
    for number in range(int(rounds) + 1):
        for name, command in words.items():
            took = _run(command, variables[name])
            if number:  # the first round makes environments and caches
                seconds[name].append(took)
    for name, values in seconds.items():
        listed = ", ".join(f"{value:.2f}" for value in values)
        print(f"{name}: median {statistics.median(values):.2f} s of {listed}")
    ours_by_theirs = [one / other for one, other in zip(*seconds.values(), strict=True)]
    print(f"batchtrain by TorchX, median of pairs: {statistics.median(ours_by_theirs):.2f}")


def _run(command: tuple[str, ...], variables: Mapping[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(shutil.copytree(SCRIPT, Path(folder, "bare")))
        start = time.monotonic()
        subprocess.run(command, cwd=directory, env=dict(variables), check=True, capture_output=True)
        return time.monotonic() - start


if __name__ == "__main__":
    main(*sys.argv[1:])
