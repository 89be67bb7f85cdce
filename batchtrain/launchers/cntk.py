"""CNTK: an MPI program that must be built on the MPI that starts it; the launch checks this before it starts it.

With another one's launcher every rank believes that it is alone, trains the whole data and ends with 0. Source: CNTK,
Multiple GPUs and machines (built against Open MPI 1.10 on Linux); the images of Batch Shipyard's recipes for Intel
MPI; measured with cntk 2.7 under Open MPI 4 and 5.
"""

from __future__ import annotations

import re

from batchtrain.launchers import python, shell
from batchtrain.launchers.launch import MpiLaunch

_BINARY = re.compile(r"(?:^|.*/)cntk", re.DOTALL)
_SAYS = r"-e 'Open MPI v' -e 'Intel(R) MPI Library' -e 'MVAPICH' -e 'MPICH Version'"
_LOADED = "import cntk; print([line.split()[-1] for line in open('/proc/self/maps') if '/libmpi.so' in line][0])"


def is_cntk(command: str, image: str) -> bool:
    """Whether a command runs CNTK, by the words of the command or the name of its image."""
    return "cntk" in command.lower() or re.search(r"cntk|1bitsgd", image.lower()) is not None


def check(options: MpiLaunch, payload: python.Payload) -> str:
    """The check after pre_execution_command, on the primary; empty for a program that is neither Python nor `cntk`
    itself."""
    library = _library(options, payload)
    if not library:
        return ""
    pattern = "|".join(f"*{shell.word(library)}*" for library in sorted(options.block.mpi.starts))
    return shell.block(
        "CNTK must have been built on the MPI that starts it; with another one's launcher each rank trains alone:",
        f"bt_library=$({library})",
        f'bt_built=$(grep -a -s -o -m 1 {_SAYS} "${{bt_library:-/dev/null}}" | head -n 1)',
        "case $bt_built in",
        f"  '' | {pattern}) ;;",
        f'  *) bt_stop 1 "CNTK uses ${{bt_built% v}} ($bt_library), and mpi.runtime is {options.block.runtime}:'
        ' take the runtime of the library, or an image built on it" ;;',
        "esac",
    )


def _library(options: MpiLaunch, payload: python.Payload) -> str:
    """Shell text that prints the path of the libmpi which CNTK loads."""
    if payload.interpreter:
        return f"{payload.interpreter} -c {shell.word(_LOADED)} 2>/dev/null </dev/null"
    words = shell.first_words(payload.text)
    program = next((word for word, _ in words if _BINARY.fullmatch(word.strip("\"'"))), "")
    if not program or options.setup.inside:
        return ""
    return f"ldd \"$(type -P {program})\" 2>/dev/null | sed -n 's/.*libmpi\\.so[^ ]* => \\([^ ]*\\).*/\\1/p'"
