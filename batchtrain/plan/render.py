"""A plan as a JSON document, and as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

import msgspec

from batchtrain import markup
from batchtrain.config.masking import masked_document, masked_text, without_files
from batchtrain.config.types import Secret
from batchtrain.errors import Problem
from batchtrain.launchers.launch import Implicit
from batchtrain.plan.step import Step

FILE_MARK = "# ---- .batchtrain/"
"""Begins the text of a file that travels with a task, where its launch is shown."""


class Shown(Protocol):
    """What is shown of a plan."""

    @property
    def steps(self) -> Sequence[Step]: ...
    @property
    def warnings(self) -> Sequence[Problem]: ...
    @property
    def implicit(self) -> Sequence[Implicit]: ...
    @property
    def launch(self) -> Sequence[tuple[str, str]]: ...
    @property
    def hidden(self) -> Sequence[Secret]: ...


def as_document(plan: Shown) -> dict[str, Any]:
    """`steps`, `warnings`, `implicit` and `launch`; bodies are the wire documents with secrets masked."""
    steps = [step_document(step) for step in plan.steps]
    parts = {
        "steps": without_files(steps) if plan.hidden else steps,
        "warnings": [warning.document for warning in plan.warnings],
        "implicit": [item._asdict() for item in plan.implicit],
    }
    launch = {task: masked_text(text, plan.hidden) for task, text in plan.launch}
    return {**{name: masked_document(part, plan.hidden) for name, part in parts.items()}, "launch": launch}


def step_document(step: Step) -> dict[str, Any]:
    """One request with its wire document."""
    return {"action": step.action, "method": step.method, "path": step.url, "body": step.document}


def as_text(plan: Shown) -> str:
    """The whole plan as text: requests with long file chunks shortened, implicit settings, the launch text.

    Equal bodies, settings and launches are shown once and counted.
    """
    lines = [line for head, body in _requests(plan) for line in (head, *body)]
    if implicit := _implicit(plan):
        lines += ["", "implicit:", *implicit]
    for head, text in _launches(plan):
        lines += ["", head, *text]
    return masked_text("\n".join(lines), plan.hidden)


def as_html(plan: Shown) -> str:
    """The same for a notebook: each request and each launch is folded."""

    def masked(lines: Iterable[str]) -> str:
        return masked_text("\n".join(lines), plan.hidden)

    requests = [markup.fold(masked([head]), markup.pre(masked(body))) for head, body in _requests(plan)]
    implicit = _implicit(plan)
    launches = [markup.fold(masked([head]), markup.shell(masked(text))) for head, text in _launches(plan)]
    count = f"{len(plan.steps):,} request{'s' if len(plan.steps) != 1 else ''}"
    return markup.card(
        markup.head(f"plan: {count}", note="nothing is sent yet"),
        *requests,
        markup.fold("implicit settings", markup.pre(masked(implicit))) if implicit else "",
        markup.fold("warnings", markup.pre(masked(map(str, plan.warnings)))) if plan.warnings else "",
        *launches,
    )


def _requests(plan: Shown) -> Iterator[tuple[str, list[str]]]:
    """Requests to the same address, and the lines of their bodies."""
    tasks = _Tasks(plan.hidden)
    for (method, path), same in groupby(plan.steps, lambda step: (step.method, step.url)):
        bodies = [step.document for step in same]
        if "tasks" in bodies[0]:
            for body in bodies:
                yield f"{method} {path}   ({_numbers(body)})", tasks.lines(body["tasks"])
        elif "value" in bodies[0]:
            all_tasks = [task for body in bodies for task in body["value"]]
            requests = f" in {len(bodies):,} requests" if len(bodies) > 1 else ""
            yield f"{method} {path}   ({len(all_tasks):,} tasks{requests})", tasks.lines(all_tasks)
        else:
            for body in bodies:
                yield f"{method} {path}", [_json(body, plan.hidden)]


def _numbers(body: Mapping[str, Any]) -> str:
    if body["count"] is None:
        return "as many tasks as there are values"
    largest = f", the largest of {body['largest']:,} bytes" if body["largest"] is not None else ""
    return f"{body['count']:,} tasks{largest}"


def _json(body: Any, hidden: Sequence[Secret]) -> str:
    return msgspec.json.format(msgspec.json.encode(masked_document(without_files(body), hidden))).decode()


SHOWN = 5
"""Tasks, kinds of task and launches that are shown; the rest is counted."""
FEW = 2
"""Fields besides the id in which two tasks may differ and still be alike."""


class _Tasks:
    """Tasks as text: the first of each kind whole, and in what the others differ from it."""

    def __init__(self, hidden: Sequence[Secret]) -> None:
        self._hidden = hidden
        self._kinds: list[Mapping[str, Any]] = []
        self._shown = 0

    def lines(self, tasks: Sequence[Mapping[str, Any]]) -> list[str]:
        lines, others, hidden = [], [], 0
        for task in tasks:
            kinds = (kind for kind in self._kinds if kind.keys() == task.keys())
            like = next((kind for kind in kinds if len(_differing(kind, task)) <= FEW), None)
            if like is not None:
                others.append((task, like))
            elif len(self._kinds) < SHOWN:
                self._kinds.append(task)
                lines.append(_json(task, self._hidden))
            else:
                hidden += 1
        room = max(SHOWN - self._shown, 0)
        self._shown += len(others)
        lines += [
            f"  {task['id']} is like {like['id']}{_but(like, task, self._hidden)}" for task, like in others[:room]
        ]
        more = [f"{hidden:,} others"] if hidden else []
        if other_ids := [task["id"] for task, _ in others[room:]]:
            count = f"{len(other_ids):,} like these, {other_ids[0]} to {other_ids[-1]}"
            more.insert(0, count if len(other_ids) > 1 else f"{other_ids[0]}, like these")
        return [*lines, f"  and {' and '.join(more)}; `-o json` shows them in full"] if more else lines


def _differing(task: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [key for key, value in task.items() if key != "id" and other.get(key) != value]


def _but(like: Mapping[str, Any], task: Mapping[str, Any], hidden: Sequence[Secret]) -> str:
    values = masked_document(without_files({key: task[key] for key in _differing(like, task)}), hidden)
    texts = {key: msgspec.json.encode(value).decode() for key, value in values.items()}
    differences = [f"{key} {text if len(text) <= 100 else f'{text[:100]}…'}" for key, text in texts.items()]
    return f", but {', '.join(differences)}" if differences else ""


def _implicit(plan: Shown) -> list[str]:
    return [
        f"  {what} = {value}   because {because}{f' ({times:,} times)' if times > 1 else ''}"
        for (what, value, because), times in Counter(item[:3] for item in plan.implicit).items()
    ]


def _launches(plan: Shown) -> Iterator[tuple[str, list[str]]]:
    tasks: dict[str, list[str]] = {}
    for task, text in plan.launch:
        tasks.setdefault(text, []).append(task)
    for text, names in list(tasks.items())[:SHOWN]:
        script, *files = text.split(FILE_MARK)
        others = f" (and {len(names) - 1:,} more)" if len(names) > 1 else ""
        lines = [f"  {line}" for line in script.splitlines()]
        if files:
            names_of_files = ", ".join(f".batchtrain/{part.split(maxsplit=1)[0]}" for part in files)
            lines.append(f"  # with {names_of_files}; `-o json` shows them in full")
        yield f"task {names[0]}{others} runs:", lines
    if len(tasks) > SHOWN:
        yield f"and {len(tasks) - SHOWN:,} other launches; `-o json` shows them", []
