"""The pools and jobs of templates in the form of the service's own requests: of Azure Resource Manager, as ARM and
Bicep have them, and of `az batch … create --template` and Batch Explorer; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Document = dict[str, Any]
POOLS = ("microsoft.batch/batchaccounts/pools", "pools")
ACCOUNTS, DEPLOYMENTS = "microsoft.batch/batchaccounts", "microsoft.resources/deployments"
_CALL = re.compile(r"(parameters|variables)\('([^']+)'\)", re.IGNORECASE)
_JOINED = re.compile(r"(concat|format)\((.*)\)", re.IGNORECASE | re.DOTALL)
_ARGUMENT = re.compile(r"\s*(?:'((?:[^']|'')*)'|((?:parameters|variables)\('[^']+'\)))\s*(?:,|$)", re.IGNORECASE)
_WITHIN = re.compile(r"\[((?:parameters|variables)\('[^']+'\))\]", re.IGNORECASE)
"""A parameter amid a text, which the templates of `az batch` may have."""
_LAST = re.compile(r"(?:'/?([A-Za-z0-9_-]+)'|((?:parameters|variables)\('[^']+'\)))\s*\)?\s*$", re.IGNORECASE)
DEPTH = 20
"""Parameters that name others are followed so far."""


class Unknown(NamedTuple):
    """An expression of a template whose value is not in the files."""

    text: str


def parameters_in(value: Unknown) -> list[str]:
    """The parameters of an expression, each once."""
    calls = _CALL.findall(value.text)
    return list(dict.fromkeys(name for kind, name in calls if kind.lower() == "parameters"))


Names = Mapping[tuple[str, str], Any]
"""`parameters` or `variables` and a name -> its value."""


def jobs_of(content: Any, files: Iterable[Any]) -> list[Document]:
    """The job of a template of `az batch job create --template`, if the document is one."""
    return _wrapped("job", content, _given(files))


def _wrapped(kind: str, content: Any, values: Document) -> list[Document]:
    item = content.get(kind) if isinstance(content, dict) else None
    if not isinstance(item, dict):
        return []
    properties = item.get("properties")
    return [_resolved(properties if isinstance(properties, dict) else item, _names(content, values))]


def pools_of(content: Any, files: Iterable[Any]) -> list[Document]:
    """The pools of a template, a resource, or a template of `az batch pool create --template`; empty for any other
    document. files: all documents, of which some give parameters their values."""
    if not isinstance(content, dict):
        return []
    values = _given(files)
    names = _names(content, values)
    if pools := _wrapped("pool", content, values):
        return pools
    if "scaleSettings" in content and "vmSize" in content:  # properties of Resource Manager by themselves
        return [{"id": content.get("id"), **_pool({"properties": content}, names)}]
    if isinstance(content.get("properties"), dict) and "resources" not in content:
        is_pool = str(content.get("type", POOLS[0])).lower() in POOLS and "vmSize" in content["properties"]
        return [_pool(content, names)] if is_pool else []
    return list(_below(content, names))


def _below(template: Document, names: Names) -> Iterator[Document]:
    resources = template.get("resources") or ()
    for resource in resources.values() if isinstance(resources, dict) else resources:
        kind = str(resource.get("type", "")).lower()
        if kind in POOLS:
            yield _pool(resource, names)
        elif kind == ACCOUNTS:
            yield from _below(resource, names)
        elif kind == DEPLOYMENTS and isinstance(inner := resource.get("properties", {}).get("template"), dict):
            parameters = resource["properties"].get("parameters") or {}
            values = {name.lower(): _resolved(item.get("value"), names) for name, item in parameters.items()}
            yield from _below(inner, _names(inner, values))


def _given(files: Iterable[Any]) -> Document:
    """The values of files of parameters."""
    tables = (file["parameters"] for file in files if isinstance(file, dict) and "resources" not in file
              and isinstance(file.get("parameters"), dict))  # fmt: skip
    return {
        name.lower(): item["value"]
        for table in tables
        for name, item in table.items()
        if isinstance(item, dict) and "value" in item
    }


def _names(template: Document, values: Document) -> Names:
    names: dict[tuple[str, str], Any] = {("variables", name.lower()): item
                                         for name, item in (template.get("variables") or {}).items()}  # fmt: skip
    for name, parameter in (template.get("parameters") or {}).items():
        value = values.get(name.lower(), parameter.get("defaultValue") if isinstance(parameter, dict) else None)
        if value is not None:
            names["parameters", name.lower()] = value
    return names


def _resolved(value: Any, names: Names, depth: int = DEPTH) -> Any:
    """A value without expressions: each is replaced, or Unknown."""
    if isinstance(value, dict):
        return {name: _resolved(item, names, depth) for name, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, names, depth) for item in value]
    if not isinstance(value, str):
        return value
    if value.startswith("[["):
        return value[1:]
    if not value.startswith("[") or not value.endswith("]") or _WITHIN.match(value, 0, len(value) - 1):
        parts = {match[0]: _evaluated(match[1], names, depth) for match in _WITHIN.finditer(value)}
        if any(isinstance(part, Unknown) for part in parts.values()):
            return Unknown(value)
        return _WITHIN.sub(lambda match: str(parts[match[0]]), value)
    result = _evaluated(value[1:-1].strip(), names, depth)
    return Unknown(value) if isinstance(result, Unknown) else result


def _evaluated(expression: str, names: Names, depth: int) -> Any:
    """The value of a parameter or a variable, or of `concat` or `format` of such and of texts."""
    if call := _CALL.fullmatch(expression):
        key = (call[1].lower(), call[2].lower())
        return _resolved(names[key], names, depth - 1) if key in names and depth else Unknown(expression)
    joined = _JOINED.fullmatch(expression)
    arguments = list(_ARGUMENT.finditer(joined[2])) if joined else []
    if joined is None or "".join(match[0] for match in arguments) != joined[2]:
        return Unknown(expression)
    values = [match[1].replace("''", "'") if match[2] is None else _evaluated(match[2], names, depth)
              for match in arguments]  # fmt: skip
    if any(not isinstance(item, (str, int)) for item in values):
        return Unknown(expression)
    if joined[1].lower() == "concat":
        return "".join(map(str, values))
    texts = {f"{{{number}}}": str(item) for number, item in enumerate(values[1:])}
    return re.sub(r"\{\d+\}", lambda match: texts.get(match[0], match[0]), str(values[0]))


def _pool(resource: Document, names: Names) -> Document:
    """A pool of Resource Manager as the service's own request."""
    name, resource = resource.get("name"), _resolved(resource, names)
    properties = dict(resource["properties"])
    scale = properties.pop("scaleSettings", None) or {}
    automatic = scale.get("autoScale") or {}
    deployment = properties.pop("deploymentConfiguration", None) or {}
    communication = properties.pop("interNodeCommunication", None)
    identities = (resource.get("identity") or {}).get("userAssignedIdentities") or {}
    document = {
        "id": _id_of(name, names),
        **properties,
        **deployment,
        **(scale.get("fixedScale") or {}),
        "autoScaleFormula": automatic.get("formula"),
        "autoScaleEvaluationInterval": automatic.get("evaluationInterval"),
        "enableInterNodeCommunication": None if communication is None else str(communication).lower() == "enabled",
        "identities": _resolved([*identities], names) or None,
        "resourceTags": properties.get("resourceTags") or resource.get("tags"),
    }
    return {name: value for name, value in document.items() if value is not None}


def _id_of(name: Any, names: Names) -> Any:
    """The last part of a resource's name, which may be an expression such as `[concat(…, '/', 'pool')]`."""
    if not isinstance(name, str) or not name.startswith("["):
        return name.rpartition("/")[2] if isinstance(name, str) else None
    match = _LAST.search(name.rstrip("]"))
    if match and match[1]:
        return match[1]
    value = _resolved(f"[{match[2]}]" if match else name, names)
    return value.rpartition("/")[2] if isinstance(value, str) else value
