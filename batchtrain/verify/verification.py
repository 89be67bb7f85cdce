"""Carries out a verification: creates each pool, observes, deletes it, and judges every probe."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from batchtrain.catalog.sizes import VmSize
from batchtrain.client.limits import Limits
from batchtrain.client.operations import Operations
from batchtrain.client.run import run
from batchtrain.config.types import Credentials, Recipe
from batchtrain.errors import (
    AlreadyExists,
    BatchtrainError,
    LimitReached,
    NotAllowed,
    ResultsLeft,
    ServiceError,
    TimedOut,
    Unreachable,
)
from batchtrain.life.intents import PROBE
from batchtrain.records.events import Event, JobAdding, Leftover, NodeRebooted, RunRecorded
from batchtrain.runs.recording import Origin
from batchtrain.service import read
from batchtrain.verify import questions, shared_pools
from batchtrain.verify.probe import HAND, POOLS, REBOOTS, SERVICE, UNREAD, Area, Judgement, Observations, judge
from batchtrain.verify.questions import Target
from batchtrain.verify.shared_pools import Work
from batchtrain.version import __version__

if TYPE_CHECKING:
    from batchtrain.service.register import Register
    from batchtrain.service.watch import Tell

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
    leftovers: tuple[str, ...] = ()
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
    credentials: Credentials | None = None
    """The logins of registries."""


class Verification(NamedTuple):
    """The verification of several sizes, which share the budget."""

    client: Operations
    works: Sequence[Work]
    settings: Settings
    tell: Tell
    origin: Origin

    def refuse_unfit(self) -> None:
        """Raise ConfigError and PlanError for a size that cannot have the pools, before anything is created."""
        for work in self.works:
            with self._recipe(work, datetime.now(timezone.utc)) as recipe:
                self.client.foresee(recipe)

    @contextlib.contextmanager
    def _recipe(self, work: Work, now: datetime) -> Iterator[Recipe]:
        """The recipe of a pool, whose nodes the service removes at the end of its life. now: by the service's clock."""
        life, local = shared_pools.life_of(work, self.works, self.settings.budget), self.client.account.emulated
        with tempfile.TemporaryDirectory(prefix="batchtrain-") as folder:
            shared_pools.write_program(Path(folder))
            recipe = shared_pools.recipe_of(work, Path(folder), self.settings.image, now + life, life, local=local)
            yield replace(recipe, credentials=self.settings.credentials or recipe.credentials)

    def report(self, size: VmSize, areas: Sequence[Area]) -> Report:
        """Observe the pools of one size and judge the probes."""
        local, leftovers = self.client.account.emulated, list[str]()
        observations = self._observations(size, leftovers)
        rows = tuple(judge(area, probe, observations, size, local=local) for area in areas for probe in area.probes)
        date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        region = "local" if local else self.client.account.region or "unknown"
        nodes = self.settings.nodes
        return Report(date, region, size.name, nodes, __version__, rows, observations, tuple(leftovers))

    def _observations(self, size: VmSize, leftovers: list[str]) -> Observations:
        """What the pools of one size show. A pool that fails costs only its own observations."""
        ends: dict[str, Any] = {}
        reboots: dict[str, Any] = {}
        observations: dict[str, Any] = {SERVICE: {}, HAND: dict(self.settings.answers), POOLS: ends, REBOOTS: reboots}
        if self.settings.image is None:
            reason = {UNREAD: self.settings.without_image}
            observations |= dict.fromkeys(shared_pools.CONTAINER.tasks, reason)
            observations[SERVICE] |= dict.fromkeys(shared_pools.CONTAINER.questions, reason)
            ends[shared_pools.CONTAINER.name] = reason
        for work in (work for work in self.works if work.size == size):
            events: list[Event] = []
            try:
                parts = self._parts(work, events, leftovers)
                ends[work.kind.name] = ""
            except (ServiceError, TimedOut, LimitReached) as error:
                ends[work.kind.name] = (
                    "" if any(isinstance(event, JobAdding) for event in events) else _end_of_pool(error)
                )
                if any(isinstance(event, NodeRebooted) for event in events):
                    reboots[work.kind.name] = True
                elif getattr(error, "code", "") == "OperationInvalidForCurrentState":
                    reboots[work.kind.name] = False
                run_name = next((event.run for event in events if isinstance(event, RunRecorded)), "")
                reason = {UNREAD: f"pool {work.name}: {error}"}
                parts = {**dict.fromkeys(work.kind.tasks, reason), SERVICE: dict.fromkeys(work.kind.questions, reason)}
                parts |= _fetched(work, self.origin.root / run_name) if run_name else {}
                leftovers += [event.text for event in events if isinstance(event, Leftover)]
            observations[SERVICE] |= parts.pop(SERVICE)
            observations |= parts
        return observations

    def _parts(self, work: Work, events: list[Event], leftovers: list[str]) -> dict[str, Any]:
        """What one pool shows. Raises ServiceError, TimedOut and LimitReached. events: receives what happened."""
        answers: dict[str, Any] = {}

        def ask(register: Register) -> None:
            target = Target(self.client, register, work.name, work.name, self.settings.credentials)
            answers.update(questions.answers(work.kind.questions, work.questions, target))

        def tell(event: Event) -> None:
            events.append(event)
            self.tell(event)

        ahead = timedelta(seconds=read.clock_skew(self.client.batch) or 0.0)
        with self._recipe(work, datetime.now(timezone.utc) - ahead) as recipe:
            outcome = run(
                self.client,
                recipe,
                tell=tell,
                origin=self.origin,
                limits=Limits(seconds=shared_pools.life_of(work, self.works, self.settings.budget).total_seconds()),
                afterwards=ask,
                intent=PROBE,
            )
        if outcome.problem is not None and not isinstance(outcome.problem, ResultsLeft):
            leftovers.append(str(outcome.problem))
        return {**_fetched(work, outcome.runs[0].path), SERVICE: answers}


def _end_of_pool(error: BatchtrainError) -> Any:
    """Why a pool has no nodes, as an answer of Azure: a code, or the errors of an unusable node. An error that says
    nothing about Azure is unread."""
    if isinstance(error, (AlreadyExists, LimitReached, NotAllowed, Unreachable)):
        return {UNREAD: str(error)}
    code = getattr(error, "code", "")
    return code if code and code != "NodeStateUnusable" else str(error)


def _fetched(work: Work, run_directory: Path) -> dict[str, Any]:
    """What the program of the nodes wrote, by task, also of a run that has failed. A node that is missing is unread."""
    parts: dict[str, Any] = {}
    for path in sorted((run_directory / "outputs").glob("*/*/observed-*.json")):
        task, name, part = path.parts[-3], path.parts[-2], path.stem.partition("-")[2]
        try:
            values = json.loads(path.read_bytes())
        except ValueError:
            values = {UNREAD: "its file is not whole"}
        if part in PARTS:
            parts.setdefault(task, {}).setdefault("nodes", {})[name] = values
        else:
            parts.setdefault(task, {})[part] = values
    for directory in (run_directory / "outputs").glob("term/*"):
        parts["term"] = {"gang": {"files": sorted(path.name for path in directory.iterdir())}}
    for task in shared_pools.GANGS & parts.keys():
        nodes = parts[task].setdefault("nodes", {})
        missing = (f"n{number}" for number in range(work.nodes) if f"n{number}" not in nodes)
        nodes |= {node: {UNREAD: "its observations were not fetched"} for node in missing}
    return parts
