"""`docs/reference/life-of-a-run.md`, made of the rules of waits and ends: `python -m tests.generated_files`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

from batchtrain.life.decision_table import Row
from batchtrain.life.endings import CAUSES, END_RULES
from batchtrain.life.intents import INTENTS, Effect
from batchtrain.life.lost import LOST_RULES
from batchtrain.life.placing import NODE_RULES, PLACE_RULES
from batchtrain.life.pools import POOL_RULES
from batchtrain.life.rules import HOUR, RULES, Rule

HEAD = """\
# The life of a run: why it waits, and how it ends

`run`, `jobs wait` and `jobs watch` print why the tasks of a job wait. `jobs show`, `jobs diagnose`, the page of the job
and the page of its run show it. All of them read the table below, and name its row in brackets, such as
`[waits-for-failed-task]`. In `jobs show -o json`, `waits.rule` is this name, and in Python
`job.reason_to_wait().rule.name`. `python -m tests.generated_files` generates this page from the rules; a test fails if
it is stale.

```mermaid
stateDiagram-v2
    [*] --> running
    running --> running: a task failed, which is printed with its cause
    running --> waiting: no task runs
    waiting --> running: a task starts
    waiting --> ended: nothing can start any open task, or the patience is over
    running --> ended: all tasks have ended
    ended --> [*]
```

- A wait asks for the reason only while no task of the job runs. The first row that applies to a task is its reason.
- If nothing can start any of the open tasks, the wait ends at once. If a task failed, the command fails with its
  cause.
- Otherwise the line of each minute has the reason. If the row has a patience, the line says when the wait ends. A job
  with `recover` moves to another candidate of its pool instead. If a user or another client has to act, the first of
  these lines has the next step, which is also that of a run that is interrupted during such a wait.
- A wait of `run` that ends for one of these reasons stops the tasks, fetches the results, and deletes what the run
  created. `jobs wait` and `jobs watch` delete nothing.
- A limit of the price or of the duration ends every wait of `run` when it is reached, with exit code 7.
- An error of a resize belongs to that resize. `run --reuse` requests the nodes again that an earlier resize did not
  get.

| rule | it applies if | what can still start the task | the wait lasts | exit code | source |
|---|---|---|---|---|---|
"""


POOLS = """
## While the nodes of a pool are awaited

`run`, `pool add`, `pool resize` and `pool wait` look at the pool and at its nodes. The first row that applies decides;
if none does, the pool is ready. The line of each minute and the error of a wait that takes too long name the row.
`pool show` names it, too, and in `pool show -o json` it is `waits.rule`.

| rule | it applies if | what can still give the nodes | the wait lasts | exit code | source |
|---|---|---|---|---|---|
"""


PLACES = """
## Where a run gets its nodes

A run tries the `candidates` of its pool in their order; a pool without them is its only one. It looks where it is, does
what the first row says that applies, and looks again.

| rule | it applies if | the run then |
|---|---|---|
"""

NODES = """
While a job is followed, its nodes are looked at each minute if its pool has `candidates` with `recover`, and whenever a
preflight reports faults:

| rule | it applies if | the run then |
|---|---|---|
"""

LOST = """
## What becomes of lost runs

`run` looks at the runs of its directory that lost their process or were left, before it creates anything. The first row
that applies to one decides:

| rule | it applies if | `run` then |
|---|---|---|
"""

ENDS = """
## How a command ends

A command that created something looks at what is left, does what the first row says that applies, and looks again. It
has ended if no row applies. The end of a lost run by a later command reads the same table. Nothing is deleted before
its results are safe, and what stays is named with its next commands.

| rule | it applies if | the command then |
|---|---|---|
"""

CAUSES_HEAD = """
The rows ask why the work ended. While everything stays, nothing is stopped or deleted, whatever becomes of the results.

| cause | the work ended because | everything stays | its results are fetched | state of a run that it cut short |
|---|---|---|---|---|
"""

INTENTS_HEAD = """
Commands differ in what they want of a run, and not in how they end. `jobs wait`, `jobs fetch`, `runs fetch` and
`runs attach` delete only what a lost run of this host would have deleted, once its tasks have ended, and the controller
of a detached run that is over:

| command | it keeps | it reuses a pool | any error deletes everything | its requests | it shows of the tasks |
|---|---|---|---|---|---|
"""
SHOWN = {"": "nothing", "counts": "counts, failures and numbers", "output": "counts, failures, numbers and output"}


def page() -> str:
    """The text of the page."""
    ends = (ENDS, *_act_rows(END_RULES), CAUSES_HEAD, *_cause_rows(), INTENTS_HEAD, *_intent_rows())
    places = (PLACES, *_act_rows(PLACE_RULES), NODES, *_act_rows(NODE_RULES))
    return "".join((HEAD, *_rows(), POOLS, *_pool_rows(), *places, LOST, *_act_rows(LOST_RULES), *ends))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def _act_rows(rules: Iterable[Row[Any, Any]]) -> Iterator[str]:
    return (_row(f"`{rule.name}`", rule.when, rule.does) for rule in rules)


def _cause_rows() -> Iterator[str]:
    for cause in CAUSES:
        stays = {"nothing": "no", "everything": "yes"}.get(cause.keeps, cause.keeps)
        yield _row(f"`{cause.name}`", cause.when, stays, "yes" if cause.fetches else "no", f"`{cause.state}`")


def _intent_rows() -> Iterator[str]:
    for intent in INTENTS:
        keeps = ", ".join(f"{kind}s" for kind in intent.keeps) or "nothing"
        answers = ("yes" if answer else "no" for answer in (intent.reuses, intent.is_expendable))
        sends = ", ".join(name for name in get_args(Effect) if name in intent.sends) or "only read"
        yield _row(intent.command, keeps, *answers, sends, SHOWN[intent.shows])


def _rows() -> Iterator[str]:
    for rule in RULES:
        yield _row(f"`{rule.name}`", rule.when, rule.can_change or "nothing", _lasts(rule), rule.exit_code, rule.source)


def _pool_rows() -> Iterator[str]:
    for rule in POOL_RULES:
        yield _row(f"`{rule.name}`", rule.when, rule.can_change or "nothing", rule.lasts, rule.exit_code, rule.source)


def _lasts(rule: Rule) -> str:
    if rule.is_final:
        return "ends at once"
    return f"{rule.patience / HOUR:g} h" if rule.patience is not None else "until its deadline"
