"""The service versions that the emulator answers: those of the tested clients; pure.

Requests and answers of each are translated by the tables of `properties`, which count versions by their revision.
"""

from __future__ import annotations

from collections.abc import Mapping

from batchtrain.emulator.faults import Fault, invalid_parameter

REVISIONS: Mapping[str, int] = {
    "2019-08-01.10.0": 10,
    "2020-03-01.11.0": 11,
    "2020-09-01.12.0": 12,
    "2021-06-01.14.0": 14,
    "2022-01-01.15.0": 15,
    "2022-10-01.16.0": 16,
    "2023-05-01.17.0": 17,
    "2023-11-01.18.0": 18,
    "2024-02-01.19.0": 19,
    "2024-07-01.20.0": 20,
    "2025-06-01": 21,
    "2026-10-01": 22,
}
"""Service version -> revision: the middle number of its name; later versions continue the count."""
NEWEST = max(REVISIONS.values())
CURRENT = REVISIONS["2025-06-01"]
"""The version of today's SDKs."""


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
