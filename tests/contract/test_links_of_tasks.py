"""Links that a task made never lead the emulator out of the node's directory, on process nodes and with containers."""

from __future__ import annotations

import shlex
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient, models

from batchtrain.emulator.server import Settings
from batchtrain.emulator.serving import Emulator
from tests.contract.conftest import connect, eventually, job, pool
from tests.waiting import GUARD

pytestmark = pytest.mark.process


class Blobs(BaseHTTPRequestHandler):
    """Takes every PUT. `/held` answers when it may go on, `/half` sends the second half of its body then."""

    asked = threading.Event()
    go_on = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/held":
            self._hold()
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"bo")
        if self.path == "/half":
            self._hold()
        self.wfile.write(b"dy")

    def _hold(self) -> None:
        self.asked.set()
        self.go_on.wait(GUARD)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def blobs() -> Iterator[str]:
    Blobs.asked.clear()
    Blobs.go_on.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Blobs) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        Blobs.go_on.set()
        server.shutdown()
        thread.join()


class Account:
    """An emulator with a node, whose tasks run in a container if there is an image."""

    def __init__(self, client: BatchClient, data_dir: Path, image: str) -> None:
        self.client, self.data_dir, self.image = client, data_dir, image

    def begin(self) -> None:
        made = pool(task_slots_per_node=2)
        if self.image:
            assert made.virtual_machine_configuration is not None
            made.virtual_machine_configuration.container_configuration = models.BatchContainerConfiguration(
                type="dockerCompatible", container_image_names=[self.image]
            )
        self.client.create_pool(made)
        self.client.create_job(job())
        self.idle()

    def idle(self) -> None:
        eventually(lambda: [node.state for node in self.client.list_nodes("pool")] == ["idle"], pause=0.02)

    @property
    def node(self) -> Path:
        (node,) = self.client.list_nodes("pool")
        return self.data_dir / "nodes" / "pool" / str(node.id)

    def add(self, task_id: str, script: str, job_id: str = "job", **more: Any) -> None:
        container = {"image_name": self.image, **more.pop("container", {})}
        task = models.BatchTaskCreateOptions(
            id=task_id,
            command_line=f"bash -ec {shlex.quote(script)}",
            container_settings=models.BatchTaskContainerSettings(**container) if self.image else None,
            user_identity=models.UserIdentity(
                auto_user=models.AutoUserSpecification(scope="pool", elevation_level=models.ElevationLevel.ADMIN)
            ),
            **more,
        )
        self.client.create_task(job_id, task)

    def ended(self, task_id: str, job_id: str = "job") -> tuple[int | None, str]:
        """Its exit code and failure code."""

        def info() -> Any:
            task = self.client.get_task(job_id, task_id)
            return task.execution_info if task.state == "completed" else None

        found = eventually(info, pause=0.02)
        return found.exit_code, found.failure_info.code if found.failure_info else ""

    def run(self, task_id: str, script: str, **more: Any) -> tuple[int | None, str]:
        self.add(task_id, script, **more)
        return self.ended(task_id)


