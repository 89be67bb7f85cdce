"""The user's `catalog.yaml` with prices, and with sizes and images that the tables lack or describe wrongly: finds,
reads, checks and writes it.

The file is searched in the configuration directory and at BATCHTRAIN_CATALOG, otherwise in the user's configuration
directory (`batchtrain catalog refresh` writes it there); the file nearest to the recipe wins.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta
from yaml import safe_dump

from batchtrain import state_files
from batchtrain.catalog import sizes as size_table
from batchtrain.catalog import vm_images as image_table
from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Prices
from batchtrain.catalog.sizes import VmSize
from batchtrain.catalog.vm_images import Image
from batchtrain.config import document
from batchtrain.config.document import Document
from batchtrain.errors import ConfigError, Problem, UsageError

VARIABLE = "BATCHTRAIN_CATALOG"
NAMES = ("catalog.yaml", "catalog.yml", "catalog.json")
NEVER = "never"
SEE = "docs/how-to/check-before-you-pay.md"
MOST = 1_000_000
"""No machine has more of anything."""
Word = Annotated[str, Meta(min_length=1)]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Capability = Literal["docker", "rdma", "nvidia", "rocm", "intelmpi", "gen2", "volta"]


class SizeEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `sizes`: the name, and what differs from the table; a new size needs `cores` and `memory_gib`."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,99}$(?!\n)")]
    family: str | None = None
    cores: Annotated[int, Meta(ge=1, le=MOST)] | None = None
    memory_gib: Annotated[float, Meta(gt=0, le=MOST)] | None = None
    gpus: Annotated[int, Meta(ge=0, le=MOST)] | None = None
    gpu_model: str | None = None
    gpu_memory_gib: Annotated[float, Meta(gt=0, le=MOST)] | None = None
    gpu_vendor: Literal["nvidia", "amd"] | None = None
    infiniband: Literal["qdr", "fdr", "edr", "hdr", "ndr", "xdr"] | None = None
    rdma: Literal["sr-iov", "network-direct"] | None = None
    hcas: Annotated[int, Meta(ge=0, le=MOST)] | None = None
    generation: Annotated[int, Meta(ge=1, le=2)] | None = None
    architecture: Literal["x64", "arm64"] | None = None
    retired: str | None = None
    notes: str | None = None


class ImageEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `images`: the reference, and what differs from the table; a new image needs `node_agent`."""

    publisher: Word
    offer: Word
    sku: Word
    node_agent: str | None = None
    os: Literal["linux", "windows"] | None = None
    capabilities: tuple[Capability, ...] | None = None
    retired: str | None = None
    replacement: str | None = None


class PricesEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `prices`: a region, and the price of an hour of each size there."""

    region: Annotated[str, Meta(pattern=r"^[a-z0-9]{1,50}$(?!\n)")]
    currency: Annotated[str, Meta(pattern=r"^[A-Z]{3}$(?!\n)")] = "USD"
    read: date | None = None
    dedicated: dict[str, Amount] = {}
    spot: dict[str, Amount] = {}


def load(directory: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Catalog:
    """The catalogue with the user's entries for a configuration directory.

    Raises ConfigError with every problem of the files, UsageError if BATCHTRAIN_CATALOG does not name a file, and
    DamagedState if that of the user's configuration directory has no entries at all.
    """
    variables = os.environ if environment is None else environment
    catalog = Catalog()
    for file in files(directory, variables):
        catalog = read(file, is_made=file.parent == user_directory(variables)).above(catalog)
    return catalog


def files(directory: str | Path | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The existing catalogue files, the nearest to the recipe last. Raises UsageError as `load` does."""
    named_file = environment.get(VARIABLE)
    if named_file and not Path(named_file).is_file():
        raise UsageError(f"{VARIABLE} is {named_file}, which is not a file; unset it or name a catalog.yaml")
    user_files = (Path(named_file),) if named_file else _in(user_directory(environment))
    return (*user_files, *(_in(Path(directory)) if directory is not None else ()))


