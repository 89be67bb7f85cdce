"""What a node uploads of a task's output while it runs."""

from __future__ import annotations

import io
import urllib.error
from email.message import Message
from pathlib import Path

import pytest

from batchtrain.runtime import uploads


class Blob:
    """An append blob whose service may lose an answer."""

    def __init__(self) -> None:
        self.data = b""
        self.error: Exception | None = None

    def put(self, url: str, body: bytes, **headers: str) -> None:
        if "comp=appendblock" in url:
            if int(headers["x_ms_blob_condition_appendpos"]) != len(self.data):
                raise urllib.error.HTTPError(url, 412, "AppendPositionConditionNotMet", Message(), io.BytesIO())
            self.data += body
            if self.error:
                raise self.error


@pytest.mark.parametrize(
    "error", [TimeoutError("no answer"), urllib.error.HTTPError("", 500, "OperationTimedOut", Message(), io.BytesIO())]
)
def test_a_block_whose_answer_was_lost_is_kept_once_and_the_next_follows(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob, file = Blob(), tmp_path / "stdout.txt"
    monkeypatch.setattr(uploads, "put", blob.put)
    upload = uploads.Upload(str(file), "https://account/box/live/t/0/stdout.txt", "sig=x")
    file.write_bytes(b"step 1\n")
    blob.error = error
    with pytest.raises(OSError):
        upload.send_new()
    blob.error = None
    file.write_bytes(b"step 1\nstep 2\n")
    upload.send_new()
    assert blob.data == b"step 1\nstep 2\n"


def test_a_block_that_the_blob_has_no_place_for_is_not_counted_as_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob, file = Blob(), tmp_path / "stdout.txt"
    monkeypatch.setattr(uploads, "put", blob.put)
    upload = uploads.Upload(str(file), "https://account/box/live/t/0/stdout.txt", "sig=x")
    file.write_bytes(b"step 1\n")
    blob.data = b"of another writer"
    with pytest.raises(urllib.error.HTTPError, match="AppendPositionConditionNotMet"):
        upload.send_new()
    blob.data = b""
    upload.send_new()
    assert blob.data == b"step 1\n"
