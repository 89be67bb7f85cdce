"""The application at its door: requests as ASGI brings them, and the answers that leave, without a socket."""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, Mock
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pytest

from batchtrain.emulator import arm_applications, arm_request, control, http, identity, pools, sign_in, tokens, wire
from batchtrain.emulator.blob_store import BlobStore
from batchtrain.emulator.interface import NodeLogin, NodeLost, StorageAccount, StorageMissing
from batchtrain.emulator.machine import packages
from batchtrain.emulator.package_files import FOLDER, PackageFolder
from batchtrain.emulator.reply import Slice
from batchtrain.emulator.world import USER_SUBSCRIPTION
from batchtrain.errors import shortened
from tests.emulation import POOL, START, Account
from tests.waiting import reached

KEY = base64.b64encode(b"secret").decode()
JSON = {"content-type": "application/json; odata=minimalmetadata"}
JOB = {"id": "job", "poolInfo": {"poolId": "pool"}}


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    parts: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def document(self) -> Any:
        return msgspec.json.decode(self.body)


class Service:
    """The application over a driver, whose clients are calls of `ask`."""

    def __init__(self, account: Account) -> None:
        self.account, self.stopped = account, list[str]()
        account.world.endpoint = "http://127.0.0.1:10010"
        about = control.Identity("1.2.3", 77, "acct")
        self.application = http.Application(account.driver, about, KEY, lambda: self.stopped.append("stop"))
        self.aborted = list[str]()
        self.application.connections["client"] = self  # type: ignore[assignment]

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        await self.account.driver.stop()

    async def inject(self, **fault: object) -> None:
        assert (await self.ask("POST", "/_emulator/faults", {"count": 1, **fault})).status == 201

    def abort(self) -> None:
        self.aborted.append("abort")

    async def ask(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        query: str = "api-version=2024-07-01.20.0",
        chunks: list[bytes] | None = None,
        signed: bool = True,
        leaves: bool = False,
        **more: str,
    ) -> Answer:
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        headers = {"host": "h:1", "ocp-date": wire.http_date(START), **({} if body is None else JSON)}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        if data:
            headers["content-length"] = str(len(data))
        if signed:
            headers["authorization"] = wire.authorization("acct", KEY, verb, path, query, headers)
        scope = {
            "type": "http", "method": verb, "raw_path": path.encode(), "query_string": query.encode(), "scheme": "http",
            "client": "client", "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }  # fmt: skip
        parts = [data] if chunks is None else chunks
        messages = [
            {"type": "http.request", "body": part, "more_body": number < len(parts)}
            for number, part in enumerate(parts, 1)
        ]
        sent: list[http.Message] = []

        async def receive() -> http.Message:
            if leaves:
                return {"type": "http.disconnect"}
            if messages:
                return messages.pop(0)
            await asyncio.Event().wait()  # the client waits for the answer
            raise AssertionError

        async def send(message: http.Message) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        start = next((message for message in sent if message["type"] == "http.response.start"), None)
        if start is None:
            return Answer(0, {}, [])
        answered = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], answered, [message["body"] for message in sent[1:]])


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(Account(tmp_path))


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.document["code"]


def reason(answer: Answer) -> str:
    (detail,) = (one["value"] for one in answer.document["values"] if one["key"] == "Reason")
    return str(detail)


# --- requests and answers -------------------------------------------------------------------------------------------


async def test_an_account_of_the_users_subscription_accepts_tokens_only(service: Service) -> None:
    service.account.world.allocation = USER_SUBSCRIPTION
    refused = await service.ask("GET", "/pools")
    assert (refused.status, refused.document["code"]) == (403, "AuthenticationFailed")
    bearer = f"Bearer {tokens.issue(KEY, 'acct', tokens.BATCH[0], START)}"
    assert (await service.ask("GET", "/pools", signed=False, authorization=bearer)).status == 200