def user_directory(environment: Mapping[str, str]) -> Path:
    """The path of the user's catalog.yaml: $XDG_CONFIG_HOME/batchtrain, else ~/.config/batchtrain."""
    folder = environment.get("XDG_CONFIG_HOME", "")  # not by platformdirs, whose import costs every command 5 ms
    base = Path(folder) if folder.startswith("/") else Path(environment.get("HOME") or "~").expanduser() / ".config"
    return base / "batchtrain"


def _in(directory: Path) -> tuple[Path, ...]:
    return tuple(file for file in (directory / name for name in NAMES) if file.is_file())


def read(file: Path, *, is_made: bool = False) -> Catalog:
    """The entries of one file. Raises ConfigError with every problem and its position. is_made: `catalog refresh`
    writes it, so one without any structure raises DamagedState."""
    loss = "`batchtrain catalog refresh` makes it anew"
    with state_files.stream(file, loss) if is_made else state_files.opened(file) as content:
        yaml, faults = document.parse(str(file), content.read(document.LARGEST + 1))
    problems = list(faults)
    catalog = Catalog()
    if is_made and (faults or not isinstance(yaml.data, dict)):
        raise state_files.damaged(file, ValueError(faults[0].message if faults else "it is no mapping"), loss)
    if not problems and isinstance(yaml.data, dict):
        problems.extend(_unknown(yaml, (), key, _KINDS) for key in yaml.data if key not in _KINDS)
        sizes = tuple(filter(None, (_size(entry, problems) for entry in _entries(yaml, "sizes", problems))))
        images = tuple(filter(None, (_image(entry, problems) for entry in _entries(yaml, "images", problems))))
        prices = tuple(Prices(**msgspec.structs.asdict(read.entry)) for read in _entries(yaml, "prices", problems))
        catalog = Catalog(sizes, images, prices)
    elif not problems:
        problems.append(_problem(yaml, (), "type", "the file must be a mapping with `sizes`, `images` and `prices`"))
    if problems:
        raise ConfigError(tuple(sorted(problems, key=lambda problem: (problem.line, problem.column))))
    return catalog


def text_of(catalog: Catalog, heading: str) -> str:
    """The user's entries as the text of a catalog.yaml, with `heading` as its first comment lines."""
    data = {
        "sizes": [_entry(size, VmSize("", "", 0, 0)) for size in catalog.own_sizes],
        "images": [_entry(image, Image("", "", "", "")) for image in catalog.own_images],
        "prices": [_entry(prices, Prices("", "")) for prices in catalog.prices],
    }
    body = safe_dump({name: rows for name, rows in data.items() if rows}, sort_keys=False, width=120)
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    return "\n".join([*lines, body if catalog != Catalog() else "{}\n"])


# --- from a document to values --------------------------------------------------------------------------------------


_KINDS: dict[str, tuple[type[Any], str]] = {
    "sizes": (SizeEntry, "size"),
    "images": (ImageEntry, "image"),
    "prices": (PricesEntry, "price list of a region"),
}
"""The lists of the file: the type of an entry, and its name."""


class _Read(NamedTuple):
    """An entry with its path."""

    document: Document
    path: document.Path
    entry: Any


def _entries(yaml: Document, key: str, problems: list[Problem]) -> Iterator[_Read]:
    items = yaml.data.get(key)
    if items is None:
        return
    if not isinstance(items, list):
        problems.append(_problem(yaml, (key,), "type", f"`{key}` must be a list"))
        return
    kind, singular = _KINDS[key]
    fields = kind.__struct_fields__
    for index, data in enumerate(items):
        path = (key, index)
        if not isinstance(data, dict):
            problems.append(_problem(yaml, path, "type", f"a {singular} must be a mapping"))
            continue
        strange = [name for name in data if name not in fields]
        problems.extend(_unknown(yaml, path, name, fields) for name in strange)
        values = {name: value for name, value in data.items() if name in fields and value is not None}
        flaws = tuple(_flaws(values, kind))
        problems.extend(_problem(yaml, (*path, *where), "type", message) for where, message in flaws)
        if not strange and not flaws:
            yield _Read(yaml, path, msgspec.convert(values, kind, strict=False))


