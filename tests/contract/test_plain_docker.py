"""Plain Docker on a real engine: the start task, tasks and gangs of a plan, run as Batch would run them.

Needs a Docker Engine, and root (nodes have mounts of their own). See `tests/containers.py` and `plain_docker.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests import containers
from tests.contract import plain_docker
from tests.contract.plain_docker import Pool, settings
from tests.unit.plan import jobs, pools

pytestmark = [pytest.mark.docker, pytest.mark.process, pytest.mark.slow]
VM = {"vm_configuration": {"platform_image": jobs.IMAGE, "plain_docker": True}}
NUMBERS = itertools.count(1)
RANKS = "python -c 'from mpi4py import MPI; c = MPI.COMM_WORLD; print(c.rank, c.size, c.allreduce(1))'"


@pytest.fixture(scope="module")
def nodes(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    if os.getuid() != 0:
        pytest.skip("nodes with mounts of their own need root")
    with plain_docker.pool(tmp_path_factory.mktemp("plain"), image, 2) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_left(nodes: Pool) -> Iterator[None]:
    """No test leaves a container of a task behind. Each has a task and a directory of its own, as Batch has it."""
    nodes.task_id = f"task-{next(NUMBERS)}"
    yield
    assert nodes.none_left_soon(), nodes.left()


def task(image: str, command: str, job: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The request of a task in this image, in a pool of plain Docker."""
    made = jobs.plan(job, {"command": command, "docker_image": image, **more}, VM)
    return jobs.sent_task(made)


def gang(image: str, command: str, **more: Any) -> dict[str, Any]:
    mpi = {"runtime": "openmpi", "processes_per_node": 2}
    return task(image, command, multi_instance={"num_instances": 2, "mpi": mpi, **more})


def wait_until(nodes: Pool, path: str, process: subprocess.Popen[str]) -> None:
    """Until the task that a process runs has made a file. A gang's other ranks may make it once more, much later."""
    end = time.monotonic() + 180
    while not (nodes.place / path).exists():
        assert process.poll() is None, f"{path} was not made: {plain_docker.ended(process)}"
        assert time.monotonic() < end, f"{path} was not made"
        time.sleep(0.02)


# --- a task alone ---------------------------------------------------------------------------------------------------


def test_any_text_reaches_the_containers_shell_as_it_was_written(nodes: Pool, image: str) -> None:
    text = """X="it's"; echo "$X" 'a "b" $X' | cat; pwd; cat /etc/debian_version >/dev/null && echo `echo in`"""
    done = nodes.task(task(image, text))
    assert done.code == 0, done
    assert done.stdout.splitlines() == ['it\'s a "b" $X', f"{nodes.seen}/{nodes.directory}/wd", "in"]


def test_a_plain_command_is_the_containers_own_and_its_code_is_the_tasks(nodes: Pool, image: str) -> None:
    done = nodes.task(task(image, "python -c 'import sys\nsys.exit(7)'"))
    assert done.code == 7
    assert nodes.task(task(image, "no-such-program")).code == 127


def test_a_code_of_dockers_is_explained_where_docker_has_ended_with_it_and_not_the_program(
    nodes: Pool, image: str
) -> None:
    for code in (125, 126, 127):
        done = nodes.task(task(image, f"python -c 'raise SystemExit({code})'"))
        assert (done.code, done.stderr) == (code, "")
    for command, said in (("no-such-program", "is not in this image"), ("/etc/passwd", "cannot be executed")):
        assert said in nodes.task(task(image, command)).stderr.splitlines()[-1]


def test_variables_of_several_lines_reach_the_container_and_stand_on_no_command_line(nodes: Pool, image: str) -> None:
    more = {"environment_variables": {"LINES_OF": "one\ntwo's", "PATH": "/opt/venv/bin:/bin:/own"}}
    done = nodes.task(task(image, 'echo "$LINES_OF"; echo "$PATH"; echo "$HOME"', **more))
    assert done.stdout.splitlines() == ["one", "two's", "/opt/venv/bin:/bin:/own", "/root"]
    assert "two's" not in nodes.nodes[0].asked


