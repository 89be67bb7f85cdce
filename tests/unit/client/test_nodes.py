"""Commands on nodes and the nodes of a job that is followed. BATCHTRAIN_UPDATE_GOLDEN=1 writes the stories anew."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchtrain.client import local, logins
from batchtrain.client.node_watch import NodeWatch
from batchtrain.errors import UsageError
from batchtrain.records.events import MetricsSeen
from batchtrain.records.stacks import Stack
from tests.unit.client.account import Site
from tests.unit.plan.jobs import recipe

SSH = recipe(
    {"tasks": [{"id": "t", "command": "wait"}]},
    pool={"vm_count": {"dedicated": 1}, "ssh": {"username": "al", "ssh_public_key_data": "k", "ssh_private_key": "/k"}},
)


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The words of the last `ssh`, a fake one; it prints the file `answer`, and ends with the code in `code`."""
    program = tmp_path / "ssh"
    script = f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/words\ncat {tmp_path}/answer; exit $(cat {tmp_path}/code)\n'
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "answer").write_text("")
    (tmp_path / "code").write_text("5")
    return tmp_path / "words"


def words(file: Path) -> str:
    return file.read_text(encoding="utf-8").replace("\n", " ")


def test_a_command_runs_on_a_node_or_in_the_directory_of_a_task(site: Site, ssh: Path) -> None:
    site.client.pools.add(SSH, tell=lambda _: None)
    job = site.client.jobs.add(SSH, tell=lambda _: None)
    site.step("pool ssh", lambda: (site.client.pools.ssh("p", "0", "ls", recipe=SSH), words(ssh)))
    site.step("jobs exec", lambda: (job.exec("ls", recipe=SSH), words(ssh).split()[-3:]))
    site.step("jobs exec in a task", lambda: (job.exec("pwd", "t", recipe=SSH), words(ssh).split()[-3:]))
    site.step("pool ssh without a login", lambda: site.client.pools.ssh("p", "0", "ls"))
    site.step("jobs stacks of a node that fails", job.stacks, recipe=SSH)
    (ssh.parent / "code").write_text("0")
    (ssh.parent / "answer").write_bytes(b"".join(msgspec.json.encode(Stack(rank, 7)) + b"\n" for rank in ("10", "9")))
    site.step("jobs stacks", job.stacks, recipe=SSH)
    site.finish()
    site.step("jobs exec when nothing runs", job.exec, "ls", recipe=SSH)
    site.assert_as_written()


def test_a_port_of_a_node_is_forwarded_by_the_relay_of_the_emulator() -> None:
    opened = list[int]()

    def ready(port: int) -> None:
        opened.append(port)
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"hello")
        client.close()

    class Enough(Exception):
        pass

    def popen(command: list[str], stdin: int, stdout: int) -> None:
        assert (command, stdin) == (["in-node", "--", "relay 'a b' 6006"], stdout)
        raise Enough

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Enough):
        patch.setattr(logins.subprocess, "Popen", popen)
        logins.forward(logins.Login(("in-node",), ("relay", "a b")), 6006, 0, ready)
    assert len(opened) == 1


def test_pools_forward_the_same_port_unless_another_is_given(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.client.pools.add(SSH, tell=lambda _: None)
    ports = list[tuple[int, int]]()
    monkeypatch.setattr(logins, "forward", lambda target, port, local_port, ready: ports.append((port, local_port)))
    for given in (None, 0, 7007):
        site.client.pools.forward("p", "0", 6006, local_port=given, recipe=SSH)
    assert ports == [(6006, 6006), (6006, 0), (6006, 7007)]


def test_a_command_on_a_node_fails_with_the_last_line_that_it_wrote() -> None:
    assert logins.output(logins.Login(("sh", "-c", "echo hello", "x")), "y", 60) == b"hello\n"
    for script, reason in (
        ("echo a >&2; echo b >&2; exit 4", "ended with 4: b"),
        ("exit 3", "ended with 3: no message"),
    ):
        with pytest.raises(UsageError, match=reason):
            logins.output(logins.Login(("sh", "-c", script, "x")), "y", 60)
    with pytest.raises(UsageError, match=r"did not answer within 0\.01 s"):
        logins.output(logins.Login(("sh", "-c", "exec sleep 60", "x")), "y", 0.01)


def test_a_node_of_the_emulator_is_reached_as_the_emulator_says(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, str]]()

    def ask(verb: str, _: object, path: str) -> dict[str, Any]:
        asked.append((verb, path))
        return {"ssh": ["in-node"], "relay": ["relay"]}

    monkeypatch.setattr(local.server, "at", lambda home: None)
    monkeypatch.setattr(local.server, "ask", ask)
    account = site.client.account._replace(emulated=True, home="/home")
    assert logins.login(account, site.client.batch, "p", "n", None) == (("in-node",), ("relay",))
    assert asked == [("GET", "login/n")]
    with pytest.raises(UsageError, match="another user or on another machine"):
        local.login(account._replace(home=""), "n")


def test_nodes_with_faults_are_replaced_as_often_as_the_pool_has_nodes(site: Site) -> None:
    made = recipe(task={"command": "wait"}, pool={"on_bad_node": "replace", "vm_count": {"dedicated": 1}})
    site.client.pools.add(made, tell=lambda _: None)
    nodes = NodeWatch(site.client, "p", site.tell, lambda: 0.0, recipe=made)

    def look() -> int:
        nodes.note(MetricsSeen("j/t", unfit=(site.client.pools.nodes("p")[0].address,)))
        return nodes.look()

    assert nodes.look() == 0
    site.step("a node has a fault", look)
    assert nodes.look() == 0
    site.step("the other node has one, too", look)
    site.assert_as_written()


def test_no_node_is_added_to_a_pool_that_took_the_place_of_one_whose_nodes_were_removed(site: Site) -> None:
    made = recipe(task={"command": "wait"}, pool={"on_bad_node": "replace", "vm_count": {"dedicated": 1}})
    site.client.pools.add(made, tell=lambda _: None)
    nodes = NodeWatch(site.client, "p", site.tell, lambda: 0.0, recipe=made)
    nodes.note(MetricsSeen("j/t", unfit=(site.client.pools.nodes("p")[0].address,)))

    def replace() -> None:
        site.client.pools.delete("p", tell=lambda _: None)
        site.client.pools.add(made, tell=lambda _: None)

    site.steps["POST /pools/p/removenodes"] = lambda: site.steps.update({"GET /pools/p": replace})
    site.step("the pool is replaced while a node of it is", nodes.look)
    site.assert_as_written()


def test_nodes_with_faults_stay_in_a_pool_that_does_not_replace_them(site: Site) -> None:
    made = recipe(pool={"vm_count": {"dedicated": 1}})
    site.client.pools.add(made, tell=lambda _: None)
    for known in (made, None):
        nodes = NodeWatch(site.client, "p", site.tell, lambda: 0.0, recipe=known)
        nodes.note(MetricsSeen("j/t", unfit=(site.client.pools.nodes("p")[0].address,)))
        assert (nodes.look(), nodes.moves) == (0, False)


def test_the_pool_of_a_job_is_found_once_the_service_has_made_it(site: Site) -> None:
    made = recipe({"auto_pool": {}}, task={"command": "wait"})
    site.client.jobs.add(made, tell=lambda _: None)
    times = iter((0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0))
    nodes = NodeWatch(site.client, "", site.tell, lambda: next(times), patience=5.0, job_id="j")
    assert (nodes.look(), nodes.look(), nodes.look()) == (1, 2, 2)
