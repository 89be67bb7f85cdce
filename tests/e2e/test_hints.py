"""Commands in real messages: each is run in the same directory and reaches what it promised."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from batchtrain.cli.app import root
from batchtrain.dashboard.reading import FIRST_RECIPE
from tests import dashboards
from tests.browsers import browser
from tests.unit.cli.test_commands_of_docs import every_command, refusal
from tests.waiting import GUARD

from .conftest import SCRIPT

pytestmark = [pytest.mark.process, pytest.mark.slow]

POOL = (
    "pool_specification: {id: POOL, vm_size: STANDARD_D2S_V5, vm_count: {dedicated: 1}, vm_configuration:"
    " {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}}\n"
)
JOBS = "job_specifications: [{id: JOB, tasks: [{id: t, command: 'echo loss 0.5; exit CODE'}]}]\n"
BENCH = "recipe: my files\nmatrix: {'job_specifications[0].id': [benched]}\n"

CASES: tuple[tuple[str, int], ...] = (
    ("emulator status", 3),
    ("emulator capacity", 0),
    ("emulator token", 0),
    ("emulator env", 0),
    ("emulator stop", 0),
    ("emulator fault list", 3),
    ("recipe new NCCL-Tests", 0),
    ("recipe new NCCL-Tests", 2),
    ("recipe new JAX", 0),
    ("recipe new MPI-Digits", 3),
    ("recipe show recipes/MPI-Digits", 3),
    ("recipe list qqqqqq", 2),
    ("run recipes/MPI-Digits --local", 2),
    ("run JAX --local", 2),
    ("run nothing-here", 2),
    ("init nothing-here.py", 2),
    ("images env --configdir qqqqqq", 3),
    ("images env NCCL-Tests --configdir JAX", 2),
    ("images env 'my files' --configdir JAX", 2),
    ("images build qqqqqq", 2),
    ("images build 'my files'", 2),
    ("images build JAX --on qqqqqq", 2),
    ("images check", 2),
    ("images check example/x:1 --no-pull", 5),
    ("images list qqqqqq", 2),
    ("images environments", 0),
    ("images load nothing-here.tar", 5),
    ("images save example/x:1", 2),
    ("images mirror", 2),
    ("config validate nothing-here", 2),
    ("config validate 'my files' --ignore qqqqqq", 2),
    ("config validate 'my files' --set pool_specification.vm_sise=x", 2),
    ("config validate 'my files' --set vm_size=STANDARD_D2S_V5", 2),
    ("config validate 'my files' --set pool_specification", 2),
    ("config checks qqqqqq", 2),
    ("config explain qqqqqq --configdir 'my files'", 2),
    ("config get qqqqqq", 2),
    ("config set qqqqqq 1", 2),
    ("config migrate nothing-here", 2),
    ("config import nothing-here --to new", 2),
    ("config plan nothing-here", 2),
    ("config plan 'my files' --diff", 2),
    ("config schema qqqqqq", 2),
    ("config show nothing-here", 2),
    ("catalog images --location qqqqqq", 2),
    ("catalog refresh", 2),
    ("catalog sizes qqqqqq", 3),
    ("catalog size qqqqqq", 2),
    ("help qqqqqq", 3),
    ("jbos list", 2),
    ("--local jobs lst", 2),
    ("--local jobs list --loacl", 2),
    ("--local --configdir 'my files' pool udi", 2),
    ("jobs show nosuch --local", 3),
    ("jobs list --local", 0),
    ("jobs logs nosuch --local", 3),
    ("jobs tasks nosuch --local", 3),
    ("jobs files nosuch t --local", 3),
    ("jobs stacks nosuch --local", 3),
    ("jobs fetch nosuch --local", 3),
    ("jobs exec nosuch --local -- ls", 2),
    ("jobs exec --local nosuch -- ls", 3),
    ("jobs sweep nosuch --metric loss --local", 3),
    ("jobs stats nosuch --local", 3),
    ("jobs del nosuch --local -y", 3),
    ("jobs term nosuch --local -y", 3),
    ("jobs disable nosuch --local", 3),
    ("jobs wait nosuch --local", 3),
    ("jobs watch nosuch --local", 3),
    ("jobs tensorboard nosuch --local", 2),
    ("jobs task del nosuch t --local -y", 3),
    ("jobs task term nosuch t --local -y", 3),
    ("jobs task reactivate nosuch t --local", 3),
    ("jobs gc --local", 2),
    ("pool list --local", 0),
    ("pool show nosuch --local", 3),
    ("pool wait nosuch --local", 3),
    ("pool watch nosuch --local", 3),
    ("pool del nosuch --local -y", 3),
    ("pool files nosuch n0 --local", 3),
    ("pool forward --pool-id nosuch n0 80 --local", 3),
    ("pool login --configdir 'my files' --local", 2),
    ("pool resize nosuch --dedicated 1 --local", 3),
    ("pool autoscale evaluate nosuch", 2),
    ("pool ssh --local --pool-id nosuch n0 ls", 3),
    ("runs show nosuch", 3),
    ("runs compare nosuch", 2),
    ("runs export nosuch", 3),
    ("runs restore nosuch DIR", 3),
    ("runs list", 0),
    ("runs label nosuch", 3),
    ("runs cost", 0),
    ("runs fetch nosuch", 2),
    ("runs stop nosuch", 2),
    ("runs attach nosuch", 2),
    ("check fabric nothing-here", 2),
    ("check fabric --size qqqqqq --nodes 2", 2),
    ("verify --only qqqqqq", 2),
    ("verify --size qqqqqq --plan", 2),
    ("runs clean --local -y", 0),
    ("data list nosuch --local", 2),
    ("data get nosuch x --local", 2),
    ("data rm nosuch --local -y", 2),
    ("data sync . nosuch --local", 2),
    ("data ingress --local", 2),
    ("data ingress 'my files' --local", 2),
    ("bench nothing-here", 2),
    ("bench bench.yaml --local", 2),
    ("bench bench.yaml --local -y", 10),
    ("run 'my files' --local --keep", 10),
    ("run 'my files' --local", 4),
    ("run 'my files' --local --fresh", 2),
    ("run script.py --local --keep", 10),
    ("run script.py --local", 4),
    ("jobs logs broken --local", 0),
    ("jobs logs broken --task nosuch --local", 3),
    ("jobs logs broken --rank 0 --local", 2),
    ("jobs diagnose broken --local", 0),
    ("jobs show broken --local", 0),
    ("jobs get broken t nosuch --local", 3),
    ("jobs tensorboard broken --local", 2),
    ("--local --configdir 'my files' pool nodes list", 2),
    ("jobs exec broken --local -- ls", 2),
    ("jobs exec --local broken -- ls", 2),
    ("jobs resubmit broken --local", 2),
    ("jobs add 'my files' --local", 0),
    ("pool add 'my files' --local", 4),
    ("pool files quick n7 --local", 3),
    ("pool get quick n0 nosuch --local", 3),
    ("pool reboot quick qqqqqq --local", 3),
    ("pool diagnose quick --local", 0),
    ("jobs migrate broken --pool-id quick --local", 2),
    ("jobs enable broken --local", 4),
    ("runs list", 0),
    ("runs show latest", 0),
    ("runs restore latest restored", 0),
    ("runs export latest", 0),
    ("emulator start --port 0", 0),
    ("emulator images map example/x:1 /nowhere", 2),
    ("emulator images unmap example/x:1", 3),
    ("emulator images list", 0),
    ("emulator fault add qqqqqq", 2),
    ("emulator fault node quick qqqqqq", 2),
    ("emulator fault clear", 0),
    ("emulator clock advance", 2),
    ("emulator diagnose", 0),
    ("doctor 'my files' --local", 0),
    ("doctor nothing-here --local", 2),
)
"""Real failures and successes, in this order and in one directory, with their exit codes."""
ELSEWHERE = {
    "dashboard": "its pages are a test of their own",
    "images prune": "deletes environments that other tests use",
    "emulator reset": "takes away what the other commands need",
}
"""Commands whose hints are not captured here, with the reason."""

HINT = re.compile(
    r"`batchtrain ([a-z][^`]*)`|^  (?:[a-z ]+: )?batchtrain ([a-z].*)$|· batchtrain ([a-z][^·]*[^· ])", re.M
)
OPEN = re.compile(r"(?:^| )(?:[A-Z]{2,}|'?\S*[<…]\S*|--push)(?= |$)")
"""A word that the user is to replace, such as PREFIX, or an option that writes to a registry."""
LAST = re.compile(r"(?:jobs|pool) (?:del|term)\b|emulator stop\b")
"""Commands that take away what others need."""
ENDS = {
    **dict(CASES),
    "run --reuse --local --configdir 'my files'": 4,  # the job has not completed yet
    "run restored --local": 4,  # its pool exists
    "run script.py --reuse --local": 10,  # its program fails
    f"run {FIRST_RECIPE} --local": 2,  # the environment before it takes a download, so that it is not made here
}
"""The exit codes of hints that lead to another answer."""
MORE = {
    "emulator start": ("--port", "0"),
    "images env": ("--dry-run",),
    "run script.py": ("--keep",),
    "jobs del": ("-y",),
    "pool del": ("-y",),
}
"""What a hint's command gets for the test."""


