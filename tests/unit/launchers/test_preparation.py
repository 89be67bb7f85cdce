"""The text of a node's preparation; test_preparation_script.py runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchtrain.launchers import preparation
from batchtrain.launchers.preparation import Fstab, Image, Login, Moved, Preparation, Selected, Sif


def test_nothing_to_do_is_no_text() -> None:
    assert preparation.own(Preparation()) == ""


def test_a_persons_lines_alone_stay_as_they_are() -> None:
    text = preparation.linux(("echo 'one' # a comment",), ("exit 4",), prepares=False)
    assert text == "echo 'one' # a comment\nexit 4"


def test_a_line_that_asks_for_more_does_not_swallow_our_part() -> None:
    text = preparation.linux(("echo a \\",), (), prepares=True)
    assert text.splitlines() == ["echo a \\", "", '/bin/bash -c "$BATCHTRAIN_NODE_PREPARATION" || exit $?']


def test_files_alone_need_a_command_all_the_same() -> None:
    assert preparation.linux((), (), prepares=False) == ":"
    assert preparation.windows((), ()) == "ver"
    assert preparation.windows(("a", "b"), ("c",)) == "a && b && c"


def test_the_command_lines_hold_no_text_of_anybody() -> None:
    assert preparation.LINUX == "/bin/bash -c 'exec /bin/bash -e -c \"$BATCHTRAIN_PREPARATION\"'"


@pytest.mark.parametrize(
    ("path", "word"),
    [("/data", "/data"), ("/my data", "'/my data'"), ("$A/b", '"${A}"/b'), ("${A}b c", "\"${A}\"'b c'"),
     ("$(reboot)", "'$(reboot)'"), ("", "''")],
)  # fmt: skip
def test_of_a_path_only_variables_are_expanded(path: str, word: str) -> None:
    assert preparation.path_word(path) == word


def test_two_images_of_one_name_have_files_of_their_own() -> None:
    assert preparation.image_path("docker://a/b:1") != preparation.image_path("docker://c/b:1")


def test_the_file_of_an_image_says_which_one_it_is() -> None:
    path = preparation.image_path("docker://a/b:1")
    assert path.startswith("$AZ_BATCH_NODE_SHARED_DIR/batchtrain/apptainer/b-1-")
    assert path.endswith(".sif")


def lines(**todo: Any) -> list[str]:
    """The lines of a preparation after its functions."""
    return preparation.own(Preparation(**todo)).splitlines()


def test_only_the_runtimes_that_were_asked_for_are_installed() -> None:
    assert "# runc:" in lines(runtimes=("runc",)) and "# Kata Containers:" not in lines(runtimes=("runc",))
    needed = "# Apptainer, where neither it nor Singularity is there:"
    assert needed in lines(images=(Sif("library://x/y"),)) and needed in lines(logins=(Login("a.io", "u", "V"),))
    assert needed not in lines(runtimes=("runc",))


def test_mounts_come_before_images_and_data_after_them() -> None:
    text = preparation.own(
        Preparation(
            mounts=(Fstab("data", "//h/s", "cifs", "ro", 0, 2),),
            docker_images=(Image("b:1", "copy/b:1"), Image("c:1")),
            moves=(Moved("in put", "/data"),),
        )
    )
    calls = [line for line in text.splitlines() if line.startswith(("bt_mount ", "bt_pull_soon ", "mkdir -p /data"))]
    assert calls == [
        "bt_mount data //h/s cifs ro 0 2", "bt_pull_soon b:1 copy/b:1", "bt_pull_soon c:1", "mkdir -p /data",
    ]  # fmt: skip
    assert "[ ! -d 'in put' ] || { cp -a 'in put'/. /data/ && rm -rf 'in put'; } || exit 1" in text.splitlines()


def test_the_name_of_an_images_file_is_short_and_has_no_signs_of_a_shell() -> None:
    name = preparation.image_path(f"docker://a/{'x' * 100}$(reboot):1").rpartition("/")[2]
    assert len(name) == 80 + len("-12345678.sif") and "$" not in name


FILES = ("a.txt", "b.bin", "sub/c.txt", "sub/deep/d.txt", "sub/[x].txt", "sub/it's $(touch owned).txt")


@pytest.mark.skipif(sys.platform == "win32", reason="a script of Linux")
@pytest.mark.parametrize(
    ("selected", "moved"),
    [
        (Selected(), set(FILES)),
        (Selected(include=("*.txt",)), set(FILES) - {"b.bin"}),
        (Selected(include=("a.*", "*.bin")), {"a.txt", "b.bin"}),
        (Selected(exclude=("sub/*",)), {"a.txt", "b.bin"}),
        (Selected(include=("*.txt",), exclude=("a*", "*d.txt")), {FILES[2], FILES[4], FILES[5]}),
        (Selected(include=("?.bin",)), {"b.bin"}),
        (Selected(include=("[ab].*",)), {"a.txt", "b.bin"}),
        (Selected(include=("sub/it's $(touch owned).txt",)), {FILES[5]}),
        (Selected(below="sub", include=("c.txt",)), {"sub/c.txt"}),
        (Selected(below="sub", include=("deep/*",), strip=1), {"deep/d.txt"}),
        (Selected(include=("sub/deep/*",), strip=2), {"d.txt"}),
        (Selected(include=("sub/deep/*",), strip=5), {"d.txt"}),
    ],
)
def test_of_a_download_the_selected_files_are_moved_with_the_names_that_are_left(
    tmp_path: Path, selected: Selected, moved: set[str]
) -> None:
    for name in FILES:
        path = tmp_path / "down load" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    target = tmp_path / "target"
    target.mkdir()
    text = preparation.selection(Moved("down load", "$TARGET", selected))
    subprocess.run(["bash", "-ec", text], cwd=tmp_path, env={**os.environ, "TARGET": str(target)}, check=True)
    assert {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()} == moved
    assert not (tmp_path / "owned").exists()


def test_the_driver_is_installed_from_its_own_address_and_remembered() -> None:
    text = lines(nvidia_driver="https://x/driver 1.run")
    assert "bt_driver='https://x/driver 1.run'" in text and "bt_mark=/var/lib/batchtrain/nvidia-driver" in text
