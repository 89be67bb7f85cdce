"""A pool with containers on a real Docker Engine: the nodes' network, tasks, gangs, registries, failures, clean-up.

Needs a Docker Engine, and root with debootstrap for the first making of the image. See `tests/containers.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient, models

from batchtrain.emulator import mapped_images, server
from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests import containers
from tests.contract.conftest import connect, eventually, job, pool, serves

pytestmark = [pytest.mark.docker, pytest.mark.process, pytest.mark.slow, pytest.mark.usefixtures("engine")]
ADMIN = models.UserIdentity(
    auto_user=models.AutoUserSpecification(scope="pool", elevation_level=models.ElevationLevel.ADMIN)
)


@pytest.fixture(scope="module")
def account(image: str) -> Iterator[Account]:
    """An emulator with a pool of two nodes whose start task has run; not in /tmp, which is each node's own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield from account_at(image, Path(directory) / "data")


def account_at(image: str, data_dir: Path) -> Iterator[Account]:
    with Emulator(Settings(data_dir, port=0)) as emulator, connect(emulator) as client:
        account = Account(client, data_dir, image)
        start = models.BatchStartTask(command_line="bash -c 'hostname -I > $AZ_BATCH_NODE_SHARED_DIR/host; ls /'")
        client.create_pool(with_containers([image], nodes=2, enable_inter_node_communication=True, start_task=start))
        account.wait_for_nodes(2)
        client.create_job(job())
        yield account
    assert containers.left_behind(data_dir) == []


class Account:
    """A client of one emulator and what tests ask of it."""

    def __init__(self, client: BatchClient, data_dir: Path, image: str) -> None:
        self.client, self.data_dir, self.image = client, data_dir, image
        self._number = 0

    def nodes(self) -> list[models.BatchNode]:
        return list(self.client.list_nodes("pool"))

    def wait_for_nodes(self, count: int) -> None:
        wait_for(lambda: [node.state for node in self.nodes()] == ["idle"] * count)

    def add(self, command: str, image: str = "", options: str = "", **more: Any) -> str:
        """Add a task in a container; returns its id."""
        self._number += 1
        task_id = f"task-{self._number}"
        container = {"image_name": image or self.image, "container_run_options": options or None}
        settings = models.BatchTaskContainerSettings(**{**container, **more.pop("container", {})})
        task = models.BatchTaskCreateOptions(
            id=task_id, command_line=command, container_settings=settings, **{"user_identity": ADMIN, **more}
        )
        self.client.create_task("job", task)
        return task_id

    def ended(self, task_id: str) -> models.BatchTask:
        wait_for(lambda: self.client.get_task("job", task_id).state == "completed")
        return self.client.get_task("job", task_id)

    def run(self, command: str, image: str = "", options: str = "", **more: Any) -> models.BatchTask:
        return self.ended(self.add(command, image, options, **more))

    def read(self, task_id: str, name: str = "stdout.txt") -> str:
        return b"".join(self.client.download_task_file("job", task_id, name)).decode()

    def output(self, command: str, options: str = "", **more: Any) -> str:
        """What a command that succeeds prints."""
        task = self.run(command, options=options, **more)
        assert execution(task).exit_code == 0, (execution(task), self.read(str(task.id), "stderr.txt"))
        return self.read(str(task.id))


def with_containers(
    names: list[str], registries: list[models.ContainerRegistryReference] | None = None, **more: Any
) -> models.BatchPoolCreateOptions:
    """A pool whose tasks run in containers."""
    made = pool(**more)
    assert made.virtual_machine_configuration is not None
    made.virtual_machine_configuration.container_configuration = models.BatchContainerConfiguration(
        type="dockerCompatible", container_image_names=names, container_registries=registries
    )
    return made


def wait_for(holds: Callable[[], Any]) -> Any:
    return eventually(holds, pause=0.05)


def execution(task: models.BatchTask) -> models.BatchTaskExecutionInfo:
    assert task.execution_info is not None
    return task.execution_info


def failure(task: models.BatchTask) -> tuple[str | None, str]:
    """(code, everything that is said)."""
    info = execution(task).failure_info
    assert info is not None
    return info.code, " ".join([str(info.message), *(str(one.value) for one in info.details or [])])


