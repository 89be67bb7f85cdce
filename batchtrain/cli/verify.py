"""`batchtrain verify`: verify the assumptions about Azure."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import money
from batchtrain.catalog.sizes import VmSize
from batchtrain.cli.connecting import connect
from batchtrain.cli.documents import plain
from batchtrain.cli.event_lines import tell
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.run_directories import origin
from batchtrain.cli.single_commands import IMAGE, SIZE
from batchtrain.client.local import OWN_IMAGE, own_environment
from batchtrain.config import catalog_file, user_settings
from batchtrain.config.image_names import EXAMPLE
from batchtrain.config.load import load_credentials
from batchtrain.config.types import Credentials
from batchtrain.config.user_settings import is_for_emulator
from batchtrain.errors import Differs, NoAccount, ServiceError, UsageError
from batchtrain.plan.cost import region_for
from batchtrain.service.connect import account_of
from batchtrain.verify.probe import DIFFERS, HAND, HOLDS, NOT_ASKED, Area
from batchtrain.verify.probes import AREAS
from batchtrain.verify.report_page import page
from batchtrain.verify.shared_pools import Work, refuse_above, work_of
from batchtrain.verify.verification import Report, Settings, Verification

NO_IMAGE = (
    "no image: `batchtrain config set registry NAME` names the registry of the images of recipes, or give --image"
)


def command(
    sizes: tuple[str, ...],
    nodes: int,
    names: tuple[str, ...],
    budget: float,
    only_plan: bool,
    image: str | None,
    answers: Path | None,
    folder: Path,
) -> None:
    """Verify what batchtrain assumes about Azure, delete everything, and write a dated report.

    Each size gets a pool for tasks on the host and one for containers, which all probes share. The service itself
    removes their nodes before the budget is spent, also without this command.

    Exit code: 0 if nothing differs, 11 if something does, 2 if the plan costs more than the budget.
    """
    areas, values = _areas(names), _answers(answers)
    catalog = catalog_file.load(settings().configdir or ".")
    vm_sizes = list(dict.fromkeys(_size(name, catalog) for name in sizes or (SIZE,)))
    image = image or _image()
    region = _region(only_plan=only_plan)
    prices = {size.name: catalog.price(size.name, region) for size in vm_sizes}
    works = [
        work
        for size in vm_sizes
        for work in work_of(size, nodes, areas, prices[size.name], image=image, local=_is_local())
    ]
    if only_plan:
        _show_plan(works)
        every = (work for size in vm_sizes for work in work_of(size, nodes, areas, None, image=IMAGE))
        if image is None and any(work.kind.native for work in every):
            say(f"without the pool for containers: {NO_IMAGE}")
    if not _is_local() and not (only_plan and any(work.cost is None for work in works)):
        refuse_above(works, budget, region)
    if only_plan:
        return
    verification = _verification(works, nodes, image, budget, values)
    verification.refuse_unfit()
    _make(folder)
    if works and not _is_local():
        pool_ids = ", ".join(work.name for work in works)
        confirm(f"Create and delete {pool_ids}, with {nodes} nodes each, {_price(works, budget)}?")
    reports = []
    for size in vm_sizes:
        report = verification.report(size, areas)
        say(f"report: {_write(report, folder)}", "success")
        reports.append(report)
    _show(reports)


def _areas(names: Sequence[str]) -> list[Area]:
    by_name = {area.name: area for area in AREAS}
    for name in names:
        if name not in by_name:
            raise UsageError(f"there is no area {name}; choose one of {', '.join(by_name)}")
    return [area for area in AREAS if not names or area.name in names]


def _size(name: str, catalog: Catalog) -> VmSize:
    size = catalog.size(name)
    if size is None:
        near = catalog.nearest_sizes(name)
        hint = f"did you mean {near[0]}?" if near else "`batchtrain catalog sizes` lists them"
        raise UsageError(f"there is no VM size {name} in the catalogue; {hint}")
    return size


def _is_local() -> bool:
    return is_for_emulator(settings().local)


def _image() -> str | None:
    """The image of the containers: this Python on the emulator; None on an account without a registry."""
    if _is_local():
        return OWN_IMAGE
    return f"{EXAMPLE}{IMAGE}" if user_settings.load().registry else None


def _region(*, only_plan: bool) -> str:
    """The region of the account, whose prices count. Raises NoAccount without one, which only a plan may do."""
    if _is_local():
        return ""
    credentials = _credentials()
    if not only_plan and account_of(credentials, os.environ) is None:
        raise NoAccount
    return region_for(credentials, os.environ)


def _credentials() -> Credentials | None:
    return load_credentials(settings().configdir or ".", settings().files)


def _verification(
    works: list[Work], nodes: int, image: str | None, budget: float, values: Mapping[str, Any]
) -> Verification:
    client = connect(changes="verifying assumptions")
    own_environment(client.account)
    limit = None if client.account.emulated else budget
    how = Settings(nodes, image, limit, NO_IMAGE, values, _credentials())
    return Verification(client, works, how, tell, origin())


def _make(folder: Path) -> None:
    """Make the directory of the reports. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the reports cannot be written to {folder}: {error.strerror}; give --report DIR") from None