@pytest.fixture(
    scope="module", params=["process", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow])]
)
def account(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    image = request.getfixturevalue("image") if request.param == "docker" else ""
    with pytest.MonkeyPatch.context() as patch:
        if not image:
            patch.setenv("DOCKER_HOST", "unix:///no/engine")
        data_dir = tmp_path_factory.mktemp("links") / "data"
        with Emulator(Settings(data_dir, port=0)) as emulator, connect(emulator) as client:
            made = Account(client, data_dir, image)
            made.begin()
            yield made


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A directory outside, with a file, that looks the same afterwards."""
    folder = tmp_path / "victim"
    folder.mkdir(mode=0o711)
    (folder / "file").write_text("safe")
    (folder / "file").chmod(0o640)
    before = look(folder)
    yield folder
    assert look(folder) == before


def look(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {path: path.lstat() for path in [folder, *folder.rglob("*")]}
    return {str(path): (status.st_mode, status.st_size, status.st_mtime_ns) for path, status in found.items()}


def file(url: str, path: str) -> models.ResourceFile:
    return models.ResourceFile(http_url=url, file_path=path)


def output(url: str, pattern: str) -> models.OutputFile:
    where = models.OutputFileBlobContainerDestination(container_url=f"{url}/box")
    return models.OutputFile(
        file_pattern=pattern,
        destination=models.OutputFileDestination(container=where),
        upload_options=models.OutputFileUploadConfiguration(upload_condition="taskcompletion"),
    )


# --- writing --------------------------------------------------------------------------------------------------------


def test_the_report_of_uploads_is_not_written_through_a_link(account: Account, victim: Path, blobs: str) -> None:
    script = f"echo x >out.txt; ln -s {victim}/file ../fileuploadout.txt; ln -s {victim}/new ../fileuploaderr.txt"
    assert account.run("report", script, output_files=[output(blobs, "*.txt")]) == (0, "FileUploadMiscError")


def test_a_profile_that_is_a_link_is_replaced_at_boot(account: Account, victim: Path) -> None:
    home = "$AZ_BATCH_NODE_ROOT_DIR/volatile/home/_azbatch"
    keys = f"mkdir -p {home}/.ssh; ln -sf {victim}/file {home}/.ssh/authorized_keys"
    assert account.run("profile", f"ln -sf {victim}/file {home}/.profile; {keys}") == (0, "")
    (node,) = account.client.list_nodes("pool")
    account.client.begin_reboot_node(
        "pool", str(node.id), {"nodeRebootOption": "requeue"}, polling_interval=0.02
    ).result()
    account.idle()
    profile = account.node / "volatile/home/_azbatch/.profile"
    assert not profile.is_symlink()
    assert profile.read_text().startswith("PATH=")


@pytest.mark.parametrize("moment", ["held", "half"])
def test_a_directory_that_is_swapped_during_a_download_changes_nothing(
    account: Account, victim: Path, blobs: str, moment: str
) -> None:
    task, data = f"swap-{moment}", f"workitems/job/job-1/swap-{moment}/wd/data"
    account.add(task, "true", resource_files=[file(f"{blobs}/{moment}", "data/x")])
    assert Blobs.asked.wait(GUARD)
    if moment == "half":  # until the file is open
        eventually(lambda: [*(account.node / data).glob(".*")])
    place = f"$AZ_BATCH_NODE_ROOT_DIR/{data}"
    script = f"[ ! -e {place} ] || mv {place} {place}.moved; ln -s {victim} {place}"
    assert account.run(f"swapper-{moment}", script) == (0, "")
    Blobs.go_on.set()
    if moment == "half":
        assert account.ended(task) == (0, "")
        assert (account.node / f"{data}.moved/x").read_text() == "body"
    else:
        assert account.ended(task) == (None, "ResourceFileWriteFailed")


def test_a_task_s_directory_that_is_swapped_before_its_command_starts_is_not_entered(
    account: Account, blobs: str
) -> None:
    """The victim is where the node's processes see it."""
    victim = account.data_dir / "victim"
    (victim / "wd").mkdir(parents=True)
    account.add("entered", "touch started", resource_files=[file(f"{blobs}/half", "x")])
    assert Blobs.asked.wait(GUARD)
    place = "$AZ_BATCH_NODE_ROOT_DIR/workitems/job/job-1/entered"
    assert account.run("entering", f"mv {place} {place}.moved; ln -s {victim} {place}") == (0, "")
    Blobs.go_on.set()
    assert account.ended("entered") == (None, "CommandLaunchFailed")
    assert sorted(path.name for path in victim.rglob("*")) == ["wd"]


def test_a_package_is_not_unpacked_through_a_link(account: Account, victim: Path) -> None:
    folder = account.data_dir / "applications" / "tool"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "1.zip", "w") as archive:
        archive.writestr("evil", "x")
    script = f"ln -s {victim} $AZ_BATCH_NODE_ROOT_DIR/applications/tool"
    assert account.run("linked-package", script) == (0, "")
    package = models.BatchApplicationPackageReference(application_id="tool", version="1")
    ended = account.run("package", "true", application_package_references=[package])
    assert ended == (None, "ApplicationPackageError")


# --- containers -----------------------------------------------------------------------------------------------------


BINDS = [models.ContainerHostBatchBindMountEntry(source="Shared", is_read_only=True)]


@pytest.mark.parametrize(
    "container",
    [{"container_host_batch_bind_mounts": BINDS}, {"container_run_options": "-v ROOT/shared:/shown"}],
    ids=["mount", "option"],
)
def test_the_engine_shows_a_container_nothing_behind_a_link_that_leads_out(
    account: Account, victim: Path, container: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    if not account.image:
        pytest.skip("process nodes show a task what they have")
    root, name = str(account.data_dir / "mnt" / "pool"), request.node.callspec.id.replace("[", "-")
    if "container_run_options" in container:
        container = {"container_run_options": container["container_run_options"].replace("ROOT", root)}
    assert account.run(f"{name}-hides", f"mv {root}/shared {root}/moved; ln -s {victim} {root}/shared") == (0, "")
    ended = account.run(f"{name}-looks", "cat /shown/file || cat $AZ_BATCH_NODE_SHARED_DIR/file", container=container)
    shared = account.node / "shared"
    shared.unlink()
    shared.with_name("moved").rename(shared)
    assert ended[0] != 0
    printed = account.node / f"workitems/job/job-1/{name}-looks/stdout.txt"
    assert not printed.exists() or printed.read_text() == ""


# --- reading --------------------------------------------------------------------------------------------------------


def test_outputs_behind_links_that_lead_out_are_not_sent(account: Account, victim: Path, blobs: str) -> None:
    script = f"ln -s {victim}/file linked.txt; ln -s {victim} up; echo x >own.txt"
    patterns = ("**/*", "*.txt", "up/file", "linked.txt", "up/*")
    assert account.run("sent", script, output_files=[output(blobs, pattern) for pattern in patterns]) == (0, "")
    report = (account.node / "workitems/job/job-1/sent/fileuploadout.txt").read_text().splitlines()
    assert sorted(set(report)) == ["nothing matches linked.txt", "nothing matches up/*", "nothing matches up/file",
                                   "own.txt"]  # fmt: skip
