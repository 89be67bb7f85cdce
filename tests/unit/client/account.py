"""A Batch account in this process: the real client, the emulator's application, and nodes without processes.

Each request is a call of the application, and whatever it starts has happened before the next one.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from batchtrain.client import run as commands
from batchtrain.client.client import Client
from batchtrain.config.types import Recipe, Secret
from batchtrain.emulator.interface import Exit, Run
from batchtrain.errors import BatchtrainError
from batchtrain.records.events import Event
from batchtrain.runs.recording import Origin
from batchtrain.service import connect as signing
from batchtrain.service.connect import Account
from batchtrain.service.watch import Pace
from tests.contract.ways import ACCOUNT, KEY, Inside, Transport
from tests.emulation import FakeMachine

ENDPOINT = f"https://{ACCOUNT}.westeurope.batch.azure.com"
MASKS = (
    (r"20\d{6}T\d{6}Z-([\w-]+)-[0-9a-f]{4}", r"\1"),  # the name of a run becomes that of its job
    (r"tvmps_[0-9a-f…]+_[dp]", "NODE"),
    (r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC|\+00:00)?", "TIME"),
    (r"datetime\.datetime\([^()]*(\([^()]*\))?[^()]*\)", "TIME"),
    (r"cost( +)[\d.e-]+ EUR(, [\d.]+ node hours)?", r"cost\1N EUR"),
    (r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", "ID"),
    (r"\b[0-9a-f]{32}\b", "DIGEST"),
    (r"PT23H59M\d+S", "PT23H59MNS"),
    (r"\b127(\.\d+){3}\b", "ADDRESS"),
    (r"\b\d+ s\b", "N s"),
    (r'("batchtrain:(user|host)", "value": )"[^"]*"', r'\1"MINE"'),
)
"""What differs from one story to the next, and what stands for it."""
ADDS = re.compile(r"/(?:pools|jobs|tasks|addtaskcollection|jobschedules)$")
"""The paths of requests whose bodies have golden files of their own, in tests/golden/plans."""
WORDS = re.compile(r"\b(?:exit \d+|wait|leaves|print [^'\"]*)")
"""What a node does, anywhere in a command line; otherwise it does nothing."""


class Machine(FakeMachine):
    """Nodes on which `wait` ends once the test says so, and `leaves` leaves a result."""

    async def run(self, node_id: str, run: Run) -> Exit:
        words = WORDS.search(run.command_line)
        ended = await super().run(node_id, run._replace(command_line=words[0] if words else "exit 0"))
        if words and words[0] == "leaves":
            (self.data_dir / "nodes" / node_id / run.directory / "wd/model.pt").write_bytes(b"model")
        return ended


class Site:
    """The account, its client, and the story of what its commands send, tell and return."""

    def __init__(self, inside: Inside, root: Path, golden: Path) -> None:
        self.inside, self.root, self._golden = inside, root, golden
        self._story, self._reads = list[str](), set[str]()
        self.steps = dict[str, Callable[[], object]]()
        """Actions by the kind of an event, or by a request such as `GET /jobs/j`: each is done once, at the next."""

    def write(self, text: str) -> None:
        """Add a line, after what was read since the last one: how often, and by which thread, does not matter."""
        self._story += [f"? {read}" for read in sorted(self._reads)]
        self._reads.clear()
        self._story.append(text)

    def step(self, title: str, call: Callable[..., object], *arguments: Any, **options: Any) -> Any:
        """A command of the story. Returns what it returns; None if it fails, which is part of the story."""
        self.write(f"\n## {title}")
        try:
            outcome = call(*arguments, **options)
        except (BatchtrainError, KeyboardInterrupt) as error:
            self.write(f"! {type(error).__name__}: {error}")
            return None
        self.write(f"= {outcome}" if outcome is not None else "=")
        return outcome

    def run(self, title: str, recipe: Recipe, **options: Any) -> None:
        """`run` as a command of the story."""

        def run() -> object:
            return told(commands.run(self.client, recipe, tell=self.tell, origin=self.origin, **options))

        self.step(title, run)

    @property
    def origin(self) -> Origin:
        return Origin(self.root / "runs")

    def assert_as_written(self) -> None:
        """The story is that of the file. BATCHTRAIN_UPDATE_GOLDEN=1 writes it anew."""
        text = self.masked("\n".join(self._story)).strip() + "\n"
        if os.environ.get("BATCHTRAIN_UPDATE_GOLDEN"):
            self._golden.write_text(text, encoding="utf-8")
        golden = self._golden.read_text(encoding="utf-8")
        assert text == golden, "\n".join(difflib.unified_diff(golden.splitlines(), text.splitlines(), lineterm=""))

    def masked(self, text: str) -> str:
        """A text without what differs from one story to the next."""
        text = text.replace(f"{self.root}/", "")
        for pattern, mask in MASKS:
            text = re.sub(pattern, mask, text)
        return text

    @property
    def driver(self) -> Any:
        return self.inside._application.driver

    @cached_property
    def client(self) -> Client:
        client = Client(Account(ENDPOINT, ACCOUNT, Secret(KEY)))
        client.pace = Pace(0.0, 0.0)
        return client

    def tell(self, event: Event) -> None:
        if event.text:
            self.write(event.text)
        if step := self.steps.pop(event.kind, None):
            step()

    def sent(self, request: Any) -> None:
        """Note a request, and let all that it starts happen."""
        url = urlsplit(request.url)
        path, query = url.path, parse_qs(url.query)
        if request.method in ("GET", "HEAD"):
            most = [f"at most {number}" for number in query.get("maxresults", ())]
            self._reads.add(" where ".join((" ".join((path, *most)), *query.get("$filter", ()))))
        else:
            body = "" if ADDS.search(path) or not request.content else f" {text_of(request.content)}"
            self.write(f"> {request.method} {path}{body}")
        self.settle()
        if step := self.steps.pop(f"{request.method} {path}", None):
            step()

    def settle(self) -> None:
        driver = self.driver

        def is_quiet() -> bool:
            idle = len(driver.machine._waiting) + driver.alarms.waiting
            return not driver._settling and len(driver._running) <= idle

        self.inside.run(driver.quiet(60, is_quiet))

    def finish(self, code: int = 0) -> None:
        """The commands that wait end."""

        async def finish() -> None:
            for end in self.driver.machine._waiting.values():
                end.set_result(Exit(code))
            self.driver.machine._waiting.clear()

        self.inside.run(finish())
        self.settle()


class Noted(Transport):
    """The way into the application, which notes each request."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.inside)
        self._site = site

    def send(self, request: Any, **options: Any) -> Any:
        response = super().send(request, **options)
        self._site.sent(request)
        return response


def text_of(body: Any) -> str:
    return body if isinstance(body, str) else bytes(body).decode()


def told(outcome: commands.Outcome) -> str:
    """What a run came to."""
    ends = ", ".join(f"{task.id} {task.result}" for task in outcome.tasks)
    return "; ".join((ends, *(f"{type(error).__name__}: {error}" for error in outcome[1:3] if error)))


@contextmanager
def opened(root: Path, golden: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty account. golden: the file of the story."""
    monkeypatch.setattr("tests.contract.ways.FakeMachine", Machine)
    with Inside(root / "data") as inside:
        site = Site(inside, root, golden)
        monkeypatch.setattr(signing, "_transport", lambda _: Noted(site))
        yield site
