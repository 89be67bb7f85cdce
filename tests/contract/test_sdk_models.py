"""Whatever the official SDK's models can say: refused in the service's words, or accepted and shown as it was said.

Documents are made from the models themselves, so that nothing which a client may send is left out.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from enum import Enum
from types import UnionType
from typing import Any

import pytest
from azure.batch import BatchClient, models
from azure.batch.models import _models
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests import examples, judge
from tests.contract.conftest import job, pool, task
from tests.contract.ways import ACCOUNT, ENDPOINT, KEY, Inside, Transport

DEPTH = 4
SECRETS = ("password", "ssh_private_key", "account_key", "azure_file_account_key", "sas_key", "access_token")
"""What no answer shows again."""
READ_ONLY = ("exact_version",)
"""What the models let a client send, and the service fills in by itself."""
LATER = ("NotImplementedByEmulator", "TooManyEnableAutoScaleRequests")
"""What is refused with 501 or 503 on purpose."""
MAKERS: dict[str, SearchStrategy[Any]] = {
    "id": st.sampled_from(("it", "it-2", "It_3", "x" * 64, "x" * 65)),
    "pool_info": st.just(models.BatchPoolInfo(pool_id="pool")),
    "pool_id": st.sampled_from(("pool", "nowhere")),
    "node_agent_sku_id": st.just("batch.node.ubuntu 22.04"),
    "command_line": st.sampled_from(("exit 0", "", "/bin/sh -c 'exit 3'")),
    "http_url": st.sampled_from(("http://127.0.0.1:1/file?sig=x", "ftp://host/file", "")),
    "auto_scale_formula": st.sampled_from(("$TargetDedicatedNodes = 1;", "nonsense(")),
    "file_mode": st.sampled_from(("0644", "rw")),
    "vm_size": st.sampled_from(("STANDARD_D2_V3", "standard_nc24rs_v3")),
    "target_dedicated_nodes": st.integers(-1, 3),
    "target_low_priority_nodes": st.integers(-1, 2),
    "number_of_instances": st.integers(0, 3),
    "required_slots": st.integers(0, 3),
    "task_slots_per_node": st.sampled_from((0, 1, 2, 4, 256, 1000)),
}
"""What is likelier to be accepted than anything at all, by the attribute's name."""
ALWAYS = ("virtual_machine_configuration", "image_reference")
"""What no pool can be without, whatever the models say."""
SCALARS: Mapping[Any, SearchStrategy[Any]] = {
    str: st.sampled_from(("name", "", "é", "a/b", "x" * 300)) | st.text(max_size=8),
    int: st.integers(-2, 10) | st.sampled_from((50_000, 2**31 - 1)),
    bool: st.booleans(),
    float: st.floats(0, 100, allow_nan=False),
    timedelta: st.sampled_from((timedelta(0), timedelta(minutes=5), timedelta(days=7), timedelta(seconds=-1))),
    datetime: st.sampled_from((datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2126, 1, 1, tzinfo=timezone.utc))),
}


@functools.cache
def fields(model: type) -> Mapping[str, Any]:
    """The attributes of a model and their types; an optional one has None among them."""
    hints = judge.hints_of(model, {**vars(_models), "_models": models})
    return {name: hint for name, hint in hints.items() if not name.startswith("_")}


@st.composite
def made(draw: Callable[[SearchStrategy[Any]], Any], model: type, depth: int = 0) -> Any:
    """A model with what it needs, and a few of the things it may have."""
    found = fields(model)
    optional = [name for name, hint in found.items() if type(None) in typing.get_args(hint)]
    most = 3 if depth < DEPTH else 0
    chosen = draw(st.lists(st.sampled_from(optional), max_size=most, unique=True)) if optional and most else []
    names = [name for name in found if name not in optional or name in chosen or name in ALWAYS]
    return model(**{name: draw(MAKERS[name] if name in MAKERS else values(found[name], depth)) for name in names})


MAKERS |= {
    "virtual_machine_configuration": st.just(pool().virtual_machine_configuration)
    | made(models.VirtualMachineConfiguration, 1),
    "image_reference": st.just(pool().virtual_machine_configuration.image_reference)
    | made(models.BatchVmImageReference, 2),
}


@functools.cache
def values(hint: Any, depth: int) -> SearchStrategy[Any]:
    """What an attribute of this type may hold."""
    arguments = [one for one in typing.get_args(hint) if one is not type(None)]
    if typing.get_origin(hint) in (typing.Union, UnionType):
        enums = [one for one in arguments if judge.is_class(one, Enum)]
        return values(enums[0] if enums else arguments[0], depth)
    if typing.get_origin(hint) is list:
        return st.lists(values(arguments[0], depth), max_size=2)
    if typing.get_origin(hint) is dict:
        return st.dictionaries(st.sampled_from(("a", "b")), values(arguments[1], depth), max_size=2)
    if hint in SCALARS:
        return SCALARS[hint]
    return st.sampled_from(list(hint)) if issubclass(hint, Enum) else made(hint, depth + 1)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchClient]:
    """The SDK's own client, in this process."""
    with Inside(tmp_path_factory.mktemp("models")) as inside:
        credential = AzureNamedKeyCredential(ACCOUNT, KEY)
        with BatchClient(ENDPOINT, credential, retry_total=0, transport=Transport(inside)) as found:
            found.create_pool(pool())
            found.create_job(job(uses_task_dependencies=True))
            yield found