async def test_a_task_is_completed_when_its_termination_is_answered(service: Service) -> None:
    """The REST reference: the operation applies synchronously to the primary task."""
    await service.account.begin("wait")
    assert (await service.ask("POST", "/jobs/job/tasks/task/terminate")).status == 204
    assert service.account.state() == "completed"
    assert (await service.ask("POST", "/jobs/job/tasks/task/reactivate")).status == 204


async def test_a_pool_is_made_read_listed_and_deleted(service: Service) -> None:
    made = await service.ask("POST", "/pools", POOL)
    assert (made.status, made.headers["DataServiceId"]) == (201, "http://h:1/pools/pool")
    every_answer = {
        "Server": "Microsoft-HTTPAPI/2.0", "X-Content-Type-Options": "nosniff", "DataServiceVersion": "3.0",
        "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    }  # fmt: skip
    assert every_answer.items() <= made.headers.items()
    read = await service.ask("GET", "/pools/pool")
    assert (read.status, read.document["id"]) == (200, "pool")
    about_body = {"Content-Type": "application/json;odata=minimalmetadata", "Content-Length": str(len(read.body))}
    assert {**about_body, "Date": wire.http_date(START)}.items() <= read.headers.items()
    listed = await service.ask("GET", "/pools")
    assert [pool["id"] for pool in listed.document["value"]] == ["pool"]
    deleted = await service.ask("DELETE", "/pools/pool")
    assert (deleted.status, deleted.body) == (202, b"")
    assert code(await service.ask("GET", "/pools/none")) == (404, "PoolNotFound")


KINDS = {
    "/pools": "pools", "/pools/pool": "pools/@Element", "/pools/pool/nodes": "nodes", "/jobs": "jobs",
    "/jobs/job": "jobs/@Element", "/jobs/job/tasks": "tasks", "/jobs/job/tasks/task": "tasks/@Element",
    "/jobs/job/tasks/task/files": "files", "/jobs/job/taskcounts": "taskcountsresult/@Element",
    "/jobschedules": "jobschedules", "/supportedimages": "supportedimages", "/nodecounts": "poolnodecounts",
    "/applications": "listapplicationsummariesresponses", "/poolusagemetrics": "poolusagemetrics",
}  # fmt: skip


async def test_every_answer_says_what_it_is_and_every_link_leads_back(service: Service) -> None:
    await service.account.begin("print x")
    await service.account.until(lambda: service.account.state() == "completed")
    documents = {path: (await service.ask("GET", path)).document for path in KINDS}
    assert {path: document["odata.metadata"] for path, document in documents.items()} == {
        path: f"http://h:1/$metadata#{kind}" for path, kind in KINDS.items()
    }
    shown = [document for one in documents.values() for document in (*one.get("value", ()), one)]
    links = [document["url"] for document in shown if "url" in document and not document.get("isDirectory")]
    assert len(links) >= 8
    for link in links:
        assert link.startswith("http://h:1/")
        assert (await service.ask("GET", link.removeprefix("http://h:1"))).status == 200, link
    formula = {"autoScaleFormula": "$TargetDedicatedNodes = 1;"}
    enabled = await service.ask("POST", "/pools/pool/enableautoscale", formula)
    assert (enabled.status, enabled.headers["DataServiceId"]) == (200, "http://h:1/pools/pool/enableautoscale")
    evaluated = await service.ask("POST", "/pools/pool/evaluateautoscale", formula)
    kind = evaluated.document["odata.metadata"].removeprefix("http://h:1/$metadata#")
    assert kind == "Microsoft.Azure.Batch.Protocol.Entities.AutoScaleRun"


async def test_an_answer_has_the_ids_of_its_request(service: Service) -> None:
    service.application.ids = iter(["id-1", "id-2"]).__next__  # type: ignore[assignment]
    answer = await service.ask("GET", "/pools", client_request_id="mine", return_client_request_id="True")
    assert (answer.headers["request-id"], answer.headers["client-request-id"]) == ("id-1", "mine")
    refused = await service.ask("GET", "/pools/none", client_request_id="mine")
    assert "client-request-id" not in refused.headers
    assert "RequestId:id-2" in refused.document["message"]["value"]


async def test_a_head_request_and_an_unchanged_pool_have_no_body(service: Service) -> None:
    etag = (await service.ask("POST", "/pools", POOL)).headers["ETag"]
    exists = await service.ask("HEAD", "/pools/pool")
    assert (exists.status, exists.body) == (200, b"")
    assert (await service.ask("HEAD", "/pools/none")).status == 404
    unchanged = await service.ask("GET", "/pools/pool", if_none_match=etag)
    assert (unchanged.status, unchanged.body, "Content-Length" in unchanged.headers) == (304, b"", False)


async def test_a_body_needs_its_type_and_an_operation_without_one_refuses_it(service: Service) -> None:
    for kind, refusal in (("text/plain", "InvalidHeaderValue"), ("", "MissingRequiredHeader")):
        assert code(await service.ask("POST", "/pools", POOL, content_type=kind)) == (400, refusal)
    await service.ask("POST", "/jobs", JOB)
    assert (await service.ask("POST", "/jobs/job/enable", {"id": "x"})).status == 400
    assert (await service.ask("GET", "/jobs/job", b"not read")).status == 200


async def test_a_property_that_is_refused_is_logged_with_the_reason(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await service.ask("POST", "/pools", {**POOL, "targetDedicatedNodes": -1})
    message = "POST /pools: targetDedicatedNodes is refused: The value cannot be negative."
    assert message in caplog.messages


async def test_a_node_and_a_program_get_tokens_at_their_addresses(service: Service) -> None:
    secret = identity.variables("", KEY)["IDENTITY_HEADER"]
    where = identity.node_authority("", KEY, "pool") + sign_in.IMDS_PATH
    query = f"resource={wire.AUDIENCE}"
    form = {"client_id": identity.CLIENT, "client_secret": identity.secret(KEY), "grant_type": "client_credentials"}
    form["scope"] = f"{wire.AUDIENCE}/.default"
    path = f"/{tokens.TENANT}/oauth2/v2.0/token"
    answer = await service.ask("POST", path, urlencode(form).encode(), signed=False)
    assert (answer.status, answer.document["token_type"]) == (200, "Bearer")
    for path, headers in ((identity.PATH, {"x_identity_header": secret}), (where, {"metadata": "true"})):
        answer = await service.ask("GET", path, query=query, signed=False, **headers)
        bearer = {"authorization": f"Bearer {answer.document['access_token']}"}
        tokens.check("acct", KEY, "GET", bearer, tokens.BATCH, START)


async def test_resource_manager_takes_tokens_of_its_own_audience_only(service: Service) -> None:
    path = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Batch/batchAccounts/acct"
    answers = [
        await service.ask("GET", path, query="api-version=2024-02-01", signed=False, authorization=f"Bearer {token}")
        for token in (tokens.issue(KEY, "acct", audience[0], START) for audience in (tokens.MANAGEMENT, tokens.BATCH))
    ]
    assert [answer.status for answer in answers] == [200, 401]
    assert answers[0].document["properties"]["accountEndpoint"] == "127.0.0.1:10010"
    assert answers[1].document["error"]["code"] == "InvalidAuthenticationToken"


async def test_the_content_of_a_package_is_received_at_its_link(service: Service, tmp_path: Path) -> None:
    world = service.account.world
    world.package_files, world.applications = PackageFolder(tmp_path), lambda: packages.installed(tmp_path)
    arm_applications.files(world).add("solver")
    package = arm_request.Request("PUT", "", {}, {}, b"", "", START, version="1.0")
    made = arm_applications.put_package(world, arm_request.Account("", KEY, ""), package, "solver", 0)
    path, _, query = made.document["properties"]["storageUrl"].partition("?")  # type: ignore[index]
    assert (await service.ask("PUT", path, query=query, chunks=[b"zi", b"p"], signed=False)).status == 201
    assert arm_applications.files(world).activate("solver", "1.0", START)
    assert (await service.ask("GET", path, query=query, signed=False)).status != 201
    assert (tmp_path / FOLDER / "solver" / "1.0.zip").read_bytes() == b"zip"


async def test_a_file_of_a_job_is_stored_by_a_signed_request_and_read_by_its_link(
    service: Service, tmp_path: Path
) -> None:
    service.account.driver.blob_store = BlobStore(tmp_path, KEY)
    path = f"{wire.BLOB_STORE}job/code.tar.gz"
    assert (await service.ask("PUT", path, chunks=[b"x"], signed=False)).status in (401, 403)
    stored = await service.ask("PUT", path, chunks=[b"co", b"de"])
    assert stored.status == 201
    link = urlsplit(stored.document["url"])
    assert link.path == path
    assert (await service.ask("GET", path, query=link.query, signed=False)).body == b"code"
    assert (await service.ask("DELETE", path)).status == 405


async def test_a_body_is_read_to_its_limit_and_past_it_refused(service: Service) -> None:
    half = b" " * (http.MAX_BODY // 2)
    text = msgspec.json.encode(POOL)
    fits = [half, b" " * (http.MAX_BODY - len(text) - len(half)), text]
    assert (await service.ask("POST", "/pools", b"", chunks=fits)).status == 201
    assert code(await service.ask("POST", "/pools", b"", chunks=[*fits, b" "])) == (413, "RequestBodyTooLarge")


async def test_the_rest_of_a_huge_body_is_not_read(service: Service) -> None:
    left = [bytes(http.DRAINED), b"1", b"2", b"3"]

    async def receive() -> http.Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": True}

    text = "The request body is too large and exceeds the maximum permissible limit"  # BatchExplorer issue 1286
    with pytest.raises(Exception, match=f"RequestBodyTooLarge: {text}"):
        await http._body(receive)
    assert left == [b"2", b"3"]


async def test_a_request_whose_client_goes_is_dropped(service: Service) -> None:
    assert (await service.ask("POST", "/pools", POOL, leaves=True)).status == 0
    assert not service.account.world.pools


async def test_what_is_no_request_is_ignored(service: Service) -> None:
    nothing: Any = None
    await service.application({"type": "lifespan"}, nothing, nothing)


def test_a_file_is_sent_whole_also_if_it_has_become_shorter() -> None:
    async def sent(content: bytes, start: int, length: int) -> list[http.Message]:
        messages: list[http.Message] = []

        async def receive() -> http.Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: http.Message) -> None:
            messages.append(message)

        await http._send_slice(Slice(io.BytesIO(content), start, length), receive, send)
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return messages

    large = bytes(range(256)) * 2048
    parts = asyncio.run(sent(large, 1, len(large) - 1))
    assert b"".join(part["body"] for part in parts) == large[1:]
    assert [part["more_body"] for part in parts] == [True, False]
    assert asyncio.run(sent(b"abc", 1, 5))[0]["body"] == b"bc"
    assert b"".join(part["body"] for part in asyncio.run(sent(b"abc", 1, 5))) == b"bc\0\0\0"
    assert [part["body"] for part in asyncio.run(sent(b"abc", 0, 0))] == [b""]


# --- refusals -------------------------------------------------------------------------------------------------------


async def test_a_missing_service_version_is_told_before_the_sign_in(service: Service) -> None:
    answer = await service.ask("GET", "/pools", query="", signed=False)
    assert code(answer) == (400, "MissingRequiredQueryParameter")


async def test_an_unsigned_request_learns_nothing(service: Service) -> None:
    answers = [
        await service.ask(verb, path, signed=False)
        for verb, path in (
            ("GET", "/pools"), ("GET", "/no/such/path"), ("GET", "/_emulator/status"), ("POST", "/_emulator/stop"),
            ("PUT", "/_emulator/blobs/x"), ("GET", "/subscriptions/s/resourceGroups/g"),
        )
    ]  # fmt: skip
    assert {answer.status for answer in answers} <= {401, 403}
    assert service.stopped == []
    answer = await service.ask("GET", "/pools", signed=False, authorization="Bearer not.this.emulators")
    (challenge,) = (value for name, value in answer.headers.items() if name.lower() == "www-authenticate")
    assert (answer.status, challenge[:40]) == (401, 'Bearer authorization_uri="https://login.')
    assert code(await service.ask("GET", "/no/such/path")) == (404, "ResourceNotFound")


async def test_a_path_that_is_newer_or_older_than_the_version_is_not_there(service: Service) -> None:
    assert (await service.ask("GET", "/lifetimejobstats", query="api-version=2022-10-01.16.0")).status == 200
    assert code(await service.ask("GET", "/lifetimejobstats")) == (404, "ResourceNotFound")
    assert (await service.ask("GET", "/pools", query="api-version=1")).status == 400


async def test_a_bug_and_a_full_disk_have_the_services_error_bodies(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    change = Mock(side_effect=[sqlite3.OperationalError("disk is full"), KeyError("x")])
    monkeypatch.setattr(service.account.driver, "change", change)
    with caplog.at_level(logging.ERROR, "batchtrain.emulator.http"):
        busy = await service.ask("POST", "/pools", POOL)
        assert code(busy) == (503, "ServerBusy")
        assert reason(busy) == "The emulator could not write to its data directory: disk is full."
        assert code(await service.ask("POST", "/pools", POOL)) == (500, "InternalError")
    assert [record.getMessage().partition(" (request")[0] for record in caplog.records] == [
        "POST /pools was not stored: disk is full", "internal error in POST /pools",
    ]  # fmt: skip


# --- faults on request ----------------------------------------------------------------------------------------------


async def test_an_injected_error_is_answered_with_its_code_and_delay(service: Service) -> None:
    await service.inject(kind="error", code="ServerBusy", retry_after=3, operation="list_pools")
    busy = await service.ask("GET", "/pools")
    assert (*code(busy), busy.headers["Retry-After"]) == (503, "ServerBusy", "3")
    assert (await service.ask("GET", "/pools")).status == 200


async def test_an_injected_loss_changes_the_service_and_answers_nothing(service: Service) -> None:
    await service.inject(kind="drop")
    assert (await service.ask("POST", "/pools", POOL)).status == 0
    assert service.aborted
    assert list(service.account.world.pools) == ["pool"]


async def test_an_injected_cut_sends_the_beginning_of_the_answer(service: Service) -> None:
    whole = (await service.ask("GET", "/pools")).body
    await service.inject(kind="truncate", fraction=0.5)
    cut = await service.ask("GET", "/pools")
    assert (cut.status, cut.body, service.aborted) == (200, whole[: len(whole) // 2], ["abort"])


async def test_an_injected_skew_refuses_a_signature_of_the_machines_time(service: Service) -> None:
    await service.inject(kind="skew", seconds=3600)
    refused = await service.ask("GET", "/pools")
    assert code(refused) == (403, "AuthenticationFailed")
    assert refused.headers["Date"] == wire.http_date(START + 3600 * wire.SECOND)


# --- the emulator's own paths ---------------------------------------------------------------------------------------


async def test_health_needs_no_signature_and_proves_the_key(service: Service) -> None:
    health = await service.ask("GET", "/_emulator/health", signed=False, query="challenge=abc")
    assert health.document == {
        "version": "1.2.3", "pid": 77, "account": "acct", "host": "",
        "proof": wire.proof(KEY, "http://127.0.0.1:10010", "abc"),
    }  # fmt: skip


async def test_status_counts_what_there_is(service: Service) -> None:
    account = service.account
    await account.begin("wait")
    await account.until(lambda: account.state() == "running")
    status = (await service.ask("GET", "/_emulator/status")).document
    expected = {"pools": 1, "nodes": 1, "jobs": 1, "activeTasks": 0, "runningTasks": 1, "completedTasks": 0,
                "faults": 0, "account": "acct", "endpoint": "http://127.0.0.1:10010"}  # fmt: skip
    assert expected.items() <= status.items()
    assert status["memoryMb"] > 1
    assert 0 <= status["upSeconds"] < 86_400


async def test_a_node_and_a_fault_that_do_not_exist_are_named(service: Service) -> None:
    for verb, path, name in (("POST", "nodes/x", "no node x"), ("DELETE", "faults/99", "no fault 99")):
        answer = await service.ask(verb, f"/_emulator/{path}", {"act": "lose"})
        assert (answer.status, f"there is {name}" in str(answer.document["values"])) == (404, True)


async def test_an_advanced_clock_is_ahead_by_exactly_that(service: Service) -> None:
    def ahead(answer: Answer) -> tuple[str, float, float]:
        clock = answer.document
        return clock["mode"], clock["times"], clock["aheadSeconds"]

    assert ahead(await service.ask("GET", "/_emulator/clock")) == ("real", 1.0, 0.0)
    turned = await service.ask("POST", "/_emulator/clock", {"mode": "stepped"})
    assert ahead(turned)[0] == "stepped"
    later = await service.ask("POST", "/_emulator/clock", {"advance": "PT90S", "patience": 0})
    assert later.document["now"] == wire.timestamp(START + 90 * wire.SECOND)
    for wrong in ({"patience": -1}, {"patience": "inf"}, {"mode": "x"}, {"advance": "soon"}, {"patience": None}):
        assert code(await service.ask("POST", "/_emulator/clock", wrong)) == (400, "InvalidPropertyValue"), wrong


async def test_faults_are_added_listed_and_removed_one_by_one_or_all(service: Service) -> None:
    fault = {"kind": "error", "code": "ServerBusy", "operation": "delete_job"}
    numbers = [(await service.ask("POST", "/_emulator/faults", fault)).document["id"] for _ in range(3)]
    assert len({*numbers}) == 3
    assert (await service.ask("DELETE", f"/_emulator/faults/{numbers[0]}")).status == 204
    listed = (await service.ask("GET", "/_emulator/faults")).document["value"]
    assert [one["id"] for one in listed] == numbers[1:]
    for wrong in (numbers[0], "x", "-1"):
        assert code(await service.ask("DELETE", f"/_emulator/faults/{wrong}")) == (404, "ResourceNotFound")
    assert (await service.ask("DELETE", "/_emulator/faults")).status == 204
    assert (await service.ask("GET", "/_emulator/faults")).document == {"value": []}
    assert code(await service.ask("POST", "/_emulator/faults", {"kind": "none"})) == (400, "InvalidPropertyValue")
    for body in (b"[]", b"{", b"\xff"):
        assert code(await service.ask("POST", "/_emulator/faults", body)) == (400, "InvalidRequestBody")


async def test_an_answer_with_latency_is_not_there_before(service: Service) -> None:
    await service.inject(kind="latency", seconds=3600)
    late, other = (asyncio.create_task(service.ask("GET", "/pools")) for _ in range(2))
    answered, _ = await asyncio.wait({late, other}, return_when=asyncio.FIRST_COMPLETED)
    assert answered == {other}
    late.cancel()


async def test_a_pool_that_lacked_nodes_gets_them_from_more_capacity(service: Service) -> None:
    size = POOL["vmSize"]
    limits = await service.ask("POST", "/_emulator/capacity", {size: 1, "dedicated-cores": 100})
    assert limits.document["quotas"]["dedicated_cores"] == 100
    await service.ask("POST", "/pools", {**POOL, "targetDedicatedNodes": 2})
    pool = service.account.world.pools["pool"]
    await reached(lambda: pool.record.allocation == "steady")
    assert [error["code"] for error in pool.record.resize_errors] == ["AllocationFailed"]
    await service.ask("POST", "/_emulator/capacity", {size: 2})
    await service.ask("POST", "/pools/pool/resize", {"targetDedicatedNodes": 2})
    await reached(lambda: [node.state for node in pool.nodes.values()] == ["idle", "idle"])
    service.account.world.find_size = lambda name: None
    wrong = await service.ask("POST", "/_emulator/capacity", {"STANDARD_NOPE": 1})
    assert "STANDARD_NOPE is neither a quota nor a VM size" in reason(wrong)


async def test_a_node_is_taken_away_only_in_ways_that_there_are(service: Service) -> None:
    account = service.account
    await account.begin("wait", targetLowPriorityNodes=1)
    dedicated, spot = sorted(account.world.pools["pool"].nodes.values(), key=lambda node: not node.dedicated)
    for node_id, act, expected in (
        (spot.id, {"act": "explode"}, "InvalidPropertyValue"),
        (spot.id, {"act": "lose", "seconds": -1}, "InvalidPropertyValue"),
        (spot.id, {"act": "lose", "seconds": "1"}, "InvalidPropertyValue"),
        (spot.id, {"act": "lose", "notice": 1}, "InvalidPropertyValue"),
        ("none", {"act": "lose"}, "NodeNotFound"),
        (dedicated.id, {"act": "preempt"}, "OperationNotValidOnNode"),
        (spot.id, {"act": "preempt", "notice": 0.0001, "seconds": 0}, ""),
        (dedicated.id, {"act": "break"}, ""),
    ):
        answer = await service.ask("POST", f"/_emulator/nodes/{node_id}", act)
        assert ("" if answer.status == 202 else answer.document["code"]) == expected, act
    assert dedicated.state == "unusable"


async def test_a_node_is_struck_by_each_name_that_a_view_shows_and_any_other_name_is_refused(service: Service) -> None:
    account = service.account
    await account.begin("wait", targetDedicatedNodes=4)
    nodes = account.world.pools["pool"].nodes
    node_ids = sorted(nodes)

    async def strike(name: str) -> int:
        return (await service.ask("POST", f"/_emulator/{quote(f'nodes/{name}')}", {"act": "break"})).status

    for name in ("tvm_732a…_d", "…x", "é", "a b", "a\nb", "../x", "%zz", "\U0001f600", "n4", "-1"):
        assert await strike(name) == 404, name
    for number, name in enumerate((node_ids[0], shortened(node_ids[1]), "n2", "3")):
        assert await strike(name) == 202, name
        assert [nodes[node_id].state for node_id in node_ids[: number + 1]] == ["unusable"] * (number + 1)
    account.do(pools.create_pool, body={**POOL, "id": "other", "targetDedicatedNodes": 1})
    await account.until(lambda: account.world.pools["other"].nodes)
    assert await strike("n0") == 404


async def test_a_login_and_the_storage_are_the_machines(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    account = StorageAccount("devstore", "a2V5", "http://127.0.0.1:10000/devstore")
    storage = AsyncMock(side_effect=[account, StorageMissing("npm is missing")])
    login = Mock(side_effect=[NodeLogin(("ssh", "node-1"), ("relay",)), NodeLost("there is no node x")])
    monkeypatch.setattr(service.account.machine, "storage", storage, raising=False)
    monkeypatch.setattr(service.account.machine, "login", login, raising=False)
    assert (await service.ask("POST", "/_emulator/storage")).document == account._asdict()
    assert reason(await service.ask("POST", "/_emulator/storage")) == "npm is missing"
    node_login = (await service.ask("GET", "/_emulator/login/node-1")).document
    assert node_login == {"ssh": ["ssh", "node-1"], "relay": ["relay"]}
    assert reason(await service.ask("GET", "/_emulator/login/x")).startswith("there is no node x; `batchtrain pool")
    assert [call.args for call in login.call_args_list] == [("node-1",), ("x",)]


async def test_a_reset_empties_the_account_and_a_stop_is_passed_on(service: Service) -> None:
    await service.account.begin("exit 0")
    assert (await service.ask("POST", "/_emulator/reset")).status == 204
    assert (service.account.world.pools, service.account.world.jobs) == ({}, {})
    assert (await service.ask("POST", "/_emulator/stop")).status == 202
    assert service.stopped == ["stop"]
    assert code(await service.ask("POST", "/_emulator/status")) == (404, "ResourceNotFound")
