"""Which directory of checkpoints a run of a training uses, and which run it continues.

    python3 batchtrain_lineage.py begin TRAINING [FORMER]   prints the directory on stdout, and which run it continues
                                                            on stderr
    python3 batchtrain_lineage.py finished                  notes that this run has finished the training, and copies
                                                            the last checkpoint to the results if there are none

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
RESULTS = "output"
"""The directory of results in a working directory."""
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
    source = ""
    if run.get("resume"):
        source, before, records = source_of(training, run["resume"])
        path = source if os.path.basename(source).startswith("step-") else None
    own = {} if path or (anew and not source) else own_files(source or directory(training, record["line"]))
    if path or own:
        record["continues"] = continuation(path, before, record, records)
        record["own"] = own
        refuse_reshard(record)
    elif not anew:
        record["earlier"] = last_step(training, lines[:-1], records)
    os.makedirs(training, exist_ok=True)
    if source:
        copy(source, directory(training, record["line"]), os.path.basename(path or ""))
    append(training, record)  # before its line is made: a line that no run has begun would be continued
    return use(training, record)


def own_files(line: str) -> "dict[str, list[int]]":
    """The size and the time of each file that a program keeps in its line without the contract of checkpoints."""
    files = {}
    for top, folders, names in os.walk(line):
        folders[:] = [name for name in folders if top != line or not name.startswith("step-")]
        for name in names:
            path = os.path.join(top, name)
            if os.path.isfile(path):  # no link that leads nowhere, and no pipe
                facts = os.stat(path)
                files[os.path.relpath(path, line)] = [facts.st_size, int(facts.st_mtime)]
    return files


def copy(path: str, line: str, name: str) -> None:
    """Make a line with a checkpoint of another one, or, without a name, with all of that line. A copy that fails leaves
    no line, which would be continued."""
    part = line + ".part"
    shutil.rmtree(part, ignore_errors=True)
    try:
        shutil.copytree(path, os.path.join(part, name) if name else part)
        os.rename(part, line)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        raise


def last_step(training: str, lines: "list[int]", records: "list[dict[str, Any]]") -> "dict[str, Any] | None":
    """The last of some lines that has a checkpoint: its number, the step, and the run that wrote it."""
    for line in reversed(lines):
        path, _ = newest(training, line, records)
        if path:
            return {"line": line, "step": checkpoint.step_of(path), "run": checkpoint.run_of(path)}
    return None


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
        with open(os.path.join(training, RECORDS), encoding="utf-8") as file:
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


def source_of(training: str, resume: "dict[str, Any]") -> "tuple[str, dict[str, Any], list[dict[str, Any]]]":
    """The newest checkpoint of the run that is to be continued, which may be of another project, or its line if the
    program keeps files of its own there, with the record of that run and those of its training. Raises Refused."""
    every = os.path.dirname(os.path.dirname(os.path.dirname(training)))
    job, name = os.path.join(every, resume["training"]), os.path.basename(training)
    task, row = parts(name)
    names = sorted(os.listdir(job)) if os.path.isdir(job) else []
    same_row = [n for n in names if parts(n)[1] == row]
    same_task = [n for n in same_row if parts(n)[0] == task]
    fitting = [name] if name in names else same_task or (same_row if row else [])
    if len(fitting) != 1:
        what = "task %s" % task + (", row %s of its factory," % row if row else "")
        fault = "several directories" if fitting else "no checkpoint"
        raise Refused(
            "run %s left %s of %s on this volume (%s; there: %s). Resume a run of the same task%s, or start anew with"
            " --fresh" % (resume["run"], fault, what, job, ", ".join(names) or "nothing", " and values" if row else "")
        )
    source = os.path.join(job, fitting[0])
    records = read(source)
    attempts = [record for record in records if "line" in record and record["run"] == resume["run"]]
    if not attempts:
        raise Refused(
            "run %s began no training in %s (runs that did: %s). Resume one of these, or start anew with --fresh"
            % (resume["run"], source, ", ".join(runs_of(records)) or "none")
        )
    line = directory(source, attempts[-1]["line"])
    only_writer = runs_of(records, attempts[-1]["line"]) == [resume["run"]]
    steps = []
    for path in checkpoint.every_complete():
        writer = checkpoint.run_of(path)
        if writer == resume["run"] or (only_writer and not writer):
            return path, attempts[-1], records
        steps.append("step %d of %s" % (checkpoint.step_of(path), writer or "an unknown run"))
    last = [record["run"] for record in records if record.get("line") == attempts[-1]["line"]][-1]
    if not steps and own_files(line):
        if last == resume["run"]:
            return line, attempts[-1], records
        raise Refused(
            "the files in %s may be those of run %s, which continued run %s. Leave out --resume to continue with them,"
            " or start anew with --fresh" % (checkpoint.directory(), last, resume["run"])
        )
    raise Refused(
        "no checkpoint of run %s is kept in %s (there: %s). Resume a run whose checkpoint is there, or start anew"
        " with --fresh" % (resume["run"], checkpoint.directory(), ", ".join(steps) or "nothing")
    )


def parts(name: str) -> "tuple[str, str]":
    """The task and the row of a factory in the name of a training, TASK[.ROW][@KEY]."""
    task, _, row = name.partition("@")[0].partition(".")
    return task, row


def runs_of(records: "list[dict[str, Any]]", line: "int | None" = None) -> "list[str]":
    """The runs that began, in a line or in any."""
    return sorted({record["run"] for record in records if "line" in record and line in (None, record["line"])})


def continuation(
    path: "str | None", before: "dict[str, Any]", record: "dict[str, Any]", records: "list[dict[str, Any]]"
) -> "dict[str, Any]":
    """What a run continues, and what changed since then. path: None for files that the program itself reads."""
    step = checkpoint.step_of(path) if path else None
    old, new = before.get("files", {}), record.get("files", {})
    was = before.get("settings", {})
    changed = sorted(name for name in {**old, **new} if old.get(name) != new.get(name))
    return {
        "run": before.get("run", ""),
        "step": step,
        "commit": before.get("commit", ""),
        "dirty": before.get("dirty", False),
        "finished": any(
            "finished" in item and item["run"] == before.get("run") and step in (None, item["finished"])
            for item in records
        ),
        "files": changed if before else [],
        "settings": [name for name, value in record["settings"].items() if before and was.get(name) != value],
        "nodes": [before.get("nodes"), record.get("nodes")],
        "ranks": [before.get("ranks"), record.get("ranks")],
    }


def refuse_reshard(record: "dict[str, Any]") -> None:
    """Raise Refused for checkpoints of another number of ranks, if the task says that it cannot read them."""
    before, now = counts(record["continues"])
    step = record["continues"]["step"]
    if before != now and not record.get("reshard", True):
        raise Refused(
            "the checkpoint%s is of %s, and this run has %s: `checkpoint.reshard: false` refuses it. Run on as"
            " many ranks as before, or start anew with --fresh"
            % ("" if step is None else " of step %d" % step, before, now)
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
        return empty_line(record["line"], record["earlier"]) if record.get("earlier") else []
    commit = ""
    if continues["commit"]:
        commit = " (commit %s%s)" % (continues["commit"][:12], ", with uncommitted changes" * continues["dirty"])
    run = "run %s%s" % (continues["run"], commit) if continues["run"] else "an earlier run"
    lines = ["continues from step %s of %s" % (continues["step"], run)]
    if continues["step"] is None:
        lines = ["continues with %s of %s, as far as the program reads it" % (listed(sorted(record["own"])), run)]
    changed = ", ".join(filter(None, (listed(continues["files"]), *continues["settings"])))
    before, now = counts(continues)
    if continues["run"] and (changed or before == now):
        lines.append("changed since then: " + (changed or "nothing"))
    if before != now:
        lines.append("%s instead of %s: the program must be able to read checkpoints of another number" % (now, before))
    if continues["finished"]:
        lines.append("that run had finished the training; `batchtrain run` with --fresh starts anew")
    return lines


def listed(names: "list[str]") -> str:
    """The first names, and the number of the others."""
    more = ["and %d more files" % (len(names) - SHOWN)] if len(names) > SHOWN else []
    return ", ".join(names[:SHOWN] + more)


def empty_line(line: int, earlier: "dict[str, Any]") -> "list[str]":
    """What is printed about the checkpoints of an earlier line, if the last one has none."""
    writer, advice = "an earlier run", "the next run continues it if you delete the directory of line %d" % line
    if earlier["run"]:
        writer, advice = "run " + earlier["run"], "`batchtrain run` with --resume %s continues it" % earlier["run"]
    return [
        "starts at the beginning: line %d has no checkpoint yet" % line,
        "line %d has step %d of %s; %s" % (earlier["line"], earlier["step"], writer, advice),
    ]


def finish() -> None:
    """Note that this run has finished, and say so if it left the program's own files as they were. Raises OSError."""
    with open(note(), encoding="utf-8") as file:
        record = json.load(file)
    line = directory(record["training"], record["line"])
    path = checkpoint.newest()
    append(record["training"], {"run": record["run"], "finished": checkpoint.step_of(path)})
    own = {} if path else own_files(line)
    if own and own == record.get("own"):
        text = "this run has changed nothing in its checkpoints (%s): it trained nothing, or it did not save; --fresh"
        print("batchtrain: " + text % listed(sorted(own)) + " starts anew", file=sys.stderr)
    bring_home([(name, facts[0]) for name, facts in (files_of(path) if path else own).items()], line, record["results"])


