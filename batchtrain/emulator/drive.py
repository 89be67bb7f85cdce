"""Carries out what is due: the one place where the world, its store and the machine meet.

One event loop runs everything, so there are no locks: a change is written down and stored, then the machine acts, then
its report is the next change.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from batchtrain.emulator import job_preparation, reports, scheduler, task_environment
from batchtrain.emulator.alarms import Alarms
from batchtrain.emulator.depot import Depot
from batchtrain.emulator.injection import Injection
from batchtrain.emulator.interface import Exit, Machine, NodeLost, NodeUnfit, Run
from batchtrain.emulator.machine.below import Below
from batchtrain.emulator.machine.threads import in_daemon_thread
from batchtrain.emulator.records import Task
from batchtrain.emulator.store import Store
from batchtrain.emulator.world import LogUpload, World

logger = logging.getLogger("batchtrain.emulator")

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL for what a task left behind."""
GIVE_BACK_AFTER, GIVE_BACK_AGAIN = 1.0, 0.05
"""Seconds after a commit that deleted something, and from one step to the next."""
STORE_AGAIN = 1.0
"""Seconds after which a commit that failed (the disk is full, the file is locked) is tried again."""

T = TypeVar("T")


class Driver:
    """Runs an emulated account."""

    def __init__(
        self, world: World, store: Store, machine: Machine, alarms: Alarms, depot: Depot | None = None
    ) -> None:
        self.depot = depot
        self.world, self.store, self.machine, self.alarms, self.clock = world, store, machine, alarms, alarms.clock
        self._acts: dict[type, Callable[[Any], Coroutine[Any, Any, None]]] = {
            scheduler.BootNode: self._boot,
            scheduler.RunStartTask: self._start,
            scheduler.ShutdownNode: self._shutdown,
            scheduler.WipeNode: self._wipe,
            scheduler.RemoveNode: self._remove,
            scheduler.ForgetPool: self._forget_pool,
            scheduler.RunCoordination: self._coordinate,
            scheduler.RunApplication: self._run,
            scheduler.EndScope: self._end,
            scheduler.RunOnNode: self._run_on_node,
            scheduler.EndOnNode: self._end_on_node,
        }
        self._begun: list[scheduler.Effect] = []
        """Written down, but not stored yet: the machine must not act on them before."""
        self._unstored = False
        self._running: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._giving_back: asyncio.TimerHandle | None = None
        self._moved = asyncio.Event()
        """Set whenever something was done: waiters for quiet check again."""
        alarms.told = self._moved.set
        self._settling = False
        self._stopped = False

    def wake(self) -> None:
        """Take up what an earlier life left."""
        for kind, owner, key, _ in self.world.restore(self.store.load()):
            logger.error("stored %s %s of %s belongs to nothing: passed over", kind, key, owner)
        self.world.last_seq = max(self.world.last_seq, self.store.last_seq())
        reports.wake(self.world, self.clock())
        self._spawn(self._sweep_machine())
        self._sweep_depot()
        self.commit()
        self.settle_soon()

    def change(self, operation: Callable[[], T]) -> T:
        """Run a client's operation; what it changed is stored before this returns."""
        try:
            return operation()
        finally:
            self.settle_soon()  # first, because a commit that fails is tried again there
            self.commit()

    def commit(self) -> None:
        """Store what changed. What the database could not take goes with the next commit; raises sqlite3.Error."""
        if changes := self.world.take_changes():
            self._unstored = True
            try:
                self.store.commit(changes, self.world.last_seq)
            except sqlite3.Error:
                self.world.put_back(changes)
                raise
        self._unstored = False
        if self.store.has_deleted and self._giving_back is None and not self._stopped:
            self._giving_back = asyncio.get_running_loop().call_later(GIVE_BACK_AFTER, self._give_back)

    def _give_back(self) -> None:
        """Let the database's file shrink, a little at a time, between the requests."""
        self._giving_back = None
        self._sweep_depot()
        try:
            more = self.store.give_back()
        except sqlite3.Error as error:  # the disk is full, or the file is read elsewhere: the next deletion asks again
            logger.warning("the database gives no space back: %s", error)
            return
        if more:
            self._giving_back = asyncio.get_running_loop().call_later(GIVE_BACK_AGAIN, self._give_back)

    def _sweep_depot(self) -> None:
        if self.depot is not None:
            self.depot.sweep(self.named)

    @property
    def named(self) -> frozenset[str]:
        """The ids of all jobs and job schedules, in lower case."""
        return frozenset((*self.world.jobs, *self.world.schedules))

    def settle_soon(self) -> None:
        """Look at what is due once the present answer is out: clients must see the passage, not only its end."""
        if not self._settling and not self._stopped:
            self._settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        self._settling = False
        if self._stopped:
            return
        try:
            self._carry_out()
            while effects := scheduler.due(self.world, self.world.take_touched(self.clock())):
                whole = self._begin(effects)
                self._carry_out()
                if not whole:
                    break  # what could not begin may be due again at once
        except sqlite3.Error as error:
            logger.error("what changed is not stored yet: %s; it is tried again in %g s", error, STORE_AGAIN)
        except Exception:  # the outer door of everything that is not a request
            logger.exception("internal error")
        self._set_timer()
        self._moved.set()

    def _begin(self, effects: tuple[scheduler.Effect, ...]) -> bool:
        """Write the effects down; False when one could not be, which must not cost the others."""
        begun = [effect for effect in effects if self._begin_one(effect)]
        self._begun += begun
        return len(begun) == len(effects)

    def _begin_one(self, effect: scheduler.Effect) -> bool:
        try:
            reports.begin(self.world, effect, self.clock())
        except Exception:
            logger.exception("could not begin %s", type(effect).__name__)
            return False
        return True

    def _carry_out(self) -> None:
        """Store what has begun, then let the machine act; raises sqlite3.Error with all of it still to do."""
        self.commit()
        self._sweep()
        wanted, self.world.log_uploads = self.world.log_uploads, []
        for one in wanted:
            self._spawn(self._send_logs(one))
        begun, self._begun = self._begun, []
        for effect in begun:
            if isinstance(effect, scheduler.Hint):
                logger.warning("task %s of job %s stays active: %s", effect.task, effect.job, effect.reason)
            if act := self._acts.get(type(effect)):
                self._spawn(act(effect))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._moved.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("internal error", exc_info=error)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopped:
            return
        # The loop's own clock may not count days ahead; looking once an hour is no polling worth the name.
        delays = [3600.0]
        if (at := self.world.next_deadline()) is not None:
            waiting = self.clock.seconds_to(at)
            delays += [] if waiting is None else [waiting]
        if self._unstored:
            delays = [STORE_AGAIN]
        if at is not None or self._unstored:
            self._timer = asyncio.get_running_loop().call_later(min(delays), self._settle)

    def _sweep(self) -> None:
        """Move rubbish out of the way at once, for a new task may get the directory's name, and delete it in time."""
        rubbish, self.world.rubbish = self.world.rubbish, []
        if moved := [(root, away) for root, directory in rubbish if (away := _move_away(root, directory))]:
            self._spawn(in_daemon_thread(lambda: _delete_all(moved)))

    # The machine's part --------------------------------------------------------------------------------------------

    def _report(self, report: Callable[..., None], *arguments: Any) -> None:
        """Write down what a machine says; many reports of one moment are stored together."""
        if self._stopped:
            return
        try:
            report(self.world, *arguments, self.clock())
        finally:
            self.settle_soon()

    async def _boot(self, effect: scheduler.BootNode) -> None:
        book = self.world.pools[effect.pool]
        spec = task_environment.node_spec(self.world, book, book.nodes[effect.node])
        try:
            if self._struck("boot-fails", effect.node):
                raise OSError("a fault was asked for (boot-fails)")
            await self._take(self.world.pace.boot_of(effect.node))
            up = await self.machine.boot(spec, self._lost)
        except NodeUnfit as error:
            logger.error("node %s is unusable: %s", effect.node, error)
            self._report(reports.node_unfit, effect.node, error.code, str(error))
            return
        except Exception as error:  # noqa: BLE001 - whatever stops a node, its pool must hear of it
            logger.error("node %s did not boot: %s", effect.node, error)
            self._report(reports.node_failed, effect.node, str(error))
            return
        address = up.address or spec.address
        logger.info("node %s of pool %s is up at %s (%s)", effect.node, book.record.id, address, up.isolation)
        self._report(reports.node_up, effect.node, up)

    async def _take(self, seconds: float) -> None:
        """Let a step last as long as the account's pace says."""
        if seconds:
            await self.alarms.sleep(seconds)

    def _lost(self, node_id: str) -> None:
        logger.warning("node %s died", node_id)
        self._report(reports.node_lost, node_id)

    async def _start(self, effect: scheduler.RunStartTask) -> None:
        book = self.world.pools[effect.pool]
        node = book.nodes[effect.node]
        boot = node.boots
        try:
            if struck := self._struck("start-task-fails", effect.node):
                outcome = Exit(struck.exit_code)
            else:
                outcome = await self._attempt(effect.node, task_environment.start_run(self.world, book, node))
        except NodeLost:
            return  # `lost` says so
        if (outcome.code, outcome.failure) != (0, None):
            logger.warning("start task failed on %s: %s", effect.node, _words(outcome))
        self._report(reports.start_task_ended, effect.node, boot, outcome)

    async def _shutdown(self, effect: scheduler.ShutdownNode) -> None:
        await self.machine.shutdown(effect.node)
        self._report(reports.node_down, effect.node)

    async def _wipe(self, effect: scheduler.WipeNode) -> None:
        """Shut down, and nothing of its directory is left."""
        await self.machine.remove(effect.node)
        self._report(reports.node_wiped, effect.node)

    async def _send_logs(self, wanted: LogUpload) -> None:
        try:
            await self.machine.send_logs(*wanted)
        except Exception as error:  # noqa: BLE001 - nobody waits for it: whatever the reason, the log has it
            logger.error("the logs of node %s were not uploaded: %s", wanted.node, error)

    async def _remove(self, effect: scheduler.RemoveNode) -> None:
        await self._take(self.world.pace.removal)
        await self.machine.remove(effect.node)
        self._report(reports.node_removed, effect.node)

    async def _forget_pool(self, _: scheduler.ForgetPool) -> None:
        await self._sweep_machine()

    async def _sweep_machine(self) -> None:
        """Whatever no record knows goes: of a pool that is gone, and what a killed emulator did not come to remove."""
        books = self.world.pools.values()
        await self.machine.sweep({book.record.id: frozenset(book.nodes) for book in books})

    async def _coordinate(self, effect: scheduler.RunCoordination) -> None:
        task, number = effect.task, effect.instance
        if _over(task, effect.run, number, "coordinating"):
            return
        run = task_environment.coordination_run(self.world, self.world.job_of[task.job], task, number)
        outcome = await self._follow(task, effect.run, number, run)
        if outcome is not None:
            self._report(reports.coordination_ended, task, effect.run, number, outcome)

    async def _run(self, effect: scheduler.RunApplication) -> None:
        task = effect.task
        if _over(task, effect.run, 0, "running"):
            return
        run = task_environment.application_run(self.world, self.world.job_of[task.job], task)
        outcome = await self._follow(task, effect.run, 0, run)
        if outcome is not None:
            self._report(reports.application_ended, task, effect.run, outcome)

    async def _follow(self, task: Task, run: int, number: int, command: Run) -> Exit | None:
        try:
            return await self._attempt(task.instances[number].node, command)
        except NodeLost:
            self._report(reports.run_lost, task, run, number)
            return None

    async def _attempt(self, node_id: str, command: Run) -> Exit:
        """Run a command; a machine that cannot even try is the command's failure, never a task that hangs."""
        if struck := self._struck("node-slow", node_id):
            await self.alarms.sleep(struck.seconds)
        try:
            return await self.machine.run(node_id, command)
        except NodeLost:
            raise
        except Exception as error:
            logger.exception("could not run %s on %s", command.scope, node_id)
            return Exit(None, "CommandLaunchFailed", f"The command could not be launched: {error}", "ServerError")

    async def _end(self, effect: scheduler.EndScope) -> None:
        task, number = effect.task, effect.instance
        if _over(task, effect.run, number, "ending"):
            return
        node = task.instances[number].node
        await self.machine.end(node, task_environment.scope(task, effect.run, number), GRACE)
        self._report(reports.scope_ended, task, effect.run, number)

    async def _run_on_node(self, effect: scheduler.RunOnNode) -> None:
        """A job's preparation or release task."""
        place, kind = effect.place, effect.kind
        number, job = job_preparation.run_of(place, kind).run, self.world.job_of.get(place.job)
        if job is None or place.id not in self.world.pool_of_node:
            return
        try:
            outcome = await self._attempt(place.id, task_environment.node_run(self.world, job, place, kind))
        except NodeLost:
            self._report(job_preparation.lost, place, kind, number)
            return
        if (outcome.code, outcome.failure) != (0, None):
            logger.warning("%s task of job %s failed on %s: %s", kind, job.record.id, place.id, _words(outcome))
        self._report(job_preparation.ended, place, kind, number, outcome)

    async def _end_on_node(self, effect: scheduler.EndOnNode) -> None:
        place, kind, run = effect
        await self.machine.end(place.id, task_environment.node_scope(place, kind, run), GRACE)
        self._report(job_preparation.scope_ended, place, kind, run)

    # Faults on request ---------------------------------------------------------------------------------------------

    def _struck(self, kind: str, node_id: str) -> Injection | None:
        book = self.world.pool_of_node.get(node_id)
        place = f"pools/{book.record.id}/nodes/{node_id}" if book else ""
        return self.world.injections.strike((kind,), place)

    async def befall(self, node_id: str, act: str, seconds: float | None = None) -> None:
        """A node dies (`lose`, it boots again), is taken away (`preempt`, it comes back after `seconds`, or never) or
        breaks (`break`, it stays unusable); what ran there is requeued."""
        self._report(reports.node_struck, node_id, act, seconds)
        await self.machine.shutdown(node_id)
        self._report(reports.node_down, node_id)

    # Time ----------------------------------------------------------------------------------------------------------

    def turned(self) -> None:
        """The clock was turned: it is written down, and what is due by it now is looked at."""
        self.store.note("clock", json.dumps(self.clock.reading))
        self.alarms.look()
        self.settle_soon()

    async def advance(self, ticks: int, patience: float) -> None:
        """Advance the account's clock by a duration, from event to event.

        After each, what follows from it is waited for: up to `patience` seconds where commands really run.
        """
        goal = self.clock() + ticks
        while True:
            await self.quiet(patience)
            moments = [at for at in (self.world.next_deadline(), self.alarms.next) if at is not None]
            at = min([goal, *moments])
            self.clock.advance(max(at - self.clock(), 0))
            self.turned()
            if at == goal:
                await self.quiet(patience)
                return

    async def quiet(self, patience: float) -> None:
        """Until nothing happens but what waits for the clock, or `patience` seconds are over."""
        end = asyncio.get_running_loop().time() + patience
        while (self._settling or len(self._running) > self.alarms.waiting) and not self._stopped:
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return
            self._moved.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._moved.wait(), left)

    # Ending --------------------------------------------------------------------------------------------------------

    async def reset(self) -> None:
        """Delete every node, job and pool, forget the faults, and let the clock be the machine's again."""
        nodes = [node.id for book in self.world.pools.values() for node in book.nodes.values()]
        self.world.forget_all()
        self.world.injections.clear()
        self._begun = []
        self.store.clear()
        self.clock.reset()
        self.turned()
        await self._abandon()
        await _all(self.machine.remove(node) for node in nodes)
        await self._sweep_machine()
        self.commit()

    async def stop(self) -> None:
        """Shut every node down; what runs is requeued at the next start."""
        self._stopped = True
        for timer in (self._timer, self._giving_back):
            if timer is not None:
                timer.cancel()
        await self._abandon()
        try:
            self.store.note("clock", json.dumps(self.clock.reading))
        except sqlite3.Error as error:  # its disk is full, or gone: the nodes must end all the same
            logger.error("the clock's reading is not stored: %s", error)
        self.alarms.close()
        await self.machine.close()
        self.store.close()

    async def _abandon(self) -> None:
        """No caller waits any longer for what the machine is doing."""
        for task in tuple(self._running):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await _all(tuple(self._running))


def _over(task: Task, run: int, number: int, phase: str) -> bool:
    """Whether the world went on before the machine could act."""
    return run != task.run or len(task.instances) <= number or task.instances[number].phase != phase


async def _all(waits: Any) -> None:
    waiting: list[Awaitable[Any]] = list(waits)
    if waiting:
        await asyncio.gather(*waiting, return_exceptions=True)


def _move_away(root: str, directory: str) -> str:
    """Where a directory of a node went; empty when it is not there."""
    away = f"volatile/trash-{os.urandom(8).hex()}"
    try:
        Below(root).rename(directory, away)
    except FileNotFoundError:
        return ""
    except OSError as error:
        logger.warning("could not move %s of %s away: %s", directory, root, error)
        return directory
    return away


def _delete_all(moved: list[tuple[str, str]]) -> None:
    for root, path in moved:
        _delete(root, path)


def _delete(root: str, path: str) -> None:
    try:
        Below(root).remove(path)
    except FileNotFoundError:
        pass  # its node is gone
    except OSError as error:
        logger.warning("could not delete %s of %s: %s", path, root, error)


def _words(outcome: Exit) -> str:
    return f"exit code {outcome.code}" if outcome.failure is None else f"{outcome.failure}: {outcome.message}"