def test_variables_of_any_name_reach_the_container_and_none_is_the_hosts_shells(nodes: Pool, image: str) -> None:
    names = {"my.setting": "a b", "MY-SETTING": "c", "$(touch ../made)": "d"}
    done = nodes.task(task(image, "env -0 | tr '\\0' '\\n'; ls ..", environment_variables=names))
    assert {"my.setting=a b", "MY-SETTING=c", "$(touch ../made)=d"} <= set(done.stdout.splitlines()), done
    assert "made" not in done.stdout.splitlines()


def test_what_a_container_writes_is_in_the_tasks_directory(nodes: Pool, image: str) -> None:
    done = nodes.task(task(image, "echo out > result; df --output=size -B1 /dev/shm | tail -1", shm_size="96m"))
    assert (nodes.place / "wd" / "result").read_text() == "out\n"
    assert int(done.stdout) == 96 * 2**20


def test_a_container_that_took_too_much_memory_is_named(nodes: Pool, image: str) -> None:
    """It lives until the engine has noticed: a container that ends at once may be gone before it has."""
    if containers.docker("info", "--format", "{{.MemoryLimit}}") != "true":
        pytest.skip("this machine's engine limits no memory")
    hungry = "python -c 'x = bytearray(300 * 2**20); x[::4096] = b\"1\" * len(x[::4096])'; code=$?"
    waiting = f"{hungry}; until [ -e ../noticed ]; do sleep 0.05; done; exit $code"
    body = task(image, waiting, additional_docker_run_options=["--memory=64m", "--memory-swap=64m"])
    noticed = nodes.place / "noticed"
    with plain_docker.event(nodes, "oom") as seen:
        process = nodes.start(0, body["commandLine"], settings(body))
        has_been_seen = seen()
    noticed.touch()
    done = plain_docker.ended(process)
    assert (done.code, has_been_seen) == (137, True), done
    assert "used more memory than it may" in done.stderr


def test_a_container_that_the_engine_refuses_is_said(nodes: Pool, image: str) -> None:
    done = nodes.task(task(image, "true", additional_docker_run_options=["--memory=1k"]))
    assert done.code == 125
    assert "the Docker Engine refused the container" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_task_that_is_ended_takes_its_container_with_it(nodes: Pool, image: str, how: signal.Signals) -> None:
    body = task(image, "touch ../began; sleep 1000 & wait")
    process = nodes.start(0, body["commandLine"], settings(body))
    wait_until(nodes, "began", process)
    assert len(nodes.left()) == 1
    os.killpg(process.pid, how)
    assert process.wait() != 0
    assert nodes.none_left_soon()


def test_a_container_that_even_its_guard_left_goes_when_the_next_task_starts(nodes: Pool, image: str) -> None:
    lock = f"{nodes.seen}/gone"
    label = f"batchtrain.node={nodes.name}/tvm-0"
    containers.docker("run", "--detach", "--label", label, "--label", f"batchtrain.lock={lock}", image, "sleep", "99")
    assert "which an earlier task left behind" in nodes.task(task(image, "true")).stderr


def test_two_tasks_at_once_on_a_node_leave_each_others_containers_alone(nodes: Pool, image: str) -> None:
    body = task(image, "touch ../began; until [ -e ../go ]; do sleep 0.05; done; echo first")
    first = nodes.start(0, body["commandLine"], settings(body))
    wait_until(nodes, "began", first)
    other = {"AZ_BATCH_TASK_ID": "other", "AZ_BATCH_TASK_DIR": f"{nodes.seen}/other"}
    try:
        assert nodes.task(task(image, "echo second"), **other).stdout == "second\n"
    finally:
        (nodes.place / "go").touch()
    assert plain_docker.ended(first).stdout == "first\n"


