"""Tasks that bring their own launcher, or need none."""

from __future__ import annotations

from batchtrain.frameworks.base import Shape
from batchtrain.launchers import steps
from tests.launching import launched


def test_a_command_alone_is_its_own_text() -> None:
    assert launched("plain", "echo 'it''s' \"$A\"", Shape(1)).application.endswith("\necho 'it''s' \"$A\"\n")


def test_pre_execution_comes_first_in_the_same_shell() -> None:
    text = launched("plain", "./run.sh", Shape(2), pre_execution_command="source /opt/activate").application
    assert text.index("source /opt/activate") < text.index("./run.sh")


def test_a_launcher_of_the_commands_own_finds_the_ssh_of_our_sshd() -> None:
    made = launched("plain", "mpirun ./run", Shape(2, container=True), pre_execution_command="export A=1")
    text = made.application
    assert text.index("export A=1") < text.index("bt_use_ssh 23") < text.index("mpirun ./run")
    assert ".batchtrain/bin/ssh" in [file.name for file in made.files]
    assert {"container-sshd", "gang-ssh"} <= {item.rule for item in made.implicit}


def test_ssh_is_left_alone_where_the_server_is_anothers_or_there_is_one_node() -> None:
    own = launched("plain", "mpirun ./run", Shape(2, container=True), coordination_command="my-sshd")
    for made in (own, launched("plain", "x", Shape(2)), launched("plain", "x", Shape(1, container=True))):
        assert "bt_use_ssh" not in made.application


def test_the_functions_of_a_gang_are_there_before_the_lines_that_use_them() -> None:
    assert launched("plain", "x", Shape(2), pre_execution_command="y").application.startswith(f"{steps.SOURCE}\n")
    assert launched("plain", "x", Shape(2, container=True)).application.startswith(f"{steps.SOURCE}\n")
    assert steps.SOURCE not in launched("plain", "x", Shape(2)).application
