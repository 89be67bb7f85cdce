"""Files that nodes fetch from storage, send to it and share with it, with a storage service in the test process."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from batchtrain.emulator.interface import Download, StorageAccount, Upload
from batchtrain.emulator.machine import output_files, resource_files, storage_links
from batchtrain.emulator.machine.mounted_containers import MountedContainer
from batchtrain.emulator.machine.output_files import Source, UploadError
from batchtrain.emulator.machine.resource_files import DownloadError
from batchtrain.emulator.machine.rooted_path import RootedPath
from tests.unit.emulator.fake_blobs import FakeBlobs, serve

KEY = base64.b64encode(b"secret").decode()
TASK = "job/task"


def never() -> bool:
    return False


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBlobs]:
    monkeypatch.setattr(output_files, "PAUSE_SECONDS", 0.0)
    with serve() as service:
        service.containers["box"] = {}
        yield service


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "node" / TASK / "wd").mkdir(parents=True)
    return tmp_path / "node"


# --- resource files -------------------------------------------------------------------------------------------------


def fetch(node: Path, url: str, path: str = "file", called_off: Callable[[], bool] = never, **more: object) -> None:
    item = Download(url, path, **more)  # type: ignore[arg-type]
    resource_files.fetch(item, "job/task/wd", RootedPath(node), called_off)


@pytest.mark.parametrize(("modes", "expected"), [({"mode": "0640"}, 0o640), ({}, 0o770)])
def test_a_file_comes_whole_with_its_mode(blobs: FakeBlobs, node: Path, modes: dict[str, str], expected: int) -> None:
    blobs.put("box", "a b#", b"x" * 200_000)
    fetch(node, f"{blobs.endpoint}/box/a%20b%23", "deep/file", **modes)
    file = node / TASK / "wd/deep/file"
    assert (file.read_bytes(), file.stat().st_mode & 0o7777) == (b"x" * 200_000, expected)


def test_the_blobs_with_a_prefix_come_by_their_names(blobs: FakeBlobs, node: Path) -> None:
    for name in ("in/a", "in/b/c", "in/folder/", "in/d", "out/e"):
        blobs.put("box", name, name.encode())
    fetch(node, f"{blobs.endpoint}/box?sig=1", "to/", container=True, prefix="in/")
    files = [path.relative_to(node / TASK / "wd").as_posix() for path in node.rglob("*") if path.is_file()]
    assert sorted(files) == ["to/in/a", "to/in/b/c", "to/in/d"]
    assert all(query["sig"] == "1" for query in blobs.queries)
    fetch(node, f"{blobs.endpoint}/box", "", container=True, prefix="out/")
    assert (node / TASK / "wd/out/e").read_text() == "out/e"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, "BlobAccessDenied"), (403, "BlobAccessDenied"), (404, "BlobNotFound"), (409, "BlobAccessDenied"),
        (500, "BlobDownloadMiscError"),
    ],
)  # fmt: skip
def test_a_refused_file_has_batchs_code_and_an_address_without_signature(
    blobs: FakeBlobs, node: Path, status: int, code: str
) -> None:
    blobs.failures = [status]
    with pytest.raises(DownloadError, match=f"/box/a: HTTP {status}") as refusal:
        fetch(node, f"{blobs.endpoint}/box/a?sig=secret")
    assert refusal.value.code == code
    assert "secret" not in str(refusal.value)


def test_a_file_that_breaks_off_is_not_there(blobs: FakeBlobs, node: Path) -> None:
    blobs.put("box", "a", b"part")
    blobs.short = 3
    with pytest.raises(DownloadError, match="the connection was closed 3 bytes early") as refusal:
        fetch(node, f"{blobs.endpoint}/box/a")
    assert refusal.value.code == "BlobDownloadMiscError"
    assert list((node / TASK / "wd").iterdir()) == []


def test_a_file_that_takes_too_long_or_is_called_off_is_not_there(
    blobs: FakeBlobs, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.put("box", "a", b"data")
    monkeypatch.setattr(resource_files, "MOST_SECONDS", -1.0)
    with pytest.raises(DownloadError, match="was not complete") as refusal:
        fetch(node, f"{blobs.endpoint}/box/a")
    assert refusal.value.code == "BlobDownloadTimedOut"
    for url, answers in ((f"{blobs.endpoint}/box/a", [False, True, True]), ("x:", [True])):
        with pytest.raises(DownloadError, match="called off"):
            fetch(node, url, called_off=iter(answers).__next__)
    assert list((node / TASK / "wd").iterdir()) == []


@pytest.mark.parametrize("path", ["", "/etc/x", "../../../../x", "link/x"])
def test_a_file_whose_path_leads_out_of_the_node_is_refused(blobs: FakeBlobs, node: Path, path: str) -> None:
    blobs.put("box", "a", b"data")
    (node / TASK / "wd/link").symlink_to("/etc")
    with pytest.raises(DownloadError, match="leads out of the node's directory") as refusal:
        fetch(node, f"{blobs.endpoint}/box/a", path)
    assert refusal.value.code == "ResourceFileWriteFailed"


@pytest.mark.parametrize(
    ("url", "message"), [("ftp://h/a", "only http and https"), ("http://127.0.0.1:1/a", "refused")]
)
def test_an_address_that_cannot_be_read_is_told(node: Path, url: str, message: str) -> None:
    with pytest.raises(DownloadError, match=message) as refusal:
        fetch(node, url)
    assert refusal.value.code == "BlobDownloadMiscError"


def test_a_list_that_is_no_list_is_told(blobs: FakeBlobs, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_page", lambda *_: b"<R>")
    with pytest.raises(DownloadError, match="the list of its blobs cannot be read"):
        fetch(node, f"{blobs.endpoint}/box", "to", container=True)


# --- output files ---------------------------------------------------------------------------------------------------


def send(node: Path, blobs: FakeBlobs, *patterns: str, path: str = "", headers: Mapping[str, str] = {}) -> None:
    uploads = tuple(
        Upload(pattern, f"{blobs.endpoint}/box?sig=s", path, headers=tuple(headers.items())) for pattern in patterns
    )
    output_files.send(uploads, Source(RootedPath(node), "/mnt", TASK, {"NAME": "model"}), never)


def report(node: Path, name: str) -> str:
    return (node / TASK / name).read_text()


def test_matching_files_are_sent_by_their_names_and_listed(blobs: FakeBlobs, node: Path) -> None:
    for name in ("model.pt", "logs/a.txt", "logs/b.txt", ".hidden"):
        file = node / TASK / "wd" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(name)
    (node / TASK / "stdout.txt").write_text("out")
    send(node, blobs, "$NAME.pt", "logs/*.txt", "../stdout.txt", "none*", "/etc/passwd")
    assert blobs.texts("box") == {
        "model.pt": "model.pt", "a.txt": "logs/a.txt", "b.txt": "logs/b.txt", "stdout.txt": "out",
    }  # fmt: skip
    assert report(node, "fileuploadout.txt").splitlines() == [
        "model.pt", "a.txt", "b.txt", "stdout.txt", "nothing matches none*", "nothing matches /etc/passwd",
    ]  # fmt: skip
    assert report(node, "fileuploaderr.txt") == ""


def test_a_large_file_is_sent_in_blocks_with_its_content_type(
    blobs: FakeBlobs, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_files, "BLOCK", 4)
    for name, data in (("small", b"1234"), ("large", b"123456789")):
        (node / TASK / "wd" / name).write_bytes(data)
    send(node, blobs, "small", "large", headers={"Content-Type": "text/plain"})
    assert blobs.texts("box") == {"small": "1234", "large": "123456789"}
    small, large = (blobs.containers["box"][name].headers for name in ("small", "large"))
    assert (small["content-type"], large["x-ms-blob-content-type"]) == ("text/plain", "text/plain")
    assert small["x-ms-blob-type"] == "BlockBlob"
    assert [query.get("comp") for query in blobs.queries] == [None, "block", "block", "block", "blocklist"]
    assert all(query["sig"] == "s" for query in blobs.queries)


@pytest.mark.parametrize("failures", [[500], [500, 503]])
def test_a_transient_failure_is_retried_twice_and_the_whole_file_sent_again(
    blobs: FakeBlobs, node: Path, failures: list[int]
) -> None:
    (node / TASK / "wd/a").write_text("a")
    blobs.failures = failures
    send(node, blobs, "a")
    assert blobs.texts("box") == {"a": "a"}


@pytest.mark.parametrize(
    ("failures", "code"),
    [
        ([500, 500, 500], "FileUploadMiscError"), ([403], "FileUploadAccessDenied"),
        ([404], "FileUploadContainerNotFound"), ([499], "FileUploadMiscError"),
    ],
)  # fmt: skip
def test_a_refusal_is_not_retried_and_does_not_stop_the_other_uploads(
    blobs: FakeBlobs, node: Path, failures: list[int], code: str
) -> None:
    for name in ("a", "b"):
        (node / TASK / "wd" / name).write_text(name)
    blobs.failures = list(failures)
    with pytest.raises(UploadError, match=f"/box/a: HTTP {failures[-1]}") as refusal:
        send(node, blobs, "a", "b")
    assert (refusal.value.code, len(blobs.requests), blobs.texts("box")) == (code, len(failures) + 1, {"b": "b"})
    assert report(node, "fileuploaderr.txt").startswith("a: http")
    assert report(node, "fileuploadout.txt") == "b\n"


def test_a_file_that_becomes_shorter_or_is_called_off_is_not_sent(blobs: FakeBlobs, node: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    with (tmp_path / "file").open("rb") as file:
        with pytest.raises(UploadError, match="called off"):
            output_files.put(f"{blobs.endpoint}/box/a", file, {}, lambda: True)
        part = output_files._Part(file, 1, 5, never)
        part.rewind()
        assert (len(part), part.read(2), part.read()) == (5, b"23", b"4")
        with pytest.raises(UploadError, match="became shorter"):
            part.read()


def test_only_due_uploads_apply() -> None:
    due = {
        (condition, code): output_files.applies(Upload("a", "b", condition=condition), code)
        for condition in ("tasksuccess", "taskfailure", "taskcompletion")
        for code in (0, 1)
    }
    assert [key for key, applies in due.items() if not applies] == [("tasksuccess", 1), ("taskfailure", 0)]


def test_the_logs_of_a_node_are_its_agents_and_the_lines_that_name_it(blobs: FakeBlobs, tmp_path: Path) -> None:
    for pool, text in (("p", "one\n"), ("q", "two\n")):
        folder = tmp_path / "machine" / pool / "nodes" / "n1"
        folder.mkdir(parents=True)
        (folder / "agent.log").write_text(text)
    (tmp_path / "emulator.log").write_text("n1 died\nn2 died\nn1 came\n")
    (tmp_path / "emulator.log.1").write_text("n1 first\n")
    output_files.send_logs(tmp_path, "n1", f"{blobs.endpoint}/box?sig=s", "logs")
    assert blobs.texts("box") == {"logs/agent.log": "one\ntwo\n", "logs/events.log": "n1 first\nn1 died\nn1 came\n"}


# --- signatures -----------------------------------------------------------------------------------------------------


def test_the_signed_address_of_a_container_is_the_sdks() -> None:
    from azure.storage.blob import generate_account_sas  # slow to import

    url = storage_links.container_url(StorageAccount("account", KEY, "http://h/account"), "box")
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    theirs = generate_account_sas(
        "account", KEY, resource_types="sco", permission="rwdlac", expiry=query["se"], services="b"
    )
    assert urlsplit(url).path == "/account/box"
    assert sorted(query) == ["se", "sig", "sp", "srt", "ss", "sv"]
    assert {"sp", "srt", "ss", "se"} <= {pair.partition("=")[0] for pair in theirs.split("&")}


# --- mounted containers ---------------------------------------------------------------------------------------------


class Mounted:
    """A mounted container: its directory and its blobs."""

    def __init__(self, blobs: FakeBlobs, data_dir: Path) -> None:
        self.blobs, self.data_dir, self.directory = blobs, data_dir, data_dir / "mounts/box"
        self.directory.mkdir(parents=True)
        self.account = StorageAccount("account", KEY, blobs.endpoint)
        self.container = self.again()

    def again(self) -> MountedContainer:
        """As an emulator makes it that starts."""
        self.container = MountedContainer(self.data_dir, "mounts/box", "box")
        return self.container

    def copy(self) -> tuple[dict[str, str], dict[str, str]]:
        """The files and the blobs after a copy."""
        self.container.copy(self.account)
        files = {
            path.relative_to(self.directory).as_posix(): path.read_text()
            for path in self.directory.rglob("*")
            if path.is_file()
        }
        return files, self.blobs.texts("box")

    def write(self, name: str, text: str, at: float = 1_000_000_000.0) -> None:
        file = self.directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        os.utime(file, (at, at))


@pytest.fixture
def mounted(blobs: FakeBlobs, tmp_path: Path) -> Mounted:
    return Mounted(blobs, tmp_path)


def test_both_sides_get_what_they_lack_and_its_state_is_the_owners(mounted: Mounted) -> None:
    mounted.write("deep/a b#.txt", "a")
    mounted.blobs.put("box", "other/c", b"c")
    both = {"deep/a b#.txt": "a", "other/c": "c"}
    assert mounted.copy() == (both, both)
    assert (mounted.directory / "other/c").stat().st_mode & 0o777 == 0o777
    state = mounted.data_dir / "storage" / "mounted"
    assert (state.stat().st_mode & 0o777, [path.name for path in state.iterdir()]) == (0o700, ["box.json"])
    before = len(mounted.blobs.requests)
    assert mounted.copy() == (both, both)
    assert all("box/" not in request for request in mounted.blobs.requests[before:]), "nothing travels twice"


@pytest.mark.parametrize("restart", [False, True])
def test_a_change_or_a_deletion_comes_to_the_other_side(mounted: Mounted, restart: bool) -> None:
    for name in ("changed", "rewritten", "removed", "deleted"):
        mounted.write(name, "old")
    mounted.copy()
    mounted.write("changed", "newer", at=999_999_999.0)
    (mounted.directory / "removed").unlink()
    mounted.blobs.put("box", "rewritten", b"newest")
    del mounted.blobs.containers["box"]["deleted"]
    if restart:
        mounted.again()
    both = {"changed": "newer", "rewritten": "newest"}
    assert mounted.copy() == (both, both)
    assert mounted.copy() == (both, both)


@pytest.mark.parametrize(("file_at", "text"), [(1_000_000_001.0, "file"), (999_999_999.0, "blob"), (1e9, "blob")])
def test_of_two_changes_the_later_wins(mounted: Mounted, file_at: float, text: str) -> None:
    mounted.write("a", "file", at=file_at)
    mounted.blobs.put("box", "a", b"blob")
    assert mounted.copy() == ({"a": text}, {"a": text})


def test_a_change_wins_over_a_deletion_and_what_is_gone_on_both_sides_is_forgotten(mounted: Mounted) -> None:
    for name in ("a", "b", "gone"):
        mounted.write(name, "old")
    mounted.copy()
    for name in ("a", "gone"):
        del mounted.blobs.containers["box"][name]
    mounted.write("a", "new", at=1_000_000_005.0)
    for name in ("b", "gone"):
        (mounted.directory / name).unlink()
    mounted.blobs.put("box", "b", b"new")
    both = {"a": "new", "b": "new"}
    assert mounted.copy() == (both, both)
    mounted.write("gone", "old")
    assert mounted.copy()[1] == {**both, "gone": "old"}


def test_a_new_directory_or_a_new_container_is_filled_and_not_emptied(mounted: Mounted) -> None:
    mounted.write("a", "a")
    mounted.copy()
    (mounted.directory / "a").unlink()
    mounted.again()
    assert mounted.copy() == ({"a": "a"}, {"a": "a"})
    del mounted.blobs.containers["box"]
    mounted.container.create(mounted.account)
    assert mounted.copy() == ({"a": "a"}, {"a": "a"})


def test_a_container_that_exists_keeps_its_blobs_and_a_refusal_is_told(mounted: Mounted) -> None:
    mounted.write("a", "a")
    mounted.copy()
    mounted.container.create(mounted.account)
    (mounted.directory / "a").unlink()
    assert mounted.copy() == ({}, {})
    mounted.blobs.failures = [403]
    with pytest.raises(OSError, match="403"):
        mounted.container.create(mounted.account)


def test_a_name_of_a_blob_may_have_1024_characters(mounted: Mounted) -> None:
    name = "/".join(["a" * 204] * 5)
    assert len(name) == 1024
    mounted.blobs.put("box", name, b"x")
    assert mounted.copy()[0] == {name: "x"}


def test_a_copy_that_cannot_be_noted_is_told_and_fails_nothing(
    mounted: Mounted, caplog: pytest.LogCaptureFixture
) -> None:
    mounted.write("a", "a")
    (mounted.data_dir / "storage").write_text("a disk that is full")
    assert mounted.copy()[0] == {"a": "a"}
    assert "copies that cannot be noted" in caplog.text


@pytest.mark.parametrize("name", ["a//b", "a/../b", "./a", "a\x01b", "a" * 1025])
def test_a_blob_whose_name_cannot_be_a_files_is_told_once(
    mounted: Mounted, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    mounted.blobs.put("box", "good", b"x")
    mounted.blobs.containers["box"][name] = mounted.blobs.containers["box"]["good"]
    if "\x01" in name:
        mounted.blobs.containers["box"]["a\u200bb"] = mounted.blobs.containers["box"].pop(name)
    assert mounted.copy()[0] == {"good": "x"}
    mounted.copy()
    assert len(caplog.records) == 1
    (blob,) = mounted.blobs.containers["box"].keys() - {"good"}
    assert caplog.messages == [
        f"container box, mounted: {blob!a} cannot be the name of both a file and a blob, so it is not copied"
    ]


def test_a_link_stays_and_a_blob_below_a_file_is_told(
    mounted: Mounted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "outside").write_text("secret")
    mounted.write("file", "y")
    mounted.blobs.put("box", "file/below", b"z")
    (mounted.directory / "link").symlink_to(tmp_path / "outside")
    mounted.copy()
    assert mounted.blobs.texts("box") == {"file": "y", "file/below": "z"}
    assert "file/below is not copied" in caplog.text


def test_a_file_that_cannot_be_sent_is_told_once_and_tried_again(
    mounted: Mounted, caplog: pytest.LogCaptureFixture
) -> None:
    mounted.write("a", "a")
    for _ in range(2):
        mounted.blobs.failures = [0, 403]
        assert mounted.copy()[1] == {}
    assert len(caplog.records) == 1
    assert "container box, mounted: a is not copied" in caplog.text
    assert mounted.copy()[1] == {"a": "a"}


def test_a_container_that_cannot_be_listed_changes_nothing(mounted: Mounted, caplog: pytest.LogCaptureFixture) -> None:
    mounted.write("a", "a")
    mounted.copy()
    mounted.blobs.failures = [500]
    assert mounted.copy() == ({"a": "a"}, {"a": "a"})
    assert "cannot be read" in caplog.text


def test_a_blob_that_is_gone_before_its_deletion_is_no_failure(
    mounted: Mounted, caplog: pytest.LogCaptureFixture
) -> None:
    mounted.write("a", "a")
    mounted.copy()
    (mounted.directory / "a").unlink()
    mounted.blobs.failures = [0, 404]
    mounted.copy()
    assert caplog.text == ""
