"""How a command ends: what it says is left, what it deletes, and what signals and errors do to its ending."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from batchtrain.client import ending
from batchtrain.client.ending import Ending
from batchtrain.client.interrupts import HURRY_SECONDS, TOGETHER_SECONDS, Interrupts
from batchtrain.config.types import Secret
from batchtrain.errors import (
    Differs,
    NotAllowed,
    NotFound,
    QuotaReached,
    ResultsLeft,
    ServiceError,
    Terminated,
    TimedOut,
    Unreachable,
)
from batchtrain.life.endings import cause_of
from batchtrain.life.intents import Intent
from batchtrain.plan.marks import Marks
from batchtrain.records.events import Event
from batchtrain.service import read, register
from batchtrain.service.connect import Account
from batchtrain.service.register import KINDS, Kind, State, Thing
from tests.submitting import RUN
from tests.unit.plan.jobs import recipe
from tests.unit.service import test_retry
from tests.waiting import GUARD

POOL, JOB, SCHEDULE = Thing("pool", "p"), Thing("job", "j"), Thing("job schedule", "s")
LOCAL = Account("http://127.0.0.1:1", "x", Secret("a2V5"), emulated=True)
AZURE = Account("https://a.b.c", "a", Secret("a2V5"))
OTHER = Thing("job", "k")


class Register(register.Register):
    """Looks at a set of existing things in place of metadata."""

    def __init__(self, client: Client) -> None:
        super().__init__(Marks(RUN))
        self.client = client

    def is_ours(self, client: Any, thing: Thing) -> bool:
        if thing in self.client.unreachable:
            raise Unreachable("the answer was lost")
        if thing not in self.client.things:
            raise NotFound(f"{thing.name} is gone")
        return self.client.things[thing] == RUN


class Client:
    """An account with things, each of a run; notes the requests in order."""

    def __init__(self, *things: Thing, account: Account = LOCAL) -> None:
        self.account, self.batch, self.pace = account, self, None
        self.things: dict[Thing, str] = dict.fromkeys(things, RUN)
        self.unreachable: set[Thing] = set()
        self.asked: list[str] = []
        self.steps: dict[str, list[Callable[[], None]]] = {}
        """What else happens at a request, once each, by its text."""

    def ask(self, text: str) -> None:
        self.asked.append(text)
        if steps := self.steps.get(text):
            steps.pop(0)()


@pytest.fixture(autouse=True)
def _used_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """`deletion` and `pool_users` have their own tests."""
    monkeypatch.setattr(ending.deletion, "request", lambda client, thing, *_: client.ask(f"delete {thing.id}") or "")
    monkeypatch.setattr(ending.deletion, "gone", lambda client, thing, *_: client.ask(f"gone {thing.id}"))


class Seconds:
    """A clock that only tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def raising(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    """After the end of the work of a command."""
    with Interrupts(Seconds()) as entered:
        entered.hold()
        yield entered


class Command:
    """A command that comes to its end, and what it has said."""

    def __init__(
        self, client: Client, interrupts: Interrupts, *, keep: tuple[Kind, ...] = (), things: Any = None
    ) -> None:
        """things: the registered things with their states; by default the existing ones as ours."""
        self.said: list[Event] = []
        registered = Register(client)
        for thing, state in (dict.fromkeys(client.things, "ours") if things is None else things).items():
            registered.note(thing, state)
        self.client: Any = client
        self.ending = Ending(self.client, registered, self.said.append, interrupts, Intent("x", keep))

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.said]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.said]


# --- what is said ---------------------------------------------------------------------------------------------------


def lines(command: Command, error: BaseException | None, *, submitted: bool = False) -> list[str]:
    """What is said to be left after an error."""
    command.ending.submitted = submitted
    command.ending.end(error)
    return [line.strip() for text in command.texts for line in text.splitlines()]


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (TimedOut("long"), True),
        (Unreachable("no answer"), True),
        (ZeroDivisionError(), True),
        (KeyboardInterrupt(), False),
        (QuotaReached("no cores"), False),
        (Differs("of another plan"), False),
        (ServiceError("refused"), False),
        (None, False),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("state", ["pending", "ours", "existing"])
def test_a_registered_pool_is_named_in_every_state_with_a_wait_if_the_error_is_not_of_the_work(
    state: State, error: BaseException | None, waits: bool, interrupts: Interrupts
) -> None:
    assert cause_of(error).waits is waits
    command = Command(Client(POOL), interrupts, keep=KINDS, things={POOL: state})
    wait = ["wait: batchtrain pool wait p --local"] if waits else []
    assert lines(command, error) == ["left as it is: pool p", *wait, "delete: batchtrain pool del p --local"]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), Unreachable("x")], ids=lambda value: type(value).__name__)