def settled(operation: Callable[[], Any]) -> bool:
    """Whether it was accepted; a refusal has to be one of the service's."""
    try:
        operation()
    except HttpResponseError as refusal:
        assert refusal.status_code is not None and refusal.error is not None
        assert refusal.status_code < 500 or refusal.error.code in LATER, refusal
        return False
    return True


def differences(said: Any, shown: Any, place: str = "") -> Iterator[str]:
    """Where an answer does not repeat what was said; what the service adds is nothing of the kind."""
    if isinstance(said, _models._Model):
        for name in fields(type(said)):
            if getattr(said, name) is not None and name not in SECRETS + READ_ONLY:
                yield from differences(getattr(said, name), getattr(shown, name, None), f"{place}.{name}")
    elif isinstance(said, list) and isinstance(shown, list) and len(said) == len(shown):
        for index, pair in enumerate(zip(said, shown, strict=True)):
            yield from differences(*pair, f"{place}[{index}]")
    elif said != shown and not (isinstance(said, str) and said.lower() == str(shown).lower()) and said not in ([], {}):
        yield f"{place}: {said!r} is shown as {shown!r}"


Kept = Callable[[BatchClient, Any], Any]
KINDS: Mapping[str, tuple[type, str, Kept, Kept]] = {
    "pool": (
        models.BatchPoolCreateOptions,
        "create_pool",
        lambda client, sent: client.get_pool(sent.id),
        lambda client, sent: client.begin_delete_pool(sent.id, polling_interval=0.001).wait(),
    ),
    "job": (
        models.BatchJobCreateOptions,
        "create_job",
        lambda client, sent: client.get_job(sent.id),
        lambda client, sent: client.begin_delete_job(sent.id, polling_interval=0.001).wait(),
    ),
    "job schedule": (
        models.BatchJobScheduleCreateOptions,
        "create_job_schedule",
        lambda client, sent: client.get_job_schedule(sent.id),
        lambda client, sent: client.begin_delete_job_schedule(sent.id, polling_interval=0.001).wait(),
    ),
}
MANY = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", examples.first(KINDS))
def test_what_is_accepted_is_shown_as_it_was_said(client: BatchClient, kind: str) -> None:
    model, create, get, delete = KINDS[kind]
    accepted = 0

    @MANY
    @given(made(model))
    def holds(sent: Any) -> None:
        nonlocal accepted
        if settled(lambda: getattr(client, create)(sent)):
            accepted += 1
            wrong = list(differences(sent, get(client, sent)))
            delete(client, sent)
            assert not wrong, wrong

    holds()
    assert accepted >= 5, "too little was accepted to tell"


def test_a_task_that_is_accepted_is_shown_as_it_was_said(client: BatchClient) -> None:
    accepted = 0

    @MANY
    @given(made(models.BatchTaskCreateOptions))
    def holds(sent: Any) -> None:
        nonlocal accepted
        if settled(lambda: client.create_task("job", sent)):
            accepted += 1
            wrong = list(differences(sent, client.get_task("job", sent.id)))
            client.delete_task("job", sent.id)
            assert not wrong, wrong

    holds()
    assert accepted >= 5, "too little was accepted to tell"


CHANGES: Mapping[str, tuple[type, Callable[[BatchClient, Any], Any]]] = {
    "update_pool": (models.BatchPoolUpdateOptions, lambda client, sent: client.update_pool("pool", sent)),
    "replace_pool_properties": (
        models.BatchPoolReplaceOptions,
        lambda client, sent: client.replace_pool_properties("pool", sent),
    ),
    "update_job": (models.BatchJobUpdateOptions, lambda client, sent: client.update_job("job", sent)),
    "replace_job": (models.BatchJob, lambda client, sent: client.replace_job("job", sent)),
    "replace_task": (models.BatchTask, lambda client, sent: client.replace_task("job", "kept", sent)),
    "resize_pool": (
        models.BatchPoolResizeOptions,
        lambda client, sent: client.begin_resize_pool("pool", sent, polling_interval=0.001).wait(),
    ),
    "enable_pool_auto_scale": (
        models.BatchPoolEnableAutoScaleOptions,
        lambda client, sent: client.enable_pool_auto_scale("pool", sent),
    ),
    "create_task_collection": (
        models.BatchTaskGroup,
        lambda client, sent: client.create_task_collection("job", sent),
    ),
}


@pytest.mark.parametrize("change", examples.first(CHANGES, 2))
def test_a_change_is_made_or_refused_in_the_services_words(client: BatchClient, change: str) -> None:
    model, send = CHANGES[change]
    settled(lambda: client.create_task("job", task("kept")))

    @MANY
    @given(made(model))
    def holds(sent: Any) -> None:
        settled(lambda: send(client, sent))
        assert client.get_pool("pool").id == "pool" and client.get_job("job").id == "job"

    holds()
