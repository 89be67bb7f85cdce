"""The copy of its source that a run keeps, how two of them differ, and the recipe that is made from one."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from batchtrain.config.load import load
from batchtrain.config.projects import project_of
from batchtrain.config.source_directory import read_sources
from batchtrain.config.types import Notify, Recipe, Secret
from batchtrain.errors import NotAllowed, NotFound, UsageError
from batchtrain.runs import compare, directory, recording, restore, source_copy
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.finished import Run, Runs
from batchtrain.storage import blob
from batchtrain.storage.blob import Stored
from batchtrain.storage.source import blobs_of

from .batch_server import START
from .made import made

PASSWORD = "correct-horse-battery"
POOL = """
pool_specification:
  id: p
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
  vm_size: STANDARD_D4S_V5
  vm_count: {dedicated: 1}
"""
JOBS = """
job_specifications:
- id: other
  tasks: [{command: echo}]
- id: training
  tasks:
  - command: python3 $AZ_BATCH_TASK_SHARED_DIR/train.py
    source: ../src
    environment_variables: {API_TOKEN: correct-horse-battery, A: '1'}
"""


def write(home: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return home


def recipe_in(home: Path, **files: str | bytes) -> Recipe:
    """A recipe; the keywords are files of its source, with `__` for a point."""
    write(home, {"config/pool.yaml": POOL, "config/jobs.yaml": JOBS, "src/train.py": "print(1)\n"})
    write(home / "src", {name.replace("__", "."): content for name, content in files.items()})
    return load(home).recipe


def kept(root: Path, recipe: Recipe, **options: Any) -> RunDirectory:
    """A run of the job `training` with its copy."""
    run = made(root, "training")
    document = recording.masked_document(recording.effective(recipe), options.get("secrets", ()))
    directory.replace(run.config / "effective.yaml", yaml.safe_dump(document).encode())
    config_files = [str(path) for path in Path(recipe.directory).glob("*.yaml") if path.stem in ("pool", "jobs")]
    source_copy.keep(run, recipe, recipe.jobs[-1], read_sources(recipe), config_files=config_files, **options)
    return run


def record_of(run: RunDirectory) -> source_copy.SourceRecord:
    record = source_copy.read(run)
    assert record is not None
    return record


def texts(run: RunDirectory) -> dict[str, bytes]:
    with tarfile.open(run.path / "source.tar.gz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]  # files


def test_the_files_are_kept_with_their_digests(tmp_path: Path) -> None:
    run = kept(tmp_path, recipe_in(tmp_path))
    assert texts(run) == {"0/train.py": b"print(1)\n"}
    record = record_of(run)
    [[file]] = [source.files for source in record.sources]
    assert (file.name, file.size, file.masked) == ("train.py", 9, False)
    assert file.sha256 == hashlib.sha256(b"print(1)\n").hexdigest()
    assert (run.path / "source.tar.gz").stat().st_mode & 0o77 == 0


def test_what_the_ignore_rules_leave_out_stays_out(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, data__csv="1,2", __batchtrainignore="*.csv\n", __env="KEY=1")
    run = kept(tmp_path, recipe)
    assert list(texts(run)) == ["0/train.py"]
    assert source_copy.left_out(run) == ((".batchtrainignore", ("data.csv",)), ("the default rules", (".env",)))


def test_no_secret_of_the_recipe_is_kept(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, key__py=f"KEY = '{PASSWORD}'\n", raw__bin=b"\xff\0" + PASSWORD.encode())
    run = kept(tmp_path, recipe, secrets=(Secret(PASSWORD),))
    assert texts(run)["0/key.py"] == b"KEY = '***'\n"
    assert texts(run)["0/raw.bin"] == b"\xff\0***"
    record = record_of(run)
    assert [file.name for file in record.sources[0].files if file.masked] == ["key.py", "raw.bin"]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("{enabled: false}", "`source_copy.enabled` is false"),
        ("{max_size: '8'}", "it has 9 bytes, and `source_copy.max_size` is 8"),
    ],
)
def test_the_copy_has_a_switch_and_a_limit(tmp_path: Path, setting: str, reason: str) -> None:
    write(tmp_path, {"config/config.yaml": f"batchtrain: {{source_copy: {setting}}}\n"})
    run = kept(tmp_path, recipe_in(tmp_path))
    record = record_of(run)
    assert (record.kept, record.reason) == (False, reason)
    assert [file.name for file in record.sources[0].files] == ["train.py"]  # its digest is
    assert not (run.path / "source.tar.gz").exists()
    with pytest.raises(UsageError, match="has no copy of its source: "):
        restore.restore(run, tmp_path / "again")


def committed(home: Path) -> None:
    git = ["git", "-C", str(home), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)


def test_what_git_has_not_committed_is_kept_of_files_that_are_kept(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, __batchtrainignore="*.csv\n", data__csv="1", key__py="K = 1\n")
    write(tmp_path, {"config/credentials.yaml": "credentials: {}\n", "notes.txt": "a"})
    committed(tmp_path)
    write(tmp_path / "src", {"train.py": "print(2)\n", "data.csv": "private", "key.py": f"K = '{PASSWORD}'\n"})
    write(tmp_path, {"notes.txt": "elsewhere", "config/credentials.yaml": "credentials: {batch: {account: private}}\n"})
    write(tmp_path, {"config/jobs.yaml": JOBS.replace("A: '1'", "A: '2', B_KEY: private")})
    run = kept(tmp_path, recipe, dirty=True, secrets=(Secret(PASSWORD),))
    difference = (run.path / "uncommitted.diff").read_text()
    names = [line.removeprefix("+++ b/") for line in difference.splitlines() if line.startswith("+++")]
    assert names == ["config/jobs.yaml", "src/key.py", "src/train.py"]
    assert "-print(1)\n+print(2)\n" in difference and "+K = '***'" in difference
    assert PASSWORD not in difference and "private" not in difference


def test_a_difference_has_no_secret_of_a_filter_of_an_old_line_or_of_several_lines(tmp_path: Path) -> None:
    key = "-----BEGIN KEY-----\nfirst-line-of-it\nsecond-line-of-it\n-----END KEY-----"
    old = JOBS.replace("A: '1'", "A: '1', WANDB_API_KEY: old-value")
    old = old.replace("source: ../src", "source: ..").replace("DIR/", "DIR/src/")
    recipe_in(tmp_path, key__txt="no key", secret__enc="enc")
    attributes = "*.enc diff=decrypted\n"
    write(tmp_path, {"config/jobs.yaml": old, "config/notes.yaml": b"# \xe4\n", ".gitattributes": attributes})
    committed(tmp_path)
    subprocess.run(["git", "-C", str(tmp_path), "config", "diff.decrypted.textconv", "echo plaintext"], check=True)
    write(tmp_path, {"config/jobs.yaml": old.replace("old-value", "new-value"), "config/notes.yaml": b"# \xf6\n"})
    write(tmp_path, {"src/key.txt": key, "src/secret.enc": "changed"})
    recipe = load(tmp_path).recipe
    run = kept(tmp_path, recipe, dirty=True, secrets=(Secret(key), Secret("new-value-of-the-job")))
    difference = (run.path / "uncommitted.diff").read_text()
    for hidden in ("plaintext", "old-value", "new-value", "line-of-it"):
        assert hidden not in difference + "".join(map(str, texts(run).values()))
    assert "+++ b/src/secret.enc" in difference


def test_a_name_that_is_no_text_and_an_archive_that_ends_early(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    Path(os.fsdecode(bytes(tmp_path / "src") + b"/bad-\xff.txt")).write_text("x")
    run = kept(tmp_path, recipe_in(tmp_path))
    copy = record_of(run)
    assert [file.name for file in copy.sources[0].files] == ["bad-\\xff.txt", "train.py"]
    assert [data for _, data, _ in source_copy.files_of(run, copy.sources[0])] == [b"x", b"print(1)\n"]
    archive = run.path / "source.tar.gz"
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(UsageError, match="cannot be read"):
        list(source_copy.files_of(run, copy.sources[0]))


def test_a_directory_without_git_has_no_difference(tmp_path: Path) -> None:
    assert not (kept(tmp_path, recipe_in(tmp_path), dirty=True).path / "uncommitted.diff").exists()


# --- two runs -------------------------------------------------------------------------------------------------------


def pair(tmp_path: Path, **changed: str | bytes) -> tuple[RunDirectory, RunDirectory]:
    first = kept(tmp_path, recipe_in(tmp_path, same__py="1", raw__bin=b"\xff"))
    return first, kept(tmp_path, recipe_in(tmp_path, **changed))


def test_the_difference_of_two_sources_is_unified(tmp_path: Path) -> None:
    first, second = pair(tmp_path, train__py="print(2)", new__py="n\n", raw__bin=b"\xfe", look__ipynb="{}\n")
    assert restore.difference(first, second).splitlines() == [
        "notebooks /dev/null and B/look.ipynb differ",
        "--- /dev/null",
        "+++ B/new.py",
        "@@ -0,0 +1 @@",
        "+n",
        "binary files A/raw.bin and B/raw.bin differ",
        "--- A/train.py",
        "+++ B/train.py",
        "@@ -1 +1 @@",
        "-print(1)",
        "+print(2)",
        "\\ No newline at end of file",
    ]


def test_equal_sources_and_those_of_earlier_versions_have_no_difference(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    assert restore.difference(first, second) == ""
    (first.path / "source.json").unlink()
    assert restore.difference(first, second) == ""


def test_a_file_that_was_not_kept_is_named(tmp_path: Path) -> None:
    first = kept(tmp_path, recipe_in(tmp_path))
    write(tmp_path, {"config/config.yaml": "batchtrain: {source_copy: {enabled: false}}\n"})
    second = kept(tmp_path, recipe_in(tmp_path, train__py="print(2)\n"))
    assert restore.difference(first, second) == "train.py differs, and its text was not kept\n"


def test_the_only_source_is_compared_whatever_its_name(tmp_path: Path) -> None:
    first = kept(tmp_path, recipe_in(tmp_path))
    write(tmp_path, {"other/train.py": "print(1)\n", "config/jobs.yaml": JOBS.replace("../src", "../other")})
    assert restore.difference(first, kept(tmp_path, load(tmp_path).recipe)) == ""


def test_a_comparison_has_the_source_the_input_and_the_packages(tmp_path: Path) -> None:
    runs = pair(tmp_path, train__py="print(2)")
    for run, version in zip(runs, ("2.1", "2.2"), strict=True):
        packages = {"python": "3.11.7", "executable": "python", "packages": {"torch": version, "numpy": "2.0"}}
        directory.replace(run.logs("train") / "packages.json", json.dumps(packages).encode())
    rows = {row.name: row.values for row in compare.compare(runs)}
    assert rows["package torch"] == ("2.1", "2.2")
    assert "package numpy" not in rows
    assert len(set(rows["source"])) == 2
    (runs[0].logs("train") / "packages.json").unlink()
    assert "package torch" not in {row.name for row in compare.compare(runs)}


# --- a recipe again -------------------------------------------------------------------------------------------------


def test_a_restored_recipe_is_the_one_of_the_run(tmp_path: Path) -> None:
    recipe_in(tmp_path / "mine", sub__sh="#!/bin/sh\n")
    write(tmp_path / "mine", {"config/jobs.yaml": JOBS.replace(f"API_TOKEN: {PASSWORD}, ", "")})
    recipe = load(tmp_path / "mine").recipe
    (tmp_path / "mine/src/sub.sh").chmod(0o755)
    os.utime(tmp_path / "mine/src/sub.sh", (5, 1_700_000_000))
    run = kept(tmp_path / "runs", load(tmp_path / "mine", settings={"job_specifications[1].priority": "7"}).recipe)
    restored = restore.restore(run, tmp_path / "again")
    again = load(tmp_path / "again").recipe
    assert [job.id for job in again.jobs] == ["training"]
    assert again.jobs[0] == replace(recipe.jobs[1], priority=7)
    assert again.pool == recipe.pool
    sources = read_sources(again)["../src"], read_sources(recipe)["../src"]
    assert sources[0].files == sources[1].files
    assert restored.sources == ("src",)
    assert restored.masked == ()


def test_a_restored_recipe_is_a_project_of_its_own(tmp_path: Path) -> None:
    run = kept(tmp_path / "runs", recipe_in(tmp_path / "mine"))
    ids = {project_of(str(tmp_path / "mine/config")).id}
    for name in ("a", "b"):
        restore.restore(run, tmp_path / name)
        ids.add(project_of(str(tmp_path / name / "config")).id)
    assert len(ids) == 3


def test_secrets_that_are_missing_are_named(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path / "mine", key__py=f"KEY = '{PASSWORD}'\n")
    restored = restore.restore(kept(tmp_path, recipe, secrets=(Secret(PASSWORD),)), tmp_path / "again")
    line = (tmp_path / "again/config/jobs.yaml").read_text().split("***")[0].count("\n") + 1
    token = "job_specifications[0].tasks[0].environment_variables.API_TOKEN"
    assert restored.masked == (("config/jobs.yaml", line, token), ("src/key.py", 1, ""))


def test_each_line_with_a_mask_and_each_property_that_is_left_out_is_named(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path / "mine", run__sh="#!/bin/sh\n")
    command = "export DB_PWD=zq81\ntrain --lr 1\nlogin --token zq82 --password zq83"
    task = replace(recipe.jobs[1].tasks[0], command=command, environment_variables={})
    settings = replace(recipe.settings, notify=Notify(url=Secret("https://example.org/zq84"), on=("end",)))
    recipe = replace(recipe, jobs=(replace(recipe.jobs[1], tasks=(task,)),), settings=settings)
    restored = restore.restore(kept(tmp_path, recipe), tmp_path / "again")
    lines = (tmp_path / "again/config/jobs.yaml").read_text().splitlines()
    assert [lines[masked.line - 1].strip() for masked in restored.masked if masked.line] == [
        "export DB_PWD=***",
        "login --token *** --password ***",
    ]
    assert {masked.property for masked in restored.masked if masked.line} == {"job_specifications[0].tasks[0].command"}
    assert [str(masked) for masked in restored.masked if not masked.line] == [
        "config/config.yaml (batchtrain.notify.url)"
    ]


def test_a_directory_with_files_is_not_written_to(tmp_path: Path) -> None:
    run = kept(tmp_path / "runs", recipe_in(tmp_path / "mine"))
    with pytest.raises(UsageError, match="exists and is not an empty directory"):
        restore.restore(run, tmp_path / "mine")


def test_a_run_without_its_configuration_cannot_be_restored(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no config/effective.yaml"):
        restore.restore(made(tmp_path, state="fetched"), tmp_path / "again")


def of_somebody(home: Path, members: list[tuple[tarfile.TarInfo, bytes]], **record: str) -> RunDirectory:
    """The run directory of somebody else: members of its archive, which source.json has as well, and other values of
    the fields of its source."""
    run = kept(home / "theirs", recipe_in(home / "theirs"))
    files = [{"name": member.name, "size": len(data), "mode": member.mode, "sha256": ""} for member, data in members]
    source = {"name": "../src", "folder": "0", "files": files, **record}
    (run.path / "source.json").write_text(json.dumps({"kept": True, "sources": [source]}))
    with tarfile.open(run.path / "source.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for member, data in members:
            archive.addfile(member.replace(name=f"{source['folder']}/{member.name}"), io.BytesIO(data))
    return run


def member(name: str, data: bytes = b"theirs", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


TRAIN = member("train.py", mode=0o644)
HOSTILE: dict[str, Callable[[Path], RunDirectory]] = {
    "parents": lambda home: of_somebody(home, [member("../../out.py")]),
    "absolute": lambda home: of_somebody(home, [member(f"{home}/out.py")]),
    "folder": lambda home: of_somebody(home, [TRAIN], name="..", folder="a/../../../../x"),
    "folder of the configuration": lambda home: of_somebody(home, [TRAIN], name="../config"),
    "name with a slash": lambda home: of_somebody(home, [TRAIN], name="../x\\..\\..\\y"),
    "NUL": lambda home: of_somebody(home, [member("a\0/../../out.py")]),
    "control characters": lambda home: of_somebody(home, [member("a\x1b[2J\r\n.py")]),
    "backslashes": lambda home: of_somebody(home, [member("..\\..\\out.py")]),
    "long": lambda home: of_somebody(home, [member("a" * 10_000)]),
    "deep": lambda home: of_somebody(home, [member("a/" * 3000 + "a")]),
    "twins": lambda home: of_somebody(home, [member("a"), member("A"), member("a/b")]),
    "symbolic link": lambda home: of_somebody(
        home, [member("link", b"", type=tarfile.SYMTYPE, linkname=f"{home}/safe"), member("link/file")]
    ),
    "hard link": lambda home: of_somebody(home, [member("link", b"", type=tarfile.LNKTYPE, linkname="no/such/member")]),
    "device": lambda home: of_somebody(home, [member("null", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3)]),
    "pipe": lambda home: of_somebody(home, [member("pipe", b"", type=tarfile.FIFOTYPE)]),
    "directory": lambda home: of_somebody(home, [member("folder", b"", type=tarfile.DIRTYPE)]),
    "mode": lambda home: of_somebody(home, [member("train.py", mode=0o7777)]),
    "no mode": lambda home: of_somebody(home, [member("train.py", mode=0)]),
    "time": lambda home: of_somebody(home, [member("train.py", pax_headers={"mtime": "nan"}), TRAIN]),
    "far time": lambda home: of_somebody(home, [member("train.py", mtime=1 << 60)]),
    "bomb": lambda home: of_somebody(home, [member("train.py", bytes(65 << 20))]),
    "bomb of headers": lambda home: of_somebody(home, [member("train.py", pax_headers={"comment": "x" * (65 << 20)})]),
    "sparse": lambda home: of_somebody(
        home, [member("a", b"", pax_headers={"GNU.sparse.map": "0,0", "GNU.sparse.size": f"{1 << 42}"}), TRAIN]
    ),
    "file that is not there": lambda home: of_somebody(home, [(member("a", b"")[0], b"")], folder="1"),
    "other source": lambda home: of_somebody(home, [TRAIN], name="../other"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_run_of_somebody_else_is_restored_below_its_directory_or_refused(name: str, tmp_path: Path) -> None:
    run = HOSTILE[name](tmp_path)
    (tmp_path / "safe").mkdir()
    before = tree(tmp_path)
    remarks: tuple[str, ...] = ()
    with contextlib.suppress(UsageError):
        remarks = restore.restore(run, tmp_path / "mine" / "again").remarks
    after = tree(tmp_path)
    assert {path: after[path] for path in before} == before
    assert {path.parts[0] for path in after.keys() - before} <= {"mine"}
    written = [path for path in (tmp_path / "mine").rglob("*") if not path.is_dir()]
    assert not [path for path in written if path.is_symlink() or path.stat().st_mode & 0o7022]
    assert not [path for path in written if path.stat().st_mode & 0o600 != 0o600]
    left_out = ("symbolic link", "hard link", "device", "pipe", "directory", "sparse")
    assert (name in left_out) == ("left out" in "".join(remarks))
    assert not any("\x1b" in path.name for path in written)
    assert not (tmp_path / "mine/again/config/train.py").exists()


@pytest.mark.parametrize(
    ("names", "folders"),
    [
        (("a/src", "b/src"), ["src", "source-0"]),
        (("a/Src", "b/src", "c/SRC"), ["Src", "source-0", "source-1"]),
        (("config",), ["source-0"]),
    ],
)
def test_each_source_is_restored_to_a_folder_of_its_own(names: tuple[str, ...], folders: list[str]) -> None:
    sources = tuple(source_copy.SourceDirectory(name, "0", ()) for name in names)
    assert [*restore._folders(sources).values()] == folders


def tree(directory: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file below a directory, with its mode and content."""
    files = (path for path in sorted(directory.rglob("*")) if not path.is_dir())
    return {path.relative_to(directory): (path.lstat().st_mode, path.read_bytes()) for path in files}


