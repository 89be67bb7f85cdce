"""Pools of plain Docker on the emulator: each node has a Docker Engine of its own, which is this machine's.

Needs a Docker Engine, and root with debootstrap for the first making of the image. See `tests/containers.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient, models

from batchtrain.emulator import server
from batchtrain.emulator.server import Emulator, Settings
from tests import containers
from tests.contract.conftest import connect, eventually, job, pool
from tests.unit.plan import jobs, pools

pytestmark = [pytest.mark.docker, pytest.mark.process, pytest.mark.slow]
PATIENCE = 60.0
OWN = [models.BatchMetadataItem(name="batchtrain-docker", value="own")]
VM = {"vm_configuration": {"platform_image": jobs.IMAGE, "plain_docker": True}}
WHERE = "export DOCKER_CONFIG=$AZ_BATCH_NODE_SHARED_DIR/.docker;"


@pytest.fixture(scope="module")
def account(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """An emulator with a pool of two nodes that have a Docker each."""
    data_dir = tmp_path_factory.mktemp("plain") / "data"
    with Emulator(Settings(data_dir, port=0)) as emulator, connect(emulator) as client:
        account = Account(client, data_dir, image)
        client.create_pool(pool(nodes=2, metadata=OWN, enable_inter_node_communication=True, task_slots_per_node=1))
        account.wait_for_nodes(2)
        client.create_job(job())
        yield account
    assert containers.left_behind(data_dir) == []
    assert volumes(data_dir) == []


class Account:
    """A client of one emulator and what tests ask of it."""

    def __init__(self, client: BatchClient, data_dir: Path, image: str) -> None:
        self.client, self.data_dir, self.image = client, data_dir, image
        self._number = 0

    def wait_for_nodes(self, count: int) -> None:
        wait_for(lambda: [node.state for node in self.client.list_nodes("pool")] == ["idle"] * count)

    def add(self, script: str, **more: Any) -> str:
        """Add a task whose command is a text for bash, on the host; returns its id. $IMAGE is the image."""
        line = f"/bin/bash -c {shlex.quote(f'IMAGE={self.image}; {script}')}"
        return self.send({"commandLine": line, **more})

    def send(self, body: dict[str, Any]) -> str:
        self._number += 1
        task_id = f"task-{self._number}"
        self.client.create_task("job", models.BatchTaskCreateOptions({**body, "id": task_id}))
        return task_id

    def ended(self, task_id: str) -> models.BatchTaskExecutionInfo:
        wait_for(lambda: self.client.get_task("job", task_id).state == "completed")
        info = self.client.get_task("job", task_id).execution_info
        assert info is not None
        return info

    def read(self, task_id: str, name: str = "stdout.txt") -> str:
        return b"".join(self.client.download_task_file("job", task_id, name)).decode()

    def output(self, script: str, **more: Any) -> str:
        """What a text that succeeds prints."""
        return self.said(self.add(script, **more))

    def said(self, task_id: str) -> str:
        """What a task that succeeds prints."""
        assert self.ended(task_id).exit_code == 0, self.read(task_id) + self.read(task_id, "stderr.txt")
        return self.read(task_id)

    def on_both(self, coordination: str, script: str) -> str:
        """A text on each node, then another on the first."""
        line = f"/bin/bash -c {shlex.quote(f'IMAGE={self.image}; {coordination}')}"
        return self.output(script, multiInstanceSettings={"numberOfInstances": 2, "coordinationCommandLine": line})

    def tasks_containers(self) -> list[str]:
        """Those that the nodes' own Docker made."""
        label = f"label=batchtrain.emulator={self.data_dir}"
        both = ["--filter", label, "--filter", "label=batchtrain.emulator.docker"]
        return containers.docker("ps", "--all", "--quiet", *both).split()


def wait_for(holds: Callable[[], Any]) -> Any:
    return eventually(holds, pause=0.05)


def has_said(account: Account, task_id: str, text: str) -> bool:
    with contextlib.suppress(Exception):  # the file may not be there yet
        return text in account.read(task_id)
    return False


def volumes(data_dir: Path) -> list[str]:
    return containers.docker("volume", "ls", "--quiet", "--filter", f"label=batchtrain.emulator={data_dir}").split()


def planned(image: str, command: str, **more: Any) -> dict[str, Any]:
    """The request of a task in this image, as batchtrain plans it."""
    made = jobs.plan(None, {"command": command, "docker_image": image, **more}, VM)
    return jobs.sent_task(made)


def gang(image: str, command: str) -> dict[str, Any]:
    mpi = {"runtime": "openmpi", "processes_per_node": 2}
    return planned(image, command, multi_instance={"num_instances": 2, "mpi": mpi})


