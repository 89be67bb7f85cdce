"""Which frameworks of old Pythons, or built from source, `.ci/run` trains with: `python -m tests.legacy_frameworks`.

Only what nodes run can change how they train: the texts of their launches, which tests compare with the files in
tests/golden, and environments, recipes and tests. All of them run if one of these differs from the last full run;
otherwise the third runs that the number of commits names. `--write` records a digest of these after a full run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from batchtrain.containers.environments import ENVIRONMENTS as ALL_ENVIRONMENTS

ROOT = Path(__file__).resolve().parent.parent
THIRDS = (("cntk",), ("mxnet",), ("tensorflow1", "horovod"))
ALL = tuple(framework for third in THIRDS for framework in third)
ENVIRONMENTS: Mapping[str, str] = {
    "cntk": "cntk", "cntk-intelmpi": "cntk", "mxnet": "mxnet", "tensorflow1": "tensorflow1",
    "horovod-pytorch": "horovod", "horovod-tensorflow": "horovod",
}  # fmt: skip
"""The framework of each environment of `batchtrain images env` that has one of them."""
VARIABLE = "BATCHTRAIN_TEST_LEGACY"
"""The frameworks that run, separated by commas. Unset: all of them."""
DIGEST = Path(__file__).with_suffix(".sha256")
FILES = (
    "batchtrain/containers/make_environment.py", "batchtrain/containers/uv.py",
    "docker/cntk*/**/*", "docker/horovod*/**/*", "docker/mxnet*/**/*",
    "docker/python37/**/*", "docker/tensorflow1*/**/*", "recipes/CNTK*/**/*", "recipes/Horovod*/**/*",
    "recipes/Keras+CNTK/**/*", "recipes/Keras+MXNet/**/*", "recipes/MXNet*/**/*", "recipes/TensorFlow-Benchmarks*/**/*",
    "tests/e2e/test_frameworks.py", "tests/e2e/test_sources.py", "tests/environments.py",
    "tests/golden/frameworks/horovod*", "tests/golden/frameworks/mxnet*",
    "tests/golden/frameworks/tensorflow-estimator*", "tests/golden/frameworks/tensorflow-flags*",
    "tests/golden/frameworks/tf_cnn_benchmarks*", "tests/golden/mpi/intelmpi.*", "tests/golden/mpi/openmpi.*",
)  # fmt: skip
"""What a training with them depends on, beside the contents of its environment."""


def runs(framework: str) -> bool:
    """Whether tests of a framework run in this process."""
    chosen = os.environ.get(VARIABLE)
    return chosen is None or framework in chosen.split(",")


def chosen(digest: str, recorded: str, commits: int) -> tuple[Collection[str], str]:
    """The frameworks that CI trains with, and why. `commits` is 0 if their number is unknown."""
    if digest != recorded:
        return ALL, "what they depend on has changed since the last full run"
    if not commits:
        return ALL, "the history of this checkout is not whole"
    return THIRDS[commits % len(THIRDS)], f"the third of commit {commits}; what they depend on has not changed"


def digest() -> str:
    """A digest of what the trainings depend on."""
    files = sorted({path for pattern in FILES for path in ROOT.glob(pattern) if path.is_file()})
    content = hashlib.sha256(repr([ALL_ENVIRONMENTS[name] for name in ENVIRONMENTS]).encode())
    for path in files:
        if "__pycache__" not in path.parts:
            content.update(f"{path.relative_to(ROOT)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return content.hexdigest()


def _commits() -> int:
    """How many commits the history has, or 0 if git does not know."""
    shallow = _git("rev-parse", "--is-shallow-repository")
    return int(_git("rev-list", "--count", "HEAD")) if shallow == "false" else 0


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main(arguments: list[str]) -> None:
    """Prints the frameworks for VARIABLE to stdout, and what runs and what does not to stderr."""
    if arguments == ["--write"]:
        DIGEST.write_text(f"{digest()}\n", encoding="utf-8")
        return
    recorded = DIGEST.read_text(encoding="utf-8").strip() if DIGEST.exists() else ""
    running, reason = chosen(digest(), recorded, _commits())
    omitted = [framework for framework in ALL if framework not in running]
    print(f"trains with {', '.join(running)}; not with {', '.join(omitted) or 'none'}: {reason}", file=sys.stderr)
    print(",".join(running))


if __name__ == "__main__":
    main(sys.argv[1:])