def _answers(file: Path | None) -> Mapping[str, Any]:
    """What the user observed by hand. Raises UsageError for a probe that is no such probe."""
    if file is None:
        return {}
    try:
        values = json.loads(file.read_bytes())
    except ValueError as error:
        raise UsageError(f"{file} is no JSON: {error}") from None
    names = {probe.name for area in AREAS for probe in area.probes if probe.part == HAND}
    if not isinstance(values, dict) or (others := sorted(values.keys() - names)):
        what = f"`{others[0]}`" if isinstance(values, dict) else "no object"
        raise UsageError(f"{file} has {what}; the probes by hand are {', '.join(sorted(names))}")
    return values


# --- what is shown ----------------------------------------------------------------------------------------------------


def _price(works: Sequence[Work], budget: float) -> str:
    """What priced pools cost, as the question before they are created has it."""
    currency = next(work.price.currency for work in works if work.price)
    total = sum(work.cost or 0.0 for work in works)
    return f"at about {money(total, currency)}, at most {money(budget, currency)}"


def _show_plan(all_work: Sequence[Work]) -> None:
    show_rows([work.planned for work in all_work], empty="no pool: the probes of these areas are by hand")
    costs = [work.cost for work in all_work]
    minutes = sum(work.planned.minutes for work in all_work)
    price = next((work.price for work in all_work if work.price), None)
    if price is not None and None not in costs:
        total = money(sum(cost or 0.0 for cost in costs), price.currency)
        say(f"together {minutes} minutes, at about {total} in {price.region}")
    elif not _is_local():
        say(f"together {minutes} minutes; `batchtrain catalog refresh --prices --location REGION` reads the prices")


def _write(report: Report, folder: Path) -> Path:
    """Write a report as JSON and as a page, beside earlier ones of the day; returns the page."""
    names = itertools.chain((report.name,), (f"{report.name}-{number}" for number in itertools.count(2)))
    path = next(path for name in names if not (path := folder / f"{name}.json").exists())
    path.write_text(json.dumps(plain(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(page(report), encoding="utf-8")
    return path.with_suffix(".md")


def _show(reports: Sequence[Report]) -> None:
    """Print the judgements. Raises Differs if something differs."""
    if settings().output == "table":
        show_rows([row for report in reports for row in report.judgements])
    else:
        show(reports)
    counts = {word: sum(report.count(word) for report in reports) for word in (HOLDS, DIFFERS, NOT_ASKED)}
    say(", ".join(f"{count} {word}" for word, count in counts.items()))
    if leftovers := [text for report in reports for text in report.leftovers]:
        raise ServiceError("; ".join(leftovers))
    if counts[DIFFERS]:
        rows = [row for report in reports for row in report.judgements if row.judgement == DIFFERS]
        names = ", ".join(row.probe for row in rows)
        count = f"{len(rows)} assumptions differ" if len(rows) > 1 else "an assumption differs"
        raise Differs(f"{count}: {names}; the report names the code that depends on it")
