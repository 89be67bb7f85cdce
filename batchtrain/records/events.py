"""What a command does and sees, as one type per kind of event. `kind` is the name of a type in files and documents."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from batchtrain.errors import Finding
from batchtrain.records import Attempt, Counts, FailedBy, Node, Point, Rank, Rendezvous, TrainingProgress
from batchtrain.records.pools import PoolAttempt
from batchtrain.records.rank_end import RankEnd


class Event(msgspec.Struct, frozen=True):
    """Something that was done or seen: the id of its object, and a sentence for the user."""

    subject: str
    text: str
    kind: ClassVar[str] = ""


class Observed(Event, frozen=True):
    """Something that views draw. Without a sentence, no log shows it."""

    text: str = ""


class Detail(Event, frozen=True):
    """A step that only a detailed output shows."""


# --- what is added ----------------------------------------------------------------------------------------------------


class Adding(Detail, frozen=True):
    """A request that creates something is about to be sent."""


class PoolAdding(Adding, frozen=True):
    kind = "pool.adding"


class JobAdding(Adding, frozen=True):
    kind = "job.adding"


class ScheduleAdding(Adding, frozen=True):
    kind = "schedule.adding"


class PoolAdded(Event, frozen=True):
    kind = "pool.add"


class JobAdded(Event, frozen=True):
    kind = "job.add"


class ScheduleAdded(Event, frozen=True):
    kind = "schedule.add"


class TasksAdded(Detail, frozen=True):
    kind = "task.add"


class TaskProgress(Event, frozen=True):
    """Tasks of a large job that were added so far; `total` is None if it is not known."""

    kind = "task.progress"
    added: int = 0
    total: int | None = None


class TasksLeft(Event, frozen=True):
    """The addition of tasks ended before all were added."""

    kind = "task.left"


class PoolReused(Event, frozen=True):
    kind = "pool.reused"


class JobReused(Event, frozen=True):
    kind = "job.reused"


class RecipeCopied(Event, frozen=True):
    """The directory of the recipe is a copy, which does not continue the checkpoints of the original."""

    kind = "recipe.copied"


class RecipeWarned(Event, frozen=True):
    """A warning of the checks about a recipe that is about to be carried out."""

    kind = "recipe.warning"


class JobReplaced(Event, frozen=True):
    kind = "job.replaced"


class JobCompletes(Detail, frozen=True):
    """A job ends when its tasks have ended."""

    kind = "job.complete"


class QuotaWaits(Event, frozen=True):
    kind = "quota.wait"


class BlobUploaded(Event, frozen=True):
    kind = "blob.upload"


class FilesUploaded(Event, frozen=True):
    kind = "files.upload"


# --- pools and nodes --------------------------------------------------------------------------------------------------


class PoolResized(Event, frozen=True):
    kind = "pool.resize"


class PoolAutoscaled(Event, frozen=True):
    kind = "pool.autoscale"


class NodesReplaced(Event, frozen=True):
    """Nodes with faults are removed from a pool, and others are awaited."""

    kind = "nodes.replace"


class CandidateTried(Event, frozen=True):
    """A candidate of a pool has its nodes, or does not have them."""

    kind = "pool.candidate"
    attempt: PoolAttempt | None = None


class PoolIdentified(Event, frozen=True):
    """A pool got its managed identities."""

    kind = "pool.identity"


class PoolWaits(Event, frozen=True):
    """The state of a pool whose nodes are not ready yet."""

    kind = "pool.wait"


class PoolState(Event, frozen=True):
    """The state of a pool that a user watches."""

    kind = "pool.seen"


class PoolGone(Event, frozen=True):
    kind = "pool.gone"


class NodesSeen(Observed, frozen=True):
    """The nodes of a pool, and how many it is to have."""

    kind = "nodes.seen"
    target: int = 0
    nodes: tuple[Node, ...] = ()


class NodeReady(Event, frozen=True):
    kind = "node.ready"


class NodeRebooted(Event, frozen=True):
    kind = "node.reboot"


class NodeUserAdded(Event, frozen=True):
    kind = "node.user"


class NodeLogin(Event, frozen=True):
    """The command that reaches a node."""

    kind = "node.login"


# --- jobs and tasks ---------------------------------------------------------------------------------------------------


class JobDisabled(Event, frozen=True):
    kind = "job.disabled"


class JobKept(Event, frozen=True):
    """A job was added again since it was seen, so that it is not deleted."""

    kind = "job.kept"


class JobFailed(Event, frozen=True):
    kind = "job.failed"


class RunRecorded(Observed, frozen=True):
    """The directory of the run of a job was made."""

    kind = "run.recorded"
    run: str = ""


class TasksSeen(Observed, frozen=True):
    """The tasks of a job by state."""

    kind = "tasks.seen"
    counts: Counts = Counts()
    pool: str = ""
    """The pool of the job, if it is known."""


class FailuresSeen(Observed, frozen=True):
    """The failed tasks of a job by cause, the most frequent first."""

    kind = "failures.seen"
    failed_by: tuple[FailedBy, ...] = ()


class AttemptSeen(Observed, frozen=True):
    """A run of a task was seen: what its task prints from now on is of this attempt."""

    kind = "attempt.seen"
    attempt: Attempt = Attempt("", 1)


class AttemptEnded(Event, frozen=True):
    """An attempt of a task is over, and the service starts the task again."""

    kind = "attempt.ended"
    attempt: Attempt = Attempt("", 1)


class RanksFailed(Observed, frozen=True):
    """A gang has failed: the ends of its ranks, the cause first."""

    kind = "ranks.failed"
    ends: tuple[RankEnd, ...] = ()


class TasksChanged(Event, frozen=True):
    kind = "task.changed"


class TaskFailure(Event, frozen=True):
    """How one of many tasks failed."""

    kind = "task.failed"


class Output(Event, frozen=True):
    """A line that a task printed."""


class Stdout(Output, frozen=True):
    kind = "stdout"


class Stderr(Output, frozen=True):
    kind = "stderr"


class MetricsSeen(Observed, frozen=True, kw_only=True):
    """What a task measured since the last of these events, and its ranks now. Its sentence names the metrics that are
    not finite any more."""

    kind = "metrics"
    job: str = ""
    points: tuple[Point, ...] = ()
    again: bool = False
    """Whether the points replace all of this task before."""
    unfit: tuple[str, ...] = ()
    """Addresses of nodes whose preflight found faults of their hardware, so that the gang waits for others."""
    warnings: tuple[str, ...] = ()
    """What may make the gang slow, but does not stop it."""
    hidden: frozenset[str] = frozenset()
    """Metrics of which the values before are to be forgotten."""
    ranks: tuple[Rank, ...] = ()
    progress: TrainingProgress | None = None
    read_to: float | None = None
    """Until when all that the ranks printed has come; None if that is unknown."""
    rendezvous: Rendezvous = Rendezvous()
    ended: bool = False
    """Whether they are the last of the task."""
    has_records: bool = False
    """Whether they are those of the records of a gang, which have all that its ranks measure."""
    notes: tuple[str, ...] = ()
    """What was not read, and why."""


class OutputShown(Event, frozen=True):
    """Which part of the output of a large job is shown."""

    kind = "output.shown"


# --- waits ------------------------------------------------------------------------------------------------------------


class Waiting(Event, frozen=True):
    kind = "waiting"


class StillWaiting(Waiting, frozen=True):
    """What a wait is for, after a minute without another event or once ranks stand still. A live block shows both all
    the time."""


class TasksWait(Observed, frozen=True, kw_only=True):
    """Why the open tasks of a job wait changed."""

    finding: Finding | None
    """Why they wait, and the next step; None if they wait for nothing, or for what ends without a user."""


class ServiceUnreachable(Event, frozen=True):
    kind = "unreachable"


# --- the end ----------------------------------------------------------------------------------------------------------


class Deleted(Event, frozen=True):
    kind = "deleted"


class Standing(Event, frozen=True):
    """What is kept, and the next commands."""

    kind = "standing"


class Leftover(Event, frozen=True):
    """Something could not be deleted."""

    kind = "leftover"


class ResultsFetching(Event, frozen=True):
    kind = "results.fetch"


class ResultsSkipped(Event, frozen=True):
    kind = "results.skipped"


class ResultsFailed(Event, frozen=True):
    kind = "results.failed"


class Results(Event, frozen=True):
    """Where the results are."""

    kind = "results"
    state: str = ""
    """The state of the run in words."""


class SourceLeftOut(Event, frozen=True):
    """What a .gitignore leaves out of a source: a program may need it."""

    kind = "source.left_out"


class IsolationMissing(Event, frozen=True):
    """The nodes of the emulator are plain processes, and what they lack."""

    kind = "nodes.not_isolated"


class RunAdopted(Event, frozen=True):
    """A run of this host whose process ended is completed."""

    kind = "run.adopted"


class RunContinues(Event, frozen=True):
    """A run continues without its command."""

    kind = "run.continues"


class NotNotified(Event, frozen=True):
    """A webhook did not receive what happened to a run."""

    kind = "notify.failed"


class SweepCut(Event, frozen=True):
    """Only a part of the tasks of a sweep is shown."""

    kind = "sweep.cut"
