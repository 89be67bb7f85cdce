"""What a client does with the pools of an account."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from batchtrain.client import logins, placement
from batchtrain.client.identities import refuse_identities
from batchtrain.client.planning import Foreseen, pool_id_of
from batchtrain.client.session import Session
from batchtrain.client.shown_progress import SHOW, Tell, displayed
from batchtrain.config.candidates import Candidate, ordered
from batchtrain.config.login_ports import SSH_PORT
from batchtrain.config.types import Recipe
from batchtrain.diagnosis import diagnose
from batchtrain.diagnosis.finding import Diagnosis
from batchtrain.errors import (
    BatchtrainError,
    Differs,
    NotAllowed,
    NotFound,
    PlanError,
    ServiceError,
    Unreachable,
    UsageError,
    nodes_called,
)
from batchtrain.life import pools as rules
from batchtrain.life.pools import PoolRule, SeenNodes
from batchtrain.life.rules import Reason, refused
from batchtrain.plan import diff, plan_pool
from batchtrain.plan.idling import enabling, idles
from batchtrain.plan.marks import MAX_PRICE, marks_of, values_of
from batchtrain.plan.step import Step
from batchtrain.plan.types import Plan
from batchtrain.records import Node, Pool, Table
from batchtrain.records.events import NodeLogin, NodeReady, NodeRebooted, NodeUserAdded, PoolResized, PoolReused
from batchtrain.records.record import minute
from batchtrain.runs.recording import QUIET, Progress
from batchtrain.runs.task_files import FileRow, GotRow, get_node_files, node_files
from batchtrain.service import deletion, read, submit, watch
from batchtrain.service.deadlines import GONE_SECONDS, POOL_SECONDS
from batchtrain.service.meant_version import of_time, replaced
from batchtrain.service.register import Register, Thing

NAMED_NODES = 8
"""The number of nodes of a ready pool to name; the others are counted."""


class Pools:
    """The pools of an account."""

    def __init__(self, client: Session) -> None:
        self._client = client

    @displayed("interrupted; what was created stays: `client.pools.delete(id)` deletes it")
    def add(
        self,
        recipe: Recipe,
        *,
        wait: bool = True,
        timeout: float = POOL_SECONDS,
        tell: Tell = SHOW,
        foreseen: Foreseen | None = None,
        register: Register | None = None,
        patience: float | None = None,
        on_move: Callable[[Any], None] = lambda _: None,
    ) -> Pool:
        """Create the pool of the recipe and wait until its nodes are ready; then create the login of its `ssh` or
        `rdp`. Of its `candidates`, the first one that has its nodes.

        The jobs of the recipe are planned first: what can never work is refused before anything is created. Without
        waiting the pool has no nodes yet: `log_in` creates the login later. Raises AlreadyExists, QuotaReached,
        ServiceError (a failed start task with its last lines), TimedOut, and UsageError, before anything is created,
        for managed identities that cannot be set. patience: seconds to allocate all nodes. on_move: receives the client
        of each candidate before it is tried.
        """
        recipe = self._client.recipe_here(recipe, tell if register is None else None)
        tell = tell or SHOW
        if recipe.pool is not None and recipe.pool.candidates is not None:
            return self._add_first(recipe, wait=wait, timeout=timeout, tell=tell, register=register, on_move=on_move)
        if not recipe.needs_pool:
            raise PlanError(f"each job of {recipe.directory} creates its own pool (`auto_pool`); add the jobs")
        todo = (foreseen or self._client.foresee(recipe, listed=False)).pool
        if any(step.action == "pool.identity" for step in todo.steps):
            refuse_identities(recipe, self._client.account)
        pool_id, logins = pool_id_of(recipe), _logins(todo)
        steps = tuple(step for step in todo.steps if step not in logins)
        self._client.carry_out(todo._replace(steps=steps), recipe, tell, register=register)
        if wait:
            self._ready(pool_id, timeout, tell, recipe, read.LONG_AGO, patience)
            self._log_in(logins, recipe, tell)
        return self.get(pool_id)

    def _add_first(
        self,
        recipe: Recipe,
        *,
        wait: bool,
        timeout: float,
        tell: watch.Tell,
        register: Register | None,
        on_move: Callable[[Any], None],
    ) -> Pool:
        """Create the pool from the first of its candidates that has the nodes."""
        if not wait:
            raise UsageError("`candidates` of a pool are tried while its nodes are awaited; wait for them")
        register, patience = register or self._client.register(recipe), placement.patience_of(recipe)

        def create(session: Session, candidate: Candidate) -> Pool:
            on_move(session)
            return Pools(session).add(
                candidate.recipe, timeout=timeout, tell=tell, register=register, patience=patience
            )

        options = ordered(recipe, self._client.account.region or "")
        search = placement.Placement(self._client, options, create, register, tell)
        search.find()
        assert search.pool is not None
        return search.pool

    def ready(
        self,
        recipe: Recipe,
        *,
        foreseen: Foreseen,
        register: Register,
        timeout: float = POOL_SECONDS,
        tell: Tell = SHOW,
        patience: float | None = None,
    ) -> Pool:
        """The pool of the recipe with ready nodes: created if it does not exist, used if it matches the plan.

        The number of its nodes is not compared. Raises Differs if the pool differs from the plan, and the errors of
        `add`.
        """
        pool_id, tell = pool_id_of(recipe), tell or SHOW
        standing = read.pool_or_none(self._client.batch, pool_id, f"{read.POOL},metadata")
        if standing is not None and standing.state == "deleting":
            self.gone(pool_id, tell=tell)
            standing = None
        if standing is None:
            return self.add(recipe, timeout=timeout, tell=tell, foreseen=foreseen, register=register, patience=patience)
        self._refuse_other(standing, foreseen, idles=idles(recipe))
        is_shared = bool(marks_of(standing.metadata).ends_with)
        register.note(Thing("pool", pool_id), "shared" if is_shared else "existing")
        end = "; it ends with its last user, because it was added by a run without --reuse" if is_shared else ""
        tell(PoolReused(pool_id, f"pool {pool_id} exists, matches the plan, and is used{end}"))
        if idles(recipe) and (standing.autoscale or not is_shared):
            self._let_idle(standing, recipe, foreseen, tell)
        self._ready(pool_id, timeout, tell, recipe, self._requested_again(standing, tell))
        return self.get(pool_id)

    def _requested_again(self, standing: Pool, tell: watch.Tell) -> datetime | None:
        """Request the nodes again that an earlier resize did not get; returns when that ended, None if nothing was
        requested."""
        if not standing.refusal or standing.autoscale:
            return None
        ended = f" at {minute(standing.allocation_since)}" if standing.allocation_since else ""
        text = (
            f"pool {standing.id} has {standing.nodes} of {standing.target} nodes, because its last resize ended{ended}"
            f" with {standing.refusal.code}; the nodes are requested again"
        )
        tell(PoolResized(standing.id, text))
        try:
            submit.request_again(self._client.batch, standing)
        except ServiceError as error:
            if error.code != "PoolBeingResized":  # by another run
                raise
        return standing.allocation_since or read.LONG_AGO

    def _let_idle(self, standing: Pool, recipe: Recipe, foreseen: Foreseen, tell: watch.Tell) -> None:
        """Give a pool that has a formula that of the plan, which may be of another time or number of nodes; a pool of a
        fixed size keeps its nodes."""
        if not standing.autoscale:
            tell(PoolReused(standing.id, f"pool {standing.id} has no idle timeout, so it keeps its nodes"))
            return
        living = read.living(self._client.batch, diff.wanted(foreseen.pool))
        if any(diff.has_other_formula(step) for step in diff.compare(foreseen.pool, living) if step.kind == "pool"):
            tell(submit.scale_pool(self._client.batch, enabling(foreseen.pool), of_time(standing.created)))
        if not standing.nodes:
            text = f"pool {standing.id} has no nodes now; the next task brings them back, within about 10 minutes"
            tell(PoolReused(standing.id, text))

    def _refuse_other(self, standing: Pool, foreseen: Foreseen, *, idles: bool) -> None:
        pool_id, living = standing.id, read.living(self._client.batch, diff.wanted(foreseen.pool))
        steps = [step for step in diff.compare(foreseen.pool, living) if step.kind == "pool"]
        compared = [diff.but_for_counts(step, formula=not idles) for step in steps]
        if any(step.state == "differs" for step in compared):
            raise Differs(
                f"pool {pool_id} exists and differs from the plan:\n{diff.as_text(compared)}\n"
                f"To create it as planned, delete it with `batchtrain pool del {pool_id}` and run again."
            )
        planned = foreseen.facts.pool
        if planned is not None and not standing.autoscale and standing.target == 0:
            count = f"--dedicated {planned.dedicated} --spot {planned.low_priority}"
            raise PlanError(f"pool {pool_id} has no nodes; `batchtrain pool resize {pool_id} {count}` gives it some")

    def log_in(self, recipe: Recipe, *, tell: Tell = SHOW) -> None:
        """Create or update the login of `ssh` or `rdp` on every current node."""
        steps = _logins(plan_pool(recipe))
        if not steps:
            raise UsageError(f"{recipe.directory} has no login; add `ssh` with a `username` to pool.yaml")
        self._log_in(steps, recipe, tell or SHOW)

    def _log_in(self, steps: tuple[Step, ...], recipe: Recipe, tell: watch.Tell) -> None:
        """Create the logins, and tell how to reach each node that is reachable from outside."""
        pool = recipe.pool
        if steps and self._client.account.emulated:
            tell(NodeUserAdded(pool_id_of(recipe), "no login is created: the nodes of the emulator are this machine"))
        elif steps:
            self._client.carry_out(Plan(steps), recipe, tell)
            if pool is None or pool.ssh is None:
                return
            key = logins.key_of(recipe)
            for endpoint in read.endpoints(self._client.batch, pool.id, SSH_PORT):
                command = shlex.join(logins.words(pool.ssh.username, key, endpoint))
                tell(NodeLogin(endpoint.node, f"{command}  # node {endpoint.node}"))

    @displayed("interrupted; the pool stays, and its nodes still start")
    def wait(
        self, pool_id: str, *, timeout: float = POOL_SECONDS, tell: Tell = SHOW, recipe: Recipe | None = None
    ) -> Table[Node]:
        """Wait until the nodes of a pool are ready; with its recipe, unusable nodes are rebooted as configured."""
        return self._ready(pool_id, timeout, tell or SHOW, recipe)

    def _ready(
        self,
        pool_id: str,
        timeout: float,
        tell: watch.Tell,
        recipe: Recipe | None,
        before: datetime | None = None,
        patience: float | None = None,
    ) -> Table[Node]:
        """The same after a resize was requested. before: the end of the resize before it. patience: as for `add`."""
        batch = self._client.batch
        reboots = watch.Reboots(batch, _mended(recipe), lambda text: tell(NodeRebooted(pool_id, text)))
        try:
            nodes = watch.pool_ready(batch, pool_id, timeout, self._client.pace, tell, reboots.mend, before, patience)
        except ServiceError as error:
            if not isinstance(error, (NotFound, NotAllowed, Unreachable)):
                with contextlib.suppress(BatchtrainError):  # the failure itself matters more
                    error.finding = self.diagnose(pool_id).first
            raise
        for number, node in enumerate(nodes[:NAMED_NODES], 1):
            tell(NodeReady(node.id, f"node {node.id} is ready ({number} of {len(nodes)})"))
        if len(nodes) > NAMED_NODES:
            tell(NodeReady(pool_id, f"and {len(nodes) - NAMED_NODES} more nodes are ready"))
        return Table(nodes)

    def get(self, pool_id: str) -> Pool:
        """One pool. Raises NotFound."""
        return read.pool(self._client.batch, pool_id)

    def reason_to_wait(self, pool: Pool, nodes: Iterable[Node]) -> PoolRule | None:
        """Why the nodes of a pool do not take tasks yet; None if all do."""
        return rules.decide(SeenNodes(pool, tuple(nodes), pool.refusal))

    def refused(self, pool: Pool) -> Reason | None:
        """Why the last resize of a pool ended without all of its nodes, and what to do; None if it did not."""
        return refused(pool, read.holders(self._client.batch, pool)) if pool.refusal else None

    def stands(self, pool_id: str) -> bool:
        """Whether the pool exists."""
        return read.pool_or_none(self._client.batch, pool_id) is not None

    def list(self) -> Table[Pool]:
        """All pools."""
        return Table(read.pools(self._client.batch))

    def nodes(self, pool_id: str) -> Table[Node]:
        """A pool's nodes."""
        return Table(read.nodes(self._client.batch, pool_id))

    def files(self, pool_id: str, node: str) -> Table[FileRow]:
        """The files of a node, by its id or its short id. Raises NotFound."""
        return node_files(self._client.files, pool_id, self._node(pool_id, node))

    def get_files(
        self, pool_id: str, node: str, *patterns: str, directory: str | Path = ".", progress: Progress = QUIET
    ) -> Table[GotRow]:
        """Fetch the files of a node that the patterns mean to a directory."""
        node_id = self._node(pool_id, node)
        return get_node_files(self._client.files, pool_id, node_id, patterns, Path(directory), progress)

    def ssh(self, pool_id: str, node: str, command: str = "", *, recipe: Recipe | None = None) -> int:
        """Run a shell command on a node, or a shell, with the stdin and stdout of this process; returns its exit code.

        recipe: the files with the login of the pool (`ssh`), which a node of Azure needs. Raises NotFound, UsageError.
        """
        return logins.run(self._login(pool_id, node, recipe), command)

    def forward(
        self,
        pool_id: str,
        node: str,
        port: int,
        *,
        local_port: int | None = None,
        recipe: Recipe | None = None,
        ready: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Forward a port of 127.0.0.1 (by default the same number; 0: a free one) to a port of a node until Ctrl-C.

        ready: receives the port of this machine.
        """
        logins.forward(self._login(pool_id, node, recipe), port, port if local_port is None else local_port, ready)

    def _login(self, pool_id: str, node: str, recipe: Recipe | None) -> logins.Login:
        client = self._client
        return logins.login(client.account, client.batch, pool_id, self._node(pool_id, node), recipe)

    def _node(self, pool_id: str, name: str) -> str:
        return self.node_ids(pool_id, (name,))[0]

    def node_ids(self, pool_id: str, names: Iterable[str], *, by_number: bool = True) -> tuple[str, ...]:
        """The ids of nodes of a pool, by any name that a view shows (`nodes_called`). Raises NotFound.

        by_number: whether their number in the list of the pool names them too, which changes with a lost node."""
        ids, all_ids = [], [node.id for node in self.nodes(pool_id)]
        for name in names:
            matching = nodes_called(name, all_ids, by_number=by_number)
            if len(matching) != 1:
                what = f"{len(matching)} nodes" if matching else "no node"
                raise NotFound(f"pool {pool_id} has {what} `{name}`; `batchtrain pool show {pool_id}` lists its nodes")
            ids += matching
        return tuple(ids)

    def diagnose(self, pool_id: str) -> Diagnosis:
        """Why the pool has no usable nodes. Raises NotFound. Changes nothing."""
        return diagnose.pool(self._client.batch, pool_id)

    @displayed("interrupted; the resize continues")
    def resize(
        self,
        pool_id: str,
        *,
        dedicated: int | None = None,
        spot: int | None = None,
        leaving: str = "requeue",
        wait: bool = True,
        timeout: float = POOL_SECONDS,
        tell: Tell = SHOW,
        recipe: Recipe | None = None,
        created: datetime | None = None,
    ) -> Pool:
        """Change the number of nodes of a pool and wait until all are ready; None keeps the number of a kind.

        leaving: what happens to the tasks of removed nodes (`requeue`, `terminate`, `taskcompletion`). recipe: the
        recipe of the pool, which decides whether new nodes get a login (`ssh`, `rdp`) and whether unusable nodes are
        rebooted. created: when the pool that is meant was created; a pool that replaced it is left alone.
        """
        if dedicated is None and spot is None:
            raise UsageError("give the number of nodes: dedicated, spot or both")
        pool = self._resizable(pool_id, dedicated or 0, spot or 0)
        if created not in (None, pool.created):
            raise replaced(Thing("pool", pool_id), "resize")
        submit.resize_pool(self._client.batch, pool_id, dedicated, spot, leaving, pool.created)
        if wait:
            self._ready(pool_id, timeout, tell or SHOW, recipe, pool.allocation_since or read.LONG_AGO)
            if recipe is not None:
                self._log_in(_logins(plan_pool(recipe)), recipe, tell or SHOW)
        return self.get(pool_id)

    def _resizable(self, pool_id: str, dedicated: int, spot: int) -> Pool:
        """The pool before a resize. Raises UsageError if a formula sets its nodes, and for more nodes where the wall
        clock of a job keeps a limit of the price."""
        pool = read.pool(self._client.batch, pool_id, f"{read.POOL},metadata")
        if pool.autoscale:
            raise UsageError(
                f"the autoscale formula of pool {pool_id} sets its number of nodes; change `autoscale` in pool.yaml and"
                f" create the pool again, or disable the formula: `az batch pool autoscale disable --pool-id {pool_id}`"
            )
        limit = values_of(pool.metadata).get(MAX_PRICE)
        if limit is not None and (dedicated > pool.target_dedicated or spot > pool.target_spot):
            run = marks_of(pool.metadata).run
            raise UsageError(
                f"run {run} may cost at most {limit}, and its job ends when all nodes of its plan have"
                f" cost that; more nodes would cost more. `batchtrain runs stop {run}` ends it; run it again with more"
                " nodes"
            )
        return pool

    def reboot(self, pool_id: str, node_ids: Iterable[str]) -> None:
        """Reboot nodes: their tasks are requeued and their start task runs again. Does not wait."""
        created = self.get(pool_id).created
        for node_id in node_ids:
            submit.reboot_node(self._client.batch, pool_id, node_id, created)

    @displayed("interrupted; the deletion continues", quiet=True)
    def delete(self, pool_id: str, *, wait: bool = True, timeout: float = GONE_SECONDS, tell: Tell = SHOW) -> None:
        """Delete a pool with its nodes. Raises NotFound."""
        deletion.request_named(self._client.batch, Thing("pool", pool_id), tell, seconds=timeout)
        if wait:
            self.gone(pool_id, timeout=timeout, tell=tell)

    @displayed("interrupted; the deletion continues", quiet=True)
    def gone(self, pool_id: str, *, timeout: float = GONE_SECONDS, tell: Tell = SHOW) -> None:
        """Wait until the deletion of a pool has finished."""
        deletion.gone(self._client.batch, Thing("pool", pool_id), self._client.pace, tell, timeout)


def _mended(recipe: Recipe | None) -> frozenset[str]:
    """The node states in which the pool file requests a reboot."""
    pool = recipe.pool if recipe else None
    if pool is None:
        return frozenset()
    reboots = {"starttaskfailed": pool.reboot_on_start_task_failed, "unusable": pool.attempt_recovery_on_unusable}
    return frozenset(state for state, wanted in reboots.items() if wanted)


def _logins(todo: Plan) -> tuple[Step, ...]:
    """The steps that create logins on nodes; nodes added later need them again."""
    return tuple(step for step in todo.steps if step.action == "node.user")
