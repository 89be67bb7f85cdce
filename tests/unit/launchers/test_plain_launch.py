"""Tasks that bring their own launcher, or need none."""

from __future__ import annotations

from batchtrain.launchers import plain
from batchtrain.launchers.types import Shape


def test_a_command_alone_is_its_own_text() -> None:
    assert plain.launch("echo 'it''s' \"$A\"", Shape(1)).application.endswith("\necho 'it''s' \"$A\"\n")


def test_pre_execution_comes_first_in_the_same_shell() -> None:
    text = plain.launch("./run.sh", Shape(2), pre_execution_command="source /opt/activate").application
    assert text.index("source /opt/activate") < text.index("./run.sh")


def test_a_gang_without_mpi_gets_the_same_coordination() -> None:
    assert "bt_start_sshd" in plain.launch("./run.sh", Shape(2, container=True)).coordination
    own = plain.launch("./run.sh", Shape(2), coordination_command="./start-daemon &")
    assert own.coordination.endswith("./start-daemon &\n")
