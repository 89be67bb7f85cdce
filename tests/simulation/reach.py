"""Which lines of the product a simulation runs.

A line counts if it is in a function: what runs once at the import of a module says nothing.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import batchtrain

PACKAGE = Path(batchtrain.__file__).parent
FLOORS = {"client": 0.7, "runs": 0.7, "service": 0.74, "storage": 0.72}
"""The least share of the lines of each folder: only ever raised."""
LEFT_OUT = {
    "diagnosis/doctor.py": "asks Resource Manager and the programs of this machine",
    "client/identities.py": "asks Resource Manager",
    "emulator/local_service.py": "starts a real process of the emulator",
    "client/local.py": "asks a real process of the emulator",
    "client/logins.py": "starts ssh",
    "service/notices.py": "sends to a host that a user names",
    "client/stacks.py": "starts programs on nodes",
    "runs/experiment.py": "is for `bench`, which makes one run after the other",
    "runs/scaling_report.py": "is for `bench`",
    "service/arm.py": "asks Resource Manager",
    "service/entra.py": "asks Microsoft Entra ID",
    "service/prices.py": "asks the price list of Azure",
    "service/rest.py": "asks Resource Manager and Key Vault",
    "service/vault.py": "asks Key Vault",
    "service/webhook.py": "sends to a host that a user names",
}
"""The files that a simulation cannot run, with the reason: it has no other hosts, and no other programs."""

Lines = frozenset[tuple[str, int]]
"""By the path of the file in the package."""


class Reach:
    """Notes the lines that run from `begin` on, in this thread and its greenlets; without those that are known."""

    def __init__(self, known: Lines = frozenset()) -> None:
        self._known = defaultdict[str, set[int]](set)
        for name, line in known:
            self._known[name].add(line)
        self._open: dict[CodeType, set[int]] = {}
        """The lines of each function that did not run yet."""
        self._lines: set[tuple[str, int]] = set()

    def begin(self) -> None:
        sys.settrace(self._called)

    def end(self) -> Lines:
        """The lines that ran since `begin`; none without it."""
        sys.settrace(None)
        return frozenset(self._lines)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code not in self._open:
            is_ours = _folder(code.co_filename) in FLOORS
            self._open[code] = set(own_lines(code)) - self._known[_name(code)] if is_ours else set()
        open_lines = self._open[code]
        if not open_lines:
            return None
        name = _name(code)

        def ran(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line" and frame.f_lineno in open_lines:
                open_lines.discard(frame.f_lineno)
                self._lines.add((name, frame.f_lineno))
            return ran if open_lines else None

        frame.f_trace_lines = True
        return ran


def _name(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(PACKAGE))


def _folder(path: str) -> str:
    return Path(path).parent.name if path.startswith(f"{PACKAGE}/") else ""


def own_lines(code: CodeType) -> Iterator[int]:
    """The lines of a function that can run, without its first one and without those of functions in it."""
    return (line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno)


def all_lines() -> Lines:
    """The lines of all functions of the folders."""
    lines = set[tuple[str, int]]()
    for folder in FLOORS:
        for path in set((PACKAGE / folder).glob("*.py")) - {PACKAGE / name for name in LEFT_OUT}:
            module = compile(path.read_text(), str(path), "exec")
            for code in functions(module):
                lines |= {(str(path.relative_to(PACKAGE)), line) for line in own_lines(code)}
    return frozenset(lines)


def functions(code: CodeType, *, in_function: bool = False) -> Iterator[CodeType]:
    """The functions in a code object, at any depth; a class and a module are none."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            is_function = in_function or bool(constant.co_flags & 0x2)  # CO_NEWLOCALS
            if is_function:
                yield constant
            yield from functions(constant, in_function=is_function)


def unreached(lines: Lines) -> Iterator[str]:
    """The lines of each file that did not run."""
    missing = sorted(all_lines() - lines)
    for name, rows in itertools.groupby(missing, key=lambda row: row[0]):
        yield f"{name}: {' '.join(str(number) for _, number in rows)}"


def shares(lines: Lines) -> Mapping[str, float]:
    """The share of the lines of each folder that ran."""
    every = all_lines()
    ran = lines & every
    return {
        folder: sum(name.startswith(f"{folder}/") for name, _ in ran)
        / sum(name.startswith(f"{folder}/") for name, _ in every)
        for folder in FLOORS
    }