# --- a task ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["-v {data}:/x", "--mount type=bind,src={data},dst=/x", "--env-file {data}/key"])
def test_run_options_cannot_name_what_is_the_emulators(account: Account, options: str) -> None:
    task = account.run("bash -c 'cat /x/key; env'", options=options.format(data=account.data_dir))
    code, message = failure(task)
    assert (code, "belongs to the emulator" in message) == ("ContainerInvalidSettings", True)


def test_a_link_of_the_nodes_cannot_lead_a_container_to_what_is_the_emulators(account: Account) -> None:
    account.output(f"bash -c 'ln -s {account.data_dir} $AZ_BATCH_NODE_SHARED_DIR/link'")
    where = account.output("bash -c 'echo -n $AZ_BATCH_NODE_SHARED_DIR'")
    # On the other node the engine makes a directory of that name, which is the node's.
    outcomes = [account.run("cat /x/key", options=f"-v {where}/link:/x") for _ in range(4)]
    assert 0 not in {execution(task).exit_code for task in outcomes}


@pytest.mark.parametrize("path", ["{data}/key", "/x/{name}/key", "/proc/1/root{data}/key", "{data}/nodes/*/*/x"])
def test_a_container_cannot_read_what_is_the_emulators(account: Account, path: str) -> None:
    data = account.data_dir
    words = path.format(data=data, name=data.name)
    task = account.run(f"bash -c 'ls /x/{data.name}; cat {words}'", options=f"-v {data.parent}:/x")
    assert execution(task).exit_code == 1
    assert "No such file" in account.read(str(task.id), "stderr.txt")


def test_a_task_runs_in_its_image_with_batchs_environment_and_the_nodes_directory(account: Account) -> None:
    printed = account.output(
        "bash -c 'type -P mpirun; id -u; echo $AZ_BATCH_TASK_ID; pwd; echo kept > made; ls $AZ_BATCH_NODE_ROOT_DIR'"
    ).split()
    assert printed[:2] == ["/opt/venv/bin/mpirun", "0"]
    task_id, directory = printed[2:4]
    assert directory.endswith(f"/workitems/job/job-1/{task_id}/wd")
    assert {"shared", "startup", "workitems"} <= set(printed[4:])
    assert account.read(task_id, "wd/made") == "kept\n"


def test_each_node_has_an_address_and_a_host_name_of_its_own_that_all_tasks_on_it_share(account: Account) -> None:
    addresses = {str(node.ip_address) for node in account.nodes()}
    assert len(addresses) == 2
    assert all(address.startswith("10.") for address in addresses)
    for node in account.nodes():
        where = models.BatchAffinityInfo(affinity_id=str(node.affinity_id))
        printed = account.output(
            "bash -c 'hostname -I; cat $AZ_BATCH_NODE_SHARED_DIR/host; hostname'", affinity_info=where
        ).split()
        if str(node.ip_address) in printed:  # affinity is a wish
            assert printed[:2] == [node.ip_address, node.ip_address if os.getuid() == 0 else printed[1]]


@pytest.mark.skipif(os.getuid() != 0, reason="to enter a node's network is root's")
def test_the_service_is_where_a_nodes_environment_says_though_its_network_is_its_own(account: Account) -> None:
    ask = (
        "import json, os, urllib.error, urllib.request\n"
        "try: urllib.request.urlopen(os.environ['AZ_BATCH_ACCOUNT_URL'] + '/pools?api-version=2025-06-01')\n"
        "except urllib.error.HTTPError as refused: print(json.load(refused)['code'])\n"
    )
    assert account.output(f"python3 -c {shlex.quote(ask)}") == "AuthenticationFailed\n"


@pytest.mark.skipif(os.getuid() != 0, reason="to enter a node's network is root's")
def test_a_frontend_port_leads_to_a_server_in_a_container(image: str, tmp_path: Path) -> None:
    web = models.BatchInboundNatPool(
        name="web", protocol="tcp", backend_port=8080, frontend_port_range_start=41000, frontend_port_range_end=41099
    )
    endpoints = models.NetworkConfiguration(
        endpoint_configuration=models.BatchPoolEndpointConfiguration(inbound_nat_pools=[web])
    )
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator, connect(emulator) as client:
        account = Account(client, tmp_path / "data", image)
        client.create_pool(with_containers([image], network_configuration=endpoints))
        account.wait_for_nodes(1)
        client.create_job(job())
        account.add("python3 -m http.server 8080")
        (endpoint,) = account.nodes()[0].endpoint_configuration.inbound_endpoints
        url = f"http://{endpoint.public_ip_address}:{endpoint.frontend_port}/"
        assert wait_for(lambda: serves(url))


