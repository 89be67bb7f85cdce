"""Looking things up in the tables with a person's own entries above them."""

from __future__ import annotations

import pytest

from batchtrain.catalog import sizes, vm_images
from batchtrain.catalog.offer import Catalog, matching_images, matching_sizes
from batchtrain.catalog.sizes import VmSize
from batchtrain.catalog.vm_images import Image

OWN = VmSize("Standard_X9", "X", 9, 18)
MINE = Image("me", "mine", "1", "batch.node.ubuntu 24.04")


def test_without_own_entries_it_is_the_tables() -> None:
    catalog = Catalog()
    assert catalog.size("nc24r") is sizes.find("nc24r")
    assert catalog.image("microsoft-dsvm", "ubuntu-hpc", "2404") is vm_images.SUPPORTED[0]
    assert catalog.sizes == sizes.SIZES


def test_an_own_entry_wins_and_the_rest_stays() -> None:
    corrected = OWN._replace(name="STANDARD_NC24R")
    catalog = Catalog((corrected, OWN), (MINE,))
    assert catalog.size("Standard_NC24r") == corrected
    assert catalog.size("x9") == OWN
    assert catalog.size("NC24") is sizes.find("NC24")
    assert catalog.image("ME", "Mine", "1") == MINE


def test_each_size_stands_once_in_the_whole_list() -> None:
    names = [sizes.key(size.name) for size in Catalog((OWN._replace(name="nc24r"),)).sizes]
    assert len(names) == len(set(names)) == len(sizes.SIZES)


def test_near_names_are_looked_for_among_the_own_ones_too() -> None:
    catalog = Catalog((OWN._replace(name="Standard_ZZTOP9"),), (MINE,))
    assert catalog.nearest_sizes("zztop8") == ("Standard_ZZTOP9",)
    assert catalog.nearest_sizes("ND96isr_H100") == ("Standard_ND96isr_H100_v5",)
    assert "me:mine:1" in catalog.nearest_images("me:mine:2")


def test_what_is_nearer_wins_when_two_are_laid_above_each_other() -> None:
    near, far = Catalog((OWN._replace(cores=1),)), Catalog((OWN, OWN._replace(name="Standard_Y")))
    merged = near.above(far)
    assert [(size.name, size.cores) for size in merged.own_sizes] == [("Standard_X9", 1), ("Standard_Y", 9)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("NC24r", {"Standard_NC24r", "Standard_NC24rs_v2", "Standard_NC24rs_v3", "Standard_NC24r_Promo"}),
        ("standard_nc24r", {"Standard_NC24r", "Standard_NC24rs_v2", "Standard_NC24rs_v3", "Standard_NC24r_Promo"}),
        ("hx176-2?rs", {"Standard_HX176-24rs"}),
        ("*_mi300x_*", {"Standard_ND96isr_MI300X_v5"}),
        ("hbv3", {"Standard_HB120rs_v3", "Standard_HB120-96rs_v3", "Standard_HB120-64rs_v3", "Standard_HB120-32rs_v3",
                  "Standard_HB120-16rs_v3"}),
        ("nothing like it", set()),
    ],
)  # fmt: skip
def test_sizes_are_found_by_a_part_of_the_name_or_by_a_pattern(pattern: str, names: set[str]) -> None:
    assert {size.name for size in matching_sizes(sizes.SIZES, pattern)} == names


def test_images_are_found_by_reference_and_by_node_agent() -> None:
    by_name = matching_images(vm_images.SUPPORTED, "UBUNTU-HPC")
    by_agent = matching_images(vm_images.SUPPORTED, "batch.node.el 9")
    assert {image.offer for image in by_name} == {"ubuntu-hpc"}
    assert {image.sku for image in by_agent} == {"9-hpc-gen2", "9-gen2"}
