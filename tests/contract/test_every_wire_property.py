"""Each property of the SDK's models, set alone by a documented value, comes back by GET or is refused; none vanishes.

What becomes of each is what the emulator's table of properties says.
"""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from batchtrain.emulator import models, properties, server, tokens, wire
from batchtrain.emulator.routes import ROUTES
from batchtrain.emulator.versions import CURRENT
from batchtrain.emulator.world import USER_SUBSCRIPTION
from tests import judge, operations_page
from tests.contract import wire_properties
from tests.contract.conftest import eventually
from tests.contract.test_raw_requests import ask
from tests.contract.ways import ACCOUNT, KEY, Inside
from tests.contract.wire_properties import Case

pytestmark = pytest.mark.process

ROUTE = {route.name: route for route in ROUTES}
TABLE = {(model, field.name): field for model, fields in models.fields().items() for field in fields}
GETS = {"pools": "/pools/{0}", "jobs": "/jobs/{0}", "jobschedules": "/jobschedules/{0}"}
VERSION = "api-version=2025-06-01"


@contextlib.contextmanager
def account(place: Path) -> Iterator[Inside]:
    """A service with an application package, which takes disk encryption sets."""
    (place / "applications" / "app").mkdir(parents=True)
    with zipfile.ZipFile(place / "applications" / "app" / "1.zip", "w") as file:
        file.writestr("a", "b")
    with Inside(place, USER_SUBSCRIPTION) as running:
        yield running


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    with account(tmp_path_factory.mktemp("properties")) as running:
        yield running


NUMBERS = count(1)
"""Of names: one account serves several tests."""


