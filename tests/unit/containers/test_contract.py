"""The image contract as checks, from what was seen of an image."""

from __future__ import annotations

import pytest

from batchtrain.containers import contract
from batchtrain.containers.contract import Inside, Looked, Outside
from batchtrain.errors import FAIL, NOT_CHECKED, OK, WARN, Check

OUTSIDE = Outside("registry.example/openmpi:1", "linux", "amd64", "", (), 580_000_000)
INSIDE = Inside(
    user="0",
    bash="5.2",
    ssh="/usr/bin/ssh",
    ssh_keygen="/usr/bin/ssh-keygen",
    tools=contract.TOOLS,
    python="3.11.2",
    mpirun="/opt/venv/bin/mpirun",
    mpi="mpirun (Open MPI) 5.0.11",
    libraries=("/opt/venv/lib/libmpi.so.40", "/usr/lib/libibverbs.so.1"),
    sshd="/usr/sbin/sshd",
    listens="yes",
    login=("in", "/opt/venv/bin/mpirun", "/opt/venv/bin/python3"),
)


def result(name: str, inside: Inside | None = INSIDE, *, purpose: str = contract.ANY, **more: object) -> Check:
    looked = Looked(OUTSIDE, inside)._replace(**more)
    return next(one for one in contract.checks(looked, purpose=purpose) if one.check == name)


def test_an_image_that_has_everything_passes() -> None:
    found = contract.checks(Looked(OUTSIDE, INSIDE))
    assert {one.result for one in found} == {OK}
    assert FAIL not in {check.result for check in found}


@pytest.mark.parametrize(
    ("check", "changed", "said"),
    [
        ("bash", {"bash": ""}, "there is none"),
        ("bash", {"bash": "4.1"}, "need 4.2"),
        ("bash", {"tools": ("grep",)}, "no tee, sort"),
        ("ssh", {"ssh": ""}, "no ssh on PATH"),
        ("ssh", {"ssh": "", "ssh_keygen": ""}, "no ssh and no ssh-keygen"),
        ("sshd", {"sshd": "", "listens": ""}, "no /usr/sbin/sshd"),
        ("sshd", {"listens": "", "refuses": "Bad configuration option: Prot"}, "Bad configuration option: Prot"),
        ("login", {"login": (), "locked": "Permission denied (publickey)."}, "Permission denied"),
        ("keys", {"keys": ("/root/.ssh/id_rsa",)}, "/root/.ssh/id_rsa"),
        ("cuda", {"libraries": ("/usr/lib/x86_64-linux-gnu/libcuda.so.535.1",)}, "libcuda.so.535.1"),
        ("cuda", {"library_path": "/usr/local/cuda/lib64/stubs"}, "LD_LIBRARY_PATH"),
    ],
)
def test_what_is_lacking_fails_and_is_named(check: str, changed: dict[str, object], said: str) -> None:
    found = result(check, INSIDE._replace(**changed))
    assert found.result == FAIL
    assert said in found.found
    assert found.next_step


@pytest.mark.parametrize("path", ["/usr/local/cuda/lib64/stubs/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"])
def test_a_library_to_link_against_is_no_driver(path: str) -> None:
    assert result("cuda", INSIDE._replace(libraries=(path,))).result == OK


def test_the_cuda_of_an_image_is_told_with_its_nccl() -> None:
    libraries = ("/c/libcudart.so.12", "/c/libcudart.so.12.8.90", "/n/libnccl.so.2", "/n/libnccl.so.2.26.2")
    assert "libcudart.so.12.8.90, libnccl.so.2.26.2" in result("cuda", INSIDE._replace(libraries=libraries)).found


def test_an_image_without_a_shell_is_told_why_and_nothing_else_is_claimed() -> None:
    found = contract.checks(Looked(OUTSIDE, None, "its /bin/sh could not be run: no such file"))
    assert [(one.check, one.result) for one in found] == [
        ("architecture", OK), ("user", OK), ("entry point", OK), ("shell", FAIL), ("size", OK),
    ]  # fmt: skip