def test_nothing_is_said_if_nothing_is_registered(error: BaseException | None, interrupts: Interrupts) -> None:
    assert lines(Command(Client(), interrupts, things={}), error) == []


@pytest.mark.parametrize(("account", "cost"), [(AZURE, "; an hour of pool p"), (LOCAL, "")])
def test_what_is_left_has_its_cost_where_it_costs(account: Account, cost: str, interrupts: Interrupts) -> None:
    command = Command(Client(POOL, account=account), interrupts, keep=KINDS)
    command.ending.planned = "an hour of pool p"
    assert lines(command, None)[0] == f"left as it is: pool p{cost}"


def test_every_job_and_schedule_is_named_before_the_pool(interrupts: Interrupts) -> None:
    command = Command(Client(), interrupts, keep=KINDS, things={POOL: "existing", SCHEDULE: "ours", JOB: "ours"})
    assert lines(command, ServiceError("refused")) == [
        "left as they are: job j, job schedule s, pool p",
        "delete: batchtrain jobs del j --local",
        "delete: batchtrain jobs del s --local",
        "delete: batchtrain pool del p --local",
    ]


def test_of_a_whole_submission_the_jobs_that_have_not_ended_have_a_wait_and_all_have_files(
    interrupts: Interrupts,
) -> None:
    command = Command(Client(), interrupts, keep=KINDS, things={POOL: "ours", JOB: "ours", OTHER: "ours"})
    command.ending.ended = {"j"}
    assert lines(command, TimedOut("long"), submitted=True)[1:4] == [
        "wait: batchtrain jobs wait k --local",
        "fetch files: batchtrain jobs fetch j --local",
        "fetch files: batchtrain jobs fetch k --local",
    ]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    lengths: list[float] = []
    monkeypatch.setattr("time.sleep", lengths.append)
    return lengths


@pytest.mark.parametrize(
    ("run", "left"), [(RUN, True), ("another", False), (None, False)], ids=["ours", "of another run", "not there"]
)
def test_a_pending_thing_is_decided_before_it_is_named(
    run: str | None, left: bool, interrupts: Interrupts, pauses: list[float]
) -> None:
    client = Client()
    if run is not None:
        client.things[POOL] = run
    command = Command(client, interrupts, keep=KINDS, things={POOL: "pending"})
    assert (lines(command, KeyboardInterrupt()) != []) is left


def test_a_thing_that_nobody_answers_about_is_named(interrupts: Interrupts) -> None:
    client = Client()
    client.unreachable.add(POOL)
    command = Command(client, interrupts, things={POOL: "pending"})
    assert lines(command, Unreachable("x"))[0] == "left as it is: pool p"


