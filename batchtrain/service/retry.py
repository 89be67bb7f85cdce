"""How every request is sent: its transport, which faults are transient, how long to pause, when to give up."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.core.pipeline import PipelineRequest, PipelineResponse
from azure.core.pipeline.policies import HTTPPolicy
from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_random_exponential

from batchtrain.service.answer_body import SILENT_SECONDS, http_date, receive

Value = TypeVar("Value")
Tell = Callable[[str], None]
Response = PipelineResponse[Any, Any]

INTERRUPT: ContextVar[threading.Event | None] = ContextVar("INTERRUPT", default=None)
"""In a thread, which gets no Ctrl-C: the event that interrupts its next pause, once."""


def _pause(seconds: float) -> None:
    interrupt = INTERRUPT.get()
    if interrupt is None:
        time.sleep(seconds)
    elif interrupt.wait(seconds):
        interrupt.clear()
        raise KeyboardInterrupt


def transport(**settings: Any) -> Any:
    """The SDK's transport. It loads `requests` (5 MB of memory), which only a connection needs."""
    from azure.core.pipeline.transport import RequestsTransport

    return RequestsTransport(**settings)


class Clock(NamedTuple):
    """The policy's clock; tests pass their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = _pause


CLOCK = Clock()


def interruptible(stopped: threading.Event) -> Clock:
    """A clock whose sleep raises InterruptedError as soon as the event is set."""

    def sleep(seconds: float) -> None:
        if stopped.wait(seconds):
            raise InterruptedError("stopped")

    return Clock(sleep=sleep)


class Patience(NamedTuple):
    """The time limits of one call in seconds. Pauses are random (full jitter): up to `first`, then up to twice as long
    each time."""

    first: float
    most: float
    """The longest pause, unless Retry-After asks for a longer one."""
    budget: float
    """The time limit of a call."""
    refused: float
    """The time limit of a client that never had a connection: its endpoint may be wrong."""
    connect: float
    read: float
    """The limits of one attempt: for connecting, and without receiving a byte."""

    def limit(self, met: bool, outcome: object) -> float:
        """The time limit of a call after an outcome. met: whether a connection ever succeeded."""
        if met:
            return self.budget
        unknown = isinstance(outcome, BaseException) and any(isinstance(c, socket.gaierror) for c in causes(outcome))
        return min(self.refused, UNRESOLVED) if unknown else self.refused


UNRESOLVED = 8.0
"""The seconds for a host that never answered and whose name does not resolve: the name is probably misspelt. It leaves
a machine that just woke up the time to reach its network."""
FAR = Patience(first=1.0, most=20.0, budget=120.0, refused=120.0, connect=10.0, read=SILENT_SECONDS)
NEAR = Patience(first=0.02, most=1.0, budget=60.0, refused=2.0, connect=2.0, read=10.0)
"""For loopback: if no program listens there, waiting does not help."""
NOT_NOW = Patience(first=0.2, most=10.0, budget=120.0, refused=0.0, connect=0.0, read=0.0)
"""How long a request is repeated after the service answered that it cannot do it now."""
RESTART_SECONDS = 15.0
"""How long a service that has ended may take to start again at the same address."""
LEAST = 0.5
"""Seconds for the last attempt of a call."""
QUIET, EVERY = 5.0, 60.0
"""Seconds of an outage until it is reported, and between two reports."""


# --- what is transient ----------------------------------------------------------------------------------------------


def transient_status(status: int) -> bool:
    """Whether an HTTP status is transient; 501 and 505 are not."""
    return status in (408, 429) or (status >= 500 and status not in (501, 505))


def transient(error: BaseException) -> bool:
    """Whether a request that raised this may succeed later: no connection, a reset, a timeout, a truncated answer."""
    return unanswered(error) and not any(type(cause).__name__ in _LASTING for cause in causes(error))


def unanswered(error: BaseException) -> bool:
    """Whether the request that raised this, or its sign-in, got no complete answer."""
    if isinstance(error, ClientAuthenticationError):
        return any(unanswered(cause) for cause in causes(error) if not isinstance(cause, ClientAuthenticationError))
    if isinstance(error, HttpResponseError):
        return not error.status_code  # the answer was cut off
    return isinstance(error, (ServiceRequestError, ServiceResponseError))


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes, each once."""
    waiting, ids = [error], set()
    while waiting:
        current = waiting.pop(0)
        if id(current) in ids:
            continue
        ids.add(id(current))
        yield current
        inner = (getattr(current, "inner_exception", None), getattr(current, "reason", None), *current.args)
        waiting += [
            cause for cause in (*inner, current.__cause__, current.__context__) if isinstance(cause, BaseException)
        ]


