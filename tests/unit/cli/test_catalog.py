"""`catalog` and the hours in `pool list`, as a person starts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process


def rows(batchtrain: Any, *words: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(batchtrain("catalog", *words, "-o", "json", **more).stdout)
    return found


def test_sizes_that_are_gone_are_left_out_unless_asked_for(batchtrain: Any) -> None:
    assert {row["family"] for row in rows(batchtrain, "sizes", "nc24")} == {"NC", "NC A100 v4"}  # NC24 is its own name
    assert "NCv2" in {row["family"] for row in rows(batchtrain, "sizes", "nc24", "--all")}


def test_filters_are_taken_together_and_retired_sizes_come_with_today_s(batchtrain: Any) -> None:
    found = rows(batchtrain, "sizes", "--vendor", "amd", "--infiniband")
    assert [row["name"] for row in found] == ["Standard_ND96isr_MI300X_v5"]
    assert {row["family"] for row in rows(batchtrain, "sizes", "--family", "hbv3")} == {"HBv3"}
    found = rows(batchtrain, "sizes", "--retired", "--infiniband", "--gpu")
    assert {row["today"] for row in found} == {"Standard_ND40rs_v2"}


def test_a_gone_size_is_shown_by_its_own_name_with_the_reason(batchtrain: Any) -> None:
    done = batchtrain("catalog", "sizes", "STANDARD_NC24R")
    assert "4 x K80 12 GiB" in done.stdout
    assert "22.03 USD an hour instead of 3.96 USD" in done.stderr


def test_a_name_that_nothing_has_ends_with_the_nearest(batchtrain: Any) -> None:
    assert "did you mean Standard_ND96isr_H100_v5" in batchtrain("catalog", "sizes", "nd96isr_h100_v6", code=3).stderr
    assert (
        "did you mean microsoft-dsvm:ubuntu-hpc:2404"
        in batchtrain("catalog", "images", "microsoft-dsvm:ubuntu-hcp:2404", code=3).stderr
    )


def test_a_filter_that_leaves_nothing_says_what_it_left_out(batchtrain: Any) -> None:
    done = batchtrain("catalog", "sizes", "d4s_v5", "--gpu")
    assert (done.stdout, "1 of this name left out" in done.stderr) == ("", True)


def test_images_are_filtered_by_what_is_in_them(batchtrain: Any) -> None:
    found = rows(batchtrain, "images", "--gpu", "--rdma", "--docker")
    assert {(row["publisher"], row["offer"]) for row in found} == {
        ("microsoft-dsvm", "ubuntu-hpc"), ("almalinux", "almalinux-hpc"), ("azure-hpc", "azurelinux-hpc"),
    }  # fmt: skip
    assert {row["os"] for row in rows(batchtrain, "images", "--os", "windows")} == {"windows"}


def test_a_retired_image_names_its_replacement(batchtrain: Any) -> None:
    done = batchtrain("catalog", "images", "centos-hpc", "--retired")
    assert "microsoft-dsvm:ubuntu-hpc:2404" in done.stdout


def test_a_catalog_file_beside_the_recipe_adds_a_size(batchtrain: Any, tmp_path: Path) -> None:
    (tmp_path / "catalog.yaml").write_text("sizes: [{name: Standard_X9, cores: 9, memory_gib: 18}]")
    assert rows(batchtrain, "sizes", "x9", "--configdir", str(tmp_path))[0]["cores"] == 9


def test_jsonl_is_an_object_a_line(batchtrain: Any) -> None:
    lines = batchtrain("catalog", "images", "ubuntu-hpc", "-o", "jsonl").stdout.splitlines()
    assert all(json.loads(line)["offer"] == "ubuntu-hpc" for line in lines)
