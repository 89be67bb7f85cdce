"""The socket of a node's own Docker: what it answers itself, and what it asks of the engine of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from batchtrain.emulator.machine import docker_door
from batchtrain.emulator.machine.docker_door import LONGEST_BODY, DockerDoor
from batchtrain.emulator.machine.docker_engine import Engine
from batchtrain.emulator.machine.docker_view import View
from tests.unit.emulator.engines import Served, answer

VIEW = View(prefix="n1-", labels={"node": "n1"}, network="a" * 64, on_machine=lambda path: path)
TRAIN = {"Id": "b" * 64, "Names": ["/n1-train"], "Labels": {"batchtrain.lock": "/mnt/tasks/t1/lock"}}


def talk(folder: Path, *requests: bytes, answers: tuple[bytes, ...] = ()) -> tuple[list[bytes], list[bytes]]:
    """The answers of one door to requests, one after the other, and what the engine was asked."""
    served, door_answers = Served(folder, *answers), list[bytes]()

    async def work(engine: Engine) -> None:
        door = DockerDoor(engine, VIEW, folder / "door")
        await door.open()
        for request in requests:
            reader, writer = await asyncio.open_unix_connection(folder / "door")
            writer.write(request)
            writer.write_eof()
            door_answers.append(await reader.read())
            writer.close()
        await door.close()
        assert not (folder / "door").exists()

    served.ask(work)
    return door_answers, served.requests


def request(first: str, body: bytes = b"", *lines: str) -> bytes:
    return "\r\n".join([f"{first} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *lines, "", ""]).encode() + body


def document(given: bytes) -> Any:
    return json.loads(given.partition(b"\r\n\r\n")[2])


def status(given: bytes) -> int:
    return int(given.split(b" ")[1])


def test_a_request_that_no_node_may_send_is_refused(tmp_path: Path) -> None:
    (refused,), engine = talk(tmp_path, request("POST /v1.41/swarm/init"))
    assert status(refused) == 403
    assert "swarm is not theirs" in document(refused)["message"]
    assert engine == []


def test_the_name_of_a_container_is_translated_in_both_directions(tmp_path: Path) -> None:
    (given,), engine = talk(
        tmp_path, request("GET /containers/train/json", b"", "X-Meta: 1", "Connection: keep-alive"),
        answers=(answer([TRAIN]), answer([]), answer({"Name": "/n1-train"})),
    )  # fmt: skip
    assert status(given) == 200
    assert document(given) == {"Name": "/train"}
    assert b"\r\nA: b\r\n" in given, "the engine's own lines stay"
    asked = engine[-1].split(b"\r\n")
    assert asked[0] == b"GET /containers/" + b"b" * 64 + b"/json HTTP/1.0"
    assert b"X-Meta: 1" in asked
    assert b"Connection: keep-alive" not in asked


@pytest.mark.parametrize(("first", "code"), [("GET /containers/other/json", 404), ("DELETE /containers/other", 404)])
def test_a_container_of_another_node_does_not_exist(tmp_path: Path, first: str, code: int) -> None:
    (given,), engine = talk(tmp_path, request(first), answers=(answer([TRAIN]), answer([])))
    assert status(given) == code
    assert len(engine) == 2


def test_an_id_that_was_looked_up_is_not_looked_up_again(tmp_path: Path) -> None:
    get = request(f"GET /containers/{TRAIN['Id']}/json")
    (first, second), engine = talk(
        tmp_path, get, get, answers=(answer([TRAIN]), answer([]), answer({"a": 1}), answer({"a": 2}))
    )
    assert (document(first), document(second)) == ({"a": 1}, {"a": 2})
    assert len(engine) == 4


def test_a_container_that_the_node_creates_is_known_at_once(tmp_path: Path) -> None:
    create = request("POST /containers/create?name=x", b'{"Image": "a:1"}', "Expect: 100-continue")
    (made, shown), engine = talk(
        tmp_path, create, request("GET /containers/" + "c" * 64 + "/json"),
        answers=(answer([]), answer([]), answer({"Id": "c" * 64}, 201), answer({"Name": "/n1-x"})),
    )  # fmt: skip
    assert status(made) == 201
    assert document(shown) == {"Name": "/x"}
    assert b"POST /containers/create?name=n1-x HTTP/1.0" in engine[2]
    assert document(engine[2])["Labels"] == VIEW.labels
    assert b"Expect" not in engine[2]


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"HostConfig": 1}'])
def test_a_body_without_the_form_of_dockers_is_refused(tmp_path: Path, body: bytes) -> None:
    (given,), engine = talk(tmp_path, request("POST /containers/create", body), answers=(answer([]), answer([])))
    assert status(given) == 400
    assert "the form of docker's requests" in document(given)["message"]
    assert len(engine) == 2


def test_a_failure_of_the_engine_has_its_status(tmp_path: Path) -> None:
    (given,), _ = talk(
        tmp_path, request("GET /containers/train/json"), answers=(answer({"message": "no space"}, 507), answer([]))
    )
    assert (status(given), document(given)["message"]) == (507, "no space")
    (given,), _ = talk(tmp_path, request("GET /containers/train/json"), answers=(b"", b""))
    assert status(given) == 503


@pytest.mark.parametrize(
    ("line", "code"), [("Transfer-Encoding: chunked", 411), (f"Content-Length: {LONGEST_BODY + 1}", 413)]
)
def test_a_body_has_a_length_that_is_not_too_large(tmp_path: Path, line: str, code: int) -> None:
    given = f"GET /containers/{TRAIN['Id']}/json HTTP/1.1\r\n{line}\r\n\r\n".encode()
    (refused,), _ = talk(tmp_path, given, answers=(answer([TRAIN]), answer([])))
    assert status(refused) == code


def test_a_stream_is_passed_on_unchanged(tmp_path: Path) -> None:
    (given,), engine = talk(
        tmp_path, request("GET /images/json", b"", "Connection: keep-alive"), answers=(answer([1]),)
    )
    assert given == answer([1])
    assert b"Connection: close" in engine[0]
    assert b"keep-alive" not in engine[0]


def test_what_is_no_request_ends_its_connection_only(tmp_path: Path) -> None:
    (nothing, nonsense, good), _ = talk(
        tmp_path, b"GET", b"nonsense\r\n\r\n", request("GET /images/json"), answers=(answer([]),)
    )
    assert (nothing, nonsense) == (b"", b"")
    assert status(good) == 200


def test_the_containers_of_a_task_end_with_it(tmp_path: Path) -> None:
    other = {"Id": "d" * 64, "Labels": {"batchtrain.lock": "/mnt/tasks/t10/lock"}}
    served = Served(tmp_path, answer([TRAIN, other]), answer(b""))
    served.ask(lambda engine: DockerDoor(engine, VIEW, tmp_path / "door").end("/mnt/tasks/t1"))
    assert [one.split(b"?")[0] for one in served.requests] == [
        b"GET /containers/json", b"DELETE /containers/" + b"b" * 64,
    ]  # fmt: skip


# --- the node's files -----------------------------------------------------------------------------------------------


def test_a_socket_has_a_short_name_below_a_private_folder(tmp_path: Path) -> None:
    path = docker_door.folder_of(tmp_path, "tvmps_1")
    assert (path.parent, len(path.name)) == (tmp_path / "docker", 10)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path != docker_door.folder_of(tmp_path, "tvmps_2")


def test_only_the_user_may_use_the_socket_even_in_a_long_folder(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 40) / "door"
    path.parent.mkdir()
    path.touch()
    with docker_door._listen(path):
        assert path.is_socket()
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_address_of_a_socket_is_its_path_or_a_link(tmp_path: Path) -> None:
    fits = Path("/" + "d" * 106)
    long = Path("/" + "d" * 107)
    assert docker_door.address(fits, tmp_path, own_tmp=False) == str(fits)
    assert docker_door.address(long, tmp_path, own_tmp=True) == "/tmp/.docker.sock"
    assert (tmp_path / ".docker.sock").readlink() == long
    with pytest.raises(OSError, match="too long for a socket"):
        docker_door.address(long, tmp_path, own_tmp=False)


def test_docker_on_a_node_keeps_its_logins_in_the_nodes_home(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text(docker_door.program("/bin/echo"))
    program.chmod(0o755)
    home = {"HOME": str(tmp_path), "PATH": os.defpath}
    assert subprocess.check_output([program, "a  b"], env=home) == b"a  b\n"
    config = tmp_path / ".docker/config.json"
    assert json.loads(config.read_text()) == {"auths": {"node.invalid": {}}}
    config.write_text("{}")
    subprocess.check_output([program], env=home)
    assert config.read_text() == "{}"