@pytest.mark.parametrize("text", [
    "[1, 2]", "job_specifications: 7", "job_specifications: [7, [8], {id: training, tasks: 5}]", "a: &a [*a]",
    "job_specifications: [{id: training, tasks: [{command: \"\\ud800\"}]}]", "\xff", "[" * 10_000,
    "job_specifications: [{id: training, tasks: [{command: x, source: ../../../etc}]}]",
])  # fmt: skip
def test_the_recipe_of_somebody_else_is_restored_or_refused(text: str, tmp_path: Path) -> None:
    run = of_somebody(tmp_path, [TRAIN])
    (run.config / "effective.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError):
        restore.restore(run, tmp_path / "again")


def test_a_name_that_leads_out_of_its_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"`../../out.py` would be written outside of its source ../src"):
        restore.restore(HOSTILE["parents"](tmp_path), tmp_path / "again")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"source\.tar\.gz cannot be read: .*unpacks to more than 100 times its size"):
        restore.restore(HOSTILE["bomb"](tmp_path), tmp_path / "again")


def test_the_objects_of_the_api_compare_and_restore(tmp_path: Path) -> None:
    first, second = pair(tmp_path, train__py="print(2)")
    comparison = Runs(tmp_path).compare(Run(first), Run(second))
    assert "+print(2)" in comparison.source
    assert Run(first).restore(tmp_path / "again").sources == ("src",)
    with pytest.raises(NotFound):
        Runs(tmp_path).get("none")


