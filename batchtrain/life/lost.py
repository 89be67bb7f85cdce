"""What a command that begins does with the lost runs of its directory. Pure: the table `LOST_RULES`."""

from __future__ import annotations

from typing import Literal, NamedTuple

from batchtrain.life.decision_table import Row


class SeenLost(NamedTuple):
    """A run whose process ended without finishing it, or that its user left, beside what a new run needs."""

    is_here: bool
    """Whether it is of this host and account, so that it can be ended here."""
    works: bool = False
    """Whether a task of it runs, or may still start."""
    has_job: bool = False
    """Whether the new run needs the id of its job."""
    has_pool: bool = False
    """Whether the new run needs its pool."""
    reuses: bool = False
    """Whether the new run uses a pool that exists."""


LostRule = Row[SeenLost, Literal["name", "refuse", "end first", "end"]]


def decide(seen: SeenLost) -> LostRule:
    """The first rule that applies; there always is one."""
    return next(rule for rule in LOST_RULES if rule.applies(seen))


# fmt: off
LOST_RULES: tuple[LostRule, ...] = (
    LostRule("lost-elsewhere", "the lost run is of another host or account", lambda seen: not seen.is_here,
        "name", "names it, with its cost and the command that ends it there"),
    LostRule("lost-in-the-way", "its tasks run on a job, or on a pool without `--reuse`, that the new run needs",
        lambda seen: seen.works and (seen.has_job or (seen.has_pool and not seen.reuses)),
        "refuse", "fails with exit code 4 before it creates anything, and names the command that waits"),
    LostRule("lost-works", "its tasks run, and the new run needs nothing of it", lambda seen: seen.works,
        "name", "names it, with its cost and the command that waits for it"),
    LostRule("lost-needed", "its tasks have ended, and the new run needs its job or pool",
        lambda seen: seen.has_job or seen.has_pool, "end first", "ends it, and fails if that fails"),
    LostRule("lost-ended", "its tasks have ended", lambda seen: True, "end", "ends it, and names it if that fails"),
)
# fmt: on
"""In the order in which they apply."""
