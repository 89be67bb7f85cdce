"""`docs/reference/life-of-a-run.md`, made of the rules of waits: `python -m tests.life_page`."""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.life.rules import HOUR, RULES, Rule
from tests import environments

PAGE = environments.ROOT / "docs" / "reference" / "life-of-a-run.md"

HEAD = """\
# Why a run waits, and when a wait ends

`run`, `jobs wait` and `jobs watch` print why the tasks of a job wait. `jobs show`, `jobs diagnose`, the page of the job
and the page of its run show it. All of them read the table below, and name its row in brackets, such as
`[waits-for-failed-task]`. In `jobs show -o json`, `waits.rule` is this name, and in Python
`job.reason_to_wait().rule.name`. `python -m tests.life_page` generates this page from the rules; a test fails if it is
stale.

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
  with `recover` moves to another candidate of its pool instead.
- A wait of `run` that ends for one of these reasons stops the tasks, fetches the results, and deletes what the run
  created. `jobs wait` and `jobs watch` delete nothing.
- An error of a resize belongs to that resize. `run --reuse` requests the nodes again that an earlier resize did not
  get.

| rule | it applies if | what can still start the task | the wait lasts | exit code | source |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    return "".join((HEAD, *_rows()))


def _rows() -> Iterator[str]:
    for rule in RULES:
        cells = (f"`{rule.name}`", rule.when, rule.can_change or "nothing", _lasts(rule), rule.exit_code, rule.source)
        yield f"| {' | '.join(map(str, cells))} |\n"


def _lasts(rule: Rule) -> str:
    if rule.is_final:
        return "ends at once"
    return f"{rule.patience / HOUR:g} h" if rule.patience is not None else "until its deadline"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
