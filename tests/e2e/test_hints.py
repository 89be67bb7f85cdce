"""Commands in real messages: each is run in the same directory and reaches what it promised."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.dashboard.reading import account
from tests.unit.cli.test_commands_of_docs import refusal

from .conftest import SCRIPT

pytestmark = pytest.mark.process

POOL = (
    "pool_specification: {id: POOL, vm_size: STANDARD_D2S_V5, vm_count: {dedicated: 1}, vm_configuration:"
    " {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}}\n"
)
JOBS = "job_specifications: [{id: JOB, tasks: [{id: t, command: 'echo loss 0.5; exit CODE'}]}]\n"

CASES: tuple[tuple[str, int], ...] = (
    ("emulator status", 3),
    ("recipe new NCCL-Tests", 0),
    ("recipe new NCCL-Tests", 2),
    ("recipe new JAX", 0),
    ("recipe show qqqqqq", 3),
    ("run JAX --local", 2),
    ("images env --configdir qqqqqq", 3),
    ("images env NCCL-Tests --configdir JAX", 2),
    ("config validate nothing-here", 2),
    ("config validate 'my files' --ignore qqqqqq", 2),
    ("config validate 'my files' --set pool_specification.vm_sise=x", 2),
    ("help qqqqqq", 3),
    ("jbos list", 2),
    ("--local jobs lst", 2),
    ("--local jobs list --loacl", 2),
    ("--local --configdir 'my files' pool udi", 2),
    ("jobs show nosuch --local", 3),
    ("jobs logs nosuch --local", 3),
    ("jobs tasks nosuch --local", 3),
    ("jobs sweep nosuch --metric loss --local", 3),
    ("pool show nosuch --local", 3),
    ("pool ssh --local --pool-id nosuch n0 ls", 3),
    ("runs show nosuch", 3),
    ("runs compare nosuch", 2),
    ("run 'my files' --local --keep", 10),
    ("run 'my files' --local", 4),
    ("jobs logs broken --local", 0),
    ("jobs logs broken --task nosuch --local", 3),
    ("jobs logs broken --rank 0 --local", 2),
    ("jobs diagnose broken --local", 0),
    ("jobs get broken t nosuch --local", 3),
    ("--local --configdir 'my files' pool nodes list", 2),
    ("jobs exec broken --local -- ls", 2),
    ("jobs exec --local broken -- ls", 2),
    ("jobs resubmit broken --local", 2),
    ("jobs add 'my files' --local", 0),
    ("pool add 'my files' --local", 4),
    ("pool get quick n0 nosuch --local", 3),
    ("pool reboot quick qqqqqq --local", 3),
    ("pool diagnose quick --local", 0),
    ("jobs migrate broken --pool-id quick --local", 2),
    ("jobs enable broken --local", 4),
    ("emulator start --port 0", 0),
    ("emulator images map example/x:1 /nowhere", 2),
    ("emulator diagnose", 0),
    ("doctor 'my files' --local", 0),
    ("catalog size qqqqqq", 2),
)
"""Real failures and successes, in this order and in one directory, with their exit codes."""

HINT = re.compile(
    r"`batchtrain ([a-z][^`]*)`|^  (?:[a-z ]+: )?batchtrain ([a-z].*)$|· batchtrain ([a-z][^·]*[^· ])", re.M
)
OPEN = re.compile(r"(?:^| )(?:[A-Z]{2,}|'?\S*[<…]\S*)(?= |$)")
"""A word that the user is to replace, such as PREFIX."""
LAST = re.compile(r"(?:jobs|pool) (?:del|term)\b|emulator stop\b")
"""Commands that take away what others need."""
ENDS = {**dict(CASES), "run --reuse --local --configdir 'my files'": 4}
"""The exit codes of hints that lead to another answer: the job has not completed yet."""
MORE = {"emulator start": ("--port", "0"), "images env": ("--dry-run",), "jobs del": ("-y",), "pool del": ("-y",)}
"""What a hint's command gets for the test."""


def hints(text: str) -> Iterator[str]:
    for match in HINT.finditer(text):
        yield next(words for words in match.groups() if words).strip()


def write(directory: Path, job: str, code: int) -> None:
    directory.mkdir()
    (directory / "pool.yaml").write_text(POOL.replace("POOL", "quick"))
    (directory / "jobs.yaml").write_text(JOBS.replace("JOB", job).replace("CODE", str(code)))


def test_every_hint_of_real_messages_reaches_what_it_promises(batchtrain: Any) -> None:
    write(batchtrain.cwd / "my files", "broken", 3)
    batchtrain.environment["PATH"] = f"{SCRIPT.parent}:{batchtrain.environment['PATH']}"
    tried: dict[str, str] = {}
    wrong: list[str] = []

    def follow(hint: str) -> None:
        words = shlex.split(hint)
        added = next((more for begin, more in MORE.items() if hint.startswith(begin)), ())
        process = batchtrain.start(*words, *added)
        _, errors = process.communicate(timeout=120)
        shown = process.returncode == 2 and errors.startswith("Usage: ")  # a group without a verb lists its verbs
        if not (shown or process.returncode == ENDS.get(hint, 0)) or "Traceback" in errors:
            wrong.append(f"{tried[hint]} => {hint}: {process.returncode}\n{errors}")

    page: Any = SimpleNamespace(account=None, runs=batchtrain.cwd / "runs", changes=False)
    for hint in hints("\n".join(f"  {command}" for command in account(page, {})["start"])):
        tried[hint] = "the page"
        if not hint.startswith("run "):  # needs the environment of the recipe, which takes a download
            follow(hint)
    for line, code in CASES:
        done = batchtrain.start(*shlex.split(line))
        text = "\n".join(done.communicate(timeout=120))
        if done.returncode != code:
            wrong.append(f"{line}: {done.returncode}, not {code}\n{text}")
        for hint in hints(text):
            if hint in tried:
                continue
            tried[hint] = line
            if refused := refusal(shlex.split(hint)):
                wrong.append(f"{line} => {refused}")
            elif not OPEN.search(hint) and not LAST.match(hint):
                follow(hint)
    for hint in sorted(filter(LAST.match, tried)):
        follow(hint)
    print(len(tried), "hints:", *(f"{line}  =>  {hint}" for hint, line in tried.items()), sep="\n")
    assert wrong == [], "\n".join(wrong)
