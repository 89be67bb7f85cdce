"""Where the kernel gives no namespaces, the emulator says what lifts that."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchtrain.emulator.machine.process import SWITCHES, _remedy
from batchtrain.emulator.machine.ssh import starts_open_mpi


@pytest.mark.parametrize(("file", "closed", "setting"), SWITCHES)
def test_the_command_that_lifts_a_limit_is_read_from_the_kernels_settings(
    tmp_path: Path, file: str, closed: str, setting: str
) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(f"{closed}\n")
    assert f"`sudo sysctl -w {setting}`" in _remedy(tmp_path)


def test_where_no_setting_forbids_them_it_is_the_container_that_does(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user/max_user_namespaces").write_text("96365\n")
    assert "--security-opt" in _remedy(tmp_path)
    assert "sysctl" not in _remedy(tmp_path)


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        ("orted -mca ess env", True),
        ("PRTE_PREFIX=/opt/mpi; export PRTE_PREFIX; /opt/mpi/bin/prted --daemonize", True),
        ("hydra_pmi_proxy --control-port 1", False),
        ("cat prted.log", False),
    ],
)
def test_open_mpis_daemons_are_known(command: str, starts: bool) -> None:
    assert starts_open_mpi(command) is starts