class Service:
    """An account in which every operation finds what it works on."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside

    def send(self, verb: str, path: str, body: object = None) -> tuple[int, Any]:
        content = b"" if body is None else json.dumps(body).encode()
        # A shared key is not enough for every body.
        token = tokens.issue(KEY, ACCOUNT, wire.AUDIENCE, server.clock())
        answer = ask(self.inside, verb, path, VERSION, content, {"authorization": f"Bearer {token}"})
        return answer.status, json.loads(answer.content) if answer.content else {}

    def made(self, path: str, body: object) -> None:
        status, document = self.send("POST", path, body)
        assert status == 201, (path, body, document)

    def judge(self, case: Case) -> tuple[int, Any, Any]:
        """Status and document of the request, and what GET shows afterwards."""
        name = f"r{next(NUMBERS)}"
        if case.operation in ("update_job", "replace_job") and "autoPoolSpecification" in case.path:
            status, document = self.send("POST", "/jobs", {"id": name, "poolInfo": case.body["poolInfo"]})
            if status != 201:
                return status, document, None
            what = place = f"/jobs/{name}"
        else:
            what, place = PLACES[case.operation](self, name)
        tasks = case.body.get("value")
        body = tasks[0] if isinstance(tasks, list) and tasks else case.body
        if isinstance(body, dict) and body.get("id") in ("1", "pool"):
            body["id"] = name
        elif isinstance(body, dict) and isinstance(body.get("id"), str):
            place = f"{place.rpartition('/')[0]}/{quote(body['id'], safe='')}"
        status, document = self.send(ROUTE[case.operation].verb, what, case.body)
        for result in document.get("value", ()) if case.operation == "create_task_collection" else ():
            if "error" in result:
                status, document = 400, result["error"]
        return status, document, self.send("GET", place)[1] if place and status < 300 else None


def new_pool(service: Service, name: str) -> str:
    """An empty pool that is steady."""
    accounts = [{"name": "ann", "password": "p"}]
    service.made("/pools", {**wire_properties.POOL, "id": name, "userAccounts": accounts})
    eventually(lambda: service.send("GET", f"/pools/{name}")[1]["allocationState"] == "steady")
    return f"/pools/{name}"


def new_job(service: Service, name: str) -> str:
    acts = {"usesTaskDependencies": True, "onTaskFailure": "performexitoptionsjobaction"}
    service.made("/jobs", {"id": name, "poolInfo": {"poolId": "none"}, **acts})
    return f"/jobs/{name}"


def disabled_job(service: Service, name: str) -> str:
    """One that may move to another pool."""
    path = new_job(service, name)
    assert service.send("POST", f"{path}/disable", {"disableTasks": "requeue"})[0] == 202
    eventually(lambda: service.send("GET", path)[1]["state"] == "disabled")
    return path


def new_schedule(service: Service, name: str) -> str:
    job = {"poolInfo": {"poolId": "none"}}
    times = {"doNotRunUntil": "2980-01-01T00:00:00Z"}
    service.made("/jobschedules", {"id": name, "schedule": times, "jobSpecification": job})
    return f"/jobschedules/{name}"


def new_task(service: Service, name: str) -> str:
    path = new_job(service, name)
    service.made(f"{path}/tasks", {"id": name, "commandLine": "exit 0"})
    return f"{path}/tasks/{name}"


def same(make: Callable[[Service, str], str], more: str = "") -> Callable[[Service, str], tuple[str, str]]:
    def place(service: Service, name: str) -> tuple[str, str]:
        path = make(service, name)
        return f"{path}{more}", path

    return place


def child(more: str) -> Callable[[Service, str], tuple[str, str]]:
    def place(service: Service, name: str) -> tuple[str, str]:
        path = new_job(service, name)
        return f"{path}{more}", f"{path}/tasks/{name}"

    return place


PLACES: dict[str, Callable[[Service, str], tuple[str, str]]] = {
    "create_pool": lambda _, name: ("/pools", f"/pools/{name}"),
    "create_job": lambda _, name: ("/jobs", f"/jobs/{name}"),
    "create_job_schedule": lambda _, name: ("/jobschedules", f"/jobschedules/{name}"),
    "create_task": child("/tasks"),
    "create_task_collection": child("/addtaskcollection"),
    "update_pool": same(new_pool),
    "replace_pool_properties": same(new_pool, "/updateproperties"),
    "resize_pool": same(new_pool, "/resize"),
    "enable_pool_auto_scale": same(new_pool, "/enableautoscale"),
    "update_job": same(disabled_job),
    "replace_job": same(disabled_job),
    "update_job_schedule": same(new_schedule),
    "replace_job_schedule": same(new_schedule),
    "replace_task": same(new_task),
}
"""Where a request goes, and where its effect is seen."""
ACTIONS = {
    "create_node_user": "/pools/none/nodes/none/users",
    "replace_node_user": "/pools/none/nodes/none/users/none",
    "reboot_node": "/pools/none/nodes/none/reboot",
    "reimage_node": "/pools/none/nodes/none/reimage",
    "deallocate_node": "/pools/none/nodes/none/deallocate",
    "disable_node_scheduling": "/pools/none/nodes/none/disablescheduling",
    "remove_nodes": "/pools/none/removenodes",
    "upload_node_logs": "/pools/none/nodes/none/uploadbatchservicelogs",
    "evaluate_pool_auto_scale": "/pools/none/evaluateautoscale",
    "disable_job": "/jobs/none/disable",
    "terminate_job": "/jobs/none/terminate",
}
"""What nothing shows afterwards; that a property was read is seen by a wrong value of it."""
UNSEEN = {("BatchPoolResizeOptions", "nodeDeallocationOption")}
"""Acts, and no answer has it."""


def test_every_operation_with_a_body_is_judged() -> None:
    assert PLACES.keys() | ACTIONS.keys() == {route.name for route in ROUTES if route.body}


@pytest.mark.slow
def test_each_property_is_shown_again_or_refused(inside: Inside, capsys: pytest.CaptureFixture[str]) -> None:
    service, found, wrong = Service(inside), Counter[str](), []
    for case in wire_properties.cases():
        if case.operation in PLACES:
            verdict, flaw = judged(service, case)
            found[verdict] += 1
            wrong += [f"{case}: {flaw}"] if flaw else []
    with capsys.disabled():
        print(f"\n{found.total()} properties of requests: {dict(found)}")
    assert not wrong, "\n".join(wrong[:40])


def judged(service: Service, case: Case) -> tuple[str, str]:
    """What became of a property, and what is wrong with that."""
    status, document, seen = service.judge(case)
    effect = effect_of(case)
    if status >= 500 and document.get("code") != "NotImplementedByEmulator":
        return "failed", f"{status} {document}"
    if status >= 400:
        return "refused", "" if effect == "refused" else f"refused: {document['code']} {document.get('values')}"
    if effect == "refused":
        return "taken", "taken, and the table says that it is refused"
    if (case.model, case.name) in UNSEEN:
        return "acted on, in no answer", ""
    shown = at(seen, seen_at(case))
    if effect == "unshown":
        return "never shown", "shown" if shown is not None else ""
    sent = at(case.body["value"][0] if "value" in case.body else case.body, seen_at(case))
    return "shown again", "" if agrees(sent, shown) else f"{shown!r} is shown of {case.body}"


def seen_at(case: Case) -> tuple[str, ...]:
    """Where an answer shows the property; a collection's tasks are shown one by one."""
    return case.path[1:] if case.operation == "create_task_collection" else case.path


