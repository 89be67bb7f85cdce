"""`batchtrain catalog refresh`: corrections of the tables from Azure's current lists."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

from batchtrain import state_files
from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import by_hand
from batchtrain.cli.documents import plain
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show
from batchtrain.config import catalog_file, user_settings
from batchtrain.config.load import load_credentials
from batchtrain.errors import ConfigError, ServiceError, UsageError
from batchtrain.plan.cost import region_for
from batchtrain.service import arm, prices
from batchtrain.service.connect import CA_VARIABLE, account_of

MADE_BY = "made by `batchtrain catalog refresh`"


def refresh(location: str | None, subscription: str | None, prices: bool, currency: str, target: str | None) -> None:
    """Write the sizes that Batch supports in a region, and that the built-in tables lack or describe differently, to a
    catalog.yaml. With --prices: what an hour of each size costs there.

    The sizes come from Azure Resource Manager, which needs a sign-in with Microsoft Entra ID and the role Reader. The
    prices come from Azure's public Retail Prices API.
    """
    file = Path(target) if target else catalog_file.user_directory(os.environ) / catalog_file.NAMES[0]
    if file.is_file() and not file.read_text(encoding="utf-8", errors="replace").startswith(f"# {MADE_BY}"):
        confirm(f"{file} was not made by this command. Replace it?")
    if prices:
        _refresh_prices(file, location, currency)
    else:
        _refresh_sizes(file, location, subscription)


def _refresh_sizes(file: Path, location: str | None, subscription: str | None) -> None:
    """Replace the sizes and the images of the file; its prices are kept."""
    credentials = load_credentials(settings().configdir or ".", settings().files)
    account = account_of(credentials, os.environ)
    endpoint = account.endpoint if account else ""
    subscription_id = credentials.management.subscription_id if credentials and credentials.management else None
    azure = arm.reach(credentials, os.environ, endpoint)
    region = arm.region(azure, endpoint, subscription or subscription_id, location)
    say(f"listing the sizes that Batch supports in {region.location}, subscription {region.subscription}")
    fresh = arm.corrections(arm.batch_sizes(azure, *region), Catalog())
    _write(file, fresh._replace(prices=_before(file).prices), region.location)
    names = [size.name for size in fresh.own_sizes]
    summary = f"{len(names)} sizes: {', '.join(names)}" if names else "no sizes: the built-in tables are up to date"
    show({"file": str(file), "location": region.location, "sizes": names}, f"wrote {file}, {summary}")


def _refresh_prices(file: Path, location: str | None, currency: str) -> None:
    """Replace the prices of the region in the file; everything else is kept."""
    credentials = load_credentials(settings().configdir or ".", settings().files)
    region = (location or region_for(credentials, os.environ)).lower()
    if not region:
        raise UsageError("no account says which region: give --location REGION, such as --location westeurope")
    url = user_settings.load().prices_url
    say(f"reading the prices of {region} from {url or prices.URL}")
    try:
        fresh = prices.read(region, date.today(), currency=currency, url=url, ca=os.environ.get(CA_VARIABLE) or None)
    except ServiceError:
        say(f"the prices of {region} cannot be read; {by_hand(region)}", "warning")
        raise
    _write(file, Catalog(prices=(fresh,)).above(_before(file)), region)
    count = f"{len(fresh.dedicated)} prices of dedicated nodes and {len(fresh.spot)} of spot nodes in {currency}"
    document = {"file": str(file), "location": region, **plain(fresh)}
    show(document, f"wrote {file}, {count}")


def _before(file: Path) -> Catalog:
    """The entries of the file; none if it is not there, or cannot be read: it is made anew."""
    try:
        return catalog_file.read(file) if file.is_file() else Catalog()
    except ConfigError as error:
        say(f"{error}; the file is made anew", "warning")
        return Catalog()


def _write(file: Path, catalog: Catalog, location: str) -> None:
    heading = f"{MADE_BY} on {date.today()} for {location};\nthe next time it is replaced."
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    state_files.replace(file, catalog_file.text_of(catalog, heading).encode())
