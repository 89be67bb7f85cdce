"""What BATCHTRAIN_RECORD stores of an exchange with the service."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from azure.core.exceptions import HttpResponseError

from batchtrain.service.recording import Exchange, Recorder

JSON = {"Content-Type": "application/json;odata=minimalmetadata"}
SECRET = "correct-horse-battery"


def recorded(directory: Path, body: Any, status: int, headers: dict[str, str], answer: bytes) -> Exchange:
    """The stored exchange of a request; the SDK raises an error for a refusal."""
    received = SimpleNamespace(status_code=status, headers=headers, read=lambda: answer, reason="")
    recorder = Recorder(directory)

    def send(_: Any) -> Any:
        if status >= 400:
            raise HttpResponseError(response=received)  # type: ignore[arg-type]
        return SimpleNamespace(http_response=received)

    recorder.next = SimpleNamespace(send=send)  # type: ignore[assignment]
    url = "https://acct.example:8080/jobs/j?api-version=1&%24select=id"
    request: Any = SimpleNamespace(http_request=SimpleNamespace(method="POST", url=url, content=body))
    if status >= 400:
        with pytest.raises(HttpResponseError):
            recorder.send(request)
    else:
        assert recorder.send(request).http_response is received  # type: ignore[comparison-overlap]
    (file,) = directory.iterdir()
    assert (directory.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    return msgspec.json.decode(file.read_bytes(), type=Exchange)


@pytest.mark.parametrize("status", [201, 409])
def test_an_exchange_is_stored_whether_the_service_accepts_or_refuses(tmp_path: Path, status: int) -> None:
    headers = {**JSON, "ETag": "0x1", "Date": "Tue, 24 Nov 2026 12:00:00 GMT"}
    exchange = recorded(tmp_path / "a/b", '{"id": "j"}', status, headers, b'{"url": "https://acct.example:8080/x"}')
    assert exchange == Exchange(
        verb="POST",
        path="/jobs/j",
        query={"api-version": "1", "$select": "id"},
        status=status,
        headers={"content-type": JSON["Content-Type"], "etag": "0x1"},
        body={"id": "j"},
        answer={"url": "{base}/x"},
    )


def test_a_secret_is_masked_wherever_it_stands(tmp_path: Path) -> None:
    body = {"userAccounts": [{"name": "ann", "password": SECRET}], "commandLine": "x --token=" + SECRET}
    variable = {"name": "HF_TOKEN", "value": SECRET}
    answer = json.dumps({"environmentSettings": [variable]}).encode()
    text = str(recorded(tmp_path / "a", json.dumps(body).encode(), 200, JSON, answer))
    assert "ann" in text and "HF_TOKEN" in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        ({**JSON, "ocp-batch-file-url": "x"}, b'{"of": "a task"}'),
        ({"Content-Type": "text/html"}, b"{}"),
        ({}, b"{}"),
        (JSON, b""),
        (JSON, b"<html>"),
    ],
    ids=["a file", "a page", "no type", "nothing", "no JSON"],
)
def test_an_answer_that_is_no_document_of_the_service_is_not_stored(
    tmp_path: Path, headers: dict[str, str], answer: bytes
) -> None:
    assert recorded(tmp_path / "a", None, 200, headers, answer).answer is None