def files_of(checkpoint_path: str) -> "dict[str, list[int]]":
    """The files of a checkpoint of the contract, by their paths in its line."""
    name = os.path.basename(checkpoint_path)
    return {os.path.join(name, path): facts for path, facts in own_files(checkpoint_path).items()}


def bring_home(paths: "list[tuple[str, int]]", home: str, most: int) -> None:
    """Copy the last checkpoint, paths with their sizes below a directory, to the results of a task that has none, if it
    has at most so many bytes."""
    results = os.path.join(os.environ["AZ_BATCH_TASK_WORKING_DIR"], RESULTS)
    if not paths or any(names for _, _, names in os.walk(results)):
        return
    if sum(size for _, size in paths) > most:
        text = "the results are empty, and the last checkpoint, %s, is larger than `results.max_size`: it stays there"
        print("batchtrain: " + text % os.path.join(home, paths[0][0].partition(os.sep)[0]), file=sys.stderr)
        return
    for name, _ in paths:
        os.makedirs(os.path.dirname(os.path.join(results, name)), exist_ok=True)
        shutil.copy2(os.path.join(home, name), os.path.join(results, name))


def note() -> str:
    return os.path.join(os.environ["AZ_BATCH_TASK_DIR"], NOTE)


def main(arguments: "list[str]") -> int:
    """The shell's way in."""
    if arguments == ["finished"]:
        try:
            finish()
        except OSError as error:  # the training has succeeded
            print("batchtrain: `checkpoint`: %s" % error, file=sys.stderr)
        return 0
    training, former = (*arguments[1:], "")[:2]
    with open(os.path.join(HERE, "batchtrain_lineage.json"), encoding="utf-8") as file:
        facts = json.load(file)
    run = json.loads(os.environ.get("BATCHTRAIN_LINEAGE") or "{}")
    now = time.time()
    try:
        record = begin(training, former, run, facts, now)
    except (Refused, OSError) as error:
        print("batchtrain: `checkpoint`: %s" % error, file=sys.stderr)
        return 1
    with open(note(), "w", encoding="utf-8") as file:
        json.dump({**record, "training": training}, file)
    for line in words(record) if record["time"] == now else ():  # a retry continues the run itself
        print("batchtrain: " + line, file=sys.stderr)
    print(checkpoint.directory())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
