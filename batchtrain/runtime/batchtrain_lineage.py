"""Which directory of checkpoints a run of a training uses, and which run it continues.

    python3 batchtrain_lineage.py begin TRAINING [FORMER]   prints the directory on stdout, and which run it continues
                                                            on stderr
    python3 batchtrain_lineage.py finished                  notes that this run has finished the training

TRAINING is a directory on a shared volume. Below it are the lines of checkpoints `1`, `2`, …: a run with `fresh` or
`resume` begins the next line, any other run continues the last one, and so does each retry of a task. FORMER is the
directory in which earlier versions of batchtrain kept the checkpoints of the same training; it becomes the first line.

`lineage.jsonl` of TRAINING has an object for each run that began, and one for each that finished. $BATCHTRAIN_LINEAGE
says what this run is, `batchtrain_lineage.json` beside this file what it
trains.

Standard library, Python 3.6 or later.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)  # `python3 -I` leaves it out
import batchtrain_checkpoint as checkpoint  # type: ignore[import-not-found]  # noqa: E402 - it is beside this file

RECORDS = "lineage.jsonl"
NOTE = ".batchtrain-lineage.json"
"""The record of this run in the directory of the task, from where it is fetched."""
SHOWN = 5
"""Names of changed files that are printed."""


class Refused(Exception):
    """The run may not continue these checkpoints."""


def begin(training: str, former: str, run: "dict[str, Any]", facts: "dict[str, Any]", now: float) -> "dict[str, Any]":
    """The record of this run, which is added to those of the training. Raises Refused and OSError."""
    records = read(training)
    earlier = [record for record in records if "line" in record and record["run"] == run.get("run")]
    if earlier:  # a retry: its checkpoints are in the line of its first attempt
        return use(training, earlier[-1])
    anew = bool(run.get("fresh") or run.get("resume"))
    lines = lines_of(training)
    if not lines and former and os.path.isdir(former):
        os.makedirs(training, exist_ok=True)
        os.rename(former, os.path.join(training, "1"))
        lines = [1]
    record = {"run": "", "commit": "", "dirty": False, **run, **facts, "time": now}
    record["line"] = (lines[-1] + 1 if anew else lines[-1]) if lines else 1
    path, before = (None, {}) if anew else newest(training, record["line"], records)
    if run.get("resume"):
        path, before = source_of(training, run["resume"])
    if path:
        record["continues"] = continuation(path, before, record, records)
        refuse_reshard(record)
    use(training, record)
    if path and run.get("resume"):
        shutil.copytree(path, os.path.join(checkpoint.directory(), os.path.basename(path)))
    append(training, record)
    return record


def use(training: str, record: "dict[str, Any]") -> "dict[str, Any]":
    """Make the line of a record the directory of checkpoints."""
    os.makedirs(directory(training, record["line"]), exist_ok=True)
    return record


def directory(training: str, line: int) -> str:
    """The directory of a line, for the functions of batchtrain_checkpoint."""
    os.environ["BATCHTRAIN_CHECKPOINT_DIR"] = path = os.path.join(training, str(line))
    return path


def read(training: str) -> "list[dict[str, Any]]":
    """The records of a training. A line that was written only in part is left out."""
    records = []
    if os.path.exists(os.path.join(training, RECORDS)):
        with open(os.path.join(training, RECORDS)) as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    records.append(json.loads(line))
    return records


def append(training: str, record: "dict[str, Any]") -> None:
    """Add a record, on a line of its own also after one that was written only in part."""
    with open(os.path.join(training, RECORDS), "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        gap = b"" if file.read(1) in (b"", b"\n") else b"\n"
        file.write(gap + json.dumps(record, sort_keys=True).encode() + b"\n")


def lines_of(training: str) -> "list[int]":
    """The numbers of its lines of checkpoints, in order."""
    names = os.listdir(training) if os.path.isdir(training) else []
    return sorted(int(name) for name in names if name.isdigit())


def newest(training: str, line: int, records: "list[dict[str, Any]]") -> "tuple[str | None, dict[str, Any]]":
    """The newest checkpoint of a line, with the record of the run that wrote it; None without a checkpoint."""
    directory(training, line)
    path = checkpoint.newest()
    begun = [record for record in records if record.get("line") == line]
    writer = [record for record in begun if path and record["run"] == checkpoint.run_of(path)]
    return path, (writer or begun or [{}])[-1]


def source_of(training: str, resume: "dict[str, Any]") -> "tuple[str, dict[str, Any]]":
    """The newest checkpoint of the run that is to be continued, which may be of another project. Raises Refused."""
    every = os.path.dirname(os.path.dirname(os.path.dirname(training)))
    job, name = os.path.join(every, resume["training"]), os.path.basename(training)
    task = name.split(".")[0].split("@")[0]
    names = sorted(os.listdir(job)) if os.path.isdir(job) else []
    fitting = [name] if name in names else [n for n in names if n.split(".")[0].split("@")[0] == task]
    for fit in fitting if len(fitting) == 1 else ():
        source = os.path.join(job, fit)
        records = read(source)
        lines = [record["line"] for record in records if "line" in record and record["run"] == resume["run"]]
        path, before = newest(source, (lines or lines_of(source) or [1])[-1], records)
        if path:
            return path, before
    raise Refused(
        "run %s left no checkpoint of task %s on this volume (%s; there: %s)"
        % (resume["run"], task, job, ", ".join(names) or "nothing")
    )


def continuation(
    path: str, before: "dict[str, Any]", record: "dict[str, Any]", records: "list[dict[str, Any]]"
) -> "dict[str, Any]":
    """What a run continues, and what changed since then."""
    step = checkpoint.step_of(path)
    old, new = before.get("files", {}), record.get("files", {})
    was = before.get("settings", {})
    changed = sorted(name for name in {**old, **new} if old.get(name) != new.get(name))
    return {
        "run": before.get("run", ""),
        "step": step,
        "commit": before.get("commit", ""),
        "dirty": before.get("dirty", False),
        "finished": any(item.get("finished") == step for item in records),
        "files": changed if before else [],
        "settings": [name for name, value in record["settings"].items() if before and was.get(name) != value],
        "nodes": [before.get("nodes"), record.get("nodes")],
        "ranks": [before.get("ranks"), record.get("ranks")],
    }


def refuse_reshard(record: "dict[str, Any]") -> None:
    """Raise Refused for checkpoints of another number of ranks, if the task says that it cannot read them."""
    before, now = counts(record["continues"])
    if before != now and not record.get("reshard", True):
        raise Refused(
            "the checkpoint of step %d is of %s, and this run has %s: `checkpoint.reshard: false` refuses it. Run on as"
            " many ranks as before, or start anew with --fresh" % (record["continues"]["step"], before, now)
        )


def counts(continues: "dict[str, Any]") -> "tuple[str, str]":
    """The numbers of ranks before and now in words; those of nodes where ranks are counted on the nodes."""
    kind = "ranks" if None not in continues["ranks"] else "nodes"
    before, now = ("%s %s" % (n, kind[:-1] if n == 1 else kind) for n in continues[kind])
    return (now if continues[kind][0] is None else before), now


def words(record: "dict[str, Any]") -> "list[str]":
    """What is printed about a run that begins."""
    continues = record.get("continues")
    if not continues:
        if record.get("fresh") and record["line"] > 1:
            return ["starts anew, as --fresh says; the checkpoints before are kept in line %d" % (record["line"] - 1)]
        return []
    commit = ""
    if continues["commit"]:
        commit = " (commit %s%s)" % (continues["commit"][:12], ", with uncommitted changes" * continues["dirty"])
    run = "run %s%s" % (continues["run"], commit) if continues["run"] else "an earlier run"
    lines = ["continues from step %d of %s" % (continues["step"], run)]
    names = continues["files"]
    more = ["and %d more files" % (len(names) - SHOWN)] if len(names) > SHOWN else []
    changed = names[:SHOWN] + more + continues["settings"]
    before, now = counts(continues)
    if continues["run"] and (changed or before == now):
        lines.append("changed since then: " + (", ".join(changed) or "nothing"))
    if before != now:
        lines.append("%s instead of %s: the program must be able to read checkpoints of another number" % (now, before))
    if continues["finished"]:
        lines.append("that run had finished the training; `batchtrain run` with --fresh starts anew")
    return lines


def note() -> str:
    return os.path.join(os.environ["AZ_BATCH_TASK_DIR"], NOTE)


def main(arguments: "list[str]") -> int:
    """The shell's way in."""
    if arguments == ["finished"]:
        with open(note()) as file:
            record = json.load(file)
        directory(record["training"], record["line"])
        finished = {"run": record["run"], "finished": checkpoint.step_of(checkpoint.newest())}
        append(record["training"], finished)
        return 0
    training, former = (*arguments[1:], "")[:2]
    with open(os.path.join(HERE, "batchtrain_lineage.json")) as file:
        facts = json.load(file)
    run = json.loads(os.environ.get("BATCHTRAIN_LINEAGE") or "{}")
    now = time.time()
    try:
        record = begin(training, former, run, facts, now)
    except (Refused, OSError) as error:
        print("batchtrain: `checkpoint`: %s" % error, file=sys.stderr)
        return 1
    with open(note(), "w") as file:
        json.dump({**record, "training": training}, file)
    for line in words(record) if record["time"] == now else ():  # a retry continues the run itself
        print("batchtrain: " + line, file=sys.stderr)
    print(checkpoint.directory())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