def test_the_start_task_runs_on_the_host_and_not_in_the_image(account: Account) -> None:
    for node in account.nodes():
        listed = b"".join(account.client.download_node_file("pool", str(node.id), "startup/stdout.txt")).decode()
        assert sorted(listed.split()) == sorted(path.name for path in Path("/").iterdir() if path.name[0] != ".")


def test_run_options_are_docker_creates(account: Account) -> None:
    options = "--shm-size=256m --rm --name=x -p 80:80 --net host -e MINE='a b' --label batchtrain.emulator=x"
    printed = account.output(
        "bash -c 'df -m --output=size /dev/shm | tail -1; echo $MINE'", f"{options} --device=/dev/infiniband"
    )
    assert printed.split() == ["256", "a", "b"]
    assert account.output("-c 'print(6 * 7)'", "--entrypoint=python3") == "42\n"
    wait_for(lambda: task_containers(account.data_dir) == [])


def test_a_bind_of_the_nodes_own_directory_is_the_nodes(account: Account) -> None:
    printed = account.output("ls /keys", "-v /home/_azbatch/.ssh:/keys:ro")
    assert printed.split() == ["authorized_keys", "intra_pool_rsa", "intra_pool_rsa.pub"]


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "options", "code", "words"),
    [
        ("no-such-program", "", "CommandProgramNotFound", "no-such-program"),
        ("/etc/passwd", "", "CommandLaunchFailed", "permission denied"),
        ("true", "--bogus=3", "ContainerInvalidSettings", "unknown flag: --bogus"),
        ("true", "-v", "ContainerInvalidSettings", "needs a value"),
        ("true", "--name='x", "ContainerInvalidSettings", "cannot be split"),
        ("true", "--memory=much", "ContainerInvalidSettings", "much"),
        ("true", "--mount type=bind,source=/no/such,target=/x", "ContainerInvalidSettings", "/no/such"),
        ("true", "--network=no-such-network", "ContainerMiscError", "no-such-network"),
        ("true", "--gpus=8", "ContainerInvalidSettings", "device"),
    ],
)
def test_what_cannot_start_has_batchs_code_and_the_engines_reason(
    account: Account, command: str, options: str, code: str, words: str
) -> None:
    found, said = failure(account.run(command, options=options))
    assert found == code, said
    assert words in said


def test_an_image_that_is_nowhere_fails_the_task(account: Account) -> None:
    found, said = failure(account.run("true", "127.0.0.1:1/no/such:image"))
    assert found == "ContainerInvalidRegistry"
    assert "127.0.0.1:1/no/such:image" in said


def test_an_image_for_another_architecture_fails_the_task(account: Account, tmp_path: Path) -> None:
    with containers.of_another_architecture(tmp_path) as name:
        found, said = failure(account.run("true", name))
    assert found == "ContainerInvalidImage"
    assert "s390x" in said


def test_a_container_that_uses_up_its_memory_is_named(account: Account) -> None:
    task = account.run("python3 -c 'bytearray(400 << 20)'", options="--memory=64m --memory-swap=64m")
    assert execution(task).exit_code == 137
    assert "memory (--memory=64m) was used up" in failure(task)[1]


def has_said(account: Account, task_id: str, word: str) -> bool:
    with contextlib.suppress(Exception):  # there is no file yet
        return word in account.read(task_id)
    return False


def task_containers(data_dir: Path) -> list[str]:
    """The containers of an emulator that are no node's own."""
    label = f"label=batchtrain.emulator={data_dir}"
    listed = containers.docker("ps", "--all", "--filter", label, "--format", "{{.ID}} {{.Image}}").splitlines()
    return [line for line in listed if "batchtrain/node" not in line]


ONCE_MORE = "bash -c '[ -e $AZ_BATCH_NODE_SHARED_DIR/again ]; first=$?; echo up; sleep $((60 * first))'"
"""Sleeps, until it is let pass and runs once more."""


def let_it_pass(data_dir: Path) -> None:
    for node in data_dir.glob("nodes/pool/*"):
        (node / "shared/again").touch()


