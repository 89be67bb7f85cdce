"""A plan and a recipe as a notebook shows them."""

from __future__ import annotations

from batchtrain.plan import plan_recipe
from tests.unit.plan.jobs import recipe

HOSTILE = "echo '<script>alert(1)</script>' $HOME # done"


def test_each_request_of_a_plan_is_folded_and_its_text_is_escaped() -> None:
    shown = plan_recipe(recipe({"tasks": [{"id": "t", "command": HOSTILE}]}))._repr_html_()
    assert shown.count("<details") == shown.count("</details>")
    assert '<summary style="cursor:pointer">POST /pools</summary>' in shown
    assert "<script" not in shown


def test_the_launch_text_is_coloured() -> None:
    shown = plan_recipe(recipe({"tasks": [{"id": "t", "command": HOSTILE}]}))._repr_html_()
    launch = shown[shown.index("task j/t runs") if "task j/t runs" in shown else shown.index("task t runs") :]
    assert '">$HOME</span>' in launch


def test_the_difference_of_two_plans_has_only_the_lines_that_differ() -> None:
    plan, other = (plan_recipe(recipe({"tasks": [{"id": "t", "command": command}]})) for command in ("a <b>", "c"))
    assert str(plan.difference(plan)) == "the plans are equal"
    text = str(plan.difference(other))
    assert any(line.startswith("- ") and "a <b>" in line for line in text.splitlines())
    assert all(line.startswith(("- ", "+ ")) for line in text.splitlines())
    assert "a &lt;b&gt;" in plan.difference(other)._repr_html_()


def test_a_recipe_shows_its_pool_and_tasks_without_secrets() -> None:
    made = recipe({"tasks": [{"id": "t", "command": "curl 'https://a/b?sig=secret' '<script>'"}]})
    shown = made._repr_html_()
    assert f"pool {made.pool.id}: " in shown if made.pool else True
    assert "sig=***" in shown
    assert "secret" not in shown.replace("sig=***", "")
    assert "<script" not in shown
