"""What a task of a detached run does before the service uploads its files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from batchtrain import runtime


def test_the_links_to_unchanged_files_of_the_source_are_gone(tmp_path: Path) -> None:
    script, work = tmp_path / "before_upload.sh", tmp_path / "wd"
    script.write_bytes(runtime.read("before_upload.sh"))
    names = ("same", "sub/a  b", "-rf", "changed", "replaced")
    for name in names:
        source, link = tmp_path / name, work / name
        source.parent.mkdir(exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("source")
        link.symlink_to(source)
    os.utime(tmp_path / "changed", (2**31, 2**31))
    (work / ".batchtrain-linked").touch()
    (work / "replaced").unlink()
    (work / "replaced").write_text("new")
    (work / "best").symlink_to(tmp_path / "same")
    environment = {**os.environ, "AZ_BATCH_TASK_SHARED_DIR": str(tmp_path), "AZ_BATCH_TASK_WORKING_DIR": str(work)}
    subprocess.run(["bash", script, "unlink"], check=True, env=environment)
    assert {path.name for path in work.rglob("*")} == {".batchtrain-linked", "sub", "changed", "replaced", "best"}
    assert (tmp_path / "same").read_text() == "source"