def test_a_node_of_the_emulator_says_why_it_has_no_docker_of_its_own(nodes: Pool, image: str) -> None:
    why = {"BATCHTRAIN_EMULATED_DOCKER": "", "BATCHTRAIN_EMULATED_NO_DOCKER": "no Docker Engine answers"}
    done = nodes.task(task(image, "true"), **why)
    assert (done.code, nodes.left()) == (125, [])
    assert "no Docker here: no Docker Engine answers; start a Docker Engine, or take `plain_docker` away" in done.stderr


# --- a gang ---------------------------------------------------------------------------------------------------------


def test_a_gang_trains_over_sshd_between_the_nodes_containers_and_leaves_none(nodes: Pool, image: str) -> None:
    done = nodes.task(gang(image, RANKS))
    assert done.code == 0, done
    assert sorted(done.stdout.splitlines()) == [f"{rank} 4 4" for rank in range(4)]
    assert nodes.left() == []


@contextlib.contextmanager
def made(image: str, line: str) -> Iterator[str]:
    """An image with one more line, for as long as it is needed."""
    name = containers.name_of("changed")
    containers.docker("build", "--quiet", "--network=none", f"--tag={name}", "-", input=f"FROM {image}\n{line}\n")
    try:
        yield name
    finally:
        containers.docker("rmi", "--force", name)


def test_a_gangs_container_is_roots_whomever_its_image_names(nodes: Pool, image: str) -> None:
    with made(image, "USER 1000") as name:
        done = nodes.task(gang(name, RANKS))
    assert done.code == 0, done


def test_an_image_without_bash_is_said_to_be_one(nodes: Pool, image: str) -> None:
    with (
        made(image, "RUN rm /bin/bash") as name,
        pytest.raises(AssertionError, match="no /bin/bash runs in this image"),
    ):
        nodes.task(gang(name, RANKS))
    assert nodes.left() == []


def test_several_gangs_run_on_the_same_nodes_one_after_another(nodes: Pool, image: str) -> None:
    for name in ("first", "second"):
        done = nodes.task(gang(image, RANKS), AZ_BATCH_TASK_ID=name)
        assert done.code == 0, done
        assert nodes.left() == []


def test_quotes_in_a_gangs_own_commands_survive(nodes: Pool, image: str) -> None:
    more = {
        "pre_execution_command": """export A='it'"'"'s "so"'""",
        "coordination_command": """echo 'c "d"' > "$AZ_BATCH_TASK_DIR/said\"""",
    }
    body = task(image, 'echo "$A"', multi_instance={"num_instances": 2, **more})
    done = nodes.task(body)
    assert (done.code, done.stdout) == (0, 'it\'s "so"\n'), done
    assert [(node.root / nodes.directory / "said").read_text() for node in nodes.nodes] == ['c "d"\n'] * 2


def test_a_rank_that_fails_ends_the_gang_with_its_code_and_all_containers(nodes: Pool, image: str) -> None:
    done = nodes.task(gang(image, "bash -c '[ $OMPI_COMM_WORLD_RANK != 3 ] || exit 9; sleep 100'"))
    assert done.code == 9, done
    assert "rank 3 on node tvm-" in done.stderr
    assert nodes.left() == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_primary_that_is_ended_takes_the_containers_of_all_nodes_with_it(
    nodes: Pool, image: str, how: signal.Signals
) -> None:
    body = gang(image, "bash -c 'touch \"$AZ_BATCH_TASK_DIR/began\"; sleep 1000'")
    nodes.coordinate(body, settings(body))
    assert len(nodes.left()) == 2
    process = nodes.start(0, body["commandLine"], settings(body))
    wait_until(nodes, "began", process)
    os.killpg(process.pid, how)
    assert process.wait() != 0
    assert nodes.none_left_soon()


