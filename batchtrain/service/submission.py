"""Adds the tasks of a job as a stream: packs their documents into collections, sends them concurrently, and counts.

The documents are already JSON, so the models of the SDK are not used. The SDK's pipeline signs and retries each
request.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from typing import NamedTuple, cast

import msgspec
from azure.batch import BatchClient
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline import PipelineResponse
from azure.core.rest import HttpResponse

from batchtrain.errors import BatchtrainError, Refused
from batchtrain.plan.task_stream import COLLECTION_BYTES, COLLECTION_TASKS, TaskDocument
from batchtrain.service import retry
from batchtrain.service.answer_body import InvalidAnswer, decoded
from batchtrain.service.connect import CONNECTIONS
from batchtrain.service.faults import Fault, fault_of, faults
from batchtrain.service.requests import posted, quoted
from batchtrain.service.retry import Attempts, Response
from batchtrain.service.standing import marked

Collection = tuple[TaskDocument, ...]
NEARBY = 4
"""Most concurrent requests if the service answers at once: more would only compete for the processor."""
DISTANT = 0.02
"""If the fastest answer takes at least these seconds, the network limits the rate, so CONNECTIONS requests help."""
REPORT_SECONDS = 5.0
"""Seconds between two reports of progress."""
IN_FLIGHT_SECONDS = 5.0
"""Seconds that an interrupted submission waits for the answers to its last requests."""


class Progress(NamedTuple):
    """The number of tasks that the service has accepted, and the seconds since the start."""

    added_tasks: int
    seconds: float
    equal: int = 0
    """The number of tasks that existed before."""

    def text(self, total: int | None) -> str:
        """The progress as a sentence, with the rate and the remaining time."""
        if not self.added_tasks:
            return "sending tasks"
        rate = self.added_tasks / max(self.seconds, 1e-3)
        if total is None:
            return f"added {self.added_tasks:,} tasks, {rate:,.0f}/s"
        remaining = retry.span(max(total - self.equal - self.added_tasks, 0) / rate)
        return f"added {self.added_tasks:,} of {total - self.equal:,} tasks, {rate:,.0f}/s, {remaining} left"


class Submission:
    """Adds tasks to one job. Exhaust `add`, then read the counts."""

    def __init__(
        self,
        client: BatchClient,
        job_id: str,
        fastest: float | None = None,
        *,
        retries: int = 0,
        fail_fast: bool = False,
    ) -> None:
        """fastest: the seconds that an answer of the service took, if one is known. retries: the job's limit of
        retries. fail_fast: the first refused task stops the submission."""
        self._client, self._job_id, self._retries, self._fail_fast = client, job_id, retries, fail_fast
        self._operation = f"add tasks to {job_id}"
        self._path = f"/jobs/{quoted(job_id)}/addtaskcollection"
        self._belt, self._gate, self._lock = Belt(2 * NEARBY), Gate(CONNECTIONS), threading.Lock()
        self._threads: list[threading.Thread] = []
        self._fastest = fastest
        self._error: BaseException | None = None
        self.added = 0
        self.refused: list[Refused] = []
        self.existing: list[tuple[str, bytes]] = []
        """Tasks that already existed, with their marks. An earlier attempt with a lost answer added them, or another
        command."""

    def add(self, documents: Iterable[TaskDocument]) -> Iterator[Progress]:
        """Send the documents; yields the progress every few seconds. Raises the error that ended the submission, such
        as a lost connection or a deleted job. An error of the iterator is raised after the tasks before it were
        sent."""
        began, last_report = time.monotonic(), time.monotonic()
        try:
            for _ in self._steps(documents):
                if time.monotonic() - last_report >= REPORT_SECONDS:
                    last_report = time.monotonic()
                    yield Progress(self.added, last_report - began)
        except BaseException:  # wait briefly for the answers to requests that were sent
            self._belt.close(now=True)
            end = time.monotonic() + IN_FLIGHT_SECONDS
            for thread in self._threads:
                thread.join(max(end - time.monotonic(), 0.0))
            raise
        if self._error is not None:
            raise self._error

    def _steps(self, documents: Iterable[TaskDocument]) -> Iterator[None]:
        """Hand every collection to a sender, then wait for the senders. Yields at intervals."""
        try:
            for collection in packed(documents):
                self._add_sender()
                while not self._belt.put(collection, REPORT_SECONDS):
                    yield
                yield
        except Closed:
            pass
        except BatchtrainError as error:
            self._error = error
        self._belt.close()
        for thread in self._threads:
            while thread.is_alive():
                thread.join(REPORT_SECONDS)
                yield

    # --- the senders ------------------------------------------------------------------------------------------------

    def _add_sender(self) -> None:
        """Add a sender if the others are busy and the service is slow enough for it to help."""
        most = CONNECTIONS if self._fastest is not None and self._fastest >= DISTANT else NEARBY
        if len(self._threads) < most and (self._belt.waiting or not self._threads):
            thread = threading.Thread(target=copy_context().run, args=(self._work,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        try:
            while (collection := self._belt.take()) is not None:
                self._send(collection)
        except BaseException as error:  # noqa: BLE001 - the outermost handler of a thread; `add` raises it
            self._error = self._error or error
            self._belt.close(now=True)

    def _send(self, collection: Collection) -> None:
        """Send a collection until the service has decided about each of its tasks."""
        remaining = collection

        def send() -> Collection:
            nonlocal remaining
            remaining = self._sent(remaining)
            return remaining

        retry.repeated(send, lambda outcome: bool(outcome) and not isinstance(outcome, BaseException), retry.NOT_NOW)
        for task in remaining:
            self._refuse(Refused(task.id, "ServerError", "the service could not take it in time"))

    def _sent(self, collection: Collection) -> Collection:
        """Send a collection once; returns the tasks to send again."""
        response = self._post(collection)
        if response.status_code == 200:
            return self._settle(collection, self._results(collection, response))
        if len(collection) > 1:  # too large, or one of its tasks is malformed: halves find the task
            middle = len(collection) // 2
            return self._sent(collection[:middle]) + self._sent(collection[middle:])
        fault = fault_of(response.content)
        code = fault.code or str(response.status_code)
        self._refuse(Refused(collection[0].id, code, fault.reason(response.reason)))
        return ()

    def _post(self, collection: Collection) -> HttpResponse:
        """Send one request. Raises ServiceError if the answer is not about single tasks."""
        body = b'{"value":[' + b",".join([task.body for task in collection]) + b"]}"
        with self._gate, faults(self._operation):
            began = time.monotonic()
            try:
                response = posted(self._client, self._path, body, _Paced(self._gate))
            except HttpResponseError as error:  # the SDK raises it for every answer that is not a success
                if error.status_code not in (400, 413):
                    raise
                response = cast(HttpResponse, error.response)
            self._fastest = min(self._fastest or 60.0, time.monotonic() - began)
        return response

    def _results(self, collection: Collection, response: HttpResponse) -> list[_Result]:
        """The results of a collection, one for each of its tasks."""
        with faults(self._operation):
            url, body = response.request.url, response.content
            results = decoded(body, _Answer, url).value
            if sorted(result.task_id for result in results) != sorted(task.id for task in collection):
                raise InvalidAnswer("its results are not those of the tasks that were sent", url, body)
        return results

    def _settle(self, collection: Collection, results: list[_Result]) -> Collection:
        """Count the results of a collection; returns the tasks to send again."""
        remaining: list[TaskDocument] = []
        count = 0
        by_id: dict[str, TaskDocument] = {}
        for result in results:
            if result.status in ("Success", "success"):
                count += 1
                continue
            by_id = by_id or {task.id: task for task in collection}
            if result.status.lower() == "servererror":
                remaining.append(by_id[result.task_id])
            elif result.error.code == "TaskExists":
                self.existing.append((result.task_id, marked(by_id[result.task_id], self._retries)))
            else:
                self._refuse(Refused(result.task_id, result.error.code or result.status, result.error.reason("")))
        with self._lock:
            self.added += count
        return tuple(remaining)

    def _refuse(self, refusal: Refused) -> None:
        self.refused.append(refusal)
        if self._fail_fast:
            self._belt.close(now=True)


def packed(documents: Iterable[TaskDocument]) -> Iterator[Collection]:
    """Pack the documents into collections that the service accepts. Documents before an error of the iterator are
    packed first."""
    batch: list[TaskDocument] = []
    weight = 0
    try:
        for document in documents:
            size = len(document.body) + 1
            if batch and (len(batch) == COLLECTION_TASKS or weight + size > COLLECTION_BYTES):
                yield tuple(batch)
                batch, weight = [], 0
            batch.append(document)
            weight += size
    except BatchtrainError:
        if batch:
            yield tuple(batch)
        raise
    if batch:
        yield tuple(batch)


# --- the answer -----------------------------------------------------------------------------------------------------


class _Result(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str
    status: str
    error: Fault = Fault()


class _Answer(msgspec.Struct, frozen=True):
    value: list[_Result]


# --- between the threads --------------------------------------------------------------------------------------------


class Closed(Exception):
    """The belt is closed."""


class Belt:
    """A bounded queue that can be closed from both ends."""

    def __init__(self, size: int) -> None:
        self._size, self._closed = size, False
        self._items: deque[Collection] = deque()
        lock = threading.Lock()
        self._room, self._filled = threading.Condition(lock), threading.Condition(lock)

    @property
    def waiting(self) -> bool:
        """Whether a collection waits for a sender."""
        return bool(self._items)

    def put(self, item: Collection, timeout: float) -> bool:
        """Add a collection; returns False if there was no room in time. Raises Closed."""
        with self._room:
            room = self._room.wait_for(lambda: self._closed or len(self._items) < self._size, timeout)
            if self._closed:
                raise Closed
            if room:
                self._items.append(item)
                self._filled.notify()
            return room

    def take(self) -> Collection | None:
        """The next collection; None after the last."""
        with self._filled:
            self._filled.wait_for(lambda: self._closed or self._items)
            item = self._items.popleft() if self._items else None
            self._room.notify()
            return item

    def close(self, *, now: bool = False) -> None:
        """Close the belt. now: also drop the collections that wait."""
        with self._room:
            self._closed = True
            if now:
                self._items.clear()
            self._room.notify_all()
            self._filled.notify_all()


class Gate:
    """Limits the concurrent requests: halves the limit after a throttled answer, and raises it gradually after good
    ones."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._limit, self._active, self._clock = most, float(most), 0, clock
        self._throttled: float | None = None
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._active < self.limit)
            self._active += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._active -= 1
            self._limit = min(self._limit + 1 / self._limit, self._most)
            self._changed.notify()

    @property
    def limit(self) -> int:
        """The current limit of concurrent requests."""
        return max(int(self._limit), 1)

    def throttle(self) -> None:
        """Lower the limit: the service asks for fewer requests. Answers within a second of each other count once."""
        with self._changed:
            now = self._clock()
            if self._throttled is None or now - self._throttled >= 1.0:
                self._throttled, self._limit = now, max(self._limit / 2, 1.0)


class _Paced(Attempts):
    """The attempts of a request. A throttled attempt slows all senders down."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def note(self, outcome: Response | BaseException) -> None:
        super().note(outcome)
        if isinstance(outcome, PipelineResponse) and outcome.http_response.status_code in (429, 503):
            self._gate.throttle()
