"""Commands that are functions of a login shell, such as `module load`: a command that calls one loads it first.

Batch starts every command by a shell that is no login shell, so these functions do not exist in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from batchtrain.launchers import shell
from batchtrain.launchers.launch import Implicit


class ShellFunction(NamedTuple):
    """A function, the calls that need it, and the files of a node that define it."""

    name: str
    calls: str
    """A pattern of the call."""
    files: tuple[str, ...]
    """Shell words; the first file that exists is read."""
    package: str
    """What an image needs."""
    hook: str = ""
    """A program that prints the function, if there is no such file."""


_CONDAS = "{conda,miniconda,miniconda3,miniforge3,mambaforge,anaconda,anaconda3}"


def _below_program(name: str, file: str) -> str:
    """A file of the installation of a program on PATH."""
    return f'"$(readlink -f "$(type -P {name})" | sed -n "s|/[^/]*/[^/]*$|/{file}|p")"'


_MODULES = (
    '"${LMOD_PKG:+$LMOD_PKG/init/bash}"', '"${MODULESHOME:+$MODULESHOME/init/bash}"',
    "/etc/profile.d/{lmod,z00_lmod}.sh", "/usr/share/{modules,Modules,lmod/lmod}/init/bash",
    "/etc/profile.d/modules.sh",
)  # fmt: skip
FUNCTIONS = (
    # Environment Modules: module(1), Package Initialization; Lmod: How to install (Debian and EPEL: /etc/profile.d);
    # azhpc-images: modules below /usr/share/modules (Ubuntu) and /usr/share/Modules (AlmaLinux)
    ShellFunction("module", r"module\s+\S", _MODULES, "environment-modules or Lmod"),
    ShellFunction("ml", r"ml\s+[\w-]", _MODULES, "environment-modules or Lmod"),
    # conda: Managing environments; etc/profile.d/conda.sh is what `conda init` makes a login shell read
    ShellFunction("conda", r"conda\s+(?:de)?activate\b", (
        '"${CONDA_EXE:+${CONDA_EXE%/*/*}/etc/profile.d/conda.sh}"', _below_program("conda", "etc/profile.d/conda.sh"),
        "/etc/profile.d/conda.sh", f"{{/opt,,/usr/local,~}}/{_CONDAS}/etc/profile.d/conda.sh",
    ), "conda"),
    # mamba: micromamba user guide (shell hook)
    *(ShellFunction(name, rf"{name}\s+(?:de)?activate\b", (), name, f"{name} shell hook --shell bash")
      for name in ("mamba", "micromamba")),
    # Spack: Getting started (shell support)
    ShellFunction("spack", r"spack\s+(?:load|unload|env\s+(?:de)?activate|cd)\b", (
        '"${SPACK_ROOT:+$SPACK_ROOT/share/spack/setup-env.sh}"', _below_program("spack", "share/spack/setup-env.sh"),
        "{/opt,/usr/local,~}/spack/share/spack/setup-env.sh",
    ), "Spack"),
    # nvm: README (NVM_DIR); pyenv: README (set up your shell environment)
    ShellFunction("nvm", r"nvm\s+\w", ('"${NVM_DIR:-$HOME/.nvm}/nvm.sh"', "/usr/local/nvm/nvm.sh"), "nvm"),
    ShellFunction("pyenv", r"pyenv\s+(?:(?:de)?activate|shell)\b", (), "pyenv", "pyenv init - bash"),
)  # fmt: skip

_BEFORE = r"(?:^|[\n;&|({]|\b(?:then|do|else|elif|if|while|until|!|time)[ \t]|-\w*c[ \t]+[\"'])[ \t]*(?:\w+=\S*[ \t]+)*"
_NAME = re.compile("|".join(each.name for each in FUNCTIONS))
_CALL = _BEFORE + "(?:" + "|".join(f"(?P<{each.name}>{each.calls})" for each in FUNCTIONS) + ")"


def called_in(text: str) -> tuple[ShellFunction, ...]:
    """The functions that a text of the shell calls."""
    if _NAME.search(text) is None:  # one cheap look for most commands of a large sweep
        return ()
    names = {match.lastgroup for match in re.finditer(_CALL, text)}
    return tuple(each for each in FUNCTIONS if each.name in names)


def loaded(text: str) -> str:
    """The text after the lines that load the functions that it calls; unchanged if it calls none."""
    blocks = [_block(each, text) for each in called_in(text)]
    return shell.script(*blocks, shell.verbatim(text)).removesuffix("\n") if blocks else text


def as_words(command: str) -> str:
    """The command as the words of one program, for a launcher that starts it; unchanged if it calls no function."""
    return f"/bin/bash -c {shell.word(loaded(command.strip()))}" if called_in(command) else command


def implicit(texts: Iterable[str]) -> tuple[Implicit, ...]:
    """The functions that texts of a task load."""
    names = dict.fromkeys(each.name for text in texts for each in called_in(text))
    because = "the shell of a task is no login shell, which alone has this function"
    return tuple(Implicit(name, "loaded before the command", because, "shell-functions") for name in names)


def _block(function: ShellFunction, text: str) -> str:
    name = function.name
    exists = f"declare -F {name} >/dev/null"
    exports = re.search(rf"-\w*c[ \t]+[\"'][^\n]*\b{name}\b", text) is not None
    before, after = ("set -a; ", "; set +a") if exports else ("", "")
    files = (
        f"{exists} || for bt_file in {' '.join(function.files)}; do",
        f'  if [ -r "$bt_file" ]; then {before}. "$bt_file"{after}; break; fi',
        "done",
    )
    hook = f'{exists} || ! type -P {name} >/dev/null || {{ {before}eval "$({function.hook})"{after}; }}'
    missing = (
        f"batchtrain: no file of this node defines the shell function `{name}`: install {function.package} in the image"
        f" (on the host: in `additional_node_prep`), or set PATH in the command instead"
    )
    otherwise = f"printf '%s\\n' {shell.word(missing)} >&2; return 127"  # the command itself may define it first
    return shell.block(
        f"`{name}` is a function, which only a login shell has without this:",
        *(files if function.files else (hook,)),
        "" if _tests(name, text) else f"{exists} || type -P {name} >/dev/null || {name}() {{ {otherwise}; }}",
    )


def _tests(name: str, text: str) -> bool:
    """Whether the text itself says what happens without the function."""
    tested = rf"\b(?:type|command|hash|declare|which)\b[^\n;&|]*\b{name}\b|\b{name}\b[^\n;&|]*\|\|"
    return re.search(tested, text) is not None
