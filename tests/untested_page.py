"""`docs/explanation/untested-on-azure.md`, made of the probes and of the reports of verifications."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from batchtrain.verify.probe import ANY, HAND, Area, Probe
from batchtrain.verify.probes import AREAS
from tests import environments

REPORTS = environments.ROOT / "docs" / "verified"

HEAD = """\
# Untested on Azure

batchtrain is built and tested on one machine, without an Azure account, InfiniBand or GPUs. The {count} assumptions on
this page come from documentation, from the sources of other tools, or from memory. `batchtrain verify` settles
{automatic} of them by itself ([how to](../how-to/verify-azure.md)), and the others with your answers. Each row names
its probe and the steps by hand.

{seen}

`python -m tests.generated_files` generates this page from `batchtrain/verify/probes/` and from the reports in
`docs/verified/`; a test fails if it is stale.
"""
NONE = "**No report of Azure exists yet**: every row is unverified."
SOME = "Reports exist of {places}. The last column says what they saw."
FOOT = """
## Not supported, because it cannot be verified without Azure
"""


def page() -> str:
    """The text of the page, with the reports of the repository."""
    return "".join(f"{line}\n" for line in _lines(reports()))


def reports() -> list[dict[str, Any]]:
    """The committed reports, the newest last."""
    return [json.loads(path.read_bytes()) for path in sorted(REPORTS.glob("*.json"), key=_age)]


def _age(path: Path) -> tuple[str, int, str]:
    """Sorts reports by date; the second one of a day has a longer name."""
    return path.stem[:10], len(path.stem), path.stem


def _lines(known: list[dict[str, Any]]) -> Iterator[str]:
    probes = [probe for area in AREAS for probe in area.probes]
    automatic = sum(probe.part != HAND for probe in probes)
    places = ", ".join(f"{report['size']} in {report['region']} ({report['date']})" for report in known)
    seen = SOME.format(places=places) if known else NONE
    yield HEAD.format(count=len(probes), automatic=automatic, seen=seen)
    judgements = seen_in(known)
    for area in AREAS:
        yield from _area(area, judgements)
    yield FOOT + (environments.ROOT / "tests" / "data" / "unsupported.md").read_text(encoding="utf-8").rstrip()


def seen_in(known: list[dict[str, Any]]) -> Mapping[str, str]:
    """By probe, what the newest report of each size says that asked it."""
    seen: dict[str, dict[str, str]] = {}
    for report in known:
        for row in report["judgements"]:
            if row["judgement"] in ("holds", "differs"):
                where = f"{row['judgement']} ({report['size']}, {report['region']}, {report['date']})"
                seen.setdefault(row["probe"], {})[report["size"]] = where
    return {probe: "; ".join(sizes.values()) for probe, sizes in seen.items()}


def _area(area: Area, judgements: Mapping[str, str]) -> Iterator[str]:
    yield f"## {area.title}\n\n{area.introduction}\n"
    yield "| probe | assumption | source | how to verify it | seen |\n|---|---|---|---|---|"
    for probe in area.probes:
        cells = (probe.assumption, probe.source, _how(probe), judgements.get(probe.name, "not yet"))
        yield f"| `{probe.name}` | {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _how(probe: Probe) -> str:
    if probe.part == HAND:
        return f"by hand, because {probe.why_by_hand}: {probe.steps}"
    need = "" if probe.needs is ANY else f" on {probe.needs.text}"
    return f"`batchtrain verify`{need}; by hand: {probe.steps}"
