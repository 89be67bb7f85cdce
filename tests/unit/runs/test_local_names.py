"""Remote names on this machine."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import pytest

from batchtrain.runs import local_names
from batchtrain.runs.local_names import LONGEST, LocalNames, digest, names_of_data, safe_name, safe_path
from batchtrain.service.local_files import Folder


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
    [("ä ö/a", "ascii", "%C3%A4 %C3%B6/a"), ("ä ö/日", "latin-1", "ä ö/%E6%97%A5"), ("日", "utf-8", "日")],
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


HOSTILE = {
    "absolute": ["/abs/x", "//abs/x", "abs/x", "C:/x", "C:\\x"],
    "up": ["../x", "a/../../x", "..", "a/..", ".../x"],
    "here": [".", "./x", "x/.", "a//x", "a/", ""],
    "backslashes": ["..\\..\\x", "a\\b", "a/b"],
    "NUL": ["a\0b", "\0", "a%00b"],
    "control characters": ["\x1b]0;x\x07", "\x9b31m", "a\nb", "\x7f"],
    "case": ["README", "readme", "Readme", "stra\xdfe", "STRASSE", "dir/x", "DIR/X", "\xe9", "e\u0301"],
    "devices": ["CON", "con.txt", "nul", "COM1", "com\xb9", "aux .c", "CONIN$", "a:b", "end.", "end "],
    "long": ["a" * 10_000, "a" * 10_001, "a/" * 5_000 + "x", "a/" * 5_000 + "y", "\xfc" * 255, "a" * 255, "A" * 255],
    "a file and a directory": ["a", "a/b", "a/b/c", "A/B/d", "b/c", "b", "B"],
    "digests": ["A", f"a~{digest('a')}", f"a~{digest('a' + chr(0))}", "a", "d", f"d~{digest('d')}", "d/x"],
    "partial files": [".x.part", ".x.PART", ".x.ranges", "x"],
    "not UTF-8": ["bad\udcff", "bad%ED%B3%BF", "bad\ud800"],
}


@pytest.mark.parametrize("remote", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_names_are_files_of_their_own_below_the_directory(remote: list[str], tmp_path: Path) -> None:
    root = tmp_path / "outer" / "root"
    names = LocalNames()
    for name in [*remote, *remote]:  # the second time as the first
        path = root / names.of(name)
        with Folder(root, path.parent, 0o700) as folder:
            folder.write(path.name, [name.encode("utf-8", "surrogatepass")])
    contents = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    assert sorted(contents) == sorted(name.encode("utf-8", "surrogatepass") for name in remote)
    assert [*tmp_path.iterdir(), *root.parent.iterdir()] == [root.parent, root]


@pytest.mark.parametrize("remote", HOSTILE.values(), ids=HOSTILE.keys())
def test_on_a_file_system_without_case_no_path_is_another_ones_or_above_it(remote: list[str]) -> None:
    names = LocalNames()
    folded = [tuple(map(local_names._folded, names.of(name).split("/"))) for name in remote]
    assert len(set(folded)) == len(remote)
    assert {path[:depth] for path in folded for depth in range(1, len(path))}.isdisjoint(folded)


def test_data_keeps_its_names_where_the_system_takes_any(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = [f"a~{digest('a')}", "x%0Ay"]
    for platform, expected in (("linux", ["a", "x\ny"]), ("win32", renamed), ("darwin", renamed)):
        monkeypatch.setattr(local_names.sys, "platform", platform)
        names = names_of_data()
        assert [names("A"), names("a"), names("x\ny")] == ["A", *expected]


@pytest.mark.parametrize("text", ["../../x", "/etc/x", "..", "", "a/b", "a\0b"])
def test_a_text_from_outside_is_one_name(text: str) -> None:
    name = safe_name(text)
    assert name not in ("", ".", "..") and not set("/\0") & set(name)


def test_long_names_are_not_kept_in_memory() -> None:
    names = LocalNames()
    tracemalloc.start()
    for number in range(2000):
        names.of(f"wd/output/{'d' * 900}/{number}.pt")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 * 2000  # bytes for each; a name has 900


def test_names_of_the_same_file_are_tried_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = [0]
    key = local_names._key

    def counted(text: str, above: bytes = b"") -> bytes:
        tries[0] += 1
        return key(text, above)

    monkeypatch.setattr(local_names, "_key", counted)
    names, cases = (
        LocalNames(),
        ["".join(case) for case in itertools.product(*zip("abcdefghijk", "ABCDEFGHIJK", strict=True))],
    )
    assert len({names.of(name) for name in cases}) == len(cases) == 2048
    assert tries[0] <= 3 * len(cases)
