"""Each operation's documented body with one property changed: never an internal error, refused or shown again.

What is changed, and to what, hypothesis draws; the seed is fixed, so that a run can be repeated.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from batchtrain.emulator import models, wire
from batchtrain.emulator.models import Field
from tests import examples
from tests.contract import wire_properties
from tests.contract.test_every_wire_property import (
    ACTIONS,
    ROUTE,
    TABLE,
    UNSEEN,
    Service,
    account,
    agrees,
    at,
    effect_of,
    seen_at,
)
from tests.contract.ways import Inside
from tests.contract.wire_properties import Case

pytestmark = [pytest.mark.process, pytest.mark.property]

SEED = 20_261_122
CASES = tuple(wire_properties.cases())


class Change(NamedTuple):
    """What is done to the property of a case."""

    kind: str
    """`value` of its type, `wrong` in its type, `name` misspelt, `null` or `none` of it."""
    value: Any = None


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
NUMBER = st.one_of(st.integers(-2, 300), st.integers(-(2**40), 2**40))
DURATION = st.one_of(
    st.sampled_from(("PT0S", "PT1S", "P7D", "PT1.5S", "PT90M", "P1W", "00:10:00", wire.INFINITE)),
    st.integers(0, 10**6).map(lambda seconds: f"PT{seconds}S"),
)
TIME = st.one_of(
    st.sampled_from(("2030-01-01T00:00:00Z", "2990-06-01T10:00:00.1234567+01:00", "0001-01-01T00:00:00Z")),
    st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"),
)
WRONG: st.SearchStrategy[Any] = st.sampled_from(
    (0, 1.5, True, "", "x", [], {}, [None], [[]], {"nonsense": 1}, -(2**70), "\ud800", "NaN", "P", "yesterday")
)


def values(field: Field) -> st.SearchStrategy[Any]:
    """Values of a property's type, good ones among them."""
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "str": st.one_of(TEXT, st.just(wire_properties.TEXTS.get(field.name, "x"))),
        "int": st.one_of(NUMBER, NUMBER.map(str)),
        "bool": st.sampled_from((True, False, "true", "False")),
        "duration": DURATION,
        "time": TIME,
        "object": st.dictionaries(TEXT, TEXT, max_size=3),
        "map": st.dictionaries(TEXT, TEXT, max_size=3),
    }
    if names := tuple(models.enums().get(field.kind, ())):
        one: st.SearchStrategy[Any] = st.sampled_from(names).flatmap(
            lambda name: st.sampled_from((name, name.upper(), name.title()))
        )
    else:
        other = kinds["str"] if field.kind in models.LINKS else st.just({})
        one = kinds.get(field.kind, other)
    return st.lists(one, max_size=3) if field.many else one


def changes(case: Case) -> st.SearchStrategy[Change]:
    field = TABLE[case_model(case), case.name]
    return st.one_of(
        values(field).map(lambda value: Change("value", value)),
        WRONG.map(lambda value: Change("wrong", value)),
        st.integers(0, 10**6).map(lambda number: Change("name", misspelt(case.name, number))),
        st.just(Change("null")),
        st.just(Change("none")),
    )


def case_model(case: Case) -> str:
    """The emulator's name of the model that has the property."""
    model = ROUTE[case.operation].body
    for step in case.path[:-1]:
        model = TABLE[model, step].kind
    return model


def misspelt(name: str, number: int) -> str:
    """A name with a letter left out, doubled or in the other case."""
    draw = random.Random(number)
    index = draw.randrange(len(name))
    letter = draw.choice(("", name[index] * 2, name[index].swapcase()))
    return name[:index] + letter + name[index + 1 :]


def changed(case: Case, change: Change) -> Case:
    body = copy.deepcopy(case.body)
    owner = at(body, case.path[:-1])
    owner = owner[0] if isinstance(owner, list) else owner
    if change.kind in ("value", "wrong"):
        owner[case.name] = change.value
    elif change.kind == "null":
        owner[case.name] = None
    else:
        value = owner.pop(case.name, None)
        if change.kind == "name":
            owner[change.value] = value
    return case._replace(body=body)


def flaw(service: Service, case: Case, change: Change, found: Counter[str]) -> str:
    """What is wrong with the answer to a changed body."""
    if case.operation in ACTIONS:
        status, document = service.send(ROUTE[case.operation].verb, ACTIONS[case.operation], case.body)
        seen = None
    else:
        status, document, seen = service.judge(case)
    found["refused" if status >= 400 else "taken"] += 1
    if status >= 500 and document["code"] != "NotImplementedByEmulator":
        return f"{status} {document}"
    named = status == 400 and change.kind == "name" and change.value in json.dumps(document, ensure_ascii=False)
    if change.kind == "name" and not named and (case_model(case), change.value) not in TABLE:
        return f"{change.value} was taken or not named: {status} {document}"
    if status >= 400 or seen is None or change.kind != "value":
        return ""
    if effect_of(case) == "unshown" or (case.model, case.name) in UNSEEN:
        return ""
    field, shown = TABLE[case_model(case), case.name], at(seen, seen_at(case))
    wanted = canonical(field, change.value)
    held = agrees(wanted, shown) if field.kind in models.fields() or field.name == "vmSize" else shown == wanted
    return "" if held else f"{shown!r} is shown of {change.value!r}"


def canonical(field: Field, value: Any) -> Any:
    """A value as answers have it."""
    if field.many:
        return [canonical(field._replace(many=False), one) for one in value]
    if field.kind in models.enums():
        return next(name for name in models.enums()[field.kind] if name.lower() == value.lower())
    match field.kind:
        case "int":
            return int(value)
        case "bool":
            return str(value).lower() == "true"
        case "duration":
            return wire.duration(wire.parse_duration(value))
        case "time":
            return wire.timestamp(wire.parse_timestamp(value))
    return value


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    with account(tmp_path_factory.mktemp("fuzzed")) as running:
        yield running


def test_a_changed_body_is_refused_or_shown_again(inside: Inside, capsys: pytest.CaptureFixture[str]) -> None:
    service, found = Service(inside), Counter[str]()

    @seed(SEED)
    @settings(
        max_examples=examples.count(1_500),
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data: st.DataObject) -> None:
        case = data.draw(st.sampled_from(CASES), "case")
        change = data.draw(changes(case), "change")
        assert not (wrong := flaw(service, changed(case, change), change, found)), f"{case}, {change}: {wrong}"

    one()
    with capsys.disabled():
        print(f"\n{found.total()} changed bodies (seed {SEED}): {dict(found)}")
