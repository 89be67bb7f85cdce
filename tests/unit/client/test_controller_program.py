"""The program of a controller as a node starts it, and the archive that it is unpacked from."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import msgspec
import pytest

from batchtrain.client import controller, controller_program
from batchtrain.client.controller_program import FILE, Requests
from batchtrain.config.types import Secret
from batchtrain.errors import Unreachable
from batchtrain.plan.marks import Marks
from batchtrain.records.events import Waiting
from batchtrain.service.connect import Account


@pytest.mark.parametrize(("key", "secret"), [("a2V5", Secret("a2V5")), ("", None)])
def test_its_account_and_job_are_those_of_the_node(
    key: str, secret: Secret | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = Requests(job="j", marks=Marks("A"), patience=1.0, candidates=(), requests=(), key=key)
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_bytes(msgspec.json.encode(requests))
    monkeypatch.chdir(tmp_path)
    for name, value in (("ACCOUNT_URL", "https://b.west.batch.azure.com"), ("ACCOUNT_NAME", "b"), ("JOB_ID", "c")):
        monkeypatch.setenv(f"AZ_BATCH_{name}", value)
    seen = list[tuple[Account, Requests, str]]()

    def control(program: controller_program.Controller) -> None:
        seen.append((program._client.account, program._requests, program._id))
        program._tell(Waiting("j", ""))
        program._say("it moves")
        raise Unreachable("no answer")

    monkeypatch.setattr(controller_program.Controller, "control", control)
    with pytest.raises(SystemExit, match="no answer"):
        controller_program.main()
    [(account, decoded, job_id)] = seen
    assert (account.endpoint, account.name, account.key) == ("https://b.west.batch.azure.com", "b", secret)
    assert (decoded, job_id) == (requests, "c")
    assert capsys.readouterr().out == "it moves\n"


def test_its_archive_has_the_program_and_no_files_that_it_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "batchtrain"
    for name in ("client/controller.py", "errors.py", "_data/recipe.yaml", "client/__pycache__/a.pyc"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(name)
    monkeypatch.setattr(controller, "__file__", str(package / "client/controller.py"))
    with zipfile.ZipFile(io.BytesIO(controller._package())) as archive:
        names = archive.namelist()
        assert names == ["batchtrain/client/controller.py", "batchtrain/errors.py"]
        assert archive.read(names[1]) == b"errors.py"
        assert {item.compress_type for item in archive.infolist()} == {zipfile.ZIP_DEFLATED}