def test_another_architecture_than_the_nodes_fails() -> None:
    found = contract.checks(Looked(OUTSIDE._replace(architecture="arm64"), None, "not tried"))
    assert (found[0].check, found[0].result) == ("architecture", FAIL)
    assert "--platform linux/amd64" in found[0].next_step


def test_the_architecture_of_the_nodes_can_be_said() -> None:
    found = contract.checks(Looked(OUTSIDE._replace(architecture="arm64"), INSIDE), architecture="arm64")
    assert FAIL not in {check.result for check in found}


@pytest.mark.parametrize("user", ["", "root", "0", "0:0"])
def test_root_by_any_name_is_root(user: str) -> None:
    assert result("user", outside=OUTSIDE._replace(user=user)).result == OK


def test_a_user_who_is_not_root_fails() -> None:
    assert result("user", outside=OUTSIDE._replace(user="1000")).result == FAIL


def test_a_login_is_not_judged_where_there_is_no_client_to_try_it_with() -> None:
    missing = INSIDE._replace(ssh="", login=(), locked="/bin/sh: 46: ssh: not found")
    assert result("login", missing) == Check("login", NOT_CHECKED, "there is no ssh client")


@pytest.mark.parametrize(("passes", "expected"), [(True, OK), (False, FAIL), (None, NOT_CHECKED)])
def test_an_entry_point_must_run_what_it_is_given(passes: bool | None, expected: str) -> None:
    entry = OUTSIDE._replace(entrypoint=("python", "serve.py"))
    assert result("entry point", outside=entry, passes=passes).result == expected


def test_a_key_in_a_lower_layer_fails_though_no_file_shows_it() -> None:
    assert result("keys", layer_keys=("/etc/ssh/ssh_host_rsa_key",)).result == FAIL
    assert result("keys", layer_keys=()).found == "none in any layer"


def test_a_large_image_is_remarked() -> None:
    assert result("size", outside=OUTSIDE._replace(size=contract.LARGE + 1)).result == WARN


@pytest.mark.parametrize(
    ("purpose", "lacking", "mpi", "python"),
    [
        ("any", {"python": ""}, OK, WARN),
        ("any", {"mpirun": ""}, WARN, OK),
        ("any", {"mpirun": "", "python": "3.5.2"}, FAIL, FAIL),
        ("mpi", {"mpirun": ""}, FAIL, OK),
        ("mpi", {"python": ""}, OK, WARN),
        ("framework", {"python": "3.5.2"}, OK, FAIL),
        ("framework", {"mpirun": ""}, WARN, OK),
    ],
)
def test_what_launches_a_gang_must_be_there(purpose: str, lacking: dict[str, str], mpi: str, python: str) -> None:
    inside = INSIDE._replace(**lacking)
    assert result("mpi", inside, purpose=purpose).result == mpi
    assert result("python", inside, purpose=purpose).result == python


def test_a_single_task_needs_no_ssh() -> None:
    bare = Inside(user="0", bash="5.2")
    found = contract.checks(Looked(OUTSIDE, bare), purpose=contract.SINGLE)
    assert FAIL not in {check.result for check in found}
    assert "sshd" not in {one.check for one in found}


def test_two_mpis_in_an_image_are_remarked() -> None:
    libraries = ("/opt/venv/lib/libmpi.so.40", "/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4")
    assert result("mpi", INSIDE._replace(libraries=libraries)).result == WARN


def test_a_launcher_that_a_login_does_not_find_is_remarked() -> None:
    assert result("login", INSIDE._replace(login=("in",))).result == WARN


def test_the_probes_lines_become_what_was_seen() -> None:
    text = "user\t0\nssh-keygen\t/usr/bin/ssh-keygen\ntee\t/t\nkey\t/a\nkey\t/b\npython\t\nnoise\nother\tx\nlogin\tin\n"
    assert contract.inside(text) == Inside(
        user="0", ssh_keygen="/usr/bin/ssh-keygen", tools=("tee",), keys=("/a", "/b"), login=("in",)
    )