# --- a Docker of the node's own -------------------------------------------------------------------------------------


def test_two_nodes_have_containers_of_the_same_name_and_each_sees_its_own(account: Account) -> None:
    run = "docker run --detach --network host --name same $IMAGE sleep 100 >/dev/null"
    said = account.on_both(run, "docker ps --format '{{.Names}}'; docker exec same hostname; hostname")
    name, inside, outside = said.splitlines()
    assert (name, inside) == ("same", outside)
    assert account.on_both("docker rm --force same", "docker ps --all --quiet") == "same\n"
    assert account.tasks_containers() == []


def test_the_hosts_network_is_the_nodes(account: Account) -> None:
    said = account.output("docker run --rm --net=host $IMAGE hostname -I; echo $AZ_BATCH_NODE_ID")
    address, node_id = said.split()
    assert address == account.client.get_node("pool", node_id).ip_address
    assert address.startswith("10.")


def test_paths_of_the_node_are_the_nodes_in_a_container(account: Account) -> None:
    said = account.output(
        """echo theirs > /tmp/in; mkdir /tmp/d; echo more > /tmp/d/in
        docker run --rm --network none -v "$AZ_BATCH_NODE_ROOT_DIR:$AZ_BATCH_NODE_ROOT_DIR" -v /tmp/in:/in:ro \
          --mount type=bind,src=/tmp/d,dst=/d -w "$AZ_BATCH_TASK_WORKING_DIR" $IMAGE \
          sh -c 'cat /in /d/in; echo out > result'
        cat result"""
    )
    assert said == "theirs\nmore\nout\n"


def test_streams_exit_codes_and_copies_work_as_with_any_engine(account: Account) -> None:
    said = account.output(
        """echo in | docker run -i --rm --network none $IMAGE cat
        docker run --rm --network none $IMAGE sh -c 'echo err >&2; exit 7'; echo $?
        docker run -d --name one --network none $IMAGE sh -c 'echo logged; sleep 100' >/dev/null
        docker exec one sh -c 'echo made > /made; exit 3'; echo $?
        docker cp one:/made copied && cat copied
        echo sent | docker exec -i one cat
        docker logs one
        docker kill one; docker wait one; docker rm one; docker inspect one; echo $?"""
    )
    assert said.splitlines() == ["in", "7", "3", "made", "sent", "logged", "one", "137", "one", "[]", "1"]


def test_a_docker_that_looks_where_docker_is_by_itself_finds_the_nodes_own(account: Account) -> None:
    said = account.output(
        """docker run --rm --network none -v /var/run/docker.sock:/s $IMAGE python -c '
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("/s")
s.sendall(b"GET /containers/json?all=1 HTTP/1.0\\r\\n\\r\\n")
print(s.makefile().read().count("\\"Id\\""))
'"""
    )
    assert said == "1\n"  # itself, which the engine may not know to run yet


def test_names_of_a_node_hold_in_its_networks_its_filters_and_where_several_are_said(account: Account) -> None:
    said = account.output(
        """docker network create between >/dev/null
        docker run -d --name db --network between $IMAGE sleep 100 >/dev/null
        docker run --rm --network between --link db:linked $IMAGE getent hosts db linked | wc -l
        docker ps --filter name=^db$ --filter network=between --format '{{.Names}}'
        docker tag $IMAGE one:1; docker tag $IMAGE two:1
        docker save one:1 two:1 | tar xO manifest.json | grep -o '[a-z]*:1"'
        docker run --network betwen $IMAGE true 2>&1 | grep -o 'network betwen.*'
        docker rm -f db; docker network rm between; docker rmi one:1 two:1 >/dev/null"""
    )
    assert said.splitlines() == ["2", "db", 'one:1"', 'two:1"', "network betwen not found", "db", "between"]


def test_a_build_on_the_hosts_network_is_on_the_nodes(account: Account) -> None:
    said = account.output(
        """printf 'ARG BASE\nFROM $BASE\nRUN hostname -I >/address\n' > Dockerfile
        docker build --quiet --network host --build-arg BASE=$IMAGE --tag addressed:1 . >/dev/null
        docker run --rm --network host addressed:1 sh -c 'cat /address; hostname -I'
        docker rmi addressed:1 >/dev/null"""
    )
    during, after = said.split()
    assert during == after


def test_what_is_the_users_own_is_neither_seen_nor_pruned(account: Account) -> None:
    name = f"users-own-{os.getpid()}"
    whole = containers.docker("run", "--detach", "--name", name, "--network", "none", account.image, "true")
    containers.docker("wait", name)
    try:
        said = account.output(
            f"""docker ps --all --quiet; docker volume ls --quiet; docker rm {name} {whole}
            docker container prune --force; docker image prune --force --all; docker system prune --force; true"""
        )
        assert said == "Total reclaimed space: 0B\n"
        assert containers.docker("ps", "--all", "--quiet", "--filter", f"name={name}")
        assert containers.docker("images", "--quiet", account.image)
    finally:
        containers.docker("rm", "--force", name)


