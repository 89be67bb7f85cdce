"""`batchtrain catalog`: the known VM sizes and images, and a file of corrections from Azure's current lists."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from batchtrain.cli.help import Group
from batchtrain.cli.options import say, settings
from batchtrain.cli.output import plain, show, show_rows
from batchtrain.errors import ConfigError, NotFound, UsageError

if TYPE_CHECKING:
    from batchtrain.catalog.offer import Catalog
    from batchtrain.catalog.sizes import VmSize
    from batchtrain.catalog.vm_images import Image

SHOWN = "Include retired entries."
MADE_BY = "made by `batchtrain catalog refresh`"
GOING = "Only retired entries, or entries with a retirement date."


class SizeRow(NamedTuple):
    """A row of the table of sizes."""

    name: str
    series: str
    cores: int
    memory_gib: float
    gpus: str
    infiniband: str
    retires: date | None
    today: str


class ImageRow(NamedTuple):
    """A row of the table of images."""

    image: str
    node_agent: str
    has: str
    support_ends: date | None
    today: str


@click.group(cls=Group)
def command() -> None:
    """VM sizes and images; `catalog.yaml` adds to them or corrects them."""


@command.command()
@click.argument("pattern", required=False)
@click.option("--gpu", is_flag=True, help="Only those with GPUs.")
@click.option("--infiniband", is_flag=True, help="Only those with InfiniBand.")
@click.option("--vendor", type=click.Choice(["nvidia", "amd"]), help="Only those with GPUs of this vendor.")
@click.option("--family", metavar="SERIES", help="Only this series, such as `ND H100 v5` or HBv3.")
@click.option("--retired", is_flag=True, help=GOING)
@click.option("--all", "everything", is_flag=True, help=SHOWN)
def sizes(
    pattern: str | None,
    gpu: bool,
    infiniband: bool,
    vendor: str | None,
    family: str | None,
    retired: bool,
    everything: bool,
) -> None:
    """List VM sizes; PATTERN is a part of the name or series, or has * and ?."""
    from batchtrain.catalog import offer

    catalog = _catalog()
    matches = offer.matching_sizes(catalog.sizes, pattern) if pattern else catalog.sizes
    if not matches:
        raise _nothing("size", str(pattern), catalog.nearest_sizes(str(pattern)))
    exact = catalog.size(pattern) if pattern else None
    selection = [
        size
        for size in matches
        if (size.gpus or not (gpu or vendor))
        and (size.infiniband or size.rdma or not infiniband)
        and vendor in (None, size.gpu_vendor)
        and (family is None or size.family.lower() == family.lower())
        and (size is exact or _wanted(size.retired, retired, everything))
    ]
    _show_sizes(selection, exact, hidden=len(matches) - len(selection))


def _show_sizes(sizes: list[VmSize], exact: VmSize | None, *, hidden: int) -> None:
    from batchtrain.catalog.sizes import today_for

    if settings().output != "table":
        show_rows([_document(size) for size in sizes])
        return
    show_rows([_size_row(size) for size in sizes], empty=f"no such size ({hidden} of this name left out; --all)")
    if exact is not None and exact in sizes:
        for note in (exact.notes, today_for(exact).reason):
            if note:
                say(f"{exact.name}: {note}")


def _document(size: VmSize) -> dict[str, Any]:
    """A size as a document: every column of the table, and the current replacement."""
    from batchtrain.catalog.sizes import today_for

    today = today_for(size)
    return {**plain(size), "today": today.today, "old_cuda": today.old_cuda, "reason": today.reason}


def _size_row(size: VmSize) -> SizeRow:
    from batchtrain.catalog.sizes import today_for

    memory = f" {size.gpu_memory_gib:g} GiB" if size.gpu_memory_gib else ""
    gpus = f"{size.gpus} x {size.gpu_model or 'GPU'}{memory}" if size.gpus else ""
    network = f"{size.hcas} x {(size.infiniband or 'rdma').upper()}" if size.rdma else ""
    today = today_for(size).today if size.retired else None
    return SizeRow(size.name, size.family, size.cores, size.memory_gib, gpus, network, size.retired, today or "")


@command.command()
@click.argument("pattern", required=False)
@click.option("--gpu", is_flag=True, help="Only those with a GPU driver.")
@click.option("--rdma", is_flag=True, help="Only those with InfiniBand drivers.")
@click.option("--docker", is_flag=True, help="Only those with a container engine.")
@click.option("--os", "system", type=click.Choice(["linux", "windows"]), help="Only this operating system.")
@click.option("--retired", is_flag=True, help=GOING)
@click.option("--all", "everything", is_flag=True, help=SHOWN)
def images(
    pattern: str | None, gpu: bool, rdma: bool, docker: bool, system: str | None, retired: bool, everything: bool
) -> None:
    """List VM images; PATTERN is a part of publisher:offer:sku or of the node agent, or has * and ?."""
    from batchtrain.catalog import offer
    from batchtrain.catalog.vm_images import DOCKER, NVIDIA, RDMA, ROCM

    catalog = _catalog()
    matches = offer.matching_images(catalog.images, pattern) if pattern else catalog.images
    if not matches:
        raise _nothing("image", str(pattern), catalog.nearest_images(str(pattern)))
    capabilities = {word for word, is_set in ((RDMA, rdma), (DOCKER, docker)) if is_set}
    selection = [
        image
        for image in matches
        if capabilities <= image.capabilities
        and (image.capabilities & {NVIDIA, ROCM} or not gpu)
        and system in (None, image.os)
        and _wanted(image.retired, retired, everything)
    ]
    if settings().output != "table":
        show_rows([{**plain(image), "capabilities": sorted(image.capabilities)} for image in selection])
        return
    left_out = len(matches) - len(selection)
    show_rows([_image_row(image) for image in selection], empty=f"no such image ({left_out} left out; --all)")


def _image_row(image: Image) -> ImageRow:
    has = ", ".join(sorted(image.capabilities))
    return ImageRow(":".join(image[:3]), image.node_agent, has, image.retired, image.replacement)


def _wanted(retirement: date | None, only_retired: bool, everything: bool) -> bool:
    if only_retired:
        return retirement is not None
    return everything or retirement is None or retirement > date.today()


def _catalog() -> Catalog:
    from batchtrain.config import catalog_file

    # The configuration directory whose catalog.yaml applies; for a recipe its `config/`
    directory = Path(settings().configdir or ".")
    return catalog_file.load(directory / "config" if (directory / "config").is_dir() else directory)


def _nothing(kind: str, pattern: str, near: tuple[str, ...]) -> NotFound:
    meant = f"did you mean {' or '.join(near)}?" if near else f"`batchtrain catalog {kind}s` lists them"
    return NotFound(f"no {kind} is called {pattern}; {meant}")


@command.command()
@click.option("--location", metavar="REGION", help="The region. Default: the region of the account.")
@click.option("--subscription", metavar="ID", help="The subscription. Default: the subscription of the account.")
@click.option("--prices", is_flag=True, help="Read the prices of the region instead. Needs no sign-in.")
@click.option("--currency", default="USD", show_default=True, metavar="CODE", help="Currency of the prices.")
@click.option("--to", "target", metavar="FILE", help="File to write. Default: the catalog.yaml of the user.")
def refresh(location: str | None, subscription: str | None, prices: bool, currency: str, target: str | None) -> None:
    """Write the sizes that Batch supports in a region, and that the built-in tables lack or describe differently, to a
    catalog.yaml. With --prices: what an hour of each size costs there.

    The sizes come from Azure Resource Manager, which needs a sign-in with Microsoft Entra ID and the role Reader. The
    prices come from Azure's public Retail Prices API.
    """
    import os

    from batchtrain.config import catalog_file

    file = Path(target) if target else catalog_file.user_directory(os.environ) / catalog_file.NAMES[0]
    if file.is_file() and not file.read_text(encoding="utf-8", errors="replace").startswith(f"# {MADE_BY}"):
        settings().confirm(f"{file} was not made by this command. Replace it?")
    if prices:
        _refresh_prices(file, location, currency)
    else:
        _refresh_sizes(file, location, subscription)


def _refresh_sizes(file: Path, location: str | None, subscription: str | None) -> None:
    """Replace the sizes and the images of the file; its prices are kept."""
    import os

    from batchtrain.catalog.offer import Catalog
    from batchtrain.config.load import load_credentials
    from batchtrain.service import arm
    from batchtrain.service.connect import account_of

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
    import os

    from batchtrain.catalog.offer import Catalog
    from batchtrain.config import user_settings
    from batchtrain.config.load import load_credentials
    from batchtrain.plan.cost import region_for
    from batchtrain.service import prices
    from batchtrain.service.connect import CA_VARIABLE

    credentials = load_credentials(settings().configdir or ".", settings().files)
    region = (location or region_for(credentials, os.environ)).lower()
    if not region:
        raise UsageError("no account says which region: give --location REGION, such as --location westeurope")
    url = user_settings.load().prices_url
    say(f"reading the prices of {region} from {url or prices.URL}")
    fresh = prices.read(region, date.today(), currency=currency, url=url, ca=os.environ.get(CA_VARIABLE) or None)
    _write(file, Catalog(prices=(fresh,)).above(_before(file)), region)
    count = f"{len(fresh.dedicated)} prices of dedicated nodes and {len(fresh.spot)} of spot nodes in {currency}"
    document = {"file": str(file), "location": region, **plain(fresh)}
    show(document, f"wrote {file}, {count}")


def _before(file: Path) -> Catalog:
    """The entries of the file; none if it is not there, or cannot be read: it is made anew."""
    from batchtrain.catalog.offer import Catalog
    from batchtrain.config import catalog_file

    try:
        return catalog_file.read(file) if file.is_file() else Catalog()
    except ConfigError as error:
        say(f"{error}; the file is made anew", "warning")
        return Catalog()


def _write(file: Path, catalog: Catalog, location: str) -> None:
    from batchtrain.config import catalog_file
    from batchtrain.config.load import write

    heading = f"{MADE_BY} on {date.today()} for {location};\nthe next time it is replaced."
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    write(str(file), catalog_file.text_of(catalog, heading).encode())