def test_a_signal_ends_the_look_at_a_pending_thing_which_is_deleted_nevertheless(
    interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, looks = Command(Client(POOL), interrupts, things={POOL: "pending"}), [interrupt]
    monkeypatch.setattr(Register, "is_ours", lambda *_: (looks.pop()() if looks else None) or True)
    command.ending.end()
    assert (command.client.asked, interrupts.further) == (["delete p"], 1)


# --- what is deleted ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_deleted", [True, False])
def test_files_that_the_service_deletes_with_the_pool_of_their_job_are_no_error(
    is_deleted: bool, interrupts: Interrupts
) -> None:
    command = Command(Client(JOB), interrupts, keep=KINDS)
    error = ResultsLeft("x")
    files: Any = SimpleNamespace(job_id="j", has_fetched=True, unsaved=(), missing=error, exceeds_limit=False)
    command.ending.recordings, command.ending.submitted, command.ending.ended = {"j": files}, True, {"j"}
    command.ending.recipe = recipe({"auto_pool": {}, "auto_complete": is_deleted})
    command.ending.end()
    assert command.ending.problem(successful=True) is (None if is_deleted else error)
    assert ("fetch files" in command.texts[-1]) != is_deleted


def test_every_deletion_is_requested_before_the_first_wait_and_the_pool_is_last(interrupts: Interrupts) -> None:
    command = Command(Client(POOL, JOB, OTHER), interrupts)
    command.ending.end()
    assert command.client.asked == ["delete j", "delete k", "delete p", "gone j", "gone k", "gone p"]
    assert (command.texts, command.ending.register.things()) == (["deleted job j, job k, pool p"], ())
    assert command.ending.failure(successful=True) is None


@pytest.mark.parametrize(
    ("keep", "deleted"), [((), ["delete j", "delete p"]), (("pool",), ["delete j"]), (("job", "pool"), [])]
)
def test_a_kind_that_is_kept_is_not_deleted(keep: tuple[Kind, ...], deleted: list[str], interrupts: Interrupts) -> None:
    command = Command(Client(POOL, JOB), interrupts, keep=keep)
    command.ending.end()
    assert [text for text in command.client.asked if text.startswith("delete")] == deleted
    assert {thing.kind for thing in command.ending.register.things()} == set(keep)


@pytest.mark.parametrize(
    ("state", "run", "deleted"),
    [
        ("ours", RUN, True), ("pending", RUN, True), ("existing", RUN, False), ("ours", "another", False),
        ("pending", "another", False),
    ],
)  # fmt: skip
def test_only_what_carries_this_run_and_did_not_exist_before_is_deleted(
    state: State, run: str, deleted: bool, interrupts: Interrupts
) -> None:
    client = Client(POOL)
    client.things[POOL] = run
    command = Command(client, interrupts, things={POOL: state})
    command.ending.end()
    assert (client.asked != []) is deleted


def test_what_is_gone_already_is_no_leftover_and_what_another_run_added_in_its_place_is_said_to_be_left(
    interrupts: Interrupts,
) -> None:
    client = Client(POOL, JOB)
    client.things[POOL] = "another"
    command = Command(client, interrupts, things={POOL: "ours", JOB: "ours", OTHER: "ours"})
    command.ending.end()
    assert command.client.asked == ["delete j", "gone j"]
    assert command.texts == ["left as it is: pool p, which this command did not add", "deleted job j"]
    assert command.ending.failure(successful=True) is None


ERRORS = [ServiceError("no"), Unreachable("no answer"), NotAllowed("not yours"), TimedOut("long"), ZeroDivisionError()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("request_", ["delete j", "gone j"])
def test_an_error_of_a_deletion_prevents_no_other_deletion(
    request_: str, error: Exception, interrupts: Interrupts
) -> None:
    client = Client(POOL, JOB)
    client.steps[request_] = [raising(error)]
    command = Command(client, interrupts)
    command.ending.end()
    assert {"delete p", "gone p"} <= set(client.asked)
    assert command.kinds == ["leftover", "deleted"]
    assert command.texts[0].endswith("; delete it: batchtrain jobs del j --local")
    failure = command.ending.failure(successful=True)
    assert type(failure) is type(error)


def test_a_thing_that_nobody_answers_about_is_a_leftover(interrupts: Interrupts) -> None:
    client = Client(POOL, JOB)
    client.unreachable.add(POOL)
    command = Command(client, interrupts)
    command.ending.end()
    assert command.texts == [
        "pool p was not deleted (the answer was lost); delete it: batchtrain pool del p --local",
        "deleted job j",
    ]


@pytest.mark.parametrize(
    ("account", "successful", "text"),
    [
        (LOCAL, True, "the tasks ended well, but job j and pool p could not be deleted; delete by: "),
        (AZURE, True, "the tasks ended well, but job j and pool p could not be deleted, and nodes cost money; "),
        (AZURE, False, "job j and pool p could not be deleted, and nodes cost money; delete by: "),
    ],
)
def test_a_leftover_is_an_error_of_the_command(
    account: Account, successful: bool, text: str, interrupts: Interrupts
) -> None:
    client = Client(POOL, JOB, account=account)
    client.steps = {"delete j": [raising(ServiceError("no"))], "delete p": [raising(Unreachable("no"))]}
    command = Command(client, interrupts)
    command.ending.end()
    failure = command.ending.failure(successful=successful)
    assert isinstance(failure, Unreachable)
    assert str(failure).startswith(text)
    assert str(failure).endswith(f"batchtrain jobs del j{account.option}; batchtrain pool del p{account.option}")


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("I/O operation on closed file")])
def test_a_terminal_that_is_gone_ends_no_ending(error: Exception, interrupts: Interrupts) -> None:
    client: Any = Client(POOL, JOB)
    client.steps["delete j"] = [raising(ServiceError("no"))]
    registered = Register(client)
    for thing in (POOL, JOB):
        registered.note(thing, "ours")
    ending = Ending(client, registered, lambda _: raising(error)(), interrupts, Intent("x"))
    ending.end(KeyboardInterrupt())
    assert client.asked == ["delete j", "delete p", "gone p"]


# --- signals --------------------------------------------------------------------------------------------------------


def test_the_first_signal_ends_the_work_with_one_together_and_a_later_one_is_counted() -> None:
    now = 100.0
    with Interrupts(lambda: now) as interrupts:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert interrupts.further == 0
        interrupt()
        assert interrupts.further == 0
        now += TOGETHER_SECONDS
        interrupt()
        assert interrupts.further == 1


