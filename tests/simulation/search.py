"""Runs seeds, each in a process of its own, and prints what they found."""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import os
import pickle
import pkgutil
import resource
import select
import sys
from collections import Counter, deque
from collections.abc import Collection, Sequence

from batchtrain import cli
from tests.simulation import owned, reach
from tests.simulation.faults import KINDS
from tests.simulation.plants import PLANTS
from tests.simulation.seed import Outcome, simulate
from tests.simulation.stories import ALL
from tests.simulation.workload import FEATURES

WANTED = {
    "state changes": 200_000,
    "deaths of the service": 2_000,
    "deaths of clients": 2_000,
    "ends of commands": 1_000,
}
"""What occurs in three minutes of two free processors; each kind of fault 100 times, each verb and feature 50 times."""
KEPT: tuple[int, ...] = ()
"""The seeds that have found bugs of the product, since `workload.py` is as it is: they run first."""
PLANTED_SEEDS, MOST_CHANGES, AT_ONCE = range(120), 60_000, 3
"""The seeds that search for a planted bug, the state changes after which it counts as not found, and how many bugs are
planted at a commit."""
EVERY, MEASURED = 10, 100
"""One of so many seeds runs twice: both times it has the same trace, and the second time the lines are noted that run.
Of so many such seeds at least, the lines suffice for a floor."""
MOST_EXPLAINED, LONGEST_SEARCH, SHOWN_LINES, SHOWN = 3, 20.0, 40, 240
"""Violations whose faults are minimised, the seconds for each, the lines of their traces that are printed, and the
characters of one that finds a planted bug."""
LEAST_CHANGES = 50
"""The state changes of an average seed; with fewer, the simulation itself is broken."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", default="", metavar="FROM:TO")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--trace", action="store_true", help="print the trace")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--unreached", action="store_true", help="also print the lines that no measured seed reaches")
    parser.add_argument("--first-violation", action="store_true", help="end with the first violation")
    parser.add_argument("--plant", action="append", choices=PLANTS, help="a bug to plant and to find (repeatable)")
    parser.add_argument(
        "--planted", type=int, metavar="NUMBER", help=f"plant {AT_ONCE} bugs, by the number of a commit"
    )
    options = parser.parse_args(arguments)
    owned.own_datetime()
    for name in set(os.environ) - {"PATH", "HOME"}:
        del os.environ[name]
    if options.seed is not None:
        return _one(options.seed, trace=options.trace)
    if options.plant or options.planted is not None:
        return _planted(options.plant or _by_number(options.planted), options.jobs)
    first, _, last = options.seeds.partition(":")
    return _many(int(first or 0), int(last) if last else None, options.minutes * 60, options.jobs,
                 is_short=options.first_violation, names_lines=options.unreached)  # fmt: skip


def _one(seed: int, *, trace: bool) -> int:
    _warm()
    outcome = simulate(seed)
    if trace:
        print("\n".join(outcome.trace))
    print(f"seed {seed}: trace {outcome.hash}, {len(outcome.trace)} lines, {outcome.seconds:.2f} s")
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    sys.stdout.flush()
    os._exit(1 if outcome.violations else 0)


def _many(first: int, last: int | None, seconds: float, jobs: int, *, is_short: bool, names_lines: bool) -> int:
    _warm()
    end = owned.real_monotonic() + seconds
    counts: Counter[str] = Counter()
    running: dict[int, tuple[int, int, Outcome | None]] = {}
    """Seed, process, and of one that runs the second time what came of the first."""
    seeds = itertools.chain(KEPT, itertools.count(first) if last is None else range(first, last))
    seed, failed, done, explained = next(seeds, None), 0, 0, 0
    measured, lines = 0, reach.Lines()
    began = owned.real_monotonic()
    while running or (seed is not None and owned.real_monotonic() < end):
        while len(running) < jobs and seed is not None and owned.real_monotonic() < end:
            pid, reader = _fork(seed)
            running[reader] = seed, pid, None
            seed = next(seeds, None)
        reader = select.select(list(running), [], [])[0][0]
        number, pid, before = running.pop(reader)
        outcome = _outcome(pid, reader)
        if before is not None:
            measured, lines = measured + 1, lines | (outcome.lines if outcome else frozenset())
            outcome = _compared(before, outcome)
        elif outcome is not None and number % EVERY == 0:
            pid, reader = _fork(number, known=lines)
            running[reader] = number, pid, outcome
            continue
        if outcome is None:
            print(f"FAILED seed {number}: its process died")
            failed += 1
            continue
        done += 1
        counts.update(outcome.counts)
        for violation in outcome.violations:
            failed += 1
            print(f"FAILED seed {number} after {owned.real_monotonic() - began:.0f} s: {violation}", flush=True)
        if outcome.violations and outcome.trace and not is_short and explained < MOST_EXPLAINED:
            explained += 1
            _explain(_minimised(outcome))
        if failed and is_short:
            end = owned.real_monotonic()
    if counts["state changes"] < LEAST_CHANGES * done:
        failed += 1
        print(f"FAILED with only {counts['state changes']} state changes in {done} seeds: the users do not get far")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = spent.ru_utime + spent.ru_stime
    print(f"{done} seeds from {first}, {failed} violations, {owned.real_monotonic() - began:.0f} s,"
          f" {processor:.0f} s of processor time")  # fmt: skip
    _print_table(counts)
    failed += _reached(lines, measured)
    if names_lines:
        print("\n".join(reach.unreached(lines)))
    return 1 if failed else 0


def _reached(lines: reach.Lines, measured: int) -> int:
    """Print the share of the lines of each folder that ran; returns how many shares are too low."""
    shares = reach.shares(lines)
    low = {folder for folder, share in shares.items() if measured >= MEASURED and share < reach.FLOORS[folder]}
    for folder, share in shares.items():
        result = "FAILED " * (folder in low)
        print(f"{result}{share:>10.0%}{reach.FLOORS[folder]:>10.0%}  lines of {folder}, in {measured} seeds")
    return len(low)


def _planted(plants: Sequence[str], jobs: int) -> int:
    """Plant each bug and search for it; prints the violation that found it, or that nothing did."""
    _warm()
    missed = 0
    for plant in plants:
        outcome, counts = _found(plant, jobs)
        changes = f"{counts['state changes']:,} state changes, its effect {counts[plant]:,} times"
        missed += outcome is None
        result = f"  seed {outcome.seed}: {outcome.violations[0][:SHOWN]}" if outcome else "FAILED to find it"
        print(f"planted: {plant}\n{result if counts[plant] else 'FAILED to find its place'} ({changes})", flush=True)
    print(f"{len(plants) - missed} of {len(plants)} planted bugs found")
    return 1 if missed else 0


def _found(plant: str, jobs: int) -> tuple[Outcome | None, Counter[str]]:
    """The first outcome with a violation, in the order of the seeds, and what occurred until then."""
    counts: Counter[str] = Counter()
    seeds = iter((*KEPT, *PLANTED_SEEDS))
    running = deque(_fork(seed, plant=plant) for seed in itertools.islice(seeds, jobs))
    found = None
    while running:
        outcome = _outcome(*running.popleft())
        if found is None and outcome is not None:
            counts.update(outcome.counts)
            found = outcome if outcome.violations else None
        if found is None and counts["state changes"] < MOST_CHANGES:
            running += (_fork(seed, plant=plant) for seed in itertools.islice(seeds, 1))
    return found, counts


def _by_number(number: int) -> list[str]:
    """The bugs that are planted at a commit: after some commits it was each of them."""
    names = list(PLANTS)
    return [names[(number * AT_ONCE + position) % len(names)] for position in range(AT_ONCE)]


def _print_table(counts: Counter[str]) -> None:
    """How often each thing occurred, and how often it should in three minutes of two free processors."""
    wanted = {**WANTED, **dict.fromkeys(KINDS, 100)}
    wanted |= dict.fromkeys((f"verb: {verb.__name__}" for story in ALL for verb in story), 50)
    wanted |= dict.fromkeys((f"feature: {feature}" for feature in FEATURES), 50)
    print("    number    wanted")
    for name in sorted({*counts, *wanted}):
        number = wanted.get(name, 0)
        print(f"{counts[name]:>10,}{number or '':>10}  {name}{'  (fewer)' * (counts[name] < number)}")


def _outcome(pid: int, reader: int) -> Outcome | None:
    """What a process found; None if it died."""
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return pickle.loads(data) if data else None


def _compared(outcome: Outcome, again: Outcome | None) -> Outcome:
    """The outcome of a seed that ran twice."""
    if again is not None and again.hash == outcome.hash:
        return outcome
    text = f"one seed gives one trace: {outcome.hash} and {again and again.hash}"
    return outcome._replace(violations=(*outcome.violations, text))


def _minimised(outcome: Outcome) -> Outcome:
    """The same violation with as few faults as possible: what can be left out is, in halves, quarters and so on."""
    kind, left_out = _kind(outcome.violations[0]), set[str]()
    end = owned.real_monotonic() + LONGEST_SEARCH
    size = max(len(outcome.faults) // 2, 1)
    while size:
        faults = outcome.faults
        for begin in range(0, len(faults), size):
            part = set(faults[begin : begin + size])
            if owned.real_monotonic() > end:
                return outcome
            smaller = _outcome(*_fork(outcome.seed, left_out | part))
            if smaller is not None and kind in map(_kind, smaller.violations):
                left_out |= part
                outcome = smaller
        size //= 2
    return outcome


def _kind(violation: str) -> str:
    """The invariant that a violation names."""
    return violation.partition(":")[0]


def _explain(outcome: Outcome) -> None:
    print(f"  it needs {len(outcome.faults)} faults:")
    for fault in outcome.faults:
        print(f"    {fault}")
    print(f"  the end of its trace of {len(outcome.trace)} lines:")
    for line in outcome.trace[-SHOWN_LINES:]:
        print(f"    {line}")
    sys.stdout.flush()


def _warm() -> None:
    """Fill the caches that all seeds share."""
    for module in pkgutil.iter_modules(cli.__path__, "batchtrain.cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    simulate(0)
    gc.freeze()


def _fork(
    seed: int, left_out: Collection[str] = (), plant: str = "", *, known: reach.Lines | None = None
) -> tuple[int, int]:
    """Run a seed in a process of its own. known: the lines that others have reached; None if none are noted."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    os.close(reader)
    code = 1
    try:
        reached = reach.Reach(known or frozenset())
        if known is not None:
            reached.begin()
        outcome = simulate(seed, left_out, plant)._replace(lines=reached.end())
        with os.fdopen(writer, "wb") as file:
            trace = outcome.trace if outcome.violations else ()
            file.write(pickle.dumps(outcome._replace(trace=trace)))
        code = 0
    except BaseException:  # noqa: BLE001 - the parent says that the seed died
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