def test_what_docker_would_not_send_is_refused_and_one_request_a_connection_is_heard(account: Account) -> None:
    said = account.output(
        """python3 - <<'END'
import os, socket
def said(*lines):
    asking = socket.socket(socket.AF_UNIX)
    asking.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
    asking.sendall("\\r\\n".join(lines).encode())
    return asking.makefile().read()
print(said("POST /containers/create HTTP/1.1", "Content-Length: 3", "", "[1]").split()[1])
two = said("GET /_ping HTTP/1.1", "Host: d", "Upgrade: x", "", "GET /info HTTP/1.1", "Host: d", "", "")
print(two.count("HTTP") < 2)
END"""
    )
    assert said == "400\nTrue\n"


def test_volumes_are_a_nodes_own(account: Account) -> None:
    write = "docker run --rm --network none -v cache:/c $IMAGE sh -c 'hostname >> /c/by'"
    said = account.on_both(
        write, "docker volume ls --quiet; docker run --rm -v cache:/c --network none $IMAGE cat /c/by"
    )
    name, *lines = said.splitlines()
    assert (name, len(lines)) == ("cache", 1)
    assert len(volumes(account.data_dir)) == 2


def test_a_pool_that_does_not_say_so_has_none(account: Account) -> None:
    account.client.create_pool(pool("other", 1))
    pool_info = models.BatchPoolInfo(pool_id="other")
    account.client.create_job(models.BatchJobCreateOptions(id="other", pool_info=pool_info))
    command = "bash -c 'env | grep DOCKER; type -p docker | grep -c emulator'"
    account.client.create_task("other", models.BatchTaskCreateOptions(id="task", command_line=command))
    wait_for(lambda: account.client.get_task("other", "task").state == "completed")
    assert b"".join(account.client.download_task_file("other", "task", "stdout.txt")) == b"0\n"
    account.client.begin_delete_pool("other")


# --- tasks as batchtrain plans them ---------------------------------------------------------------------------------


def test_a_task_in_plain_docker_runs_in_its_image_and_leaves_nothing(account: Account) -> None:
    text = 'echo "$AZ_BATCH_TASK_ID"; cat /etc/debian_version > version; echo "$BATCHTRAIN_EMULATED_NODE"'
    task_id = account.send(planned(account.image, text))
    assert account.said(task_id).splitlines() == [task_id, "container"]
    assert account.read(task_id, "wd/version")
    assert account.tasks_containers() == []


@pytest.mark.mpi
def test_a_gang_runs_between_the_nodes_addresses_and_leaves_nothing(account: Account) -> None:
    ranks = "python -c 'from mpi4py import MPI; c = MPI.COMM_WORLD; print(c.rank, c.size, MPI.Get_processor_name())'"
    for _ in range(2):
        lines = account.said(account.send(gang(account.image, ranks))).splitlines()
        assert sorted(line.split()[0] for line in lines) == ["0", "1", "2", "3"]
        assert len({line.split()[2] for line in lines}) == 2
        assert account.tasks_containers() == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_task_that_is_ended_takes_its_container_with_it(account: Account, deleted: bool) -> None:
    task_id = account.send(planned(account.image, "echo up; trap '' TERM; while :; do sleep 1; done"))
    wait_for(lambda: has_said(account, task_id, "up"))
    assert len(account.tasks_containers()) == 1
    if deleted:
        account.client.delete_task("job", task_id)
    else:
        account.client.terminate_task("job", task_id)
    wait_for(lambda: account.tasks_containers() == [])


def test_a_gang_that_is_terminated_leaves_no_container_on_any_node(account: Account) -> None:
    task_id = account.send(gang(account.image, "bash -c 'echo up; sleep 100'"))
    wait_for(lambda: has_said(account, task_id, "up"))
    assert len(account.tasks_containers()) == 2
    account.client.terminate_task("job", task_id)
    wait_for(lambda: account.tasks_containers() == [])
    account.wait_for_nodes(2)


# --- sign-ins -------------------------------------------------------------------------------------------------------


