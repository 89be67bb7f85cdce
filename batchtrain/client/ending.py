"""How a command that creates pools and jobs ends: the loop of `life/endings.py`, and what each of its rules does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from batchtrain.catalog.prices import Hour, Price
from batchtrain.client.interrupts import Interrupts
from batchtrain.client.leaving import Ask, Leaver, empty_nodes, has_storage, leave, stops
from batchtrain.client.limits import UNLIMITED, Guard
from batchtrain.client.watching import stop_tasks
from batchtrain.errors import BatchtrainError, LimitReached, NotFound, ResultsLeft, Unreachable
from batchtrain.life import endings
from batchtrain.life.decision_table import drive
from batchtrain.life.endings import GONE, TERMINAL, Act, Results, SeenEnd, SeenJob, SeenThing
from batchtrain.life.intents import Intent
from batchtrain.records import Pool
from batchtrain.records.events import Deleted, Event, Leftover, ResultsFailed, ResultsFetching, ResultsSkipped, Standing
from batchtrain.runs.recording import QUIET, Progress, Recording, now
from batchtrain.service import deletion, watch
from batchtrain.service.deadlines import GONE_SECONDS
from batchtrain.service.meant_version import replaced
from batchtrain.service.register import Register, Thing

if TYPE_CHECKING:
    from batchtrain.client.operations import Operations
    from batchtrain.config.types import Recipe
    from batchtrain.service.watch import Tell


def left(
    things: Sequence[Thing],
    option: str,
    *,
    waits: Iterable[Thing] = (),
    files: Iterable[Thing] = (),
    cost: str = "",
    everything: bool = False,
) -> str:
    """What is kept, and the commands that wait, fetch files and delete it, one per line. everything: files of any
    size."""
    head = f"left as {'it is' if len(things) == 1 else 'they are'}: {', '.join(thing.name for thing in things)}{cost}"
    lines = [f"wait: {thing.command('wait', option)}" for thing in waits]
    lines += [f"fetch files: {thing.command('fetch', option)}{' --all' if everything else ''}" for thing in files]
    lines += [f"delete: {thing.command('del', option)}" for thing in things]
    return "\n  ".join((head, *lines))


def next_attempt(job_ids: Iterable[str]) -> str:
    """The commands that fetch results again."""
    return f"{' and '.join(f'`batchtrain jobs fetch {job_id}`' for job_id in job_ids)} tries again"


class Ending:
    """The end of one command."""

    def __init__(
        self,
        client: Operations,
        register: Register,
        tell: Tell,
        interrupts: Interrupts,
        intent: Intent,
        recordings: Mapping[str, Recording] | None = None,
        *,
        write: Callable[[], BaseException | None] = lambda: None,
        progress: Progress = QUIET,
        ask: Ask = stops,
        guard: Guard | None = None,
    ) -> None:
        """recordings: the run directories, by job. write: writes their ends, and returns its first error."""
        self.client, self.register, self._interrupts, self.intent = client, register, interrupts, intent
        """The client of the account where the things are."""
        self.recordings = recordings or {}
        self.recipe: Recipe | None = None
        """The recipe at the candidate where it runs."""
        self._tell_user, self._write_ends, self._progress, self._ask = tell, write, progress, ask
        self._guard = guard or Guard(UNLIMITED, None, now)
        self.submitted = False
        """Whether everything was added."""
        self.ended: set[str] = set()
        """The jobs whose tasks have ended."""
        self.pool: Pool | None = None
        self.price: Price | None = None
        """The price of a node of it, if it is known."""
        self.planned: Hour | str | None = None
        """An hour of the pool as it was planned."""
        self.bound = ""
        """How long the nodes stay that have results; empty if nothing ends them."""
        self.has_deleted_pool = False
        self._error: BaseException | None = None
        self._unwritten: BaseException | None = None
        self._not_deleted: dict[Thing, BaseException] = {}
        self._going: list[Thing] = []
        self._gone: list[str] = []
        self._reasons: dict[str, str] = {}
        """By job, why its results could not be fetched."""
        self._stopped, self._tried, self._skipped = set[str](), set[str](), False
        self._done, self._continues = set[Act](), False
        self.leaver: Leaver = ""
        """Who left the run, which continues."""

    def end(self, error: BaseException | None = None) -> None:
        """End the command. error: what ended its work before the tasks had ended."""
        self._error = error
        drive(self.look, endings.decide, self._act)

    def _act(self, act: Act, seen: SeenEnd) -> None:
        ACTS[act](self, seen)
        self._done.add(act)

    def look(self) -> SeenEnd:
        """What there is now."""
        things = [SeenThing(thing, self.register.state(thing) or "") for thing in self.register.things()]
        jobs = dict.fromkeys((*(job.id for job in (self.recipe.jobs if self.recipe else ())), *self.recordings))
        over = self.ended | self._stopped
        return SeenEnd(
            endings.cause_of(self._error),
            (*things, *(SeenThing(thing, "going") for thing in self._going)),
            tuple(SeenJob(job_id, job_id not in over, self._results_of(job_id)) for job_id in jobs),
            keeps=frozenset(self.intent.keeps),
            is_expendable=self.intent.is_expendable,
            has_tasks=self.register.tasks_added,
            is_submitted=self.submitted,
            is_stored=self.recipe is not None and has_storage(self.recipe),
            signals=self._interrupts.further,
            done=endings.ONCE & self._done,
            continues=self._continues,
            is_left=bool(self.leaver),
        )

    def _results_of(self, job_id: str) -> Results:
        recording, exists = self.recordings.get(job_id), self.register.state(Thing("job", job_id)) is not None
        if recording is None or self._skipped:
            return "here"
        is_tried = recording.has_fetched or job_id in self._tried or job_id in self._reasons
        if exists and not is_tried:
            return "wanted"
        if job_id in self._reasons or recording.unsaved:
            return "on a node" if recording.is_on_nodes_alone else "in storage"
        return "here"

    def tell(self, event: Event) -> None:
        """Pass an event on; a terminal that is gone ends no ending."""
        with contextlib.suppress(OSError, ValueError):
            self._tell_user(event)

    def error_of(self, step: Callable[[], None]) -> BaseException | None:
        """What ended a step of the ending; None if it succeeded. After a second signal nothing is tried any more."""
        if self._interrupts.further > 1:
            return KeyboardInterrupt()
        try:
            with self._interrupts.cut_short():
                step()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, the other steps follow
            return error
        return None

    # --- what the rules do -------------------------------------------------------------------------------------------

    def _ask_user(self, seen: SeenEnd) -> None:
        with contextlib.suppress(Exception, KeyboardInterrupt), self._interrupts.answering():
            self._continues = self._ask("" if self.client.account.emulated else self.hour)

    def _leave(self, seen: SeenEnd) -> None:
        leaver: Leaver = "terminal" if seen.cause is TERMINAL else "user"
        if leave(self, self._guard, leaver):
            self.leaver = leaver

    def _settle(self, seen: SeenEnd) -> None:
        """Decide which of the things exist whose creation was interrupted."""
        with contextlib.suppress(BatchtrainError, KeyboardInterrupt), self._interrupts.cut_short():
            self.register.settle(self.client.batch)

    def _skip(self, seen: SeenEnd) -> None:
        self._skipped = True
        self.tell(ResultsSkipped("", "fetching was interrupted; what is not here yet is lost"))

    def _stop(self, seen: SeenEnd) -> None:
        self._say_why()
        job_id = seen.running[0].id
        error = self.error_of(partial(stop_tasks, self.client, job_id, self.register.runs, self.tell))
        self._stopped.add(job_id)
        if isinstance(error, Unreachable):
            self.tell(ResultsFailed(job_id, f"the results could not be fetched: {error}"))
            self._reasons |= dict.fromkeys((job.id for job in seen.wanted), str(error))

    def _fetch(self, seen: SeenEnd) -> None:
        self._say_why()
        job_id = seen.wanted[0].id
        error = self.error_of(partial(self._fetch_results, job_id))
        if isinstance(error, KeyboardInterrupt):
            return
        self._tried.add(job_id)
        if error is not None:
            self._reasons[job_id] = str(error)
            self.tell(ResultsFailed(job_id, f"the results of job {job_id} could not be fetched: {error}"))

    def _fetch_results(self, job_id: str) -> None:
        try:
            self.recordings[job_id].fetch(self.client.jobs.handle(job_id).tasks, progress=self._progress)
        except NotFound as error:
            if error.code not in GONE:
                raise

    def _say_why(self) -> None:
        """Report once why the results are fetched now."""
        error = self._error
        if isinstance(error, (KeyboardInterrupt, LimitReached)) and not self._done & {"stop", "fetch"}:
            is_limit = isinstance(error, LimitReached)
            skips = "Ctrl-C skips them" if is_limit else "Ctrl-C again skips them"
            self.tell(ResultsFetching("", f"{error if is_limit else 'interrupted'}; fetching the results ({skips})"))

    def _delete(self, seen: SeenEnd) -> None:
        thing = Thing(*seen.deletable[0].thing)  # type: ignore[arg-type]  # the kind of a thing of the register
        error = self.error_of(partial(self._request_deletion, thing))
        if isinstance(error, KeyboardInterrupt) and self._interrupts.further == 1:
            return  # once more, in a hurry, after the pool
        if error is None:
            self._going.append(thing)
            self.has_deleted_pool |= thing.kind == "pool"
        elif not isinstance(error, NotFound):
            self._report_not_deleted(thing, error)
        self.register.note(thing, None)

    def _request_deletion(self, thing: Thing) -> None:
        if self.register.state(thing) != "shared" and not self.register.is_ours(self.client.batch, thing):
            self.tell(Standing(thing.name, f"left as it is: {thing.name}, which this command did not add"))
            raise replaced(thing, "delete")
        option = self.client.account.option
        with watch.Deadline(GONE_SECONDS, f"the deletion of {thing.name}", self.tell):
            reason = deletion.request(self.client.batch, thing, self.register.runs, option)
        if reason:
            self.tell(Standing(thing.name, reason))
            raise NotFound(f"{thing.name} is used", operation=f"delete {thing.name}")

    def _await(self, seen: SeenEnd) -> None:
        thing = self._going[0]
        wait = partial(deletion.gone, self.client.batch, thing, self.client.pace, self.tell)
        error = KeyboardInterrupt() if seen.signals else self.error_of(wait)
        if error is None or isinstance(error, NotFound):
            self._gone.append(thing.name)
        elif isinstance(error, KeyboardInterrupt):
            self.tell(Deleted(thing.name, f"{thing.name} is being deleted"))
        else:
            self._report_not_deleted(thing, error)
        self._going.remove(thing)
        if self._gone and not self._going:
            self.tell(Deleted(self._gone[0], f"deleted {', '.join(self._gone)}"))
            self._gone = []

    def _report_not_deleted(self, thing: Thing, error: BaseException) -> None:
        reason, command = str(error) or "interrupted", thing.command("del", self.client.account.option)
        self.tell(Leftover(thing.name, f"{thing.name} was not deleted ({reason}); delete it: {command}"))
        self._not_deleted[thing] = error

    def _name(self, seen: SeenEnd) -> None:
        """Report what is kept, and the next commands."""
        things = self.register.things()
        jobs = [thing for thing in things if thing.kind == "job"] if self.submitted else []
        waits = [thing for thing in jobs if thing.id not in self.ended]
        if not self.submitted and seen.cause.waits:
            waits = [thing for thing in things if thing.kind == "pool"]
        files = [thing for thing in jobs if thing.id not in self._without_files]
        account, unsafe = self.client.account, seen.unsafe
        cost = (f"; {self.hour}" if self.hour and not account.emulated else "") + self.bound
        exceed_limit = bool(unsafe) and all(self.recordings[job.id].exceeds_limit for job in unsafe)
        text = left(things, account.option, waits=waits, files=files, cost=cost, everything=exceed_limit)
        self.tell(Standing(things[0].name, text))

    def _write(self, seen: SeenEnd) -> None:
        if not self.leaver:
            self._unwritten = self._write_ends()
            return
        for recording in self.recordings.values():
            recording.leave(self.leaver)

    # --- what came of it ---------------------------------------------------------------------------------------------

    @property
    def hour(self) -> str:
        """An hour of the pool with its cost: as it is, or as it was planned; empty without a pool."""
        pool = self.pool
        if pool is None:  # its nodes were not ready yet
            return str(self.planned or "")
        return str(Hour(pool.id, pool.vm_size, pool.dedicated, pool.spot, self.price))

    def problem(self, *, successful: bool) -> BaseException | None:
        """Why a command whose work has ended fails. successful: whether its tasks succeeded."""
        return self.results_left or self.failure(successful=successful) or self._missing or self._unwritten

    @property
    def results_left(self) -> ResultsLeft | None:
        """The error of a command that has kept something because its results are not on this machine."""
        seen = self.look()
        if not seen.unsafe:
            return None
        reasons = "; ".join(f"job {job.id}: {self._reason_of(job.id)}" for job in seen.unsafe)
        if not seen.are_on_nodes:
            return ResultsLeft(f"results are in storage and not on this machine, so their job was kept: {reasons}")
        again = next_attempt(job.id for job in seen.unsafe)
        return ResultsLeft(f"results are still on the nodes, so nothing was deleted: {reasons}; {again}")

    def _reason_of(self, job_id: str) -> str:
        return "; ".join(self.recordings[job_id].unsaved) or self._reasons.get(job_id) or str(self._error)

    @property
    def _missing(self) -> ResultsLeft | None:
        """The error of the first job with results that are not here, and that the user did not skip. A job whose files
        the service deletes at its end, as its settings say, has none."""
        without_files, recordings = self._without_files, self.recordings.values()
        errors = (item.missing for item in recordings if item.unsaved or item.job_id not in without_files)
        return None if self._skipped else next((error for error in errors if error), None)

    @property
    def _without_files(self) -> frozenset[str]:
        jobs = self.recipe.jobs if self.recipe else ()
        return frozenset(job.id for job in jobs if job.loses_files and job.id in self.ended)

    def failure(self, *, successful: bool) -> BaseException | None:
        """The error of a command that left something whose deletion failed; None if nothing is left."""
        if not self._not_deleted:
            return None
        error = list(self._not_deleted.values())[-1]
        if not isinstance(error, BatchtrainError):
            return error
        success = "the tasks ended well, but " if successful else ""
        paid = not self.client.account.emulated and any(thing.kind == "pool" for thing in self._not_deleted)
        names = " and ".join(thing.name for thing in self._not_deleted)
        commands = "; ".join(thing.command("del", self.client.account.option) for thing in self._not_deleted)
        cost = ", and nodes cost money" if paid else ""
        return type(error)(f"{success}{names} could not be deleted{cost}; delete by: {commands}")


ACTS: Mapping[Act, Callable[[Ending, SeenEnd], None]] = {
    "leave": Ending._leave,
    "ask": Ending._ask_user,
    "settle": Ending._settle,
    "skip": Ending._skip,
    "stop": Ending._stop,
    "fetch": Ending._fetch,
    "empty": empty_nodes,
    "delete": Ending._delete,
    "await": Ending._await,
    "name": Ending._name,
    "write": Ending._write,
}


@contextlib.contextmanager
def registered(client: Operations, register: Register, tell: Tell, intent: Intent) -> Iterator[Ending]:
    """The ending of a command that adds things, which begins if it fails."""
    with Interrupts() as interrupts:
        ending = Ending(client, register, tell, interrupts, intent)
        try:
            try:
                yield ending
            finally:
                interrupts.hold()
        except BaseException as error:
            ending.end(error)
            raise