def hints(text: str) -> Iterator[str]:
    for match in HINT.finditer(text):
        yield next(words for words in match.groups() if words).strip()


def write(directory: Path, job: str, code: int, pool: str = "quick") -> None:
    directory.mkdir()
    (directory / "pool.yaml").write_text(POOL.replace("POOL", pool))
    (directory / "jobs.yaml").write_text(JOBS.replace("JOB", job).replace("CODE", str(code)))


class Hints:
    """The commands in messages. Each is run once, in the directory of the message and right after it."""

    def __init__(self, shell: Any) -> None:
        shell.environment["PATH"] = f"{SCRIPT.parent}:{shell.environment['PATH']}"
        self._shell = shell
        self._tried: dict[str, str] = {}
        self.wrong: list[str] = []

    def take(self, text: str, source: str, run: Callable[[str], None] | None = None) -> None:
        """Run each new command of a message of `source`; by default as a process of its own."""
        for hint in hints(text):
            if hint in self._tried:
                continue
            self._tried[hint] = source
            if refused := refusal(shlex.split(hint)):
                self.wrong.append(f"{source} => {refused}")
            elif not OPEN.search(hint) and not LAST.match(hint):
                (run or self.run)(hint)

    def run(self, hint: str) -> None:
        """Run a command, and expect its success or the answer that it promised."""
        if hint.startswith("dashboard"):
            options = shlex.split(hint)[1:]
            with dashboards.dashboard(self._shell.environment, *options, runs=self._shell.cwd) as running:
                running.get("/account")
            return
        added = next((more for begin, more in MORE.items() if hint.startswith(begin)), ())
        done = self._shell.finish(*shlex.split(hint), *added)
        shown = done.returncode == 2 and done.stderr.startswith("Usage: ")  # a group without a verb lists its verbs
        if not (shown or done.returncode == ENDS.get(hint, 0)) or "Traceback" in done.stderr:
            self.wrong.append(f"{self._tried[hint]} => {hint}: {done.returncode}\n{done.stderr}")

    def end(self) -> None:
        """Run what takes away, print the hints, and fail with all that are wrong."""
        for hint in sorted(filter(LAST.match, self._tried)):
            self.run(hint)
        print(len(self._tried), "hints:", *(f"{line}  =>  {hint}" for hint, line in self._tried.items()), sep="\n")
        assert self.wrong == [], "\n".join(self.wrong)