def test_a_session_of_a_lost_primary_that_ends_late_spares_the_next_trys_container(nodes: Pool, image: str) -> None:
    first, second = (
        gang(image, f"bash -c 'touch \"$AZ_BATCH_TASK_DIR/{mark}\"; sleep {seconds}'")
        for mark, seconds in (("first", 1000), ("second", 5))
    )
    nodes.coordinate(first, settings(first))
    process = nodes.start(0, first["commandLine"], settings(first))
    wait_until(nodes, "first", process)
    held = os.open(nodes.place / ".batchtrain-docker/hold", os.O_WRONLY | os.O_NONBLOCK)
    try:  # as where a node is cut off: its sshd waits
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() != 0
        nodes.coordinate(second, settings(second))
        again = nodes.start(0, second["commandLine"], settings(second))
        wait_until(nodes, "second", again)
    finally:
        os.close(held)
    done = plain_docker.ended(again)
    assert done.code == 0, done


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_coordination_command_that_is_ended_takes_its_container_with_it(
    nodes: Pool, image: str, how: signal.Signals
) -> None:
    body = gang(image, RANKS, coordination_command='touch "$AZ_BATCH_TASK_DIR/began"; sleep 1000')
    process = nodes.start(0, body["multiInstanceSettings"]["coordinationCommandLine"], settings(body))
    wait_until(nodes, "began", process)
    os.killpg(process.pid, how)
    assert process.wait() != 0
    assert nodes.none_left_soon()


def test_a_primary_that_is_ended_does_not_kill_the_next_try_when_its_grace_is_over(nodes: Pool, image: str) -> None:
    body = gang(image, "bash -c 'touch \"$AZ_BATCH_TASK_DIR/began\"; sleep 1000'")
    nodes.coordinate(body, settings(body))
    process = nodes.start(0, body["commandLine"], {**settings(body), "BATCHTRAIN_GRACE_SECONDS": "0"})
    wait_until(nodes, "began", process)
    os.kill(process.pid, signal.SIGTERM)  # what it left in the background lives on
    assert plain_docker.ended(process).code != 0
    done = nodes.task(gang(image, "sleep 6"))
    assert done.code == 0, done


def test_a_gangs_container_that_no_primary_asks_for_goes_by_itself(nodes: Pool, image: str) -> None:
    body = gang(image, RANKS)
    nodes.coordinate(body, {**settings(body), "BATCHTRAIN_LEASE_SECONDS": "1"})
    assert nodes.none_left_soon()


def test_a_gangs_container_in_which_ranks_work_stays_though_its_host_was_not_reached(nodes: Pool, image: str) -> None:
    login = nodes.folder / "nodes" / nodes.nodes[1].address
    away = login.rename(f"{login}.away")
    try:
        done = nodes.task(gang(image, "sleep 14"), BATCHTRAIN_LEASE_SECONDS="10")
    finally:
        away.rename(login)
    assert done.code == 0, done
    assert f"the host {nodes.nodes[1].address} does not take the end" in done.stderr


def test_an_image_without_sshd_is_named_and_no_container_is_left(nodes: Pool, image: str) -> None:
    body = gang(image, RANKS, coordination_command="rm -f /usr/sbin/sshd; bt_start_sshd")
    done = nodes.run(1, body["multiInstanceSettings"]["coordinationCommandLine"], settings(body))
    assert done.code == 1
    assert "the image has no /usr/sbin/sshd" in done.stderr


# --- the start task -------------------------------------------------------------------------------------------------


def prepared(
    nodes: Pool, registry: containers.Registry, name: str, password: str, **settings_of: str
) -> plain_docker.Ended:
    """The start task of a pool with an image, and a sign-in to that registry, run on the first node."""
    known = {"docker_registry": {registry.server: {"username": registry.username, "password": registry.password}}}
    body = pools.sent(VM, resources={"docker_images": [name]}, credentials=known, settings=settings_of)["startTask"]
    mark = f"{{{{registry:{registry.server}}}}}"
    environment = {key: value.replace(mark, password) for key, value in settings(body).items()}
    return nodes.run(0, body["commandLine"], {**environment, "BATCHTRAIN_RETRY_SECONDS": "0"})


