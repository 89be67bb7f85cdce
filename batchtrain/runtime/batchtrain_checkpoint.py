"""Checkpoints that a program can trust, in a directory of $BATCHTRAIN_CHECKPOINT_DIR for each of them.

    python:  import batchtrain_checkpoint as checkpoint
             path = checkpoint.newest()         the newest complete checkpoint, or None
             path = checkpoint.begin(step)      an empty directory for the checkpoint of a step
             checkpoint.complete(path)          after all ranks have written: now it counts; older ones are removed
             checkpoint.preempted()             seconds until a node of the task is preempted, or None

    shell:   python3 -m batchtrain_checkpoint newest | begin STEP | complete PATH

A checkpoint is a directory `step-N`. It is complete when it has a `manifest.json` that names each of its files with its
size, and all of them are there. The manifest is written last, because a rename is not atomic on every file system.
Without $BATCHTRAIN_CHECKPOINT_DIR, the directory `checkpoints` of the working directory is used.

Standard library, Python 3.6 or later. One process calls `begin` and `complete`; the others wait for it.
"""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator

MANIFEST = "manifest.json"


def directory() -> str:
    """Where the checkpoints are."""
    return os.environ.get("BATCHTRAIN_CHECKPOINT_DIR") or os.path.abspath("checkpoints")


def newest() -> "str | None":
    """The path of the complete checkpoint with the highest step; None if there is none."""
    return next(every_complete(), None)


def every_complete() -> "Iterator[str]":
    """The paths of the complete checkpoints, the highest step first."""
    return (path for _, path in _steps() if is_complete(path))


def step_of(path: "str | None") -> int:
    """The step of a checkpoint, which its name says; 0 for None."""
    return int(os.path.basename(path).partition("-")[2]) if path else 0


def run_of(path: str) -> str:
    """The run that completed a checkpoint; empty if its manifest does not say it."""
    with open(os.path.join(path, MANIFEST), encoding="utf-8") as file:
        return str(json.load(file).get("run", ""))


def begin(step: int) -> str:
    """Make an empty directory for the checkpoint of a step. What an earlier attempt left there is removed."""
    path = os.path.join(directory(), f"step-{step:d}")
    _remove(path)
    os.makedirs(path)
    return path


def complete(path: str) -> None:
    """Write the manifest: from now on the checkpoint counts. Then remove older ones."""
    run = json.loads(os.environ.get("BATCHTRAIN_LINEAGE") or "{}").get("run")
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    sizes = {os.path.relpath(file, path): _size(file) for file in files}
    sizes.pop(MANIFEST, None)
    manifest = {"version": 1, "files": sizes, **({"run": run} if run else {})}
    text = json.dumps(manifest, indent=1, sort_keys=True)
    with open(os.path.join(path, MANIFEST), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    room = int(os.environ.get("BATCHTRAIN_CHECKPOINT_KEEP", "2"))
    for _, older in _steps():
        if room > 0 and is_complete(older):
            room -= 1
        elif os.path.exists(os.path.join(older, MANIFEST)):  # else it may belong to another program
            _remove(older)


def is_complete(path: str) -> bool:
    """Whether every file of the manifest is there with its size. A half-written manifest is none."""
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as file:
            wanted = json.load(file)["files"]
        return all(_size(os.path.join(path, name)) == size for name, size in wanted.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def preempted() -> "float | None":
    """Seconds until a node of the task is preempted; None if no preemption is announced."""
    try:
        with open(os.environ["BATCHTRAIN_PREEMPTION"], encoding="utf-8") as file:
            return max(0.0, float(json.load(file)["not_before"]) - time.time())
    except (KeyError, OSError, ValueError):
        return None


def _steps() -> "list[tuple[int, str]]":
    """Every checkpoint, complete or not, the highest step first."""
    try:
        names = os.listdir(directory())
    except OSError:
        return []
    steps = ((int(name[5:]), os.path.join(directory(), name)) for name in names if re.match(r"step-\d+$", name))
    return sorted(steps, reverse=True)


def _size(path: str) -> int:
    """As an open file has it: NFS asks its server then, and not its cache."""
    with open(path, "rb") as file:
        return os.fstat(file.fileno()).st_size


def _remove(path: str) -> None:
    """The manifest goes last, so that a removal that is interrupted is repeated."""
    for name in os.listdir(path) if os.path.isdir(path) else ():
        part = os.path.join(path, name)
        if os.path.isdir(part) and not os.path.islink(part):
            shutil.rmtree(part)
        elif name != MANIFEST:
            os.remove(part)
    if os.path.isdir(path):
        shutil.rmtree(path)


def main(arguments: "list[str]") -> int:
    """The shell's way in."""
    if arguments == ["newest"]:
        print(newest() or "")
    elif arguments[:1] == ["begin"] and len(arguments) == 2 and arguments[1].isdigit():
        print(begin(int(arguments[1])))
    elif arguments[:1] == ["complete"] and len(arguments) == 2 and os.path.isdir(arguments[1]):
        complete(arguments[1])
    else:
        print("usage: python3 -m batchtrain_checkpoint newest | begin STEP | complete PATH", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
