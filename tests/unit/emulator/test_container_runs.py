"""Tasks in containers, on an engine in the test process: their container, their output, and how they end."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import pytest

from batchtrain.emulator.interface import Containers, Exit, Login, NodeLost
from batchtrain.emulator.machine import handover
from tests.unit.emulator.fake_docker import FakeDocker, Program, no
from tests.unit.emulator.test_container_nodes import FOREVER, INSIDE, TASK, Emulator, emulator
from tests.waiting import reached

__all__ = ["emulator"]

GANG = Containers(one_for_gangs=True)


def ended(emulator: Emulator, code: int, message: str = "") -> Exit:
    """The end of a run in the container that was created last, as the service reports it."""
    container = emulator.tasks()[-1]
    return Exit(code, message=message, container={"containerId": container.id, "state": container.status})


def serves(engine: FakeDocker, **more: Any) -> None:
    engine.programs["serve"] = FOREVER._replace(**more)


# --- a run ----------------------------------------------------------------------------------------------------------


async def test_a_run_has_the_exit_code_the_output_and_the_container_of_its_program(emulator: Emulator) -> None:
    emulator.engine.programs["train.py"] = Program(out=b"loss 1\n", err=b"slow\n", code=3)
    await emulator.boot()
    assert await emulator.run("train.py", "--fast") == ended(emulator, 3)
    assert (emulator.read("stdout.txt"), emulator.read("stderr.txt")) == ("loss 1\n", "slow\n")
    assert emulator.engine.created[-1]["program"] == ["train.py", "--fast"]
    await emulator.run("train.py", scope="t")
    assert emulator.read("stdout.txt") == "loss 1\nloss 1\n"


async def test_a_terminal_of_the_run_options_has_one_stream(emulator: Emulator) -> None:
    emulator.engine.programs["train.py"] = Program(out=b"a\n", err=b"b\n")
    await emulator.boot()
    await emulator.run("train.py", options="-t")
    assert (emulator.read("stdout.txt"), emulator.read("stderr.txt")) == ("a\nb\n", "")


@pytest.mark.parametrize("stays", [False, True])
async def test_output_that_comes_after_the_end_of_a_program_is_complete(emulator: Emulator, stays: bool) -> None:
    emulator.engine.programs["train.py"] = Program(out=b"last words", slow=True)
    await emulator.boot()
    await emulator.run("train.py", stays=stays)
    assert emulator.read("stdout.txt") == "last words"


async def test_a_run_joins_the_network_of_its_node_and_is_marked_as_the_emulators(emulator: Emulator) -> None:
    await emulator.boot()
    await emulator.run("true", options="--label batchtrain.emulator=x --label batchtrain.emulator.node=x")
    (own,), (network,) = emulator.nodes_own(), emulator.engine.networks
    assert ("network", f"container:{own.id}") in emulator.options
    assert ("workdir", f"{INSIDE}/{TASK}/wd") in emulator.options
    assert ("user", f"{os.getuid()}:{os.getgid()}") in emulator.options
    assert ("log-driver", "none") in emulator.options
    (container,) = emulator.tasks()
    assert container.name.startswith(f"{network}-s-")
    assert container.labels == {
        "batchtrain.emulator": str(emulator.data_dir), "batchtrain.emulator.node": "a",
    }  # fmt: skip
    await emulator.run("true", elevated=True)
    assert ("user", "0:0") in emulator.options
    assert len({one.name for one in emulator.tasks()}) == 2


async def test_every_variable_reaches_the_program_whole(emulator: Emulator) -> None:
    await emulator.boot()
    await emulator.run("true", SHORT="a b='c'", LINES="a\nb", LONG="x" * 60_000)
    environment = emulator.engine.created[-1]["environment"]
    assert environment["SHORT"] == "a b='c'"
    assert environment["LINES"] == "a\nb"
    assert environment["LONG"] == "x" * 60_000
    assert environment["BATCHTRAIN_EMULATED_NODE"] == "container"


async def test_gpus_are_the_tasks_if_the_size_has_some_and_the_engine_supports_them(emulator: Emulator) -> None:
    await emulator.boot("a", gpus=4)
    await emulator.boot("b")
    await emulator.run("true")
    assert ("gpus", "all") not in emulator.options
    emulator.engine.runtimes = {"nvidia": {}}
    await emulator.run("true", scope="t")
    assert ("gpus", "all") in emulator.options
    await emulator.run("true", name="b")
    assert ("gpus", "all") not in emulator.options


async def test_an_ignored_run_option_is_told_once_by_each_node(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    await emulator.boot("a")
    await emulator.boot("b")
    with caplog.at_level(logging.WARNING, "batchtrain.emulator.machine"):
        caplog.clear()
        for name in "aab":
            await emulator.run("true", name=name, options="--hostname=x --shm-size=1g")
    assert ("shm-size", "1g") in emulator.options
    told = [record.getMessage() for record in caplog.records]
    why = "ignored run option --hostname=x: the container has the node's network and host name"
    assert told == [f"a: {why}", f"b: {why}"]


async def test_a_volume_is_the_nodes_own_and_carries_its_labels(emulator: Emulator) -> None:
    await emulator.boot()
    await emulator.run("true", options="--volume=data:/data")
    ((name, labels),) = emulator.engine.volumes.items()
    (network,) = emulator.engine.networks
    assert name == f"{network}-a-data"
    assert labels == {"batchtrain.emulator": str(emulator.data_dir), "batchtrain.emulator.docker": "a"}
    assert ("volume", f"{name}:/data") in emulator.options


async def test_an_entry_point_of_the_run_options_replaces_the_images(emulator: Emulator) -> None:
    emulator.engine.images["train"] = ["python"]
    emulator.engine.programs.update(python=Program(code=1), mine=Program(code=2))
    await emulator.boot()
    assert (await emulator.run("x.py")).code == 1
    assert (await emulator.run("x.py", options="--entrypoint=mine", scope="t")).code == 2
    assert (await emulator.run("true", options="--entrypoint ''", scope="u")).code == 1, "an empty one is none"


# --- what fails -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--memory=much", "ContainerInvalidSettings", "invalid argument: memory"),
        ("word", "ContainerInvalidSettings", "containerRunOptions: word is no option of docker create"),
        ("-v {data}:/x", "ContainerInvalidSettings", "{data} belongs to the emulator, not to the node"),
    ],
)
async def test_run_options_that_cannot_be_used_fail_the_task(
    emulator: Emulator, options: str, code: str, message: str
) -> None:
    await emulator.boot()
    data = emulator.data_dir
    refused = await emulator.run("true", options=options.format(data=data))
    assert refused == Exit(None, code, message.format(data=data))


async def test_an_image_that_was_removed_after_its_pull_fails_the_task(emulator: Emulator) -> None:
    await emulator.boot()
    run = asyncio.ensure_future(emulator.run("true"))
    await reached(lambda: "GET /version" in emulator.engine.requests, pause=0)
    emulator.engine.images.pop("train")
    assert (await run)[:3] == (None, "ContainerInvalidImage", "No such image: train")


async def test_an_engine_that_refuses_a_request_of_a_run_fails_the_task(emulator: Emulator) -> None:
    await emulator.boot()
    emulator.engine.fails["POST /volumes"] = no(409, "driver failed")
    refused = await emulator.run("true", options="-v data:/data")
    assert refused == Exit(None, "ContainerInvalidSettings", "driver failed")
    emulator.engine.fails["GET /containers"] = no(500, "busy")
    assert await emulator.run("true", scope="t") == Exit(None, "ContainerMiscError", "busy")


@pytest.mark.parametrize("request_line", ["POST /volumes", "GET /containers/c", "POST /containers/c002/start"])
async def test_an_engine_that_breaks_off_loses_the_node(emulator: Emulator, request_line: str) -> None:
    await emulator.boot()
    emulator.engine.breaks_off = request_line
    with pytest.raises(NodeLost, match=r"a: the Docker Engine at .* broke off"):
        await emulator.run("true", options="-v data:/data")
    emulator.engine.breaks_off = ""


async def test_a_program_that_does_not_start_has_batchs_code_the_reason_and_its_container(emulator: Emulator) -> None:
    why = 'OCI runtime create failed: exec: "none": executable file not found in $PATH: unknown'
    emulator.engine.programs["none"] = Program(refusal=why)
    await emulator.boot()
    refused = await emulator.run("none")
    (container,) = emulator.tasks()
    assert refused == Exit(
        None, "CommandProgramNotFound", 'exec: "none": executable file not found in $PATH',
        container={"containerId": container.id, "state": "created"},
    )  # fmt: skip


async def test_an_end_is_told_with_its_reason_and_what_the_engine_says_of_it(emulator: Emulator) -> None:
    emulator.engine.programs["big"] = Program(code=137, out_of_memory=True)
    emulator.engine.programs["killed"] = Program(code=137, error="why")
    await emulator.boot()
    assert "memory (--memory=64m) was used up" in (await emulator.run("big", options="--memory=64m")).message
    end = await emulator.run("killed", scope="t")
    assert end.message == (
        "The container was killed by SIGKILL (exit code 137): from outside, or its memory was used up."
    )
    assert end.container == {"containerId": emulator.tasks()[-1].id, "state": "exited", "error": "why"}


async def test_an_image_is_pulled_with_the_tasks_own_login_first(emulator: Emulator) -> None:
    emulator.engine.registry = {"r.example/it:1": "task", "r.example/pool:1": "pool"}
    await emulator.boot(containers=Containers((), (Login("r.example", "pool", "x"),)))
    login = Login("r.example", "task", "x")
    assert (await emulator.run("true", image="r.example/it:1", login=login)).code == 0
    assert (await emulator.run("true", image="r.example/pool:1", scope="t")).code == 0
    failed = await emulator.run("true", image="none:1", scope="u")
    assert (failed.code, failed.failure) == (None, "ContainerInvalidImage")
    assert "The container image none:1 cannot be used" in failed.message


async def test_a_run_whose_node_or_engine_is_gone_is_lost(emulator: Emulator) -> None:
    with pytest.raises(NodeLost, match="a: no such node is up"):
        await emulator.run("true")
    await emulator.boot()
    emulator.engine.images.clear()
    await emulator.engine.stop()
    with pytest.raises(NodeLost, match="a: cannot connect"):
        await emulator.run("true")


async def test_a_task_whose_directory_is_gone_is_not_started(emulator: Emulator) -> None:
    await emulator.boot()
    folder = emulator.root("a") / TASK
    (folder / "wd").rmdir()
    folder.rmdir()
    folder.symlink_to("/etc")
    refused = await emulator.run("true")
    assert (refused.code, refused.failure) == (None, "CommandLaunchFailed")
    assert all(container.status == "created" for container in emulator.tasks())


# --- how a scope ends -----------------------------------------------------------------------------------------------


async def test_a_task_that_is_terminated_gets_sigterm_and_its_container_goes(emulator: Emulator) -> None:
    serves(emulator.engine)
    await emulator.boot()
    run = await emulator.running("serve")
    container = emulator.tasks()[0].id
    await emulator.nodes.end("a", "s", 60.0)
    assert (await run).code == 143
    assert f"POST /containers/{container}/kill" in emulator.engine.requests
    assert emulator.tasks() == []
    await emulator.nodes.end("a", "s", 60.0)
    await emulator.nodes.end("none", "s", 60.0)


async def test_a_program_that_has_ended_gets_no_signal(emulator: Emulator) -> None:
    await emulator.boot()
    await emulator.run("true")
    await emulator.nodes.end("a", "s", 60.0)
    assert emulator.tasks() == []
    assert not [request for request in emulator.engine.requests if request.endswith("/kill")]


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("grace", [0.0, 0.01])
async def test_a_program_that_ignores_sigterm_is_killed_after_the_grace(
    emulator: Emulator, grace: float, stays: bool
) -> None:
    serves(emulator.engine, ignores_term=True)
    await emulator.boot()
    run = await emulator.running("serve", stays=stays)
    await emulator.nodes.end("a", "s", grace)
    assert (await run).code == 137
    assert emulator.tasks() == []
    assert any(request.endswith("/top") for request in emulator.engine.requests) == (stays and grace > 0)


@pytest.mark.parametrize("stays", [False, True])
async def test_a_program_has_its_grace_to_end_by_itself(emulator: Emulator, stays: bool) -> None:
    serves(emulator.engine, slow=True)
    emulator.engine.programs["/bin/sh"] = Program()
    await emulator.boot()
    run = await emulator.running("serve", stays=stays)
    await emulator.nodes.end("a", "s", 60.0)
    assert (await run).code == 143
    assert emulator.tasks() == []


async def test_directories_of_root_are_handed_over_with_the_end_of_their_task(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await emulator.boot()
    await emulator.run("true")
    below: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 4711)
        patch.setattr(handover, "foreign", lambda node, folder: below.append(folder))
        await emulator.nodes.end("a", "s", 0.0)
    assert below == [TASK]


async def test_the_containers_of_other_scopes_stay(emulator: Emulator) -> None:
    serves(emulator.engine)
    await emulator.boot()
    await emulator.run("true", scope="t")
    run = await emulator.running("serve")
    await emulator.nodes.end("a", "t", 0.0)
    assert [container.about["command"] for container in emulator.tasks()] == [["serve"]]
    assert not run.done()


async def test_nothing_starts_in_a_scope_that_has_ended(emulator: Emulator) -> None:
    await emulator.boot()
    await emulator.nodes.end("a", "s", 0.0)
    refused = await emulator.run("true")
    assert refused == Exit(None, "TaskEnded", "the task ended before its command started")
    assert emulator.engine.created == []
    assert (await emulator.run("true", scope="t")).code == 0


async def test_a_container_that_is_made_while_its_run_is_cancelled_is_removed(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await emulator.boot()
    asked, go = asyncio.Event(), asyncio.Event()
    create = emulator.engine.command

    async def slow(*words: str, **more: Any) -> Any:
        asked.set()
        await go.wait()
        return await create(*words, **more)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    run = asyncio.ensure_future(emulator.run("true"))
    await asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    go.set()
    await reached(lambda: emulator.engine.created and not emulator.tasks())


# --- gangs ----------------------------------------------------------------------------------------------------------


async def test_a_coordination_commands_container_waits_and_its_commands_are_executed_in_it(emulator: Emulator) -> None:
    emulator.engine.images["train"] = ["entry"]
    emulator.engine.programs["entry"] = Program(out=b"sshd\n", err=b"on\n", code=4)
    await emulator.boot(containers=GANG)
    assert await emulator.run("sshd", "-D", stays=True, A="1") == ended(emulator, 4)
    (container,) = emulator.tasks()
    hold = f"type=bind,source={emulator.data_dir}/docker/hold,target=/.batchtrain-hold,readonly"
    assert ("mount", hold) in emulator.options
    assert emulator.engine.created[-1]["program"] == []
    assert container.status == "running", "its background processes live on"
    (command,) = emulator.engine.executed
    assert (command["container"], command["Cmd"]) == (container.id, ["entry", "sshd", "-D"])
    assert "A=1" in command["Env"]
    assert (emulator.read("stdout.txt"), emulator.read("stderr.txt")) == ("sshd\n", "on\n")
    emulator.engine.programs["entry"] = Program(code=5)
    assert (await emulator.run("mpirun", A="2")).code == 5
    assert emulator.tasks() == [container]
    assert "A=2" in emulator.engine.executed[-1]["Env"]


@pytest.mark.parametrize(
    ("options", "command"), [("--entrypoint=mine", ["mine", "sshd"]), ("--entrypoint ''", ["sshd"])]
)
async def test_an_entry_point_of_the_run_options_is_the_coordination_commands(
    emulator: Emulator, options: str, command: list[str]
) -> None:
    emulator.engine.images["train"] = ["entry"]
    emulator.engine.programs[command[0]] = Program()
    await emulator.boot()
    await emulator.run("sshd", stays=True, options=options)
    assert emulator.engine.executed[-1]["Cmd"] == command
    assert ("entrypoint", "/.batchtrain-hold") in emulator.options


async def test_the_application_command_of_a_gang_has_a_container_of_its_own_by_default(emulator: Emulator) -> None:
    emulator.engine.programs["sshd"] = Program()
    await emulator.boot()
    await emulator.run("sshd", stays=True)
    await emulator.run("true")
    assert len(emulator.tasks()) == 2
    assert len(emulator.engine.executed) == 1


@pytest.mark.parametrize(("unstarted", "code"), [(False, 6), (True, 255)], ids=["with an exit code", "without one"])
async def test_a_command_whose_end_the_engine_does_not_report_ends_with_its_output(
    emulator: Emulator, unstarted: bool, code: int
) -> None:
    emulator.engine.programs["sshd"] = Program(code=6, forgotten=True, unstarted=unstarted)
    await emulator.boot()
    assert (await emulator.run("sshd", stays=True)).code == code


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (126, "CommandLaunchFailed"), (127, "CommandLaunchFailed"), (255, "CommandLaunchFailed"),
        (None, "CommandLaunchFailed"), (1, None),
    ],
)  # fmt: skip
async def test_a_command_that_the_engine_cannot_execute_has_batchs_code(
    emulator: Emulator, code: int | None, failure: str | None
) -> None:
    why = b"OCI runtime exec failed: exec: permission denied: unknown"
    unstarted = code is None
    emulator.engine.programs["sshd"] = Program(out=why, code=code or 0, forgotten=True, unstarted=unstarted)
    await emulator.boot()
    end = await emulator.run("sshd", stays=True)
    assert (end.code, end.failure) == ((None, failure) if failure else (code, None))
    assert end.message == ("exec: permission denied" if failure else "")
    assert end.container == {"containerId": emulator.tasks()[0].id, "state": "running"}


@pytest.mark.parametrize("grace", [0.0, 60.0])
async def test_a_gang_that_is_terminated_gets_sigterm_in_its_container_and_leaves_none(
    emulator: Emulator, grace: float
) -> None:
    serves(emulator.engine)
    emulator.engine.programs["/bin/sh"] = Program()
    await emulator.boot()
    run = await emulator.running("serve", stays=True)
    await emulator.nodes.end("a", "s", grace)
    assert (await run).code == 143
    assert emulator.engine.executed[-1]["Cmd"] == ["/bin/sh", "-c", "kill -TERM -1"]
    assert emulator.engine.executed[-1]["User"] == "0"
    assert emulator.tasks() == []


async def test_a_container_that_never_ran_ends_its_run_with_the_scope(emulator: Emulator) -> None:
    await emulator.boot()
    serves(emulator.engine, forgotten=True)
    run = await emulator.running("serve")
    await emulator.nodes.end("a", "s", 0.0)
    assert await run == Exit(137)