def reason(error: BaseException) -> str:
    """Why there was no answer, in a few words; the libraries' own messages are nested three deep."""
    chain = list(causes(error))
    names = {_DATES.get(getattr(cause, "verify_code", 0), type(cause).__name__) for cause in chain}
    for name, words in _REASONS.items():
        if name in names:
            return words
    strerror = next((str(cause.strerror) for cause in chain if isinstance(cause, OSError) and cause.strerror), "")
    return strerror.lower() or (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def host_of(error: BaseException) -> str:
    """The host to which no connection was possible, if the libraries name it."""
    connections = (getattr(cause, "conn", None) for cause in causes(error))
    return next((str(connection.host) for connection in connections if connection is not None), "")


def proxy_of(url: str) -> str:
    """The proxy of the environment for a URL; empty without one, and for this machine."""
    parts = urlsplit(url)
    near = loopback(parts.hostname or "") or urllib.request.proxy_bypass(parts.hostname or "")
    proxies = {} if near else urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all", "")


def proxy_name(proxy: str) -> str:
    """A proxy without its user and password."""
    scheme, separator, address = proxy.rpartition("://")
    return f"{scheme}{separator}{address.rpartition('@')[2]}"


def loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_LASTING = ("SSLCertVerificationError", "InvalidURL", "InvalidProxyURL", "InvalidSchema", "LocationParseError")
"""Errors of a certificate, and of an invalid proxy."""
_DATES = {9: "NotYetValid", 10: "Expired"}
"""OpenSSL's codes of a certificate whose dates do not include the present."""
_REASONS = {
    "NotYetValid": "its certificate is not valid yet by this machine's clock",
    "Expired": "its certificate has expired by this machine's clock",
    "IncompleteReadError": "the answer was truncated",
    "IncompleteRead": "the answer was truncated",
    "gaierror": "its name does not resolve",
    "SSLCertVerificationError": "its certificate is not trusted",
    "RemoteDisconnected": "the connection was closed without an answer",
    "ConnectTimeoutError": "no connection in time",
    "ConnectTimeout": "no connection in time",
    "ReadTimeoutError": "no answer in time",
    "ReadTimeout": "no answer in time",
}


# --- what a caller adds ---------------------------------------------------------------------------------------------


class Attempts:
    """The attempts of one call. Pass it to the SDK as `attempts=` to know whether an earlier attempt may have
    arrived."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.unsure = False

    def note(self, outcome: Response | BaseException) -> None:
        """An attempt is repeated. It certainly had no effect if the connection failed, or if the service throttled
        it."""
        if isinstance(outcome, PipelineResponse):
            self.unsure |= outcome.http_response.status_code != 429
        else:
            self.unsure |= not isinstance(outcome, (ServiceRequestError, ClientAuthenticationError))


class _Wait(NamedTuple):
    end: float | None
    """The time until which transient faults are retried, instead of the call's own limit."""
    tell: Tell
    last: bool = False
    """Whether an attempt ends at this time too."""


_ALONE = _Wait(None, lambda _: None)
_WAIT: ContextVar[_Wait] = ContextVar("wait", default=_ALONE)


@contextlib.contextmanager
def until(end: float, tell: Tell | None = None, *, last: bool = False) -> Iterator[None]:
    """Retry the transient faults of every call in the block until `end` (of the policy's clock); `tell` receives
    outages. last: an attempt without an answer ends then too, and so do waits inside the block."""
    outer = _WAIT.get()
    if outer.last and outer.end is not None:
        end, last = min(end, outer.end), True
    token = _WAIT.set(_Wait(end, tell or outer.tell, last))
    try:
        yield
    finally:
        _WAIT.reset(token)


def listen(tell: Tell) -> Callable[[], None]:
    """Report outages to `tell` from now on, for calls outside `until`; returns what ends that."""
    token = _WAIT.set(_WAIT.get()._replace(tell=tell))
    return lambda: _WAIT.reset(token)


# --- the policy -----------------------------------------------------------------------------------------------------


class Answers:
    """When the service answered last, for a display of a process that has one account."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last: float | None = None

    def note(self) -> None:
        """An answer came."""
        self._last = self._now()

    @property
    def age(self) -> float | None:
        """The seconds since the last answer; None before the first."""
        return None if self._last is None else self._now() - self._last


ANSWERS = Answers()


class Count:
    """The answers of the service inside an `answer_count` block."""

    answers = 0


_COUNT: ContextVar[Count | None] = ContextVar("_COUNT", default=None)


@contextlib.contextmanager
def answer_count() -> Iterator[Count]:
    """Count the answers to the requests of this block."""
    count = Count()
    token = _COUNT.set(count)
    try:
        yield count
    finally:
        _COUNT.reset(token)


def exchanged(following: HTTPPolicy[Any, Any], request: PipelineRequest[Any]) -> Response:
    """The answer to one attempt. Its body is read within the limits, unless the caller reads it as a stream."""
    options = request.context.options
    streamed = request.context.setdefault("streamed", bool(options.get("stream")))
    options["stream"] = True  # the SDK's decoder, which knows no limits, ignores streams
    response = following.send(request)
    receive(response.http_response, streamed=streamed)
    return response


class Once(HTTPPolicy[Any, Any]):
    """Sends requests once, in place of the RetryPolicy."""

    def send(self, request: PipelineRequest[Any]) -> Response:
        return exchanged(self.next, request)


class RetryPolicy(HTTPPolicy[Any, Any]):
    """Repeats requests inside an SDK pipeline before they are signed, because each attempt needs its own date."""

    def __init__(self, patience: Patience, clock: Clock = CLOCK, lost: Callable[[], str] = str) -> None:
        """lost: why the service will not answer again; empty while it may."""
        super().__init__()
        self.patience, self.clock, self.lost = patience, clock, lost
        self.outage = Outage(clock)
        self.met = False
        """Whether a connection ever succeeded."""

    def send(self, request: PipelineRequest[Any]) -> Response:
        """The first answer that is not transient, or the result of the last attempt."""
        return _Call(self, request).outcome()

    def attempt(self, request: PipelineRequest[Any]) -> Response:
        """One attempt."""
        began = self.clock.now()
        try:
            response = exchanged(self.next, request)
        except AzureError as error:
            self.met |= not isinstance(error, (ServiceRequestError, ClientAuthenticationError))
            vars(error).update(met=self.met, url=request.http_request.url)  # for the message
            if self.is_transient(error):
                self.outage.begin(began)
                vars(error).update(lost=self.lost())
            raise
        self.met = True
        ANSWERS.note()
        if (count := _COUNT.get()) is not None:
            count.answers += 1
        if self.is_transient(response):
            self.outage.begin(began)
        else:
            self.outage.end(_WAIT.get().tell)
        return response

    def is_transient(self, outcome: Response | BaseException) -> bool:
        """Whether the next attempt may succeed. After the first answer, that includes a failed sign-in."""
        if isinstance(outcome, PipelineResponse):
            return transient_status(outcome.http_response.status_code)
        failed_sign_in = isinstance(outcome, ClientAuthenticationError) and outcome.response is None
        return transient(outcome) or (failed_sign_in and self.met)


class _Call:
    def __init__(self, policy: RetryPolicy, request: PipelineRequest[Any]) -> None:
        self._policy, self._request, self._wait = policy, request, _WAIT.get()
        self._patience, self._clock = policy.patience, policy.clock
        self._attempts: Attempts = request.context.options.pop("attempts", None) or Attempts()
        body = request.http_request.body
        self._position = body.tell() if hasattr(body, "seek") and hasattr(body, "tell") else None
        """The start of a body that is read while it is sent."""
        self._began = self._clock.now()

    def outcome(self) -> Response:
        retrying = Retrying(
            retry=lambda state: self._policy.is_transient(_outcome(state)),
            wait=self._pause,
            stop=self._over,
            before_sleep=self._note,
            sleep=self._clock.sleep,
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        return retrying(self._attempt)

    def _attempt(self) -> Response:
        http, options = self._request.http_request, self._request.context.options
        http.headers.pop("ocp-date", None)  # the SDK signs an old date again
        if self._position is not None:
            http.body.seek(self._position)
        seconds = self._began + self._patience.budget - self._clock.now()
        if self._wait.end is not None:
            seconds = self._wait.end - self._clock.now() if self._wait.last else self._patience.read
        seconds = max(seconds, LEAST)
        options["connection_timeout"] = min(self._patience.connect, seconds)
        options["read_timeout"] = min(self._patience.read, seconds)
        return self._policy.attempt(self._request)

    def _left(self, state: RetryCallState) -> float:
        """The seconds until the end of the call."""
        end = self._began + self._patience.limit(self._policy.met, _outcome(state))
        if self._wait.end is not None:
            end = self._wait.end if self._policy.met else min(end, self._wait.end)
        if getattr(_outcome(state), "lost", "") and self._policy.outage.since is not None:
            end = min(end, self._policy.outage.since + RESTART_SECONDS)
        return end - self._clock.now()

    def _pause(self, state: RetryCallState) -> float:
        jitter = wait_random_exponential(self._patience.first, self._patience.most)(state)
        retry_after = _retry_after(_outcome(state))
        if retry_after is not None:
            return max(retry_after, jitter)
        return min(jitter, max(self._left(state) - LEAST, 0.0))

    def _over(self, state: RetryCallState) -> bool:
        seconds = self._left(state)
        return seconds <= LEAST * 1.1 or state.upcoming_sleep > seconds - LEAST / 2

    def _note(self, state: RetryCallState) -> None:
        outcome = _outcome(state)
        self._attempts.note(outcome)
        if isinstance(outcome, PipelineResponse):
            response = outcome.http_response
            why = f"it answers {response.status_code} {response.reason or ''}".rstrip()
        else:
            why = reason(outcome)
        self._policy.outage.report(why, state.upcoming_sleep, self._wait.tell)


class Outage:
    """The start of an outage, and its last report."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.since: float | None = None
        """When the first attempt without an answer began; None while the service answers."""
        self._reported: float | None = None

    def begin(self, when: float) -> None:
        """An attempt that started at this time had no answer."""
        self.since = when if self.since is None else self.since

    def report(self, why: str, pause: float, tell: Tell) -> None:
        """Report the outage: after a while, then every minute."""
        now = self._clock.now()
        if self.since is None or now - self.since < QUIET:
            return
        if self._reported is not None and now - self._reported < EVERY:
            return
        self._reported = now
        outage = now - self.since
        since = datetime.fromtimestamp(time.time() - outage).strftime("%H:%M:%S")
        later = f", next attempt in {span(pause)}" if pause > EVERY else ""
        tell(f"the service cannot be reached since {since} ({span(outage)}): {why}; trying again{later}")

    def end(self, tell: Tell) -> None:
        """There was an answer."""
        if self._reported is not None and self.since is not None:
            tell(f"the service answers again, after {span(self._clock.now() - self.since)}")
        self.since = self._reported = None


def span(seconds: float) -> str:
    """A duration as text: 35 s, 4 min, 2 h 5 min."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def repeated(
    work: Callable[[], Value],
    again: Callable[[Value | BaseException], bool],
    patience: Patience,
    clock: Clock = CLOCK,
    met: bool = True,
) -> Value:
    """The result or error of `work`, repeated as long as `again` asks for another attempt within the time limit. met:
    whether a connection ever succeeded."""
    began = clock.now()
    retrying = Retrying(
        retry=lambda state: again(_outcome(state)),
        wait=wait_random_exponential(patience.first, patience.most),
        stop=lambda state: clock.now() + state.upcoming_sleep - began > patience.limit(met, _outcome(state)),
        sleep=clock.sleep,
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    return retrying(work)


def answered(work: Callable[[], Value], met: bool, clock: Clock = CLOCK) -> Value:
    """The result of a request that another library sends without retries, repeated after transient faults. met: as for
    `repeated`."""

    def again(outcome: Value | BaseException) -> bool:
        return isinstance(outcome, BaseException) and (
            transient(outcome) or transient_status(getattr(outcome, "status_code", None) or 0)
        )

    return repeated(work, again, FAR, clock, met)


def _outcome(state: RetryCallState) -> Any:
    """The result of an attempt, or the error that it raised."""
    assert state.outcome is not None
    return state.outcome.exception() or state.outcome.result()


def _retry_after(outcome: Any) -> float | None:
    """The seconds of a Retry-After: a number or a date; None if there is none or it is invalid."""
    header = outcome.http_response.headers.get("Retry-After") if isinstance(outcome, PipelineResponse) else None
    if not header:
        return None
    if header.isdecimal() and len(header) < 10:
        return float(header)
    date = http_date(header)
    return max((date - datetime.now(timezone.utc)).total_seconds(), 0.0) if date else None