# --- gangs ----------------------------------------------------------------------------------------------------------

COORDINATION = """bash -c 'set -e; touch /of-the-coordination; mkdir -p /run/sshd ~/.ssh
ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key
cp /home/_azbatch/.ssh/* ~/.ssh/; chmod 600 ~/.ssh/*; /usr/sbin/sshd -p 23'"""
APPLICATION = """bash -c 'mkdir -p ~/.ssh; cp /home/_azbatch/.ssh/* ~/.ssh/; ls /of-the-coordination 2>/dev/null
for host in ${AZ_BATCH_HOST_LIST//,/ }; do
ssh -p 23 -i ~/.ssh/intra_pool_rsa -o StrictHostKeyChecking=no -o LogLevel=ERROR $host hostname -I; done'"""
KEY = "-v /home/_azbatch/.ssh:/home/_azbatch/.ssh:ro"


@pytest.mark.parametrize("shared", [False, True])
def test_a_gang_reaches_each_containers_sshd_on_port_23(image: str, tmp_path: Path, shared: bool) -> None:
    metadata = [models.BatchMetadataItem(name="batchtrain-gang-containers", value="one" if shared else "two")]
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator, connect(emulator) as client:
        account = Account(client, tmp_path / "data", image)
        client.create_pool(with_containers([], nodes=2, enable_inter_node_communication=True, metadata=metadata))
        account.wait_for_nodes(2)
        client.create_job(job())
        gang = models.MultiInstanceSettings(number_of_instances=2, coordination_command_line=COORDINATION)
        task = account.run(APPLICATION, options=KEY, multi_instance_settings=gang)
        assert execution(task).exit_code == 0, account.read(str(task.id), "stderr.txt")
        printed = account.read(str(task.id)).split()
        assert ("/of-the-coordination" in printed) == shared
        assert {str(node.ip_address) for node in account.nodes()} <= set(printed)
        (subtask,) = client.list_subtasks("job", str(task.id))
        assert subtask.container_info is not None
        assert (subtask.exit_code, subtask.container_info.state) == (0, "running")
        wait_for(lambda: task_containers(tmp_path / "data") == [])


def recipe_in(folder: Path, recipe: Path, image: str) -> Path:
    """A copy of a recipe that names an image of this engine."""
    copy = folder / "recipe"
    shutil.copytree(recipe, copy)
    for file in copy.glob("config/*.yaml"):
        file.write_text(file.read_text().replace("example/openmpi:digits", image))
    return copy


