"""No output shows a secret: a marker is planted in every field that holds one, and every output is searched."""

from __future__ import annotations

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

from batchtrain.config import origin, schema
from batchtrain.config.load import Examined, examine
from batchtrain.config.masking import secrets_in
from batchtrain.config.types import SECRETS, Secret
from batchtrain.errors import UsageError
from batchtrain.placeholders import Placeholders
from batchtrain.plan import plan_recipe
from batchtrain.plan.diff import Living, compare
from batchtrain.plan.explain import explain
from batchtrain.plan.render import as_document
from batchtrain.service import connect, entra
from tests.submitting import carry_out

MARKER = "cGxhbnRlZC1pbi1ldmVyeS1zZWNyZXQ="
SECTIONS: dict[str, Any] = {
    "credentials": {
        "aad": {"directory_id": "d", "application_id": "a"},
        "shares": {"NAME": {"username": "u"}},
        "batch": {"account_service_url": "https://a.japaneast.batch.azure.com"},
        "storage": {"NAME": {"account": "acct"}},
        "docker_registry": {"NAME": {"username": "u"}},
    },
    "global_resources": {
        "docker_images": ["a"],
        "volumes": {"shared_data_volumes": {"NAME": {"volume_driver": "cifs", "source": "//s/x"}}},
    },
    "pool_specification": {
        "id": "p",
        "vm_size": "STANDARD_D2S_V5",
        "vm_count": {"dedicated": 1},
        "vm_configuration": {"platform_image": {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404"}},
        "user_accounts": [{"name": "NAME"}],
        "rdp": {"username": "al"},
    },
    "job_specifications": [{"id": "j", "tasks": [{"id": "t", "command": "exit 3", "docker_image": "a"}]}],
}

FILES = {
    "credentials": ("credentials",),
    "config": ("batchtrain", "global_resources"),
    "pool": ("pool_specification",),
    "jobs": ("job_specifications",),
}


def secret_paths(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Where a type of the language has a Secret; `NAME` stands for any key of a map."""
    match kind:
        case inspect.CustomType(cls=cls) if cls is Secret:
            yield path
        case inspect.Metadata(type=inner):
            yield from secret_paths(inner, path)
        case inspect.UnionType(types=options):
            for option in options:
                yield from secret_paths(option, path)
        case inspect.DictType(value_type=inner):
            yield from secret_paths(inner, (*path, "NAME"))
        case inspect.VarTupleType(item_type=inner):
            assert not list(secret_paths(inner, path)), "this test plants no marker in a list"
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from secret_paths(field.type, (*path, field.encode_name))


PATHS = [path for name, kind in schema.SECTIONS.items() for path in secret_paths(inspect.type_info(kind), (name,))]


def plant(place: Path) -> Path:
    """Write a recipe with the marker in every secret field; returns its directory."""
    sections = copy.deepcopy(SECTIONS)
    for *path, name in PATHS:
        block = sections
        for step in path:
            block = block.setdefault(step, {})
        block[name] = MARKER
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
    assert {path[-1] for path in PATHS} == SECRETS


def test_every_field_has_the_marker(seen: Examined) -> None:
    assert not [problem for problem in seen.problems if problem.level == "error"]
    assert secrets_in(seen.recipe) == (Secret(MARKER),)


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
        *(repr(copy.deepcopy(recipe)), repr(pickle.dumps(recipe)), repr(pickle.dumps(plan))),
        *(origin.as_yaml(view, origins=True), str(why), str(compare(plan, Living())), repr(account)),
        repr(entra.sign_in_of(recipe.credentials.aad)),
        *(problem.rendered() for problem in seen.problems),
    ]
    assert [text for text in shown if MARKER in text] == []
    assert "***" in str(recipe.credentials)


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
        def create_pool(self, options: Any, **_: Any) -> None:
            sent.append(str(dict(options)))
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
