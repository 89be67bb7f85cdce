"""`batchtrain catalog`: the known VM sizes and images, and a file of corrections from Azure's current lists."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from batchtrain.catalog import offer
from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.sizes import VmSize
from batchtrain.catalog.successors import today_for
from batchtrain.catalog.vm_images import DOCKER, NVIDIA, RDMA, ROCM, Image
from batchtrain.cli.documents import plain
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show_rows
from batchtrain.config import catalog_file
from batchtrain.errors import NotFound


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
    today = today_for(size)
    return {**plain(size), "today": today.today, "old_cuda": today.old_cuda, "reason": today.reason}


def _size_row(size: VmSize) -> SizeRow:
    memory = f" {size.gpu_memory_gib:g} GiB" if size.gpu_memory_gib else ""
    gpus = f"{size.gpus} x {size.gpu_model or 'GPU'}{memory}" if size.gpus else ""
    network = f"{size.hcas} x {(size.infiniband or 'rdma').upper()}" if size.rdma else ""
    today = today_for(size).today if size.retired else None
    return SizeRow(size.name, size.family, size.cores, size.memory_gib, gpus, network, size.retired, today or "")


def images(
    pattern: str | None, gpu: bool, rdma: bool, docker: bool, system: str | None, retired: bool, everything: bool
) -> None:
    """List VM images; PATTERN is a part of publisher:offer:sku or of the node agent, or has * and ?."""
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
    # The configuration directory whose catalog.yaml applies; for a recipe its `config/`
    directory = Path(settings().configdir or ".")
    return catalog_file.load(directory / "config" if (directory / "config").is_dir() else directory)


def _nothing(kind: str, pattern: str, near: tuple[str, ...]) -> NotFound:
    meant = f"did you mean {' or '.join(near)}?" if near else f"`batchtrain catalog {kind}s` lists them"
    return NotFound(f"no {kind} is called {pattern}; {meant}")