@pytest.fixture
def told(batchtrain: Any) -> Hints:
    """The hints of a directory with a recipe whose task fails."""
    write(batchtrain.cwd / "my files", "broken", 3)
    return Hints(batchtrain)


def test_every_hint_of_real_messages_reaches_what_it_promises(batchtrain: Any, told: Hints) -> None:
    (batchtrain.cwd / "bench.yaml").write_text(BENCH)
    (batchtrain.cwd / "script.py").write_text("import sys; sys.exit('weights.pt: No space left on device')\n")
    for line, code in CASES:
        done = batchtrain.finish(*shlex.split(line))
        text = f"{done.stdout}\n{done.stderr}"
        if done.returncode != code or "Traceback" in text:
            told.wrong.append(f"{line}: {done.returncode}, not {code}\n{text}")
        told.take(text, line)
    told.end()


PAGES: dict[tuple[str, ...], dict[str, str]] = {
    (): {"/": "No account is configured", "/runs": "No run is recorded"},
    ("--local",): {
        "/runs": "No run is recorded",
        "/runs/nosuch": "has no run",
        "/pools/empty": "has no nodes",
        "/pools/nosuch": "does not exist",
        "/jobs/nosuch": "does not exist",
        "/jobs/broken/tasks/t": "next ",
    },
}
"""Pages with the text to wait for, by the options of the dashboard."""


