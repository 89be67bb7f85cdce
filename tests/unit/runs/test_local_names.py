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


@pytest.mark.parametrize(
    ("remote", "encoding", "local"),
    [
        ("ä ö/a", "ascii", "%C3%A4 %C3%B6/a"),
        ("ä ö/日", "latin-1", "ä ö/%E6%97%A5"),
        ("日", "utf-8", "日"),
    ],
)
def test_what_the_file_system_cannot_encode_is_written_as_bytes(remote: str, encoding: str, local: str) -> None:
    assert safe_path(remote, encoding=encoding) == local


def test_the_directories_of_a_long_path_become_one() -> None:
    first, second = (safe_path(f"outputs/t/{'a' * 200}" + f"/{'b' * 200}" * 10 + f"/{name}/model.pt") for name in "xy")
    assert first != second
    assert (first[:10], first[-9:], len(first)) == ("outputs/t/", "/model.pt", 28)


def test_a_file_never_has_the_name_of_the_parts_of_another_file() -> None:
    assert safe_path("a/.model.pt.part") == "a/%2Emodel.pt.part"
    assert safe_path(".model.ranges") == "%2Emodel.ranges"
    assert safe_path(".model.pt") == ".model.pt"


def test_two_forms_of_one_character_are_two_files() -> None:
    names = LocalNames()
    assert names.of("\u00e9") != names.of("e\u0301")
