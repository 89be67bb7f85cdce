"""The tables and the user's entries in one value with look-ups; reads no file.

An entry of the user overrides the table's entry of the same name, so that a new size or a correction needs no release
of batchtrain.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import NamedTuple

from batchtrain.catalog import prices as price_table
from batchtrain.catalog import sizes as size_table
from batchtrain.catalog import vm_images as image_table
from batchtrain.catalog.prices import Price, Prices
from batchtrain.catalog.sizes import VmSize
from batchtrain.catalog.vm_images import Image


class Catalog(NamedTuple):
    """What Azure offers: the built-in tables, overridden by the user's entries (empty by default)."""

    own_sizes: tuple[VmSize, ...] = ()
    own_images: tuple[Image, ...] = ()
    prices: tuple[Prices, ...] = ()
    """By region; the built-in tables have none."""

    def size(self, name: str) -> VmSize | None:
        """The size of that name, ignoring case, `Standard_` optional. Returns None if it is unknown."""
        key = size_table.key(name)
        own_sizes = (size for size in self.own_sizes if size_table.key(size.name) == key)
        return next(own_sizes, None) or size_table.find(name)

    def image(self, publisher: str, offer: str, sku: str) -> Image | None:
        """The image of that reference, ignoring case. Returns None if it is unknown."""
        return image_table.find(publisher, offer, sku, self.own_images) or image_table.find(publisher, offer, sku)

    def price(self, size: str, region: str) -> Price | None:
        """The price of an hour of a size in a region; see `prices.find`."""
        return price_table.find(self.prices, size, region)

    def nearest_sizes(self, name: str) -> tuple[str, ...]:
        """At most three names of sizes similar to `name`."""
        return size_table.nearest(name, self.sizes)

    def nearest_images(self, reference: str) -> tuple[str, ...]:
        """At most three `publisher:offer:sku` similar to `reference`."""
        return image_table.nearest(reference, self.images)

    @property
    def sizes(self) -> tuple[VmSize, ...]:
        """Every size once: the user's entries first, then the tables."""
        own_keys = {size_table.key(size.name) for size in self.own_sizes}
        return (*self.own_sizes, *(size for size in size_table.SIZES if size_table.key(size.name) not in own_keys))

    @property
    def images(self) -> tuple[Image, ...]:
        """Every image once: the user's entries first, then the tables."""
        own_references = {image[:3] for image in self.own_images}
        return (*self.own_images, *(image for image in image_table.IMAGES if image[:3] not in own_references))

    def above(self, other: Catalog) -> Catalog:
        """This catalogue's own entries over another's."""
        sizes = {size_table.key(size.name): size for size in (*other.own_sizes, *self.own_sizes)}
        images = {image[:3]: image for image in (*other.own_images, *self.own_images)}
        prices = {table.region: table for table in (*other.prices, *self.prices)}
        return Catalog(tuple(sizes.values()), tuple(images.values()), tuple(prices.values()))


def matching_sizes(sizes: Iterable[VmSize], pattern: str) -> tuple[VmSize, ...]:
    """The sizes whose name or series holds `pattern`; with `*` or `?` in it, the whole name must match."""
    key = size_table.key(pattern)
    return tuple(size for size in sizes if _holds(size_table.key(size.name), key) or _holds(size.family.lower(), key))


def matching_images(images: Iterable[Image], pattern: str) -> tuple[Image, ...]:
    """The images whose `publisher:offer:sku` or node agent holds `pattern`; `*` and `?` as above."""
    text = pattern.strip().lower()
    return tuple(image for image in images if _holds(":".join(image[:3]), text) or _holds(image.node_agent, text))


def _holds(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern) if set(pattern) & set("*?[") else pattern in text
