"""The canonical form of a request: a planned object and the same object of the service have equal ones; pure.

Left out: secrets, the signatures of links, defaults, and what the service adds. So the digest of a plan does not help
to guess a secret, and is the same with every new signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from batchtrain.config.masking import is_secret, masked_document
from batchtrain.plan.diff import CASELESS, FILLED_IN, NEVER_GIVEN_BACK, READ_ONLY, UNORDERED, same
from batchtrain.plan.task_stream import TaskStream
from batchtrain.plan.types import Plan

_LEFT_OUT = READ_ONLY | NEVER_GIVEN_BACK
_SIGNED = re.compile(r"\?[^\s\"'?]*\bsig=[^\s\"']*")


def digest(plan: Plan, job_id: str) -> str:
    """The digest of what a plan says about a job and its tasks; of a stream of tasks, of what is known without it."""
    hashed = blake2b(digest_size=16)
    for step in plan.steps:
        if step.subject == job_id and step.action in ("job.add", "task.add", "job.complete"):
            document = step.body.rules() if isinstance(step.body, TaskStream) else step.document
            shown = canonical(masked_document(document, plan.hidden), {})
            hashed.update(step.action.encode() + msgspec.json.encode(shown, order="sorted"))
    return hashed.hexdigest()


def mark(task: Mapping[str, Any], retries: int = 0) -> bytes:
    """Eight bytes that are equal for equal tasks. retries: those of the job, for a planned task without constraints."""
    constrained = {"constraints": {"maxTaskRetryCount": retries}, **task} if retries else task
    shown = canonical(constrained, FILLED_IN["task"])
    return blake2b(msgspec.json.encode(shown, order="sorted"), digest_size=8).digest()


def canonical(value: Any, filled: Any, key: str = "") -> Any:
    """The canonical form of a part of a document; None for what says nothing. filled: the service's default for it."""
    if isinstance(value, dict):
        return dict(_object(value, filled if isinstance(filled, dict) else {})) or None
    if isinstance(value, (list, tuple)):
        return _list(value, key) or None
    if filled is not None and same(value, filled, key):
        return None
    if not isinstance(value, str):
        return value
    text = _SIGNED.sub("", value) if "sig=" in value else value
    return text.lower() if key in CASELESS else text


def _object(value: Mapping[str, Any], filled: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    hidden = "value" in value and is_secret(str(value.get("name", "")))
    for name, item in value.items():
        if name in _LEFT_OUT or (hidden and name == "value"):
            continue
        shown = canonical(item, filled.get(name), name)
        if shown is not None:
            yield name, shown


def _list(value: list[Any] | tuple[Any, ...], key: str) -> list[Any]:
    items = [canonical(item, None) for item in value]
    name = UNORDERED.get(key)
    return sorted(items, key=lambda item: str(item.get(name, ""))) if name else items
