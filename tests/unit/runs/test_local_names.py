"""Remote names on this machine."""

from __future__ import annotations

import pytest

from batchtrain.runs.local_names import LONGEST, LocalNames, safe_path


@pytest.mark.parametrize(
    ("remote", "local"),
    [
        ("wd/output/model.pt", "wd/output/model.pt"),
        ("../../etc/passwd", "__/__/etc/passwd"),
        ("/etc/passwd", "_/etc/passwd"),
        ("a//b/.", "a/_/b/_"),
        ("a\nb", "a%0Ab"),
        ("a\\b\0c", "a%5Cb%00c"),
        ("größe#?%.txt", "größe#?%.txt"),
        ("bad\udcff", "bad%ED%B3%BF"),
    ],
)
def test_a_remote_name_stays_in_its_directory(remote: str, local: str) -> None:
    assert safe_path(remote) == local


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    first, second = safe_path("ü" * 1000 + "a"), safe_path("ü" * 1000 + "b")
    assert first != second
    assert len(first.encode()) <= LONGEST


def test_two_names_never_become_one_file() -> None:
    names = LocalNames()
    remote = ["a\nb.txt", "a%0Ab.txt", "A%0ab.TXT", "a\nb.txt"]
    local = [names.of(name) for name in remote]
    assert len(set(local)) == 3
    assert local[0] == local[3]


def test_the_longest_name_is_kept_and_a_longer_one_is_cut() -> None:
    assert safe_path("a" * LONGEST) == "a" * LONGEST
    longer = safe_path("a" * (LONGEST + 1))
    assert longer.startswith("a" * (LONGEST - 9) + "~") and len(longer) == LONGEST
