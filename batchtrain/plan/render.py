"""A plan as a JSON document, and as text for people."""

from __future__ import annotations

from typing import Any

import msgspec

from batchtrain.plan.payload import VARIABLE
from batchtrain.plan.types import FILE_MARK, Plan, Step
from batchtrain.plan.wire import Wire, document


def as_document(plan: Plan) -> dict[str, Any]:
    """`steps`, `warnings`, `implicit` and `launch`; bodies are the wire documents."""
    return {
        "steps": [step_document(step) for step in plan.steps],
        "warnings": [warning.document for warning in plan.warnings],
        "implicit": [item._asdict() for item in plan.implicit],
        "launch": dict(plan.launch),
    }


def step_document(step: Step) -> dict[str, Any]:
    """One request with its wire document."""
    return {"action": step.action, "method": step.method, "path": step.path, "body": body_of(step)}


def body_of(step: Step) -> dict[str, Any]:
    """The JSON document a step sends."""
    return document(step.body) if isinstance(step.body, Wire) else step.body


def as_text(plan: Plan) -> str:
    """The whole plan for a person: requests with long file chunks shortened, what is implicit, the launch text."""
    lines: list[str] = []
    for step in plan.steps:
        lines += [
            f"{step.method} {step.path}",
            msgspec.json.format(msgspec.json.encode(_short(body_of(step)))).decode(),
        ]
    if plan.implicit:
        lines += ["", "implicit:"]
        lines += [f"  {item.what} = {item.value}   because {item.because}" for item in plan.implicit]
    for task_id, text in plan.launch:
        shown, *files = text.split(FILE_MARK)
        lines += ["", f"task {task_id} runs:", *(f"  {line}" for line in shown.splitlines())]
        if files:
            names = ", ".join(f".batchtrain/{part.split(maxsplit=1)[0]}" for part in files)
            lines.append(f"  # with {names}; `-o json` shows them in full")
    return "\n".join(lines)


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        if str(value.get("name", "")).startswith(VARIABLE):
            return {**value, "value": f"<{len(value['value'])} characters of the task's files>"}
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(item) for item in value]
    return value
