"""The text of a node's preparation; that a shell runs it so is tests/contract/test_preparation_script.py."""

from __future__ import annotations

import pytest

from batchtrain.launchers import preparation
from batchtrain.launchers.preparation import Login, Preparation, Sif


def test_nothing_to_do_is_no_text() -> None:
    assert preparation.own(Preparation()) == ""


def test_a_persons_lines_alone_stay_as_they_are() -> None:
    assert preparation.linux(("echo 'one' # a comment",), ("exit 4",), own=False) == "echo 'one' # a comment\nexit 4"


def test_a_line_that_asks_for_more_does_not_swallow_our_part() -> None:
    assert preparation.linux(("echo a \\",), (), own=True).splitlines() == [
        "echo a \\",
        "",
        '/bin/bash -c "$BATCHTRAIN_NODE_PREPARATION" || exit $?',
    ]


def test_files_alone_need_a_command_all_the_same() -> None:
    assert preparation.linux((), (), own=False) == ":"
    assert preparation.windows((), ()) == "ver"


def test_the_command_lines_hold_no_text_of_anybody() -> None:
    assert preparation.LINUX == "/bin/bash -c 'exec /bin/bash -e -c \"$BATCHTRAIN_PREPARATION\"'"


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/data", "/data"),
        ("/my data", "'/my data'"),
        ("$A/b", '"${A}"/b'),
        ("${A}b c", "\"${A}\"'b c'"),
        ("$(reboot)", "'$(reboot)'"),
        ("", "''"),
    ],
)
def test_of_a_path_only_variables_are_expanded(path: str, word: str) -> None:
    assert preparation.path_word(path) == word


def test_two_images_of_one_name_have_files_of_their_own() -> None:
    assert preparation.image_path("docker://a/b:1") != preparation.image_path("docker://c/b:1")


def test_the_file_of_an_image_says_which_one_it_is() -> None:
    path = preparation.image_path("docker://a/b:1")
    assert path.startswith("$AZ_BATCH_NODE_SHARED_DIR/batchtrain/apptainer/b-1-")
    assert path.endswith(".sif")


def test_docker_hub_is_called_by_its_address() -> None:
    text = preparation.own(Preparation(logins=(Login("hub", "u", "V"),)))
    assert "docker://docker.io" in text


def test_a_key_without_a_file_is_taken_from_the_key_server() -> None:
    text = preparation.own(Preparation(images=(Sif("library://x/y", "AB 12"),)))
    assert "key pull AB12" in text
