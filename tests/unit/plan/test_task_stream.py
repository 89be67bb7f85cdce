"""Tasks that are made one by one when they are sent."""

from __future__ import annotations

import json

from batchtrain.plan import wire
from batchtrain.plan.task_stream import document


def body(**more: object) -> wire.TaskCreate:
    return wire.TaskCreate(id="a", command_line='echo "<0|0>"', **more)  # type: ignore[arg-type]


def test_a_document_without_placeholders_is_sent_as_it_is_shown() -> None:
    made = document(body())
    assert not made.placeholders
    assert json.loads(made.filled(lambda _: "never")) == json.loads(made.body) == wire.document(body())


def test_placeholders_are_filled_where_they_are_and_nowhere_else() -> None:
    url = wire.Template("https://h/", wire.Placeholder("sas", "link/c/b"), "#end")
    settings = (wire.Environment(name="A", value="{{sas:link/c/b}}"), wire.Environment(name="B", value=url))
    made = document(body(environment_settings=settings))
    assert made.placeholders
    assert json.loads(made.body) == json.loads(wire.encoded(body(environment_settings=settings)))
    sent = json.loads(made.filled(lambda placeholder: f'"{placeholder.kind}"'))
    assert [item["value"] for item in sent["environmentSettings"]] == ["{{sas:link/c/b}}", 'https://h/"sas"#end']
    assert sent["commandLine"] == 'echo "<0|0>"'


def test_the_variables_of_a_vault_join_those_of_the_task() -> None:
    settings = wire.VaultSettings("https://v/secrets/s", (wire.Environment(name="A", value="1"),))
    made = document(body(environment_settings=settings))
    sent = json.loads(made.filled(lambda _: '{"A": "0", "B": "2"}'))
    assert sent["environmentSettings"] == [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]
