"""The canonical form of a request: a planned object and the same object of the service have equal ones; pure.

Left out: secrets, the signatures of links, defaults, and what the service adds. So the digest of a plan does not help
to guess a secret, and is the same with every new signature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from batchtrain.config.masking import masked_document
from batchtrain.config.secret_names import is_secret
from batchtrain.plan.diff import CASELESS, FILLED_IN, NEVER_GIVEN_BACK, READ_ONLY, UNORDERED, same
from batchtrain.plan.task_stream import TaskStream
from batchtrain.plan.types import Plan

_LEFT_OUT = READ_ONLY | NEVER_GIVEN_BACK
_SIGNED = re.compile(r"\?[^\s\"'?]*\bsig=[^\s\"']*")


def digest(plan: Plan, job_id: str) -> str:
    """The digest of what a plan says about a job and its tasks; of a stream of tasks, of what is known without it."""
    hasher = blake2b(digest_size=16)
    for step in plan.steps:
        if step.subject == job_id and step.action in ("job.add", "task.add", "job.complete"):
            document = step.body.rules() if isinstance(step.body, TaskStream) else step.document
            document_form = canonical(masked_document(document, plan.hidden), {})
            hasher.update(step.action.encode() + msgspec.json.encode(document_form, order="sorted"))
    return hasher.hexdigest()


def mark(task: Mapping[str, Any], retries: int = 0) -> bytes:
    """Eight bytes that are equal for equal tasks. retries: those of the job, for a planned task without constraints."""
    document = {"constraints": {"maxTaskRetryCount": retries}, **task} if retries else task
    form = canonical(document, FILLED_IN["task"])
    return blake2b(msgspec.json.encode(form, order="sorted"), digest_size=8).digest()


def canonical(value: Any, default: Any, key: str = "") -> Any:
    """The canonical form of a part of a document; None for what says nothing. default: the service's default for it."""
    if isinstance(value, dict):
        defaults = default if isinstance(default, dict) else {}
        is_hidden = "value" in value and is_secret(str(value.get("name", "")))
        forms = {
            name: canonical(item, defaults.get(name), name)
            for name, item in value.items()
            if name not in _LEFT_OUT and not (is_hidden and name == "value")
        }
        return {name: form for name, form in forms.items() if form is not None} or None
    if isinstance(value, (list, tuple)):
        items = [canonical(item, None) for item in value]
        name = UNORDERED.get(key)
        if name:
            items.sort(key=lambda item: str(item.get(name, "") if isinstance(item, dict) else item))
        return items or None
    if default is not None and same(value, default, key):
        return None
    if not isinstance(value, str):
        return value
    text = _SIGNED.sub("", value) if "sig=" in value else value
    return text.lower() if key in CASELESS else text
