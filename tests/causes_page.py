"""`docs/reference/causes.md`, made of the rules of the diagnosis: `python -m tests.generated_files`."""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.diagnosis.next_steps import completed
from batchtrain.diagnosis.output_rules import OUTPUT_RULES
from batchtrain.diagnosis.service_rules import (
    ENDED_EARLY,
    EXIT_CODES,
    LOST,
    NODE_STATES,
    QUOTA,
    RESIZE_CODES,
    TASK_CODES,
    TERMINATED,
    UPLOAD,
    WALL_CLOCK,
    WARNED,
)
from batchtrain.life.rules import RULES

HEAD = """\
# Known causes of failures

`batchtrain jobs diagnose JOB [TASK]`, `batchtrain pool diagnose POOL` and, in Python, `job.diagnose()` name these
causes, each with the line or the message that proves it. `--bundle FILE` writes everything that was read to a zip file,
without secrets. `batchtrain emulator diagnose` examines the emulator. `python -m tests.generated_files` generates
this page from the rules; a test fails if it is stale.

Of a gang, the process that failed first is judged by its own output, not the processes that lost their connection to
it. [The gang's record](../how-to/results.md#why-a-gang-failed) tells which process that is, on which node, how it
ended, and what it printed last. If it raised an exception, a lost connection or a timeout is the cause only if the
exception says so. Messages about batchtrain's own scripts prove nothing.
A code of the service comes first, then the output, then the exit code. If no rule fits, the cause is `exception` (the
last exception of a Python program) or `unknown`.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join((HEAD, *_output(), *_service(), *_waiting()))


def _output() -> Iterator[str]:
    yield "## What a program prints\n"
    yield "| cause | rule | what to do |\n|---|---|---|"
    for rule in OUTPUT_RULES:
        yield f"| {rule.cause.format(name='…')} | `{rule.name}` | {completed(rule.next_step, {})} |"


def _service() -> Iterator[str]:
    yield "\n## What the service reports\n"
    yield "| reported | cause | rule | what to do |\n|---|---|---|---|"
    codes = {f"`{code}`": known for code, known in (TASK_CODES | RESIZE_CODES).items()}
    exits = {f"exit code {code}": known for code, known in EXIT_CODES.items()}
    states = {f"node is `{state}`": known for state, known in NODE_STATES.items()}
    ended = {"`TaskEnded` at the limit": WALL_CLOCK, "`TaskEnded`": TERMINATED}
    states |= {"a rank's end": ENDED_EARLY}
    states |= {f"attempt ended: {reason}": known for reason, known in LOST.items()}
    rest = {"a warning of the launch": WARNED, "`FileUpload…`": UPLOAD, "`Account…QuotaReached`": QUOTA}
    for reported, known in (codes | rest | ended | exits | states).items():
        cause = known.cause.format("…", node="…")
        yield f"| {reported} | {cause} | `{known.rule}` | {completed(known.next_step, {})} |"


START_TASK = "the start task failed on a node; its output is judged by the rules above"


def _waiting() -> Iterator[str]:
    yield "\n## Why a task does not start\n"
    yield "[The life of a run](life-of-a-run.md) says for each rule how long a wait lasts.\n"
    yield "| rule | cause |\n|---|---|"
    yield from (f"| `{rule.name}` | {rule.when} |" for rule in RULES)
    yield f"| `start-task-failed` | {START_TASK} |"
    yield ""
