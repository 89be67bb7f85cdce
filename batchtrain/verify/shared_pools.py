"""The pools of a verification, shared by all probes: what runs on them, how long, and what that costs. Pure, except for
the recipe's directory, which holds the program of the nodes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from batchtrain import runtime
from batchtrain.catalog.prices import Price, money
from batchtrain.catalog.sizes import VmSize
from batchtrain.config.described import IMAGE, valid
from batchtrain.config.types import (
    AdditionalNodePrep,
    Autoscale,
    AutoUser,
    Job,
    MultiInstance,
    Pool,
    PrepCommands,
    Recipe,
    Results,
    Task,
    UserIdentity,
    VmConfiguration,
    VmCount,
    span_of,
)
from batchtrain.errors import UsageError
from batchtrain.launchers.variables import LAUNCH_FILES
from batchtrain.verify.probe import POOLS, REBOOTS, SERVICE, Area, Probe
from batchtrain.verify.questions import OF_CONTAINER, OF_HOST, USER, Question
from batchtrain.verify.trial_pools import TRIALS, Trial

SOURCE = "source"
PROGRAM = "$AZ_BATCH_TASK_SHARED_DIR/observe.py"
MARGIN = timedelta(minutes=10)
"""The service evaluates a formula every 5 minutes, and then the nodes leave."""
MINUTES, INFINIBAND_MINUTES = 30, 60
"""Of a pool: 20 for its allocation, its start, the tasks and its deletion, and the margin. With
InfiniBand 50 and the margin: large nodes start slowly, and the programs of the HPC images run, too."""
LONGEST = timedelta(hours=3)
LONG = "v" * 32768
OBSERVED = Results(include=("output/observed-*.json",), from_="all")
ADMIN = UserIdentity(auto_user=AutoUser(scope="pool", elevation_level="admin"))
NONADMIN = UserIdentity(auto_user=AutoUser(scope="pool", elevation_level="nonadmin"))
TERMINATED = (
    "mkdir -p output; echo >output/began; trap 'date +%s.%N >output/term; exit 3' TERM; sleep 60 & wait $!; exit 0"
)
"""Notes whether the end of its time is announced by SIGTERM."""

STUBBORN = "mkdir -p output; trap '' TERM; while :; do date +%s >output/alive; sleep 1; done"


class PoolKind(NamedTuple):
    """A pool, and the tasks on it that observe something."""

    name: str
    native: bool
    tasks: tuple[str, ...]
    """Those that write observations; questions ask how others end."""
    questions: Mapping[str, Question]
    """What requests observe while it exists."""

    trial: Trial | None = None
    """Of a pool of one node; None for the shared ones."""


HOST = PoolKind("host", False, ("host", "admin", "term"), OF_HOST)
CONTAINER = PoolKind("container", True, ("container", "coordination", "inside", "options"), OF_CONTAINER)
TRIAL_KINDS = tuple(
    PoolKind(name, trial.image is not None, (name,), trial.questions, trial) for name, trial in TRIALS.items()
)
KINDS = (HOST, CONTAINER, *TRIAL_KINDS)
GANGS = frozenset({"host", "coordination"})
"""The tasks whose observations come from every node of the pool."""


class Planned(NamedTuple):
    """A row of the plan."""

    pool: str
    vm_size: str
    nodes: int
    minutes: int
    cost: str
    probes: int


class Work(NamedTuple):
    """A pool of one size."""

    kind: PoolKind
    size: VmSize
    nodes: int
    probes: tuple[Probe, ...]
    price: Price | None = None

    @property
    def name(self) -> str:
        """The id of its pool and job."""
        return f"verify-{self.kind.name}-{self.size.name.removeprefix('Standard_').replace('_', '-')}"[:60].lower()

    @property
    def questions(self) -> frozenset[str]:
        """The names of the questions that its probes read."""
        return frozenset(probe.reads.split("/")[1] for probe in self.probes if probe.part == SERVICE)

    @property
    def minutes(self) -> int:
        """The planned minutes."""
        return INFINIBAND_MINUTES if self.size.hcas else MINUTES

    @property
    def hour(self) -> float | None:
        """What an hour costs; None if the price is unknown."""
        return self.price.of(self.nodes, 0) if self.price else None

    @property
    def cost(self) -> float | None:
        """What the planned minutes cost."""
        return None if self.hour is None else self.hour * self.minutes / 60

    @property
    def planned(self) -> Planned:
        cost = "" if self.cost is None or self.price is None else money(self.cost, self.price.currency)
        return Planned(self.name, self.size.name, self.nodes, self.minutes, cost, len(self.probes))


def work_of(
    size: VmSize, nodes: int, areas: Iterable[Area], price: Price | None, *, image: str | None, local: bool = False
) -> list[Work]:
    """The pools that the probes of these areas need on a size, without those that serve none. image: of the
    containers; None leaves them out. local: without the probes that the emulator cannot answer."""
    every = (probe for area in areas for probe in area.probes if probe.needs.fits(size))
    probes = [probe for probe in every if not (local and probe.not_local)]
    by_pool = ((kind, tuple(probe for probe in probes if _serves(kind, probe))) for kind in KINDS)
    usable = ((kind, suited) for kind, suited in by_pool if suited and (image or kind != CONTAINER))
    return [Work(kind, size, 1 if kind.trial else nodes, suited, price) for kind, suited in usable]


def _serves(kind: PoolKind, probe: Probe) -> bool:
    name = probe.reads.split("/")[1]
    observers = {SERVICE: name in kind.questions, POOLS: name == kind.name, REBOOTS: name == kind.name}
    return observers.get(probe.part, probe.part in kind.tasks)


def refuse_above(works: Iterable[Work], budget: float, region: str = "") -> None:
    """Raise UsageError if the planned minutes cost more than the budget, or if a price is unknown."""
    total, currency = 0.0, ""
    for pool in works:
        if pool.cost is None or pool.price is None:
            raise UsageError(
                f"the budget needs what an hour of {pool.size.name} costs, which the catalogue does not have for this"
                f" region; `batchtrain catalog refresh --prices --location {region or 'REGION'}` reads it"
            )
        total, currency = total + pool.cost, pool.price.currency
    if total > budget:
        raise UsageError(
            f"the plan costs {money(total, currency)}, and the budget is {money(budget, currency)}; give --budget"
            f" {total + 1:.0f}, fewer sizes, or an area (--only)"
        )


def life_of(work: Work, all_work: Iterable[Work], budget: float | None) -> timedelta:
    """How long the nodes of a pool may live: what its part of the budget pays for; an hour without one."""
    costs = sum(pool.cost or 0.0 for pool in all_work)
    if budget is None or not work.hour or not costs:
        return timedelta(hours=1)
    return min(timedelta(hours=budget * (work.cost or 0.0) / costs / work.hour) - MARGIN, LONGEST)


def write_program(directory: Path) -> None:
    """Put the program of the nodes into the source of the recipes."""
    (directory / SOURCE).mkdir()
    (directory / SOURCE / "observe.py").write_bytes(runtime.read("observe.py"))


def recipe_of(work: Work, directory: Path, image: str | None, end: datetime, life: timedelta, *, local: bool) -> Recipe:
    """The recipe of a pool. Raises ConfigError. end: when the service removes its nodes, whatever a client does."""
    trial = work.kind.trial
    spot = trial is not None and trial.spot
    pool = Pool(
        id=work.name,
        vm_size=work.size.name,
        vm_configuration=VmConfiguration(platform_image=replace(IMAGE, native=work.kind.native)),
        vm_count=VmCount(low_priority=work.nodes) if spot else VmCount(dedicated=work.nodes),
        inter_node_communication_enabled=True,
        autoscale=Autoscale(formula=formula(work.nodes, end, spot=spot), evaluation_interval="00:05:00"),
        additional_node_prep=AdditionalNodePrep(commands=PrepCommands(post=_ON_NODES)),
    )
    job = Job(id=work.name, max_wall_time=span_of(life.total_seconds()), tasks=tuple(_tasks(work, image)))
    recipe = Recipe(directory=str(directory), pool=pool, jobs=(job,))
    return valid(trial.of(recipe) if trial else recipe, "verify", ignore=_DOUBTED, local=local)


def formula(nodes: int, end: datetime, *, spot: bool = False) -> str:
    """All nodes until a time, and none after it."""
    moment = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    target, other = ("LowPriority", "Dedicated") if spot else ("Dedicated", "LowPriority")
    return (
        f'$Target{target}Nodes = time() < time("{moment}") ? {nodes} : 0;\n'
        f"$Target{other}Nodes = 0;\n$NodeDeallocationOption = terminate;\n"
    )


_DOUBTED = ("disk-ephemeral-spot",)
"""Checks whose assumption a trial is about."""
_ON_NODES = (
    'env | cut -d= -f1 | grep ^AZ_BATCH_ >"$AZ_BATCH_NODE_SHARED_DIR/batchtrain-verify"',
    # not on a node of the emulator, which shares the files of this machine
    f'[ -n "${{BATCHTRAIN_EMULATED_NODE-}}" ] || echo verifygroup:x:42424:{USER} >>/etc/group || :',
    '[ -n "${BATCHTRAIN_EMULATED_NODE-}" ] || ( cd "$AZ_BATCH_NODE_MOUNTS_DIR" && mkdir -p verify'
    " && mount -t tmpfs tmpfs verify && touch verify/file ) || :",
)
"""Its variables; a group with a user that is made later; and a file system."""


def _tasks(work: Work, image: str | None) -> Iterator[Task]:
    """The tasks of a pool, in the order in which they run: gangs first, because they need every node."""
    size = work.size
    settings = [f"NCCL_{name}={value}" for name, value in LAUNCH_FILES.get(size.family, {}).items()]
    facts = {"size": size.name, "ports": size.hcas, "rate": size.port_gbps, "gpus": size.gpus}
    facts |= {"gpu_gib": size.gpu_memory_gib, "nccl": settings}
    node, gang, alone = (
        f"python3 {PROGRAM} {part} {shlex.quote(json.dumps(facts))}" for part in ("node", "gang", "task")
    )
    nodes = MultiInstance(num_instances=work.nodes, coordination_command=node)
    if trial := work.kind.trial:
        yield Task(id=work.kind.name, command=trial.command, docker_image=trial.image, results=OBSERVED)
        return
    common = Task(source=SOURCE, results=OBSERVED, user_identity=ADMIN)
    if not work.kind.native:
        yield replace(common, id="host", command=gang, multi_instance=nodes, user_identity=NONADMIN)
        yield replace(common, id="admin", command=alone)
        yield Task(id="term", command=TERMINATED, max_wall_time="00:00:05", results=Results(from_="all"))
        yield Task(id="stubborn", command=STUBBORN, max_wall_time="00:00:05")
        return
    common = replace(common, docker_image=image)
    yield replace(common, id="container", command=gang, multi_instance=MultiInstance(num_instances=work.nodes))
    yield replace(common, id="coordination", command=gang, multi_instance=nodes)
    variables = {"NVIDIA_VISIBLE_DEVICES": "0"}
    yield replace(common, id="inside", command=alone, user_identity=NONADMIN, environment_variables=variables)
    length = f"[ ${{#VERIFY_LONG}} -eq {len(LONG)} ]"
    yield Task(id="long", command=length, docker_image=image, environment_variables={"VERIFY_LONG": LONG})
    options = ("--rm", "--net=host", "--name=batchtrain-verify", "-v", "'/tmp:/verify scratch'")
    yield replace(common, id="options", command=alone, additional_docker_run_options=options)
    yield replace(
        common, id="refused", command="true", source=None, additional_docker_run_options=("--no-such-option",)
    )
    yield Task(id="program", command="batchtrain-no-such-program", docker_image=image)