def test_only_ctrl_c_skips_what_is_left_to_do(interrupts: Interrupts, on_terminate: Callable[[Any], None]) -> None:
    on_terminate(lambda *_: None)
    with Interrupts() as inner, inner.cut_short():
        inner.hold()
        signal.raise_signal(signal.SIGTERM)
    assert inner.further == 0


def test_a_terminated_command_does_not_wait_for_an_answer(
    interrupts: Interrupts, on_terminate: Callable[[Any], None]
) -> None:
    on_terminate(lambda *_: None)
    with Interrupts() as inner:
        inner.hold()
        with pytest.raises(KeyboardInterrupt), inner.answering():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # the ending is not ended by it
        assert inner.further == 0


def test_ctrl_c_at_a_question_is_an_answer_and_is_not_counted() -> None:
    now = 100.0
    with Interrupts(lambda: now) as interrupts:
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        now += TOGETHER_SECONDS
        with pytest.raises(KeyboardInterrupt), interrupts.answering():
            interrupt()
        assert interrupts.further == 0
        interrupt()
        assert interrupts.further == 1


def test_the_work_ends_with_what_the_handler_of_a_signal_raises(on_terminate: Callable[[Any], None]) -> None:
    def terminated(*_: object) -> None:
        raise Terminated

    on_terminate(terminated)
    with Interrupts(), pytest.raises(Terminated):
        signal.raise_signal(signal.SIGTERM)


def test_after_the_work_signals_are_counted_and_end_only_the_step_in_which_they_come(interrupts: Interrupts) -> None:
    interrupt()
    with interrupts.cut_short():
        pass
    interrupt()
    assert interrupts.further == 2
    with pytest.raises(KeyboardInterrupt), interrupts.cut_short():
        interrupt()
    assert interrupts.further == 3


def test_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.fixture
def on_terminate() -> Iterator[Callable[[Any], None]]:
    """Sets the handler of SIGTERM for one test."""
    before = signal.getsignal(signal.SIGTERM)
    yield lambda handler: signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGTERM, before)


def test_the_handler_of_before_is_called_too(on_terminate: Callable[[Any], None]) -> None:
    received: list[int] = []

    def handle(number: int, _: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    on_terminate(handle)
    with Interrupts() as interrupts:
        interrupts.hold()
        signal.raise_signal(signal.SIGTERM)
        assert (received, interrupts.further) == ([signal.SIGTERM], 0)


def test_a_signal_that_is_ignored_stays_ignored(on_terminate: Callable[[Any], None]) -> None:
    on_terminate(signal.SIG_IGN)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGTERM)
        assert (signal.getsignal(signal.SIGTERM), interrupts.further) == (signal.SIG_IGN, 0)


def test_a_thread_has_no_handlers_and_an_interrupt_of_it_is_counted() -> None:
    counts: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def end() -> None:
        with Interrupts() as interrupts:
            interrupts.hold()
            assert signal.getsignal(signal.SIGINT) == before
            with pytest.raises(KeyboardInterrupt), interrupts.cut_short():
                raise KeyboardInterrupt
            counts.append(interrupts.further)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join(GUARD)
    assert counts == [1]


def test_in_a_hurry_all_requests_end_at_one_time() -> None:
    service = test_retry.Service((200, test_retry.EMPTY), (503, test_retry.EMPTY))
    read.pools(service.client)
    with Interrupts(service.time.now) as interrupts:
        interrupts.hold()
        interrupt()
        began = service.time.now()
        for _ in range(2):
            with pytest.raises(Unreachable), interrupts.cut_short():
                read.pools(service.client)
        assert service.time.now() - began <= HURRY_SECONDS
    assert all(read <= HURRY_SECONDS for _, read in service.transport.timeouts[1:])


def test_without_a_further_signal_a_request_has_its_usual_time() -> None:
    service = test_retry.Service((200, test_retry.EMPTY), (503, test_retry.EMPTY))
    read.pools(service.client)
    with Interrupts(service.time.now) as interrupts, pytest.raises(Unreachable), interrupts.cut_short():
        read.pools(service.client)
    assert service.time.now() > HURRY_SECONDS


def test_a_third_signal_does_not_prolong_the_hurry() -> None:
    time = test_retry.Time()
    with Interrupts(time.now) as interrupts:
        interrupts.note()
        time.sleep(HURRY_SECONDS)
        interrupts.note()
        with pytest.raises(Unreachable), interrupts.cut_short():
            service = test_retry.Service((200, test_retry.EMPTY), (503, test_retry.EMPTY))
            service.time.seconds = time.seconds
            for _ in range(2):
                read.pools(service.client)
        assert service.time.seconds == HURRY_SECONDS