# --- input data -----------------------------------------------------------------------------------------------------

DATA = """
job_specifications:
- id: training
  tasks:
  - command: "true"
    input_data:
      azure_storage: [{storage_account_settings: data, remote_path: sets/digits, local_path: .}]
"""


def inputs_of(home: Path, blobs: list[Stored], monkeypatch: pytest.MonkeyPatch) -> source_copy.InputDigest:
    """What is kept of the data of a task, if its storage account lists these blobs."""
    write(home, {"config/pool.yaml": POOL, "config/jobs.yaml": DATA})
    recipe = load(home, local=True).recipe
    asked = list[tuple[str, str]]()

    def stored(storage: Any, container: str, prefix: str = "") -> Iterator[Stored]:
        asked.append((container, prefix))
        yield from blobs
        if not blobs:
            raise NotAllowed("this key may not list", operation="list", code="AuthorizationFailure")

    monkeypatch.setattr(blob, "stored", stored)
    run = kept(home / "runs", recipe, blobs=partial(blobs_of, connect=lambda link: link))
    record = record_of(run)
    assert asked == [("sets", "digits")]
    [data] = record.inputs
    return data


def a_blob(name: str, md5: bytes | None = b"\x01", version: str = '"0x8"') -> Stored:
    return Stored(name, 5, START, md5, version)


