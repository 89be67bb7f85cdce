"""Carries out what is due.

Only this module connects the world, its store and the machine. One event loop runs everything, so there are no locks: a
change is recorded and stored, then the machine acts, and its report is the next change.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from typing import Any, TypeVar

from batchtrain.emulator import endings, job_preparation, node_reports, recovery, reports, scheduler, task_environment
from batchtrain.emulator.alarms import Alarms
from batchtrain.emulator.blob_store import BlobStore
from batchtrain.emulator.injection import Injection
from batchtrain.emulator.interface import NO_WINDOWS, Exit, Machine, NodeLost, NodeUnfit, Run
from batchtrain.emulator.machine.rooted_path import RootedPath
from batchtrain.emulator.machine.threads import in_daemon_thread
from batchtrain.emulator.store import Store
from batchtrain.emulator.world import LogUpload, World

logger = logging.getLogger("batchtrain.emulator")

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL for processes that a task left running."""
GIVE_BACK_AFTER, GIVE_BACK_AGAIN = 1.0, 0.05
"""Seconds after a commit that deleted something, and between the steps that shrink the file."""
STORE_AGAIN = 1.0
"""Seconds until a failed commit (full disk, locked file) is tried again."""

T = TypeVar("T")


class Driver:
    """Runs an emulated account."""

    def __init__(
        self, world: World, store: Store, machine: Machine, alarms: Alarms, blob_store: BlobStore | None = None
    ) -> None:
        self.blob_store = blob_store
        world.shelf.archive = store
        self.world, self.store, self.machine, self.alarms, self.clock = world, store, machine, alarms, alarms.clock
        self._acts: dict[type, Callable[[Any], Coroutine[Any, Any, None]]] = {
            scheduler.BootNode: self._boot,
            scheduler.RunStartTask: self._start,
            scheduler.ShutdownNode: self._shutdown,
            scheduler.WipeNode: self._wipe,
            scheduler.RemoveNode: self._remove,
            scheduler.ForgetPool: lambda _: self._sweep_machine(),
            scheduler.RunCoordination: self._coordinate,
            scheduler.RunApplication: self._run,
            scheduler.EndScope: self._end,
            scheduler.RunOnNode: self._run_on_node,
            scheduler.EndOnNode: self._end_on_node,
        }
        self._begun: list[scheduler.Effect] = []
        """Changes that are recorded but not stored yet; the machine must not act on them before."""
        self._unstored = False
        self._running: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._giving_back: asyncio.TimerHandle | None = None
        self._moved = asyncio.Event()
        """Set after every action; those that wait for quiet then check again."""
        alarms.notify = self._moved.set
        self._settling = False
        self._stopped = False

    def recover(self) -> None:
        """Restore the state that an earlier process left."""
        for kind, owner, key, _ in self.world.restore(self.store.load()):
            logger.error("stored %s %s of %s belongs to nothing: passed over", kind, key, owner)
        self.world.last_seq = max(self.world.last_seq, self.store.last_seq())
        recovery.recover(self.world, self.clock())
        self._spawn(self._sweep_machine())
        self._sweep_blob_store()
        self.commit()
        self.settle_soon()

    def change(self, operation: Callable[[], T]) -> T:
        """Run a client's operation. Its changes are stored before it returns."""
        try:
            return operation()
        finally:
            self.settle_soon()  # first: a failed commit is tried again there
            self.commit()

    def commit(self) -> None:
        """Store the changes. Changes that the database refused go with the next commit. Raises sqlite3.Error."""
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
        """Shrink the database's file step by step between requests."""
        self._giving_back = None
        self._sweep_blob_store()
        try:
            more = self.store.give_back()
        except sqlite3.Error as error:  # full disk or locked file: the next deletion tries again
            logger.warning("the database gives no space back: %s", error)
            return
        if more:
            self._giving_back = asyncio.get_running_loop().call_later(GIVE_BACK_AGAIN, self._give_back)

    def _sweep_blob_store(self) -> None:
        if self.blob_store is not None:
            self.blob_store.sweep(self.named)

    @property
    def named(self) -> frozenset[str]:
        """The ids of all jobs and job schedules, in lower case."""
        return frozenset((*self.world.jobs, *self.world.schedules))

    def settle_soon(self) -> None:
        """Check what is due after the present answer is sent: clients must see the transition, not only its result."""
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
                all_begun = self._begin(effects)
                self._carry_out()
                if not all_begun:
                    break  # what could not start may be due again at once
            self.world.rest()
        except sqlite3.Error as error:
            logger.error("what changed is not stored yet: %s; it is tried again in %g s", error, STORE_AGAIN)
        except Exception:  # the outermost handler of all work that is not a request
            logger.exception("internal error")
        self._set_timer()
        self._moved.set()

    def _begin(self, effects: tuple[scheduler.Effect, ...]) -> bool:
        """Record the effects. Returns False if one failed; the others are still recorded."""
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
        """Store the started work, then let the machine act. Raises sqlite3.Error; then all of it stays to do."""
        self.commit()
        # Deleted directories are renamed at once, because a new task may get the same name, and deleted later.
        rubbish, self.world.rubbish = self.world.rubbish, []
        if rubbish_paths := [(root, away) for root, directory in rubbish if (away := _move_away(root, directory))]:
            self._spawn(in_daemon_thread(lambda: _delete_all(rubbish_paths)))
        log_uploads, self.world.log_uploads = self.world.log_uploads, []
        for log in log_uploads:
            self._spawn(self._send_logs(log))
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
        # An event loop's own clock may not handle days; one check per hour is cheap.
        delays = [3600.0]
        if (at := self.world.next_deadline()) is not None:
            waiting = self.clock.seconds_to(at)
            delays += [] if waiting is None else [waiting]
        if self._unstored:
            delays = [STORE_AGAIN]
        if at is not None or self._unstored:
            self._timer = asyncio.get_running_loop().call_later(min(delays), self._settle)

    # The machine's part --------------------------------------------------------------------------------------------

    def _report(self, report: Callable[..., None], *arguments: Any) -> None:
        """Record the machine's reports; reports of the same moment are stored together."""
        if self._stopped:
            return
        try:
            report(self.world, *arguments, self.clock())
        finally:
            self.settle_soon()

    async def _boot(self, effect: scheduler.BootNode) -> None:
        entry = self.world.pools[effect.pool]
        try:
            spec = task_environment.node_spec(self.world, entry, entry.nodes[effect.node])
            if self._struck("boot-fails", effect.node):
                raise OSError("a fault was asked for (boot-fails)")
            await self._take(self.world.pace.boot_of(effect.node))
            up = await self.machine.boot(spec, self._lost)
        except NodeUnfit as error:
            logger.error("node %s is unusable: %s", effect.node, error)
            self._report(node_reports.node_unfit, effect.node, error.code, str(error))
            return
        except Exception as error:  # noqa: BLE001 - the pool must get a report, whatever the reason
            logger.error("node %s did not boot: %s", effect.node, error)
            self._report(node_reports.node_failed, effect.node, str(error))
            return
        address = up.address or spec.address
        logger.info("node %s of pool %s is up at %s (%s)", effect.node, entry.record.id, address, up.isolation)
        if entry.windows and not entry.simulated and effect.node == next(iter(entry.nodes)):  # once for the pool
            logger.warning("pool %s: %s", entry.record.id, NO_WINDOWS)
        self._report(node_reports.node_up, effect.node, up)

    async def _take(self, seconds: float) -> None:
        """Delay a step as the account's pace requires."""
        if seconds:
            await self.alarms.sleep(seconds)

    def _lost(self, node_id: str) -> None:
        logger.warning("node %s died", node_id)
        self._report(node_reports.node_lost, node_id)

    async def _start(self, effect: scheduler.RunStartTask) -> None:
        entry = self.world.pools[effect.pool]
        node = entry.nodes[effect.node]
        boot = node.boots
        try:
            if struck := self._struck("start-task-fails", effect.node):
                outcome = Exit(struck.exit_code)
            else:
                outcome = await self._attempt(effect.node, task_environment.start_run(self.world, entry, node))
        except NodeLost:
            return  # reported by `lost`
        if (outcome.code, outcome.failure) != (0, None):
            logger.warning("start task failed on %s: %s", effect.node, _words(outcome))
        self._report(node_reports.start_task_ended, effect.node, boot, outcome)

    async def _shutdown(self, effect: scheduler.ShutdownNode) -> None:
        await self.machine.shutdown(effect.node)
        self._report(node_reports.node_down, effect.node)

    async def _wipe(self, effect: scheduler.WipeNode) -> None:
        """The node is shut down and its directory is deleted."""
        await self.machine.remove(effect.node)
        self._report(node_reports.node_wiped, effect.node)

    async def _send_logs(self, log_upload: LogUpload) -> None:
        try:
            await self.machine.send_logs(*log_upload)
        except Exception as error:  # noqa: BLE001 - no caller waits for the result: the log gets every reason
            logger.error("the logs of node %s were not uploaded: %s", log_upload.node, error)

    async def _remove(self, effect: scheduler.RemoveNode) -> None:
        await self._take(self.world.pace.removal)
        await self.machine.remove(effect.node)
        self._report(node_reports.node_removed, effect.node)

    async def _sweep_machine(self) -> None:
        """Delete everything without a record: nodes of deleted pools, and what a killed emulator could not delete."""
        entries = self.world.pools.values()
        await self.machine.sweep({entry.record.id: frozenset(entry.nodes) for entry in entries})

    async def _coordinate(self, effect: scheduler.RunCoordination) -> None:
        task, number = effect.task, effect.instance
        if not reports.is_stale(task, effect.run, number, "coordinating"):
            command = task_environment.coordination_run(self.world, self.world.job_of[task.job], task, number)
            await self._follow(effect, command, reports.coordination_ended, number)

    async def _run(self, effect: scheduler.RunApplication) -> None:
        if not reports.is_stale(effect.task, effect.run, 0, "running"):
            job = self.world.job_of[effect.task.job]
            command = task_environment.application_run(self.world, job, effect.task)
            await self._follow(effect, command, reports.application_ended)

    async def _follow(
        self,
        effect: scheduler.RunCoordination | scheduler.RunApplication,
        command: Run,
        report: Callable[..., None],
        *arguments: int,
    ) -> None:
        try:
            outcome = await self._attempt(effect.task.instances[effect.instance].node, command)
        except NodeLost:
            self._report(reports.run_lost, effect.task, effect.run, effect.instance)
        else:
            self._report(report, effect.task, effect.run, *arguments, outcome)

    async def _attempt(self, node_id: str, command: Run) -> Exit:
        """Run a command. If the machine cannot start it, the command fails; the task never hangs."""
        if struck := self._struck("node-slow", node_id):
            node = self.world.find_node(node_id)
            boots = node.boots if node else 0
            await self.alarms.sleep(struck.seconds)
            if self.world.find_node(node_id) is not node or (node and node.boots != boots):
                raise NodeLost(node_id)  # what runs there now is another try
        try:
            return await self.machine.run(node_id, command)
        except NodeLost:
            raise
        except Exception as error:
            logger.exception("could not run %s on %s", command.scope, node_id)
            return Exit(None, "CommandLaunchFailed", f"The command could not be launched: {error}", "ServerError")

    async def _end(self, effect: scheduler.EndScope) -> None:
        task, number = effect.task, effect.instance
        if reports.is_stale(task, effect.run, number, "ending"):
            return
        node = task.instances[number].node
        await self.machine.end(node, task_environment.scope(task, effect.run, number), GRACE)
        job = self.world.job_of.get(task.job)
        if number == 0 and job is not None and endings.leaves_outputs(job, task) and self.world.find_node(node):
            await self.machine.upload(node, task_environment.application_run(self.world, job, task))
        self._report(reports.scope_ended, task, effect.run, number)

    async def _run_on_node(self, effect: scheduler.RunOnNode) -> None:
        """Run a job's preparation or release task."""
        job_node, kind = effect.job_node, effect.kind
        number, job = job_preparation.run_of(job_node, kind).run, self.world.job_of.get(job_node.job)
        if job is None or job_node.id not in self.world.pool_of_node:
            return
        try:
            outcome = await self._attempt(job_node.id, task_environment.node_run(self.world, job, job_node, kind))
        except NodeLost:
            self._report(job_preparation.lost, job_node, kind, number)
            return
        if (outcome.code, outcome.failure) != (0, None):
            logger.warning("%s task of job %s failed on %s: %s", kind, job.record.id, job_node.id, _words(outcome))
        self._report(job_preparation.ended, job_node, kind, number, outcome)

    async def _end_on_node(self, effect: scheduler.EndOnNode) -> None:
        job_node, kind, run = effect
        await self.machine.end(job_node.id, task_environment.node_scope(job_node, kind, run), GRACE)
        self._report(job_preparation.scope_ended, job_node, kind, run)

    # Faults on request ---------------------------------------------------------------------------------------------

    def _struck(self, kind: str, node_id: str) -> Injection | None:
        entry = self.world.pool_of_node.get(node_id)
        path = f"pools/{entry.record.id}/nodes/{node_id}" if entry else ""
        return self.world.injections.strike((kind,), path)

    async def befall(self, node_id: str, act: str, seconds: float | None = None) -> None:
        """Inject a fault: the node is rebooted (`lose`), is taken away (`preempt`; it returns after `seconds`, by
        default after the time of the pace) or becomes unusable (`break`). Its tasks are requeued."""
        self._report(node_reports.node_struck, node_id, act, seconds)
        await self.machine.shutdown(node_id)
        self._report(node_reports.node_down, node_id)

    async def announce(self, node_id: str, seconds: float | None, notice: float) -> None:
        """Notify the processes of a node, and preempt it after `notice` seconds. A restart drops the notice."""
        if (node := self.world.find_node(node_id)) and node.root:
            moment = formatdate(time.time() + notice, usegmt=True)
            event = {
                "EventId": node_id[-36:], "EventType": "Preempt", "ResourceType": "VirtualMachine",
                "Resources": [node_id], "EventStatus": "Scheduled", "NotBefore": moment, "Description": "",
                "EventSource": "Platform", "DurationInSeconds": -1,
            }  # fmt: skip
            RootedPath(node.root).write(EVENTS, json.dumps({"DocumentIncarnation": 1, "Events": [event]}).encode())
        self._spawn(self._preempt_later(node_id, seconds, notice))

    async def _preempt_later(self, node_id: str, seconds: float | None, notice: float) -> None:
        await self.alarms.sleep(notice)
        if (node := self.world.find_node(node_id)) and node.root:
            with contextlib.suppress(OSError):  # a task may have removed it
                RootedPath(node.root).remove(EVENTS)
            await self.befall(node_id, "preempt", seconds)

    # Time ----------------------------------------------------------------------------------------------------------

    def turned(self) -> None:
        """Store a change of the clock, and check what is due by it."""
        self.store.note("clock", json.dumps(self.clock.reading))
        self.alarms.look()
        self.settle_soon()

    async def advance(self, ticks: int, patience: float) -> None:
        """Advance the account's clock by a duration, from event to event. After each event, wait up to `patience`
        seconds for running commands."""
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

    async def quiet(self, patience: float, is_reached: Callable[[], bool] = lambda: False) -> None:
        """Wait until a state is reached or only the clock could cause a change, for up to `patience` seconds."""
        end = asyncio.get_running_loop().time() + patience
        while (self._settling or len(self._running) > self.alarms.waiting) and not (self._stopped or is_reached()):
            seconds = end - asyncio.get_running_loop().time()
            if seconds <= 0:
                return
            self._moved.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._moved.wait(), seconds)

    # Ending --------------------------------------------------------------------------------------------------------

    async def reset(self) -> None:
        """Delete every node, job and pool, remove injected faults, and return the clock to the machine's time."""
        nodes = [node.id for entry in self.world.pools.values() for node in entry.nodes.values()]
        self.world.forget_all()
        self.world.injections.clear()
        self._begun = []
        self.store.clear()
        self.clock.reset()
        self.turned()
        await self._abandon()
        await asyncio.gather(*(self.machine.remove(node) for node in nodes), return_exceptions=True)
        await self._sweep_machine()
        self.commit()

    async def stop(self) -> None:
        """Shut down every node. Running tasks are requeued at the next start."""
        self._stopped = True
        for timer in (self._timer, self._giving_back):
            if timer is not None:
                timer.cancel()
        await self._abandon()
        try:
            self.store.note("clock", json.dumps(self.clock.reading))
        except sqlite3.Error as error:  # full or missing disk: the nodes must still end
            logger.error("the clock's reading is not stored: %s", error)
        self.alarms.close()
        await self.machine.close()
        self.store.close()

    async def _abandon(self) -> None:
        """Tell all waiting callers that the machine's work is cancelled."""
        for task in tuple(self._running):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._running, return_exceptions=True)


EVENTS = "volatile/scheduledevents.json"
"""The file below a node's directory with the answer of Azure's Instance Metadata Service about scheduled events."""


def _move_away(root: str, directory: str) -> str:
    """The path that a node's directory is moved to; empty if it does not exist."""
    away = f"volatile/trash-{os.urandom(8).hex()}"
    try:
        RootedPath(root).rename(directory, away)
    except FileNotFoundError:
        return ""
    except OSError as error:
        logger.warning("could not move %s of %s away: %s", directory, root, error)
        return directory
    return away


def _delete_all(paths: list[tuple[str, str]]) -> None:
    for root, path in paths:
        _delete(root, path)


def _delete(root: str, path: str) -> None:
    try:
        RootedPath(root).remove(path)
    except FileNotFoundError:
        pass  # its node is deleted
    except OSError as error:
        logger.warning("could not delete %s of %s: %s", path, root, error)


def _words(outcome: Exit) -> str:
    return f"exit code {outcome.code}" if outcome.failure is None else f"{outcome.failure}: {outcome.message}"
