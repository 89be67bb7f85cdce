"""Functions of login shells in commands: in a real bash, with Debian's environment-modules and small stand-ins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from batchtrain.launchers import shell_functions
from tests import needs


def ran(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A text run as Batch runs it: by a bash that is no login shell."""
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nowhere", **environment}
    return subprocess.run(["/bin/bash", "-c", text], env=variables, capture_output=True, text=True, timeout=60)


@pytest.fixture
def module_path(tmp_path: Path) -> str:
    """A directory with a module that sets X, if the machine has a module system."""
    needs.program("modulecmd")
    (tmp_path / "mpi").mkdir()
    (tmp_path / "mpi/hpcx").write_text("#%Module1.0\nsetenv X of-the-module\n")
    return str(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "module load mpi/hpcx && echo $X",
        "set -e\nmodule purge; module load mpi/hpcx\necho $X",
        "if module load mpi/hpcx; then echo $X; fi",
        "A=1; A=2 B= ml mpi/hpcx; echo $X",
        "bash -c 'module load mpi/hpcx && echo $X'",
        "type module >/dev/null && module load mpi/hpcx && echo $X",
    ],
)
@pytest.mark.parametrize("form", [shell_functions.loaded, shell_functions.as_words])
def test_a_command_that_loads_a_module_has_it(command: str, form: object, module_path: str) -> None:
    assert callable(form)
    assert ran("module load mpi/hpcx", MODULEPATH=module_path).returncode == 127
    process = ran(form(command), MODULEPATH=module_path)
    assert (process.stdout, process.returncode) == ("of-the-module\n", 0), process.stderr


@pytest.mark.parametrize(
    ("command", "file", "definition"),
    [
        ("conda activate mine", "miniconda3/etc/profile.d/conda.sh", 'conda() { echo "$2"; }'),
        ("conda  deactivate; echo mine", "miniforge3/etc/profile.d/conda.sh", "conda() { :; }"),
        ("spack load mine", "spack/share/spack/setup-env.sh", 'spack() { echo "$2"; }'),
        ("spack env activate mine", "spack/share/spack/setup-env.sh", 'spack() { echo "$3"; }'),
        ("nvm use mine", ".nvm/nvm.sh", 'nvm() { echo "$2"; }'),
    ],
)
def test_the_file_of_an_installation_defines_its_function(
    command: str, file: str, definition: str, tmp_path: Path
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(definition)
    process = ran(shell_functions.loaded(command), HOME=str(tmp_path))
    assert (process.stdout, process.returncode) == ("mine\n", 0), process.stderr


def test_an_installation_whose_program_is_on_the_path_is_found(tmp_path: Path) -> None:
    for name in ("bin", "etc/profile.d", "links"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin/conda").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/conda").chmod(0o755)
    (tmp_path / "links/conda").symlink_to("../bin/conda")
    (tmp_path / "etc/profile.d/conda.sh").write_text('conda() { echo "$2"; }')
    assert ran(shell_functions.loaded("conda activate x"), PATH=f"{tmp_path}/links:/usr/bin:/bin").stdout == "x\n"


def test_a_program_that_prints_its_function_is_asked(tmp_path: Path) -> None:
    program = tmp_path / "micromamba"
    program.write_text("""#!/bin/sh\n[ "$1 $2" = "shell hook" ] && echo 'micromamba() { echo "$2"; }'\n""")
    program.chmod(0o755)
    text = shell_functions.loaded("micromamba activate x")
    assert ran(text, PATH=f"{tmp_path}:/usr/bin:/bin").stdout == "x\n"


def test_a_function_that_the_node_does_not_have_fails_with_the_next_step(tmp_path: Path) -> None:
    process = ran(shell_functions.loaded("spack load x && echo on"), HOME=str(tmp_path))
    assert (process.stdout, process.returncode) == ("", 127)
    assert "no file of this node defines the shell function `spack`: install Spack in the image" in process.stderr


@pytest.mark.parametrize(
    "command",
    [
        "spack() { echo mine; }\nspack load x",
        ". ./setup.sh && spack load x",
        "echo 'spack() { echo mine; }' >f.sh; . ./f.sh; spack load x",
        "cat <<'EOF' >job.sh\nspack load mpi\nEOF\necho mine",
        "spack load x 2>&1 | true; echo mine",
    ],
)
def test_a_command_may_bring_the_function_itself_and_runs_to_its_call(command: str, tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("spack() { echo mine; }\n")
    process = ran(f"cd {tmp_path}\n{shell_functions.loaded(command)}", HOME=str(tmp_path))
    assert (process.stdout, process.returncode) == ("mine\n", 0), process.stderr


def test_a_command_that_tests_for_the_function_decides_itself(tmp_path: Path) -> None:
    for command in ("command -v spack && spack load x; echo on", "spack load x 2>/dev/null || echo on"):
        assert ran(shell_functions.loaded(command), HOME=str(tmp_path)).stdout == "on\n"


def test_a_function_of_the_command_itself_is_not_replaced(module_path: str) -> None:
    process = ran(shell_functions.loaded("module() { echo mine; }\nmodule load mpi/hpcx"), MODULEPATH=module_path)
    assert process.stdout == "mine\n"
