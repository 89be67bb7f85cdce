"""A server with the documents and files of a Batch account, for what is read of a job and its nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from azure.batch import BatchClient

from batchtrain.config.types import Secret
from batchtrain.service import connect
from batchtrain.service.connect import Account
from tests.http_server import Handler, serving

START = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


class BatchServer:
    """Its documents by path, and the files below the path of a task or a node."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.status: dict[str, int] = {}
        """Refusals by path."""
        self.versions: dict[str, int] = {}
        """The seconds of the time of a file, by its path below its task or node."""
        self.page = 1000
        """Files that a list has at most."""
        self.before: Callable[[str, str], int | None] = lambda name, span: None
        """Is called before a file is read, with its path and the range. It may change the file, and says after how many
        bytes the answer is cut."""
        self.lock = threading.Lock()
        self.asked: list[str] = []
        self.account = Account("", "acct", Secret("a2V5"))
        self.client: BatchClient
        """A client of this server, while it runs."""
        self.root: Path
        """The directory of the runs of a test."""

    def job(self, *tasks: Mapping[str, Any], job_id: str = "j", pool: str = "p", ended: float | None = 300) -> None:
        """A job of `pool` that was created at START, with the documents of its tasks."""
        info = {"startTime": moment(0), "poolId": pool} | ({} if ended is None else {"endTime": moment(ended)})
        self.documents[f"/jobs/{job_id}"] = {
            "id": job_id, "state": "active" if ended is None else "completed", "creationTime": moment(0),
            "executionInfo": info, "poolInfo": {"poolId": pool},
        }  # fmt: skip
        counts = dict.fromkeys(("active", "running", "completed", "succeeded", "failed"), 0)
        self.documents[f"/jobs/{job_id}/taskcounts"] = {"taskCounts": counts, "taskSlotCounts": counts}
        self.documents[f"/jobs/{job_id}/tasks"] = {"value": list(tasks)}
        for task in tasks:
            self.documents[f"/jobs/{job_id}/tasks/{task['id']}"] = task
            self.files.setdefault(f"/jobs/{job_id}/tasks/{task['id']}", {})

    def pool(self, *nodes: Mapping[str, Any], **more: Any) -> None:
        """The pool p with the documents of its nodes."""
        self.documents["/pools/p"] = {
            "id": "p", "state": "active", "allocationState": "steady", "vmSize": "standard_d4s_v5",
            "currentDedicatedNodes": 2, "currentLowPriorityNodes": 1, **more,
        }  # fmt: skip
        self.documents["/pools/p/nodes"] = {"value": list(nodes)}

    def answer(self, handler: Handler) -> None:
        path, _, query = handler.path.partition("?")
        tree, is_file, name = path.partition("/files")
        span, cut, missing = handler.headers.get("ocp-range", ""), None, "TaskNotFound"
        with self.lock:
            self.asked.append(f"{handler.command} {unquote(path)}")
            content = _content(self.documents.get(path))
            if is_file and tree in self.files:
                name, missing = unquote(name[1:]), "FileNotFound"
                cut = self.before(name, span) if name else None
                content = self.files[tree].get(name) if name else self._listing(tree, query)
            version = self.versions.get(name, 0)
        status = 404 if content is None else self.status.get(path, 200)
        if handler.command == "DELETE" and status < 400:
            status, content = 202, b""
            del self.documents[path]
        code = {403: "AuthorizationFailure"}.get(status, missing)
        if span and status == 200:
            first, last = map(int, span.removeprefix("bytes=").split("-"))
            status, code = (200, "") if first < len(content or b"") else (416, "InvalidRange")
            content = (content or b"")[first : last + 1]
        sent = msgspec.json.encode({"code": code, "message": {"value": "No."}}) if status >= 400 else content or b""
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json; odata=minimalmetadata")
        handler.send_header("Content-Length", str(len(sent)))
        handler.send_header("Last-Modified", f"Sun, 22 Nov 2026 00:00:{version:02} GMT")
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(sent[:cut])
            handler.close_connection = cut is not None and cut < len(sent)

    def _listing(self, tree: str, query: str) -> bytes:
        start = int(query.partition("skip=")[2] or 0)
        items: list[dict[str, Any]] = [
            {"name": name, "properties": {"contentLength": str(len(content)), "lastModified": moment(0)}}
            for name, content in islice(self.files[tree].items(), start, start + self.page)
        ]
        page: dict[str, Any] = {"value": [*items, {"name": "directory", "isDirectory": True}]}
        if start + self.page < len(self.files[tree]):
            page["odata.nextLink"] = f"{self.account.endpoint}{tree}/files?api-version=1&skip={start + self.page}"
        return msgspec.json.encode(page)


def moment(seconds: float) -> str:
    """A time after START, as the service writes it."""
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def task(name: str, node: str = "tvm-1", exit_code: int = 0, state: str = "completed", **variables: str) -> Any:
    """The document of a task that ran from second 10 to second 50."""
    return {
        "id": name,
        "state": state,
        "executionInfo": {
            "startTime": moment(10), "endTime": moment(50), "exitCode": exit_code, "retryCount": 0, "requeueCount": 0,
            "result": "failure" if exit_code else "success",
        },
        "nodeInfo": {"nodeId": node, "poolId": "p", "taskRootDirectory": f"workitems/j/job-1/{name}"},
        "environmentSettings": [{"name": key, "value": value} for key, value in variables.items()],
    }  # fmt: skip


def node(name: str, allocated: float = 0, address: str = "10.0.0.4", prepared: float = 30, **more: Any) -> Any:
    """The document of a node whose start task took `prepared` seconds."""
    info = {"state": "completed", "startTime": moment(0), "endTime": moment(prepared), "exitCode": 0, "retryCount": 0}
    return {
        "id": name, "state": "idle", "ipAddress": address, "allocationTime": moment(allocated), "startTaskInfo": info,
        "isDedicated": True, **more,
    }  # fmt: skip


def _content(document: Any) -> bytes | None:
    return None if document is None else msgspec.json.encode(document)


@contextmanager
def serve(service: BatchServer) -> Iterator[BatchClient]:
    """A client of a server that runs; its account has the endpoint of the server."""
    with serving(service.answer) as url:
        service.account = service.account._replace(endpoint=url)
        service.client = connect.connect(service.account)
        yield service.client