def test_every_hint_of_the_dashboard_reaches_what_it_promises(batchtrain: Any, told: Hints) -> None:
    write(batchtrain.cwd / "empty", "waiting", 0, pool="empty")
    batchtrain("run", "my files", "--local", "--keep", code=10)
    batchtrain("pool", "add", "empty", "--local", "--set", "pool_specification.vm_count.dedicated=0")
    nothing = batchtrain.cwd / "no runs"
    nothing.mkdir()
    for options, pages in PAGES.items():
        with dashboards.dashboard(batchtrain.environment, *options, runs=nothing) as running, browser() as chromium:
            page = chromium.new_page()
            page.goto(running.link)
            for path, words in pages.items():
                page.wait_for_selector("main[data-ready]")
                page.goto(f"{running.url}{path}")
                page.get_by_text(words).first.wait_for(timeout=GUARD * 1000)
                shown = [*page.locator("code.command").all_inner_texts(), ""]
                told.take("\n  ".join(["", *shown, page.inner_text("main")]), f"page {path} {options}")
    told.end()


CELLS = (
    "bt.connect()",
    "bt.connect(local=True)",
    "client.jobs.get('nosuch')",
    "client.pools.get('nosuch')",
    "client.jobs.get('broken').get('nosuch')",
    "client.jobs.get('broken').logs(task='nosuch')",
    "client.jobs.get('broken').resubmit()",
    "client.runs.get('nosuch')",
    "client.run(recipe)",
    "client.run(recipe, fresh=True)",
    "client.jobs.add(bt.load('my files', settings={'job_specifications[0].priority': 7}))",
    "bt.load('nothing-here')",
    "bt.load('my files', settings={'pool_specification.vm_sise': 'x'})",
)
"""Calls that fail in a notebook, and what they say."""
CALL = re.compile(r"`(client\.[^`]+)`")
CALL_ENDS = {"client.run(recipe, reuse=True)": "AlreadyExists"}
"""The errors of calls that lead to another answer: the job has not completed yet."""
EXIT = "print(f'exit {_exit_code}.')"


def shown_in(outputs: list[tuple[str, Any]]) -> str:
    """The text that a cell shows: errors, and what it prints."""
    texts = (str(content.get("text", "")) + "\n".join(content.get("traceback", ())) for _, content in outputs)
    return re.sub(r"\x1b\[[0-9;]*m", "", "".join(texts))


def test_every_hint_of_a_notebook_is_python_or_runs_in_a_cell(batchtrain: Any, told: Hints) -> None:
    for name in ("jupyter_client.manager", "ipykernel"):
        pytest.importorskip(name, reason="there is no Jupyter (pip install -e '.[notebook]')")
    from .test_in_a_notebook import Kernel

    batchtrain("run", "my files", "--local", "--keep", code=10)
    kernel = Kernel(batchtrain)

    def run(hint: str) -> None:
        shown = shown_in(kernel.run(f"!batchtrain {hint}") + kernel.run(EXIT))
        if f"exit {ENDS.get(hint, 0)}." not in shown:
            told.wrong.append(f"!batchtrain {hint}\n{shown}")

    try:
        kernel.run("import batchtrain as bt\nclient = bt.connect(local=True)\nrecipe = bt.load('my files')")
        calls = dict[str, str]()
        for cell in CELLS:
            text = shown_in(kernel.run(cell))
            told.take(text.replace("`!batchtrain ", "`batchtrain "), cell, run)
            if "batchtrain " in text.replace("`!batchtrain ", ""):
                told.wrong.append(f"{cell}: a command that does not run in a cell\n{text}")
            calls |= dict.fromkeys(CALL.findall(text), cell)
        for call, cell in sorted(calls.items(), key=lambda item: ".delete(" in item[0]):  # what takes away is last
            text = shown_in(kernel.run(call))
            if text.partition(":")[0].strip() != CALL_ENDS.get(call, ""):
                told.wrong.append(f"{cell} => {call}\n{text}")
        print(len(calls), "calls:", *calls)
    finally:
        kernel.end()
    told.end()


def test_every_command_has_its_messages_captured_or_a_reason_why_not() -> None:
    lines = [f" {line} " for line, _ in CASES]
    commands = set(every_command(root, click.Context(root)))
    captured = {command for command in commands if any(f" {command} " in line for line in lines)}
    assert commands - captured == ELSEWHERE.keys()
