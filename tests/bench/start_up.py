"""Processor time of short commands, in pairs with another checkout: `python tests/bench/start_up.py OTHER [TIMES]`.

OTHER: a checkout with an installed `.venv`, as this one; both with the same extras, since libraries import what they
find. The other programs of the machine change processor time less than they change elapsed time.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
RECIPE = Path("recipes") / "CNTK-GPU-Infiniband-IntelMPI"
COMMANDS = (("--help",), ("config", "validate"), ("config", "plan"))


def processor_seconds(checkout: Path, words: tuple[str, ...]) -> float:
    """The processor time of one command of a checkout, its children included."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    recipe = [str(checkout / RECIPE)] if len(words) > 1 else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [checkout / ".venv" / "bin" / "batchtrain", *words, *recipe], env=environment, capture_output=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(other: Path, times: int) -> None:
    for words in COMMANDS:
        pairs = [(processor_seconds(other, words), processor_seconds(HERE, words)) for _ in range(times + 1)][1:]
        theirs, ours = (statistics.quantiles(column, n=4)[0] for column in zip(*pairs, strict=True))
        print(f"{' '.join(words):16} {ours:.3f} s, there {theirs:.3f} s: {ours / theirs:.2f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 21)