def effect_of(case: Case) -> str:
    """What the emulator's table says; what is below a refused property is refused."""
    root = ROUTE[case.operation].body
    effects, model = [], root
    for step in case.path:
        field = TABLE[model, step]
        effects.append(field.effect)
        model = field.kind
    return next((effect for effect in ("refused", "unshown") if effect in effects), effects[-1])


def at(document: Any, path: tuple[str, ...]) -> Any:
    """What is at a path; of a list on the way the first."""
    for step in path:
        document = document[0] if isinstance(document, list) and document else document
        document = document.get(step) if isinstance(document, dict) else None
    return document


def agrees(sent: Any, shown: Any) -> bool:
    """Whether what is shown has all that was sent; secrets apart, and texts in any case."""
    if isinstance(sent, dict):
        return isinstance(shown, dict) and all(
            agrees(item, shown.get(name)) for name, item in sent.items() if name not in SECRETS
        )
    if isinstance(sent, list):
        return isinstance(shown, list) and len(sent) == len(shown) and all(map(agrees, sent, shown))
    if isinstance(sent, str) and isinstance(shown, str):
        return sent.casefold() == shown.casefold()
    return bool(sent == shown)


SECRETS = {
    field.name for model in operations_page.bodies() for field in models.fields()[model] if field.effect == "unshown"
}


def test_each_property_of_an_action_is_read(inside: Inside, capsys: pytest.CaptureFixture[str]) -> None:
    service, count, wrong = Service(inside), 0, []
    for case in wire_properties.cases():
        if case.operation in ACTIONS and len(case.path) == 1:
            count += 1
            body = {**case.body, case.name: {"wrong": []}}
            status, document = service.send(ROUTE[case.operation].verb, ACTIONS[case.operation], body)
            names = [item["value"] for item in document.get("values", ())]
            if status != 400 or not any(name.startswith(case.name) for name in names):
                wrong.append(f"{case}: {status} {document}")
    with capsys.disabled():
        print(f"\n{count} properties of actions")
    assert not wrong, "\n".join(wrong)


SHOWN = {"BatchVmImageReferenceShown": "BatchVmImageReference"}
"""Models that the table names otherwise than the SDK."""


@pytest.mark.parametrize("name", [name for name, _ in models._entries(properties.ENTITIES, "")])
def test_the_table_of_answers_has_the_properties_of_the_sdks_model(name: str) -> None:
    """What it lacked would be left out of answers; what it had besides could be selected."""
    known = {field.name for field in models.fields()[name] if field.since <= CURRENT <= field.until}
    assert known == judge.fields(wire_properties.sdk_model(SHOWN.get(name, name))).keys()


@pytest.mark.parametrize("name", [name for name in operations_page.bodies(revision=CURRENT) if name != "Nothing"])
def test_the_table_of_bodies_has_the_properties_of_the_sdks_model(name: str) -> None:
    known = {field.name for field in models.fields()[name] if field.since <= CURRENT <= field.until}
    assert known == wire_properties.writable(wire_properties.sdk_model(name)).keys()