def run_recipe(recipe: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a person would; nothing is left of it afterwards."""
    environment = {**os.environ, "BATCHTRAIN_EMULATOR_DIR": str(folder / "emulator")}
    command = [Path(sys.executable).parent / "batchtrain", "run", recipe, "--local"]
    try:
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    finally:
        server.stop(folder / "emulator")
    assert containers.left_behind(folder / "emulator") == []
    return done


@pytest.mark.mpi
def test_a_recipe_trains_in_two_containers_through_their_sshds(image: str, tmp_path: Path, root: Path) -> None:
    done = run_recipe(recipe_in(tmp_path, root / "recipes/mpi4py-OpenMPI", image), tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    accuracy = float(done.stdout.partition("test accuracy ")[2].split()[0])
    assert accuracy >= 0.95
    assert "ranks 4 hosts 2 " in done.stdout


@pytest.mark.mpi
def test_a_mapped_image_beside_another_trains_over_the_network_of_the_nodes(
    image: str, tmp_path: Path, root: Path, mpi_environment: Callable[[str], Path]
) -> None:
    """The gang runs on the hosts of Docker nodes, each of which has a loopback interface of its own."""
    recipe = recipe_in(tmp_path, root / "recipes/mpi4py-OpenMPI", "example/openmpi:digits")
    config, jobs = recipe / "config/config.yaml", recipe / "config/jobs.yaml"
    config.write_text(f"{config.read_text().rstrip()}\n  - {image}\n")
    jobs.write_text(jobs.read_text().replace("command: export", "command: echo $AZ_BATCH_HOST_LIST; export"))
    mapped_images.map_image(tmp_path / "emulator", "example/openmpi:digits", mpi_environment("openmpi"))
    done = run_recipe(recipe, tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    hosts = done.stdout.partition("\n")[0].split(",")
    assert [host.startswith("127.") for host in hosts] == [False, False]
    assert float(done.stdout.partition("test accuracy ")[2].split()[0]) >= 0.95


FAILING = """
import os, time
from mpi4py import MPI
MPI.COMM_WORLD.barrier()
MPI.COMM_WORLD.Get_rank() == 3 and os._exit(7)
time.sleep(60)
"""


@pytest.mark.mpi
def test_a_rank_that_dies_in_its_container_ends_the_gang_and_is_named(image: str, tmp_path: Path, root: Path) -> None:
    recipe = recipe_in(tmp_path, root / "recipes/mpi4py-OpenMPI", image)
    (recipe / "src/train.py").write_text(FAILING)
    done = run_recipe(recipe, tmp_path)
    assert done.returncode == 10, done.stderr[-2000:]
    assert re.search(r"rank 3 on node tvmps_\w+…_d \(10\.[\d.]+\) exited with code 7", done.stderr)


# --- registries -----------------------------------------------------------------------------------------------------


def login(registry: containers.Registry, password: str = "") -> models.ContainerRegistryReference:
    return models.ContainerRegistryReference(
        registry_server=registry.server, username=registry.username, password=password or registry.password
    )


def test_a_pools_images_are_fetched_with_its_login_and_the_password_shows_nowhere(
    image: str, registry: containers.Registry, tmp_path: Path
) -> None:
    name = registry.push(f"{image}-base", "team-a/digits:v1.0")
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator, connect(emulator) as client:
        account = Account(client, tmp_path / "data", name)
        start = models.BatchStartTask(
            command_line="cat /etc/hostname", container_settings=models.BatchTaskContainerSettings(image_name=name)
        )
        client.create_pool(with_containers([name], [login(registry)], nodes=2, start_task=start))
        account.wait_for_nodes(2)
        client.create_job(job())
        assert account.output("hostname -I").startswith("10.")
        assert all(node.start_task_info and node.start_task_info.container_info for node in account.nodes())
        assert registry.password not in json.dumps(client.get_pool("pool").as_dict())
    containers.docker("rmi", name)
    asked = registry.log.read_text().count("GET /v2/team-a/digits/manifests/v1.0")
    assert registry.log.read_text().count('"GET /v2/team-a/digits/blobs') <= max(asked, 4)


@pytest.mark.parametrize("given", ["wrong", None])
def test_a_registry_that_refuses_makes_the_nodes_unusable(
    image: str, registry: containers.Registry, tmp_path: Path, given: str | None
) -> None:
    name = registry.push(f"{image}-base", "team-a/refused:1")
    with Emulator(Settings(tmp_path / "data", port=0)) as emulator, connect(emulator) as client:
        logins = [login(registry, given)] if given else None
        client.create_pool(with_containers([name], logins))
        (node,) = wait_for(lambda: [one for one in client.list_nodes("pool") if one.state == "unusable"])
        (error,) = node.errors or []
        assert error.code == "ContainerInvalidRegistry"
        assert name in str(error.message)
        assert (given or "none") not in str(error.message)


# --- other lives ----------------------------------------------------------------------------------------------------


def test_what_a_killed_emulator_left_is_gone_after_its_next_start(image: str, tmp_path: Path) -> None:
    settings = Settings(tmp_path / "data", port=0)
    status = server.spawn(settings)
    try:
        with connect(status) as client:
            account = Account(client, tmp_path / "data", image)
            client.create_pool(with_containers([]))
            account.wait_for_nodes(1)
            client.create_job(job())
            task_id = account.add(ONCE_MORE)
            wait_for(lambda: has_said(account, task_id, "up"))
            let_it_pass(tmp_path / "data")
        left = containers.left_behind(tmp_path / "data")
        os.kill(status.pid, signal.SIGKILL)
        status = server.spawn(settings)
        with connect(status) as client:
            account = Account(client, tmp_path / "data", image)
            info = execution(account.ended(task_id))
            assert (info.exit_code, info.requeue_count) == (0, 1)
        assert len(left) == 3  # a node's container, a task's and the network
        assert not set(left) & set(containers.left_behind(tmp_path / "data"))
    finally:
        server.stop(tmp_path / "data")
    assert containers.left_behind(tmp_path / "data") == []