def _flaws(values: dict[str, Any], entry: type[Any]) -> Iterator[tuple[document.Path, str]]:
    """Every invalid value, and every missing required field."""
    for field in msgspec.structs.fields(entry):
        if field.name not in values:
            if field.required:
                yield (), f"`{field.name}` is missing"
            continue
        try:
            msgspec.convert(values[field.name], field.type, strict=False)
        except msgspec.ValidationError as error:
            message = str(error).partition(" - at ")[0].replace(" | null", "")
            yield (field.name,), f"{message[:1].lower()}{message[1:]}"


def _size(read: _Read, problems: list[Problem]) -> VmSize | None:
    entry: SizeEntry = read.entry
    name = f"Standard_{entry.name[9:] if size_table.key(entry.name) != entry.name.lower() else entry.name}"
    base = size_table.find(name)
    if base is None and (entry.cores is None or entry.memory_gib is None):
        message = f"{name} is not in the tables, so `cores` and `memory_gib` are required"
        problems.append(_problem(read.document, read.path, "missing", message))
        return None
    changes = _changes(read, problems)
    size = (base or VmSize(name, "", 1, 1.0))._replace(**changes | {"name": base.name if base else name})
    fabric = size.rdma or ("sr-iov" if size.infiniband else None)
    return size._replace(  # a GPU is NVIDIA's by default, InfiniBand is SR-IOV with one card
        family=size.family or size.name.removeprefix("Standard_"),
        gpu_vendor=(size.gpu_vendor or "nvidia") if size.gpus else "",
        rdma=fabric,
        hcas=(size.hcas or 1) if fabric else 0,
    )


def _image(read: _Read, problems: list[Problem]) -> Image | None:
    entry: ImageEntry = read.entry
    reference = entry.publisher.lower(), entry.offer.lower(), entry.sku.lower()
    base = image_table.find(*reference)
    if base is None and entry.node_agent is None:
        message = f"{':'.join(reference)} is not in the tables, so `node_agent` is required"
        problems.append(_problem(read.document, read.path, "missing", message))
        return None
    changes = _changes(read, problems)
    if "capabilities" in changes:
        changes["capabilities"] = frozenset(changes["capabilities"])
    return (base or Image(*reference, ""))._replace(
        **changes | dict(zip(("publisher", "offer", "sku"), reference, strict=True))
    )


def _changes(read: _Read, problems: list[Problem]) -> dict[str, Any]:
    """The values of an entry, with `retired` as a date (or None for `never`)."""
    changes = {name: value for name, value in msgspec.structs.asdict(read.entry).items() if value is not None}
    if "retired" in changes:
        try:
            changes["retired"] = None if changes["retired"] == NEVER else date.fromisoformat(changes["retired"])
        except ValueError:
            message = f"`{changes['retired']}` is neither a date such as 2027-05-31 nor `{NEVER}`"
            problems.append(_problem(read.document, (*read.path, "retired"), "value", message))
    return changes


def _unknown(yaml: Document, path: document.Path, key: str, names: Iterable[str]) -> Problem:
    near = get_close_matches(key, list(names), n=1, cutoff=0.6)
    hint = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(names)}."
    where = yaml.position((*path, key), key=True)
    return _problem(yaml, (*path, key), "unknown-key", f"`{key}` is not known here.", where)._replace(hint=hint)


def _problem(
    yaml: Document, path: document.Path, rule: str, message: str, position: document.Position | None = None
) -> Problem:
    at = position or yaml.position(path)
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return Problem(
        rule, message, yaml.file, at.line, at.column, text, end_line=at.end_line, end_column=at.end_column, see=SEE,
        source="".join(yaml.text.splitlines()[at.line - 1 : at.line]),
    )  # fmt: skip


def _entry(value: VmSize | Image | Prices, default: VmSize | Image | Prices) -> dict[str, Any]:
    """A value as an entry: what differs from the default, in plain words."""
    return {
        name: new.isoformat() if isinstance(new, date) else sorted(new) if isinstance(new, frozenset) else new
        for name, new, usual in zip(value._fields, value, default, strict=True)
        if new != usual
    }