def test_a_node_signs_in_to_a_registry_and_pulls_its_images_once(
    nodes: Pool, image: str, registry: containers.Registry
) -> None:
    name = registry.push(f"{image}-base", "private/image:1")
    try:
        for _ in range(2):
            done = prepared(nodes, registry, name, registry.password)
            assert done.code == 0, done
            assert registry.password not in done.stdout + done.stderr + nodes.nodes[0].asked
        assert nodes.nodes[0].asked.count(f"pull --quiet {name}") == 1
        assert nodes.task(task(name, "echo ran")).stdout == "ran\n"
    finally:
        containers.docker("rmi", name, check=False)


def test_a_registry_that_refuses_is_named_and_no_password_is_said(
    nodes: Pool, image: str, registry: containers.Registry
) -> None:
    done = prepared(nodes, registry, f"{registry.server}/private/none:1", "wrong-password")
    assert done.code == 1
    assert done.stderr.splitlines()[-1] == (
        f"batchtrain: the registry {registry.server} takes no sign-in of {registry.username}"
    )
    assert "wrong-password" not in done.stdout + done.stderr


def test_an_image_that_is_not_there_is_named(nodes: Pool, image: str, registry: containers.Registry) -> None:
    name = f"{registry.server}/private/none:1"
    done = prepared(nodes, registry, name, registry.password)
    assert done.code == 1
    assert done.stderr.splitlines()[-1].startswith(f"batchtrain: these images cannot be pulled: {name}. ")


DEAD = "127.0.0.1:1"
"""A registry that nobody answers for."""


def with_second(image: str, registry: str) -> dict[str, Any]:
    """The request of a task whose image has a copy in that registry."""
    told = {"command": "echo ran", "docker_image": image}
    return jobs.sent_task(jobs.plan(None, told, VM, settings={"fallback_registry": registry}))


def test_an_image_whose_registry_is_dead_comes_from_the_second_one(
    nodes: Pool, image: str, registry: containers.Registry
) -> None:
    copy = registry.push(f"{image}-base", "mirrored/image:1")
    name = copy.replace(f"{registry.server}/mirrored", DEAD)
    try:
        done = prepared(nodes, registry, name, registry.password, fallback_registry=f"{registry.server}/mirrored")
        assert done.code == 0, done
        assert f"batchtrain: {name} cannot be had from its own registry; this node takes {copy}" in done.stderr
        assert nodes.task(task(name, "echo ran")).stdout == "ran\n"
    finally:
        containers.docker("rmi", name, copy, check=False)


def test_a_task_takes_the_copy_of_an_image_by_its_digest(
    nodes: Pool, image: str, registry: containers.Registry
) -> None:
    tagged = registry.push(f"{image}-base", "mirrored/image:2")
    found = prepared(nodes, registry, tagged, registry.password)
    assert found.code == 0, found
    pinned = containers.docker("image", "inspect", "--format", '{{join .RepoDigests "\\n"}}', tagged)
    digest = next(one for one in pinned.split() if one.startswith(registry.server)).rpartition("@")[2]
    containers.docker("rmi", tagged)
    body = with_second(f"{DEAD}/image@{digest}", f"{registry.server}/mirrored")
    copy = f"{registry.server}/mirrored/image@{digest}"
    try:
        for pulls in (1, 1):
            done = nodes.task(body)
            assert (done.code, done.stdout) == (0, "ran\n"), done
            assert nodes.nodes[0].asked.count(f"pull --quiet {copy}") == pulls
    finally:
        containers.docker("rmi", copy, check=False)


def test_an_image_that_no_registry_gives_ends_the_task_before_it_runs(nodes: Pool) -> None:
    done = nodes.task(with_second(f"{DEAD}/image:1", f"{DEAD}/second"))
    assert (done.code, done.stdout) == (125, "")
    assert f"batchtrain: {DEAD}/image:1 cannot be pulled, and neither can {DEAD}/second/image:1" in done.stderr
