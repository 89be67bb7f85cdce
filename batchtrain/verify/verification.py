"""Carries out a verification: creates each pool, observes, deletes it, and judges every probe."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from batchtrain.catalog.sizes import VmSize
from batchtrain.client.limits import Limits
from batchtrain.client.operations import Operations
from batchtrain.client.run import run
from batchtrain.errors import LimitReached, ResultsLeft, ServiceError, TimedOut
from batchtrain.runs.recording import Origin
from batchtrain.verify import questions, shared_pools
from batchtrain.verify.probe import HAND, POOLS, SERVICE, UNREAD, Area, Judgement, Observations, judge
from batchtrain.verify.questions import Target
from batchtrain.verify.shared_pools import Work
from batchtrain.version import __version__

if TYPE_CHECKING:
    from batchtrain.client.shown_progress import Tell
    from batchtrain.service.register import Register

PARTS = ("node", "task")
"""The parts of the node's program whose values are those of a node; the third is the gang's."""


class Report(NamedTuple):
    """What a verification of one size observed, and how it is judged."""

    date: str
    region: str
    """`local` for the emulator."""
    size: str
    nodes: int
    batchtrain: str
    judgements: tuple[Judgement, ...]
    observations: Observations
    left: tuple[str, ...] = ()
    """What could not be deleted, with the command that deletes it."""

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.date}-{self.region}-{self.size}"

    def count(self, judgement: str) -> int:
        """How many probes are judged so."""
        return sum(row.judgement == judgement for row in self.judgements)


class Settings(NamedTuple):
    """How a verification is carried out."""

    nodes: int
    image: str | None
    """Of the containers; None leaves them out."""
    budget: float | None
    """None on the emulator."""
    without_image: str
    """Why there is no image."""
    answers: Mapping[str, Any]
    """What a user has observed by hand, by name."""


def verify(
    client: Operations,
    size: VmSize,
    areas: Sequence[Area],
    all_work: Sequence[Work],
    settings: Settings,
    tell: Tell,
    origin: Origin,
) -> Report:
    """Observe the pools of one size and judge the probes. all_work: of all sizes, which share the budget."""
    left: list[str] = []
    observations = observe(client, size, all_work, settings, tell, origin, left)
    local = client.account.emulated
    rows = tuple(judge(area, probe, observations, size, local=local) for area in areas for probe in area.probes)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    region = "local" if local else client.account.region or "unknown"
    return Report(date, region, size.name, settings.nodes, __version__, rows, observations, tuple(left))


def observe(
    client: Operations,
    size: VmSize,
    all_work: Sequence[Work],
    settings: Settings,
    tell: Tell,
    origin: Origin,
    left: list[str],
) -> Observations:
    """What the pools of one size show. A pool that fails costs only its own observations. left: receives what could
    not be deleted."""
    ends: dict[str, str] = {}
    observations: dict[str, Any] = {SERVICE: {}, HAND: dict(settings.answers), POOLS: ends}
    if settings.image is None:
        observations |= {task: {UNREAD: settings.without_image} for task in shared_pools.CONTAINER.tasks}
    for work in (work for work in all_work if work.size == size):
        try:
            parts = _observed(client, work, all_work, settings, tell, origin, left)
            ends[work.shared.name] = ""
        except (ServiceError, TimedOut, LimitReached, ResultsLeft) as error:
            reason = f"pool {work.name}: {error}"
            ends[work.shared.name] = getattr(error, "code", "") or type(error).__name__
            parts = {task: {UNREAD: reason} for task in work.shared.tasks}
            parts[SERVICE] = {name: {UNREAD: reason} for name in work.shared.questions}
        observations[SERVICE] |= parts.pop(SERVICE)
        observations |= parts
    return observations


def _observed(
    client: Operations,
    work: Work,
    all_work: Sequence[Work],
    settings: Settings,
    tell: Tell,
    origin: Origin,
    left: list[str],
) -> dict[str, Any]:
    """Raises BatchtrainError if the pool has shown nothing."""
    life = shared_pools.life_of(work, all_work, settings.budget)
    answers: dict[str, Any] = {}
    names = frozenset(name for probe in work.probes if probe.part == SERVICE for name in [probe.reads.split("/")[1]])
    with tempfile.TemporaryDirectory(prefix="batchtrain-") as folder:
        directory = Path(folder)
        shared_pools.write_program(directory)
        end = datetime.now(timezone.utc) + life
        recipe = shared_pools.recipe_of(work, directory, settings.image, end, life, local=client.account.emulated)

        def ask(register: Register) -> None:
            target = Target(client, register, work.name, work.name)
            answers.update(questions.answers(work.shared.questions, names, target))

        limits = Limits(seconds=life.total_seconds())
        outcome = run(client, recipe, tell=tell, origin=origin, limits=limits, afterwards=ask, expendable=True)
    if outcome.problem is not None and not isinstance(outcome.problem, ResultsLeft):
        left.append(str(outcome.problem))
    return {**_of_nodes(outcome.runs[0].path / "outputs"), SERVICE: answers}


def _of_nodes(outputs: Path) -> dict[str, Any]:
    """What the program of the nodes wrote, by task."""
    parts: dict[str, Any] = {}
    for path in sorted(outputs.glob("*/*/observed-*.json")):
        task, name, part = path.parts[-3], path.parts[-2], path.stem.partition("-")[2]
        values = json.loads(path.read_bytes())
        if part in PARTS:
            parts.setdefault(task, {}).setdefault("nodes", {})[name] = values
        else:
            parts.setdefault(task, {})[part] = values
    for node in outputs.glob("term/*"):
        parts["term"] = {"gang": {"files": sorted(path.name for path in node.iterdir())}}
    return parts