# --- signals while things are deleted -------------------------------------------------------------------------------


def test_a_signal_while_a_job_is_deleted_deletes_the_pool_first_and_then_the_job(interrupts: Interrupts) -> None:
    client = Client(POOL, JOB)
    client.steps["delete j"] = [interrupt]
    command = Command(client, interrupts)
    command.ending.end()
    assert client.asked == ["delete j", "delete p", "delete j"]
    assert sorted(command.texts) == ["job j is being deleted", "pool p is being deleted"]
    assert command.ending.failure(successful=False) is None


def test_a_signal_before_the_deletion_deletes_the_pool_first_and_waits_for_nothing(interrupts: Interrupts) -> None:
    interrupt()
    command = Command(Client(POOL, JOB, OTHER), interrupts)
    command.ending.end()
    assert command.client.asked == ["delete p", "delete k", "delete j"]
    assert set(command.kinds) == {"deleted"}


def test_a_second_signal_stops_the_deletion_and_names_what_is_left(interrupts: Interrupts) -> None:
    client = Client(POOL, JOB)
    client.steps = {"delete j": [interrupt], "delete p": [interrupt]}
    command = Command(client, interrupts)
    command.ending.end()
    assert client.asked == ["delete j", "delete p"]
    assert sorted(command.texts) == [
        "job j was not deleted (interrupted); delete it: batchtrain jobs del j --local",
        "pool p was not deleted (interrupted); delete it: batchtrain pool del p --local",
    ]
    assert isinstance(command.ending.failure(successful=False), KeyboardInterrupt)


def test_after_two_signals_nothing_is_requested(interrupts: Interrupts) -> None:
    interrupt()
    interrupt()
    command = Command(Client(POOL, JOB), interrupts)
    command.ending.end()
    assert (command.client.asked, set(command.kinds)) == ([], {"leftover"})


def test_a_signal_while_a_deletion_is_waited_for_ends_the_waits(interrupts: Interrupts) -> None:
    client = Client(POOL, JOB)
    client.steps["gone j"] = [interrupt]
    command = Command(client, interrupts)
    command.ending.end()
    assert client.asked == ["delete j", "delete p", "gone j"]
    assert command.texts == ["job j is being deleted", "pool p is being deleted"]
    assert command.ending.failure(successful=True) is None


def test_after_two_signals_no_step_is_tried(interrupts: Interrupts) -> None:
    command, tried = Command(Client(), interrupts), list[int]()
    for number in range(3):
        error = command.ending.error_of(lambda number=number: tried.append(number))  # type: ignore[misc]
        assert isinstance(error, KeyboardInterrupt) is (number == 2)
        interrupt()
    assert tried == [0, 1]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ZeroDivisionError(), ServiceError("no")], ids=lambda e: type(e).__name__
)
def test_the_error_of_a_step_is_returned(error: BaseException, interrupts: Interrupts) -> None:
    assert Command(Client(), interrupts).ending.error_of(raising(error)) is error


def test_a_signal_that_comes_while_an_addition_ends_does_not_cut_its_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[tuple[BaseException | None, int]]()

    def end(self: Ending, error: BaseException | None = None) -> None:
        interrupt()
        ended.append((error, self._interrupts.further))

    monkeypatch.setattr(Ending, "end", end)
    monkeypatch.setattr(ending.Interrupts, "__init__", functools.partialmethod(Interrupts.__init__, Seconds()))
    client: Any = Client()
    with pytest.raises(Unreachable) as raised, ending.registered(client, Register(client), print, Intent("x")):
        raise Unreachable("no answer")
    assert ended == [(raised.value, 1)]


@pytest.mark.parametrize(
    ("on_nodes", "text"),
    [
        (True, "results are still on the nodes, so nothing was deleted: job j: no space; `batchtrain"),
        (False, "results are in storage and not on this machine, so their job was kept: job j: no space"),
    ],
)
def test_results_that_are_not_here_are_said_to_be_where_they_are(
    on_nodes: bool, text: str, interrupts: Interrupts
) -> None:
    command = Command(Client(JOB, POOL), interrupts)
    recording: Any = SimpleNamespace(has_fetched=True, is_on_nodes_alone=on_nodes, unsaved=("no space",))
    command.ending.recordings, command.ending.submitted, command.ending.ended = {"j": recording}, True, {"j"}
    assert str(command.ending.results_left).startswith(text)
