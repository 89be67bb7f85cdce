"""What each command wants of a run: data, by which the commands differ. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

Effect = Literal["add", "change", "stop", "delete"]
"""What a request does to pools, jobs and tasks, if it does something."""


class Intent(NamedTuple):
    """What a command does with the pool and the jobs of a run."""

    command: str
    keeps: tuple[str, ...] = ()
    """The kinds of things that it does not delete at its end, in the order of `service/register.py`."""
    reuses: bool = False
    """Whether it uses an existing pool that matches, and replaces a completed job of the same id."""
    is_expendable: bool = False
    """Whether it deletes everything, also after an outage, and although results are still on a node."""
    sends: frozenset[Effect] = frozenset()
    """The requests that it may send, beside those that only read. The simulation holds each command to it."""
    shows: Literal["", "counts", "output"] = ""
    """What it shows of the tasks while it waits for them: nothing, their counts, failures and numbers, or those and
    their output."""


ALL = ("job", "job schedule", "pool")
EVERYTHING: frozenset[Effect] = frozenset(("add", "change", "stop", "delete"))
OF_LOST: frozenset[Effect] = frozenset(("change", "delete"))
"""What ends a lost run of this host whose tasks have ended, and the controller of a detached run that is over."""
RUN = Intent("`run`", sends=EVERYTHING, shows="output")
KEEP = Intent("`run --keep`", ALL, sends=EVERYTHING, shows="output")
REUSE = Intent("`run --reuse`", ("pool",), reuses=True, sends=EVERYTHING, shows="output")
PROBE = Intent("`verify`", is_expendable=True, sends=EVERYTHING, shows="output")
FOLLOW = Intent("`jobs add --follow`", ALL, sends=frozenset(("add", "change")), shows="output")
ADD = Intent("`pool add`, `jobs add`", ALL, sends=frozenset(("add", "change", "delete")))
"""It deletes what a candidate allocated in part, and with `--recreate` the job that it adds again."""
DETACH = Intent(
    "`run --detach`, until the service has everything",
    is_expendable=True,
    sends=frozenset(("add", "change", "delete")),
)
WAIT = Intent("`jobs wait`", ALL, sends=OF_LOST, shows="counts")
WAIT_QUIETLY = Intent("`job.wait()` in Python, where nothing is displayed", ALL)
WATCH = Intent("`jobs watch`", ALL, shows="output")
ATTACH = Intent("`runs attach`", ALL, sends=OF_LOST | {"stop"}, shows="output")
FETCH = Intent("`jobs fetch`, `runs fetch`", ALL, sends=OF_LOST)
STOP = Intent("`runs stop`", ALL, sends=OF_LOST | {"stop"})
CLEAN = Intent("`runs clean`, for what runs left that have ended", sends=OF_LOST)
LOOK = Intent("commands that list, show, diagnose or download", ALL)
ADOPT = Intent("the next command, for what a lost run would have deleted", sends=OF_LOST)
CONTROL = Intent("the controller of a detached run, for the job that it moves", sends=EVERYTHING - {"stop"})
INTENTS = (
    RUN, KEEP, REUSE, PROBE, FOLLOW, ADD, DETACH, WAIT, WAIT_QUIETLY, WATCH, ATTACH, FETCH, STOP, CLEAN, LOOK, ADOPT,
    CONTROL,
)  # fmt: skip


def of_run(*, keep: bool, reuse: bool) -> Intent:
    """The intent of `run` with these options."""
    return (KEEP if keep else REUSE if reuse else RUN)._replace(reuses=reuse)
