"""What is done with jobs and their tasks, as files to read. BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from batchtrain.client import jobs
from batchtrain.client.job import Job
from batchtrain.config.projects import ProjectFile
from batchtrain.config.types import Recipe
from batchtrain.runs.recording import Origin
from tests.unit.client.account import Site
from tests.unit.plan.jobs import recipe

FUTURE = datetime.now(timezone.utc) + timedelta(days=1)


def of(*commands: str, name: str = "j", **job: Any) -> Recipe:
    """A job of tasks t0, t1 and so on, in a pool of two nodes."""
    tasks = [{"id": f"t{number}", "command": command} for number, command in enumerate(commands)]
    return recipe({"id": name, "tasks": tasks, **job})


def added(site: Site, *commands: str, **job: Any) -> Job:
    """The job, with its tasks on the nodes of a new pool."""
    made = of(*commands, **job)
    site.client.pools.add(made, tell=lambda _: None)
    return site.client.jobs.add(made, tell=lambda _: None)


def states(job: Job, state: str = "") -> list[str]:
    return [f"{task.id} {task.state} {task.result or ''}".strip() for task in job.iter_tasks(state)]


def test_a_job_is_added_and_gets_the_tasks_that_it_lacks(site: Site) -> None:
    jobs, two = site.client.jobs, of("print a", "wait")
    site.step("add without a pool", jobs.add, two, tell=site.tell)
    site.client.pools.add(two, tell=lambda _: None)
    site.step("add one", jobs.add, of("print a"), tell=site.tell)
    site.step("add both", jobs.add, two, tell=site.tell)
    site.step("add both again", jobs.add, two, tell=site.tell, resume=False)
    site.step("add another task of its id", jobs.add, of("print b"), tell=site.tell)
    site.step("add two jobs at once", jobs.add, replace(two, jobs=(*two.jobs, *two.jobs)), tell=site.tell)
    site.step("state", jobs.state, "j")
    site.step("recreate", jobs.add_all, two, recreate=True, tell=site.tell)
    site.step("states", states, jobs.get("j"))
    site.step("remove", jobs.remove_all, two, tell=site.tell)
    site.step("remove again", jobs.remove_all, two, tell=site.tell)
    site.step("state, once it is gone", jobs.state, "j")
    site.step("get, once it is gone", jobs.get, "j")
    site.assert_as_written()


def test_a_task_that_never_fits_is_refused_before_it_is_added(site: Site) -> None:
    gang = recipe(task={"multi_instance": {"num_instances": 3, "coordination_command": "true"}})
    site.client.pools.add(gang, tell=lambda _: None)
    site.step("add a gang that is larger than the pool", site.client.jobs.add, gang, tell=site.tell)
    site.client.pools.resize("p", dedicated=3, tell=lambda _: None)
    site.step("add it once the pool has grown", lambda: states(site.client.jobs.add(gang, tell=site.tell)))
    site.assert_as_written()


def test_what_no_client_would_follow_is_refused_before_it_is_added(site: Site) -> None:
    replaces = recipe(pool={"on_bad_node": "replace"})
    site.client.pools.add(replaces, tell=lambda _: None)
    site.step("add jobs of a pool whose nodes a client replaces", site.client.jobs.add, replaces, tell=site.tell)
    moves = recipe(pool={"candidates": {"alternatives": [{"vm_size": "STANDARD_D2S_V5"}], "recover": True}})
    site.step("add jobs of a pool that a client moves", site.client.jobs.add, moves, tell=site.tell)
    site.assert_as_written()


def test_a_gang_fits_a_pool_that_idles_though_it_has_no_nodes(site: Site) -> None:
    gang = {"multi_instance": {"num_instances": 2, "coordination_command": "true"}, "command": "wait"}
    idle = recipe(task=gang, pool={"idle_timeout": "30m"})
    site.client.pools.add(recipe(pool={"vm_count": {"dedicated": 1}}), tell=lambda _: None)
    site.step("add to a pool of a fixed size", site.client.jobs.add, idle, tell=site.tell)
    site.client.pools.delete("p", tell=lambda _: None)
    no_nodes = recipe(pool={"autoscale": {"formula": "$TargetDedicatedNodes = 0;"}})
    site.client.pools.add(no_nodes, tell=lambda _: None)
    site.step("add to a pool with a formula", lambda: states(site.client.jobs.add(idle, tell=site.tell)))
    site.step("add as to a pool that does not idle", site.client.jobs.add, recipe(task=gang), tell=site.tell)
    site.assert_as_written()


def test_a_copied_recipe_is_said_not_to_continue_the_checkpoints_of_the_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.client.pools.add(of(), tell=lambda _: None)
    monkeypatch.setattr(jobs, "copied_from", lambda _: ProjectFile(id="a", path="/other"))
    site.step("add", site.client.jobs.add, of("print a"), tell=site.tell)
    site.assert_as_written()


def test_the_node_hours_of_a_job_are_known_though_its_pool_is_gone(site: Site) -> None:
    job = added(site, "print a")
    before = job.stats().node_hours
    site.client.pools.delete("p", tell=lambda _: None)
    assert job.stats().node_hours == before > 0


def test_the_tasks_of_a_job_are_shown_by_their_state(site: Site) -> None:
    job = added(site, "print a", "exit 3", "wait", "wait", "wait")
    for state in ("", "active", "running", "completed", "succeeded", "failed"):
        site.step(f"tasks {state}", states, job, state)
    site.step("at most 2 tasks", lambda: len([*job.iter_tasks(limit=2)]))
    site.step("the last 2 tasks", lambda: [task.id for task in job.last_tasks(2, "completed")])
    site.step("a glance", lambda: job.glance()[1:])
    site.step("a glance at one", lambda: (len(job.glance(1)[0]), job.glance(1)[1:]))
    site.step("is it open", lambda: job.open)
    site.step("its counts", lambda: job.seen.counts)
    site.step("why do its tasks wait", job.reason_to_wait)
    site.step("all jobs", lambda: [(row.id, row.state) for row in site.client.jobs.list()])
    site.step(
        "all jobs with counts", lambda: [(row.succeeded, row.failed) for row in site.client.jobs.list(counted=True)]
    )
    site.step("its numbers", lambda: job.stats().failed_by)
    site.step("the cause", lambda: [job.reason_of(task) for task in job.iter_tasks("failed")])
    site.step("the first failure", job.first_failure)
    site.step("a task that runs", lambda: str(job.failure_of(job.seen_task("t2"))))
    site.step("in a notebook", lambda: "pool p: 1 active, 2 running, 1 succeeded, 1 failed" in job._repr_html_())
    site.finish()
    site.finish()
    site.step("is it open, once they have ended", lambda: job.open)
    site.step("why do they wait then", job.reason_to_wait)
    site.assert_as_written()


def test_a_job_is_waited_for(site: Site) -> None:
    job = added(site, "wait", "wait")
    site.steps = {"GET /jobs/j/tasks": site.finish}
    site.step("wait", job.wait, tell=site.tell)
    site.step("wait for what has ended", job.wait, tell=site.tell)
    site.client.jobs.add(of("exit 3", name="k"), tell=lambda _: None)
    failed = site.client.jobs.handle("k")
    site.step("wait for one that fails", failed.wait, tell=site.tell)
    site.step("wait without a check", failed.wait, check=False, tell=site.tell)
    site.client.jobs.add(of("wait", name="l"), tell=lambda _: None)
    site.step("wait for no time", site.client.jobs.handle("l").wait, timeout=0, tell=site.tell)
    site.assert_as_written()


def test_a_wait_for_a_task_that_can_never_start_ends_at_once(site: Site) -> None:
    site.client.pools.add(recipe(pool={"inter_node_communication_enabled": False}), tell=lambda _: None)
    site.client.batch.create_job({"id": "j", "poolInfo": {"poolId": "p"}})
    gang = {"numberOfInstances": 2, "coordinationCommandLine": "exit 0"}
    site.client.batch.create_task("j", {"id": "t", "commandLine": "exit 0", "multiInstanceSettings": gang})
    site.step("wait", site.client.jobs.handle("j").wait, tell=site.tell)
    site.assert_as_written()


def test_tasks_are_ended_deleted_and_run_again(site: Site) -> None:
    job = added(site, "exit 3", "wait", "print c")
    site.step("reactivate", job.reactivate_tasks, "t0", tell=site.tell)
    site.step("reactivate one that succeeded", job.reactivate_tasks, "t2", tell=site.tell)
    site.step("resubmit", job.resubmit_failed, tell=site.tell)
    site.step("terminate", job.terminate_tasks, "t1", tell=site.tell)
    site.step("terminate what is not there", job.terminate_tasks, "x", tell=site.tell)
    site.step("delete", job.delete_tasks, "t0", tell=site.tell)
    site.step("delete again", job.delete_tasks, "t0", tell=site.tell)
    site.step("tasks", states, job)
    site.assert_as_written()


def test_a_job_is_disabled_moved_and_ended(site: Site) -> None:
    job = added(site, "wait")
    site.client.pools.add(recipe(pool={"id": "q"}), tell=lambda _: None)
    site.step("disable", job.disable)
    site.step("state", lambda: job.seen.state)
    site.step("enable", job.enable)
    site.step("state", lambda: job.seen.state)
    site.step("disable --running wait", job.disable, running="wait")
    site.step("enable", job.enable)
    site.step("migrate", job.migrate, "q", tell=site.tell)
    site.step("its pool", lambda: (job.seen.pool, job.seen.state))
    site.step("migrate --running terminate", job.migrate, "p", running="terminate", tell=site.tell)
    site.step("its pool", lambda: (job.seen.pool, states(job)))
    site.step("migrate to a pool that is not there", job.migrate, "x", tell=site.tell)
    site.step("terminate", job.terminate)
    site.step("state", lambda: job.seen.state)
    site.step("delete", job.delete, tell=site.tell)
    site.step("delete again", job.delete, tell=site.tell)
    site.step("in a notebook", lambda: "job j" in job._repr_html_() and "JobNotFound" in job._repr_html_())
    site.assert_as_written()


def test_the_output_of_a_task_is_read_and_followed(site: Site, tmp_path: Path) -> None:
    job = added(site, "print hello", "wait")
    site.step("read", job.read)
    site.step("read another task", job.read, "t1")
    site.step("read another file", job.read, "t0", file="stderr.txt")
    site.step("read a file that is not there", job.read, file="x")
    site.step("logs", lambda: [*job.logs()])
    site.step("logs of a task that is not there", lambda: [*job.logs("x")])
    site.step("logs that are followed to the end", lambda: [*job.logs("t0", follow=True, tell=site.tell)])
    site.step("follow a task that runs", lambda: [*job.logs("t1", follow=True, timeout=0, tell=site.tell)])
    site.step("follow a file that never comes", lambda: [*job.logs("t0", file="x", follow=True, tell=site.tell)])
    site.step("follow a task that is not there", lambda: [*job.logs("x", follow=True, tell=site.tell)])
    site.step("files", lambda: [row.path for row in job.files("t0")])
    site.step("files on all nodes", lambda: [row.path for row in job.files("t0", all_nodes=True)])
    site.step("get", lambda: [row.path for row in job.get("std*.txt", task_id="t0", directory=tmp_path / "got")])
    assert (tmp_path / "got/stdout.txt").read_text() == "hello\n"
    site.step("the program of a task that has ended", job.stacks, "t0")
    site.client.jobs.delete_seen(site.client.jobs.list())
    site.step("the first task of no job", lambda: job.task().files())
    site.assert_as_written()


def test_the_results_of_a_job_are_fetched(site: Site) -> None:
    job = added(site, "print loss=0.5", "exit 3", "wait")
    runs = site.root / "runs"

    def fetch(**options: Any) -> tuple[Any, ...]:
        recording, missing = job.fetch(Origin(runs), **options)
        return recording.run.record().state, missing, [task.id for task in recording.run.tasks()]

    site.step("fetch while a task runs", fetch)
    site.finish()
    site.step("fetch", fetch, everything=True)
    site.step("result", lambda: job.result(runs_dir=runs).record.state)
    site.step("recorded", lambda: job.recorded(runs) is not None)
    site.step("diagnose", lambda: job.diagnose(runs_dir=runs).first)
    site.step("diagnose a task", lambda: job.diagnose("t0", runs_dir=runs).first)
    site.step("progress", lambda: job.progress(job.seen_task("t0")))
    site.step("sweep", lambda: [row.task for row in job.sweep("loss", runs_dir=runs, tell=site.tell)])
    job.delete(tell=lambda _: None)
    site.step("diagnose what is gone", lambda: str(job.diagnose(runs_dir=runs)))
    site.step("diagnose a task of what is gone", lambda: str(job.diagnose("t0", runs_dir=runs)))
    site.step("diagnose the task of it that failed", lambda: str(job.diagnose("t1", runs_dir=runs)))
    site.step("diagnose what is gone without a record", job.diagnose, runs_dir=site.root / "none")
    site.assert_as_written()


def test_old_jobs_are_deleted_unless_they_were_added_again(site: Site) -> None:
    jobs, job = site.client.jobs, added(site, "print a")
    job.terminate()
    old = jobs.ended_before(FUTURE)
    site.step("ended before", lambda: [(row.id, row.state) for row in old])
    site.step("ended a day ago", lambda: [*jobs.ended_before(FUTURE - timedelta(days=2))])
    job.delete(tell=lambda _: None)
    site.step("delete what is gone", lambda: [row.id for row in jobs.delete_seen(old, tell=site.tell)])
    jobs.add(of("print b"), tell=lambda _: None)
    site.step("delete what is there again", lambda: [row.id for row in jobs.delete_seen(old, tell=site.tell)])
    site.step("delete", lambda: [row.id for row in jobs.delete_seen(jobs.list(), tell=site.tell)])
    site.assert_as_written()


def test_a_job_schedule_creates_jobs_until_it_is_ended(site: Site) -> None:
    nightly = of("print a", recurrence={"schedule": {"recurrence_interval": "01:00:00"}})
    site.client.pools.add(nightly, tell=lambda _: None)
    site.step("add", site.client.jobs.add_all, nightly, tell=site.tell)
    schedule = site.client.jobs.schedule("j")
    site.step("all schedules", lambda: [(row.id, row.state) for row in site.client.jobs.schedules()])
    site.step("its last job", lambda: schedule.job)
    site.step("terminate", schedule.terminate)
    site.step("its state", lambda: schedule.seen.state)
    site.step("delete", schedule.delete)
    site.step("all schedules", lambda: [*site.client.jobs.schedules()])
    site.step("remove", site.client.jobs.remove_all, nightly, tell=site.tell)
    site.assert_as_written()
