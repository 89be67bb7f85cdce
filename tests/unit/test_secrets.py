"""No output shows a secret: a marker is planted in every field that holds one, and every output is searched."""

from __future__ import annotations

import base64
import copy
import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from batchtrain.client.late_values import Placeholders
from batchtrain.config import origin, schema
from batchtrain.config.load import Examined, examine
from batchtrain.config.masking import secrets_in
from batchtrain.config.secret_names import SECRETS, VARIABLES
from batchtrain.config.types import Secret
from batchtrain.errors import UsageError
from batchtrain.plan import plan_recipe
from batchtrain.plan.diff import Living, compare
from batchtrain.plan.explain import explain
from batchtrain.plan.render import as_document
from batchtrain.service import connect, entra
from tests.submitting import carry_out

MARKER = base64.b64encode(b"planted-here").decode()
"""The beginning of every marker; each secret field and variable has one of its own."""
SECTIONS: dict[str, Any] = {
    "credentials": {
        "aad": {"directory_id": "d", "application_id": "a"}, "shares": {"NAME": {"username": "u"}},
        "batch": {"account_service_url": "https://a.japaneast.batch.azure.com"},
        "storage": {"NAME": {"account": "acct"}}, "docker_registry": {"NAME": {"username": "u"}}},
    "global_resources": {
        "docker_images": ["a"],
        "volumes": {"shared_data_volumes": {"NAME": {"volume_driver": "cifs", "source": "//s/x"}}}},
    "pool_specification": {
        "id": "p", "vm_size": "STANDARD_D2S_V5", "vm_count": {"dedicated": 1},
        "vm_configuration": {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}},
        "user_accounts": [{"name": "NAME"}], "rdp": {"username": "al"}},
    "job_specifications": [
        {"id": "j", "tasks": [{"id": "t", "command": "exit 3", "docker_image": "a"}],
        "job_manager": {"command": ":", "kill_job_on_completion": False},
        **{name: {"command": ":"} for name in ("merge_task", "job_preparation", "job_release")}}],
}  # fmt: skip

FILES = {
    "credentials": ("credentials",),
    "config": ("batchtrain", "global_resources"),
    "pool": ("pool_specification",),
    "jobs": ("job_specifications",),
}


def secret_paths(kind: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where a type of the language has a Secret or environment variables; `NAME` stands for any key of a map."""
    match kind:
        case inspect.CustomType(cls=cls) if cls is Secret:
            yield path
        case inspect.Metadata(type=inner):
            yield from secret_paths(inner, path)
        case inspect.UnionType(types=options):
            for option in options:
                yield from secret_paths(option, path)
        case inspect.DictType() if path[-1] == VARIABLES:
            yield (*path, "PLANTED_API_KEY")
        case inspect.DictType(value_type=inner):
            yield from secret_paths(inner, (*path, "NAME"))
        case inspect.VarTupleType(item_type=inner):
            yield from secret_paths(inner, (*path, 0))
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from secret_paths(field.type, (*path, field.encode_name))


PATHS = [path for name, kind in schema.SECTIONS.items() for path in secret_paths(inspect.type_info(kind), (name,))]
MARKERS = {
    path: ("https://example.org/" if path[-1] == "url" else "")
    + base64.b64encode(b"planted-here%06d" % number).decode()
    for number, path in enumerate(PATHS)
}


def plant(place: Path) -> Path:
    """Write a recipe with a marker in every secret field and variable; returns its directory."""
    sections = copy.deepcopy(SECTIONS)
    for (*path, name), marker in MARKERS.items():
        block: Any = sections
        for step in path:
            block = block[step] if isinstance(block, list) else block.setdefault(step, {})
        block[name] = marker
    task = sections["job_specifications"][0]["tasks"][0]
    task["command"] = f"login {task[VARIABLES]['PLANTED_API_KEY']}; exit 3"
    for file, names in FILES.items():
        written = {name: sections[name] for name in names if name in sections}
        (place / f"{file}.json").write_bytes(msgspec.json.encode(written))
    return place


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("recipe"))


@pytest.fixture
def seen(directory: Path) -> Examined:
    return examine(directory, files_of(directory))


def test_every_property_that_holds_a_secret_is_known_by_its_name() -> None:
    assert {path[-1] for path in PATHS if VARIABLES not in path} == SECRETS


def test_every_field_has_the_marker(seen: Examined) -> None:
    assert not [problem for problem in seen.problems if problem.level == "error"]
    assert set(secrets_in(seen.recipe)) == set(map(Secret, MARKERS.values()))


def test_no_text_of_a_recipe_or_a_plan_shows_it(seen: Examined) -> None:
    recipe, plan = seen.recipe, plan_recipe(seen.recipe)
    view = origin.view(seen)
    why = explain(plan, recipe, view.values, view.origins, "credentials")
    account = connect.account_of(recipe.credentials, {})
    shown = [
        *(str(recipe), repr(recipe), str(list(recipe.credentials.storage.values()))),
        *(
            str(plan),
            repr(plan),
            plan._repr_html_(),
            repr(plan.hidden),
            msgspec.json.encode(as_document(plan)).decode(),
        ),
        repr(copy.deepcopy(recipe)),
        *(origin.as_yaml(view, origins=True), str(why), str(compare(plan, Living())), repr(account)),
        repr(entra.sign_in_of(recipe.credentials.aad)),
        *(problem.rendered() for problem in seen.problems),
    ]
    assert [text for text in shown if MARKER in text] == []
    assert "***" in str(recipe.credentials)


def test_no_pickle_of_a_recipe_or_a_plan_has_a_secret_property(seen: Examined) -> None:
    pickled = pickle.dumps((seen.recipe, plan_recipe(seen.recipe).hidden))
    assert [path for path, marker in MARKERS.items() if marker.encode() in pickled and VARIABLES not in path] == []


@pytest.mark.parametrize(
    "command", ["validate", "show", "show -o json", "show --origin", "plan", "plan -o json", "explain credentials"]
)
def test_no_command_shows_it(directory: Path, command: str) -> None:
    words = [sys.executable, "-m", "batchtrain.cli", "config", *command.split(), "--configdir", str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert MARKER not in done.stdout + done.stderr


def test_the_service_is_sent_it_and_no_error_and_no_log_shows_it(
    seen: Examined, caplog: pytest.LogCaptureFixture
) -> None:
    class Service:
        def send_request(self, request: Any, **_: Any) -> None:
            sent.append(request.content.decode())
            raise OSError("no such host")

    sent: list[str] = []
    service: Any = Service()
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Exception, match="no such host") as caught:
        list(carry_out(service, plan_recipe(seen.recipe), Placeholders(seen.recipe).fill))
    assert sent[0].count(MARKER) >= 3, "the registry's, the user's and the share's password"
    assert MARKER not in "".join(traceback.format_exception(caught.value)) + caplog.text


def test_a_secret_that_was_pickled_says_so_where_it_is_needed() -> None:
    with pytest.raises(UsageError, match="load the recipe again"):
        pickle.loads(pickle.dumps(Secret(MARKER))).reveal()
