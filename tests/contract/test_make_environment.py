"""Local environments: interpreters are found, what is installed is said first, and nothing is left half made."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from batchtrain.config.source_packages import Package, SourcePackages, lacks
from batchtrain.containers import make_environment, uv
from batchtrain.containers.environments import ENVIRONMENTS, TORCH_INDEX, Environment, key
from batchtrain.containers.make_environment import NotMade, intend, make
from batchtrain.containers.recipe_images import environment_of
from batchtrain.containers.resolution import resolved

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def forget_settings_of_pip() -> None:
    uv.settings_of_pip.cache_clear()


def pretend(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_an_interpreter_runs_and_has_the_version_asked_for() -> None:
    found = make_environment.interpreter(THIS)
    assert found is not None
    asked = [str(found), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == THIS


def test_a_shim_that_runs_nothing_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path / "python9.9", "echo 'python9.9: command not found' >&2; exit 127")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert make_environment.interpreter("9.9") is None


def test_a_shim_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path / "python9.9", f'exec {sys.executable} "$@"')
    monkeypatch.setenv("PATH", str(tmp_path))
    assert make_environment.interpreter("9.9") is None


def test_an_interpreter_of_pyenv_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "versions" / "9.9.1" / "bin").mkdir(parents=True)
    pretend(tmp_path / "versions" / "9.9.1" / "bin" / "python9.9", "echo cpython 9.9 /opt/python9.9")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert make_environment.interpreter("9.9") == Path("/opt/python9.9")


def wheel(folder: Path, name: str, version: str, text: str = "", needs: str = "") -> None:
    """A package of one module."""
    folder.mkdir(exist_ok=True)
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", text)
        required = f"Requires-Dist: {needs}\n" if needs else ""
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")


def listed(folder: Path, *lines: str) -> SourcePackages:
    """A source with a requirements.txt."""
    folder.mkdir(exist_ok=True)
    (folder / "requirements.txt").write_text("\n".join(lines))
    packages = tuple(Package(line, number) for number, line in enumerate(lines, 1))
    return SourcePackages(folder, "requirements.txt", packages)


SMALL = Environment(("pip",))
"""A virtual environment alone: pip is in each."""


def test_an_environment_without_its_python_names_the_command_that_installs_one(tmp_path: Path) -> None:
    with pytest.raises(NotMade, match=r"^the environment old needs CPython 9\.9, .* with `uv python install 9\.9`"):
        intend("old", Environment((), pythons=("9.9",)), tmp_path, installs_python=False)


def test_a_missing_python_is_installed_by_uv_which_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(tmp_path / "uv", "exit 2")
    monkeypatch.setenv("PATH", str(tmp_path))
    intended = intend("old", Environment(("x==1",), pythons=("9.9",)), tmp_path)
    assert intended.installer == ("uv", "python", "install", "9.9")
    assert "  Python 9.9: installed by `uv python install 9.9`" in intended.summary
    with pytest.raises(NotMade, match="could not install Python: exit code 2"):
        make(intended, lambda _: None)


def test_python_3_6_is_not_asked_of_uv_which_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("uv", "pyenv"):
        pretend(tmp_path / program, "exit 2")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    found = intend("cntk", ENVIRONMENTS["cntk"], tmp_path).installer
    assert found == (str(tmp_path / "pyenv"), "install", "--skip-existing", "3.6")


@pytest.mark.slow
def test_an_environment_is_made_once_and_then_reused(tmp_path: Path) -> None:
    said: list[str] = []
    make(intend("small", SMALL, tmp_path), said.append)
    assert said == [
        "1 of 3: make a virtual environment",
        "2 of 3: install pip",
        "3 of 3: compile the modules that no other environment has",
    ]
    again = intend("small", SMALL, tmp_path)
    assert again.ready
    make(again, said.append)
    assert len(said) == 3
    assert (again.prefix / "bin" / "python").exists()


@pytest.mark.slow
def test_packages_of_a_source_are_said_first_installed_and_kept_for_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    own = listed(tmp_path / "src", "./mine-1.0-py3-none-any.whl")
    wheel(own.directory, "mine", "1.0", "WORD = 'installed'")
    intended = intend("mpich", Environment(()), tmp_path / "envs", (own,))
    assert f"  of {own.directory}/requirements.txt: ./mine-1.0-py3-none-any.whl" in intended.summary
    make(intended, lambda _: None)
    python = [intended.prefix / "bin/python", "-c", "import mine; print(mine.WORD)"]
    assert subprocess.run(python, capture_output=True, text=True, check=True).stdout == "installed\n"
    assert intend("mpich", Environment(()), tmp_path / "envs", (own,)).ready
    changed = own._replace(packages=(Package("rich", 1),))
    assert not intend("mpich", Environment(()), tmp_path / "envs", (changed,)).ready
    assert lacks(intended.prefix, (changed,))
    assert not lacks(intended.prefix, (own,))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of wheels that is the only index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path / "wheels"


@pytest.mark.slow
def test_lists_that_differ_in_a_small_package_share_the_files_of_the_others(index: Path, tmp_path: Path) -> None:
    for name in ("large", "small"):
        wheel(index, name, "1.0", "WORD = 1")
    inodes = set()
    for number, lines in enumerate((["large"], ["large", "small"])):
        intended = intend("python", Environment(()), tmp_path / "envs", (listed(tmp_path / f"{number}", *lines),))
        make(intended, lambda _: None)
        files = [*intended.prefix.rglob("large.py"), *intended.prefix.rglob("large.*.pyc")]
        inodes.add(tuple(file.stat().st_ino for file in files))
    assert len(inodes) == 1 and len(inodes.pop()) == 2
    assert list(intended.prefix.rglob("small.*.pyc"))


def test_equal_lists_have_one_environment_in_any_order_and_that_of_a_framework_with_that_list(tmp_path: Path) -> None:
    lists = [["rich >= 13", "tqdm"], ["tqdm", "rich>=13"], ["rich>=14", "tqdm"]]
    sources = [listed(tmp_path / f"{number}", *lines) for number, lines in enumerate(lists)]
    images = ("mine/image:1", "example/script:base-cpu-0123abcd", "mine/image:1")
    same, also, other = (
        intend(*environment_of(image, package_lists=(source,)), tmp_path, (source,)).prefix
        for image, source in zip(images, sources, strict=True)
    )
    assert same == also != other
    of_framework = listed(tmp_path / "pytorch", *ENVIRONMENTS["pytorch"].packages[::-1])
    name, spec = environment_of("mine/image:1", package_lists=(of_framework,))
    plan, twin = intend(name, spec, tmp_path, (of_framework,)), intend("pytorch", ENVIRONMENTS["pytorch"], tmp_path)
    assert (plan.prefix, plan.own_packages) == (twin.prefix, ())
    assert resolved(plan) == twin


@pytest.mark.slow
def test_a_list_that_equals_that_of_the_environment_is_in_it(index: Path, tmp_path: Path) -> None:
    wheel(index, "large", "1.0")
    make(plan := intend("framework", Environment(("large==1.0",)), tmp_path / "envs"), lambda _: None)
    assert not lacks(plan.prefix, (listed(tmp_path / "same", "large == 1.0"),))
    assert lacks(plan.prefix, (listed(tmp_path / "other", "large"),))


@pytest.mark.slow
def test_an_environment_whose_libraries_a_step_changes_has_copies(index: Path, tmp_path: Path) -> None:
    wheel(index, "large", "1.0", "WORD = 1")
    make_environment._make_venv(intended := intend("python", Environment(()), tmp_path / "envs"))
    uv.install(intended.prefix, "large")
    (module,) = intended.prefix.glob("lib/python*/site-packages/large.py")
    assert module.stat().st_nlink == 1


BUILDS = (
    (["torch 2.14", "torch 2.14+cpu"], ["torch"], ()),  # the newest is the build for CPUs already
    (["torch 2.15", "torch 2.13.0+cpu"], ["torch>=2"], ("torch==2.13.0+cpu",)),
    (["torch 2.15", "torch 2.13.0+cpu"], ["torch>2.13.0"], ()),
    (["torch 2.15", "torch 2.13.0+cpu", "torchvision 1 torch==2.15"], ["torch", "torchvision"], ()),
    (
        ["torch 2.13.0+cpu", "torchvision 1 torch==2.13.0", "torchvision 1+cpu torch==2.13.0"],
        ["torchvision==1"],
        (),
    ),
    (
        ["torch 2.13.0+cpu", "torch 3", "torchvision 2 torch==3", "torchvision 1+cpu torch==2.13.0"],
        ["torchvision"],
        ("torch==2.13.0+cpu",),
    ),
    (["torch 3", "torch 2.13.0+cpu"], ["torch==3"], ()),
    (["torch 3", "torch 2.13.0+cpu", "torch 3+cu13"], ["torch==3+cu13"], ()),
)
"""Wheels of an index, the lines of a list, and the builds for CPUs that are taken in their place."""


@pytest.mark.parametrize(
    ("wheels", "lines", "builds"), [*BUILDS[:2], *(pytest.param(*row, marks=pytest.mark.slow) for row in BUILDS[2:])]
)
def test_builds_for_cpus_are_taken_where_an_index_has_them(
    wheels: list[str], lines: list[str], builds: tuple[str, ...], index: Path, tmp_path: Path
) -> None:
    for name, version, *needs in map(str.split, wheels):
        wheel(index, name, version, "", *needs)
    spec = Environment((), extra_index=TORCH_INDEX)
    assert resolved(intend("python", spec, tmp_path / "envs", (listed(tmp_path / "src", *lines),))).builds == builds


def test_the_size_is_the_downloads_and_a_list_that_no_index_has_is_refused_first(index: Path, tmp_path: Path) -> None:
    wheel(index, "large", "1.0", "x" * 3_000_000)
    plan = resolved(intend("python", ENVIRONMENTS["python"], tmp_path / "envs", (listed(tmp_path, "large"),)))
    assert plan.summary[0] == "the environment python needs about 37 MB, a download of at most 3 MB, and a minute:"
    assert not any("also from" in line for line in plan.summary)  # the index of PyTorch
    with pytest.raises(
        NotMade, match=r"(?s)could not find what .*/requirements.txt lists.*no-such-package was not found"
    ):
        resolved(intend("python", Environment(("large",)), tmp_path, (listed(tmp_path, "no-such-package"),)))


@pytest.mark.slow
def test_a_package_that_does_not_install_is_named_with_what_uv_said_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    intended = intend("bad", Environment(("batchtrain-no-such-package==1",)), tmp_path)
    with pytest.raises(NotMade, match=r"could not install batchtrain-no-such-package==1: exit code 1\n"):
        make(intended, lambda _: None)
    assert not intended.prefix.exists()


@pytest.mark.slow
def test_an_interrupted_environment_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(step: str) -> None:
        if step.startswith("2 of 3"):
            assert intended.prefix.exists()
            raise KeyboardInterrupt

    intended = intend("small", SMALL, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        make(intended, interrupt)
    assert not intended.prefix.exists()


@pytest.mark.slow
def test_an_environment_of_a_run_that_was_killed_is_made_anew(tmp_path: Path) -> None:
    intended = intend("small", SMALL, tmp_path)
    (intended.prefix / "bin").mkdir(parents=True)
    assert not intended.ready
    make(intended, lambda _: None)
    assert intended.ready


def test_a_disk_without_room_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(NotMade, match=r"needs 1000000000 MB, and .* has \d+ MB left"):
        make(intend("large", SMALL._replace(megabytes=10**9), tmp_path), lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_builds_a_part_is_asked_for_first(tmp_path: Path) -> None:
    with pytest.raises(NotMade, match="the environment built needs no-such-compiler to build a part of it"):
        make(intend("built", SMALL._replace(needs=("no-such-compiler",)), tmp_path), lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_another_package_is_another_environment_and_its_measured_size_is_not() -> None:
    one, other = Environment(("torch==2.13.0",)), Environment(("torch==2.13.1",))
    assert key(one, "3.11") != key(other, "3.11")
    assert key(one, "3.11") != key(one, "3.12")
    assert key(one, "3.11") == key(one._replace(megabytes=9), "3.11")


@pytest.mark.usefixtures("settings_of_pip")
def test_uv_is_told_what_pip_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/simple")
    monkeypatch.setenv("UV_CONSTRAINT", "/of/uv")
    variables = uv.settings_of_pip()
    assert "UV_CONSTRAINT" not in variables
    assert variables["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert variables["UV_DEFAULT_INDEX"] == "https://variable.example/simple"
    assert variables["UV_INDEX"] == "https://one.example/simple https://two.example/simple"
    assert variables["UV_FIND_LINKS"] == "/wheels/a,/wheels/b"


@pytest.fixture
def settings_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://global.example/simple\nconstraint = /of/pip\nfind-links = /wheels/c\n"
        "extra-index-url =\n  https://one.example/simple\n  https://two.example/simple\n"
        "[install]\nfind-links = /wheels/a /wheels/b\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))


def test_an_index_that_cannot_be_reached_is_not_given_to_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uv, "getproxies", dict)
    with socket.create_server(("127.0.0.1", 0)) as server:
        index = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        wanted = Environment(("torch",), extra_index=index)
        assert uv.index(wanted) == ("--index", index)
    assert uv.index(wanted) == ()