def test_a_node_signs_in_for_itself_alone_and_into_no_keyring(account: Account, registry: containers.Registry) -> None:
    name = registry.push(f"{account.image}-base", "private/base:1")
    keyring = """mkdir bin; PATH=$PATH:$PWD/bin
    for one in pass docker-credential-pass; do
      printf '#!/bin/sh\\ntouch "$AZ_BATCH_TASK_DIR/asked"\\n' > bin/$one; chmod +x bin/$one
    done"""
    login = f"echo {registry.password} | docker login --username {registry.username} --password-stdin {registry.server}"
    assert account.output(f"{keyring}; {WHERE} {login} && ls ..").split() == [
        "Login", "Succeeded", "stderr.txt", "stdout.txt", "wd",
    ]  # fmt: skip
    try:
        account.on_both(f"[ ! -e $AZ_BATCH_NODE_SHARED_DIR/.docker ] || {{ {WHERE} docker pull {name}; }}", "true")
        kept = [path for path in account.data_dir.glob("nodes/*/*/shared/.docker/config.json") if path.is_file()]
        assert [registry.server in json.loads(path.read_text())["auths"] for path in kept] == [True]
        assert account.output(f"docker run --rm --network none {name} echo ran") == "ran\n"  # there for all
    finally:
        containers.docker("rmi", name, check=False)


def test_the_start_task_finds_docker_signs_in_and_pulls_also_from_a_second_registry(
    image: str, registry: containers.Registry, tmp_path: Path
) -> None:
    name = registry.push(f"{image}-base", "private/image:1")
    copy = registry.push(f"{image}-base", "mirrored/nowhere/image:1")
    known = {"docker_registry": {registry.server: {"username": registry.username, "password": registry.password}}}
    dead = "127.0.0.1:1/nowhere/image:1"
    second = {"fallback_registry": f"{registry.server}/mirrored"}
    body = pools.sent(VM, resources={"docker_images": [name, dead]}, credentials=known, settings=second)
    text = json.dumps(body).replace(f"{{{{registry:{registry.server}}}}}", registry.password)
    users = Path.home() / ".docker" / "config.json"
    before = users.read_bytes() if users.exists() else None
    try:
        with Emulator(Settings(tmp_path / "data", port=0)) as emulator, connect(emulator) as client:
            client.create_pool(models.BatchPoolCreateOptions(json.loads(text)))
            wait_for(lambda: [node.state for node in client.list_nodes("p")] == ["idle"] * 2)
            node = next(iter(client.list_nodes("p")))
            said = b"".join(client.download_node_file("p", node.id, "startup/stdout.txt")).decode()
            assert "Docker Engine" in said
            assert registry.password not in said
            assert all(containers.docker("images", "--quiet", one) for one in (name, dead))
        assert (users.read_bytes() if users.exists() else None) == before
        assert containers.left_behind(tmp_path / "data") == []
    finally:
        containers.docker("rmi", name, dead, copy, check=False)


# --- ends -----------------------------------------------------------------------------------------------------------


def test_a_deleted_pool_leaves_nothing_of_what_its_nodes_made(image: str, tmp_path: Path) -> None:
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator, connect(emulator) as client:
        account = Account(client, tmp_path / "data", image)
        client.create_pool(pool(metadata=OWN))
        account.wait_for_nodes(1)
        client.create_job(job())
        account.output("docker run -d -v kept:/k --network none $IMAGE sleep 100; docker network create own || true")
        assert len(account.tasks_containers()) == len(volumes(tmp_path / "data")) == 1
        client.begin_delete_pool("pool")
        wait_for(lambda: account.tasks_containers() == [] and volumes(tmp_path / "data") == [])
        label = f"label=batchtrain.emulator={tmp_path / 'data'}"
        wait_for(lambda: len(containers.docker("ps", "--all", "--quiet", "--filter", label).split()) == 0)


def test_what_a_killed_emulator_left_is_gone_after_its_next_start(image: str, tmp_path: Path) -> None:
    settings = Settings(tmp_path / "data", port=0)
    status = server.spawn(settings)
    once_more = (
        "[ -e $AZ_BATCH_NODE_SHARED_DIR/again ] && exit; touch $AZ_BATCH_NODE_SHARED_DIR/again; echo up; sleep 99"
    )
    try:
        with connect(status) as client:
            account = Account(client, tmp_path / "data", image)
            client.create_pool(pool(metadata=OWN))
            account.wait_for_nodes(1)
            client.create_job(job())
            task_id = account.send(planned(image, once_more))
            wait_for(lambda: has_said(account, task_id, "up"))
        left = containers.left_behind(tmp_path / "data")
        os.kill(status.pid, signal.SIGKILL)
        status = server.spawn(settings)
        with connect(status) as client:
            assert Account(client, tmp_path / "data", image).ended(task_id).exit_code == 0
        assert len(left) == 3  # a node's container, a task's and the network
        assert not set(left) & set(containers.left_behind(tmp_path / "data"))
    finally:
        server.stop(tmp_path / "data")
    assert containers.left_behind(tmp_path / "data") == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
