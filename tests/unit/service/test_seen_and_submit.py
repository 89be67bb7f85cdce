"""Tables, and the place where secrets enter a request."""

from batchtrain.service.seen import PoolSeen, Table
from batchtrain.service.submit import filled

POOL = PoolSeen("p<1>", "active", "steady", "standard_d2s_v5", 2, 2, 0, 0)


def test_a_table_prints_as_aligned_text() -> None:
    head, row = str(Table([POOL])).splitlines()
    assert head.startswith("id    state   allocation")
    assert row.startswith("p<1>  active  steady    ")


def test_a_table_is_html_in_a_notebook_with_its_text_escaped() -> None:
    shown = Table([POOL])._repr_html_()
    assert "<th>vm_size</th>" in shown
    assert "<td>p&lt;1&gt;</td>" in shown


def test_an_empty_table_says_so() -> None:
    assert str(Table()) == "nothing"


def test_a_table_is_still_a_tuple() -> None:
    assert Table([POOL])[0].id == "p<1>"


def test_a_placeholder_is_replaced_at_any_depth() -> None:
    body = {"a": ({"password": "x {{registry:hub}} y"},), "c": 1}
    assert filled(body, lambda name: name.upper()) == {"a": [{"password": "x REGISTRY:HUB y"}], "c": 1}


def test_a_users_own_text_is_never_filled_with_a_secret() -> None:
    body = {"commandLine": "echo {{registry:hub}}", "environmentSettings": [{"name": "A", "value": "{{registry:hub}}"}]}
    assert filled(body, lambda name: "secret") == body
