"""The service versions that the emulator answers, which are those of the tested clients; pure.

Requests and answers of each are translated by the tables of `properties`, which count versions by their revision.
"""

from __future__ import annotations

from collections.abc import Mapping

from batchtrain.catalog import api_versions
from batchtrain.emulator.faults import Fault, invalid_parameter

REVISIONS: Mapping[str, int] = {version.name: version.revision for version in api_versions.VERSIONS}
"""Service version -> revision."""
NEWEST, CURRENT = max(REVISIONS.values()), api_versions.CURRENT.revision


def name(revision: int) -> str:
    """The service version of a revision."""
    return next(version for version, number in REVISIONS.items() if number == revision)


def check(query: Mapping[str, str]) -> int:
    """The revision that a request asks for. Raises Fault 400."""
    version = next((value for name, value in query.items() if name.lower() == "api-version"), "")
    if not version:
        raise Fault("MissingRequiredQueryParameter", QueryParameterName="api-version")
    if version not in REVISIONS:
        reason = f"The service version is not supported. Use one of {', '.join(REVISIONS)}."
        raise invalid_parameter("api-version", version, Reason=reason)
    return REVISIONS[version]