def test_the_input_data_has_the_digests_of_its_blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = inputs_of(tmp_path, [a_blob("a"), a_blob("b", None)], monkeypatch)
    assert (data.source, data.files, data.size) == ("data/sets/digits", 2, 10)
    assert data.blobs == {"a": "01", "b": '"0x8"'}


def test_another_content_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = inputs_of(tmp_path / "1", [a_blob("a")], monkeypatch)
    assert inputs_of(tmp_path / "2", [a_blob("a")], monkeypatch) == first
    assert inputs_of(tmp_path / "3", [a_blob("a", b"\x02")], monkeypatch).digest != first.digest


def test_many_blobs_have_one_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = inputs_of(tmp_path, [a_blob(str(number)) for number in range(1200)], monkeypatch)
    assert (data.files, len(data.blobs)) == (1200, 1000)
    assert len(data.digest) == 64


def test_data_that_cannot_be_listed_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = inputs_of(tmp_path, [], monkeypatch)
    assert (data.digest, data.reason) == ("", "this key may not list")


@pytest.mark.parametrize(("step", "is_whole"), [(2, True), (20_001, False)])
def test_the_difference_of_long_files_is_found_unless_much_of_them_differs(step: int, is_whole: bool) -> None:
    before = [f"{number}\n" for number in range(20_000)]
    after = [line if number % step else "other\n" for number, line in enumerate(before)]
    text = source_copy.difference("a/x", "".join(before).encode(), "b/x", "".join(after).encode())
    assert text.count("\n-") == (20_000 if is_whole else 1)
    assert text.count("\n+other") == len(range(0, 20_000, step))
