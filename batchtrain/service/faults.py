"""The service's faults as errors of batchtrain, matched by code; no other module of this folder knows the codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
from azure.core import exceptions as azure

from batchtrain.errors import AlreadyExists, NotAllowed, NotFound, QuotaReached, ServiceError, Unreachable
from batchtrain.records.failure import CORE_QUOTAS
from batchtrain.service import answer_body, retry
from batchtrain.service.answer_body import InvalidAnswer
from batchtrain.service.clock_difference import KEY_LIMIT, STEP, TOKEN_LIMIT, ahead, difference

CODES: dict[str, type[ServiceError]] = {
    "PoolNotFound": NotFound, "NodeNotFound": NotFound, "JobNotFound": NotFound, "TaskNotFound": NotFound,
    "FileNotFound": NotFound, "JobScheduleNotFound": NotFound,
    "PoolExists": AlreadyExists, "JobExists": AlreadyExists, "TaskExists": AlreadyExists,
    "JobScheduleExists": AlreadyExists,
    "AuthenticationFailed": NotAllowed, "InsufficientAccountPermissions": NotAllowed,
    "AuthorizationFailure": NotAllowed, "AuthorizationFailed": NotAllowed,
    "PoolQuotaReached": QuotaReached, "ActiveJobAndScheduleQuotaReached": QuotaReached,
    **dict.fromkeys(CORE_QUOTAS, QuotaReached),
}  # fmt: skip
NEVER = frozenset({
    "IncompatibleVMSize", "SkuNotAvailable", "OverconstrainedAllocationRequestError",
    "OverconstrainedAllocationRequest", "OverconstrainedZonalAllocationRequest",
})  # fmt: skip
"""Resize errors, beside quotas, that no waiting mends: the account has no nodes of this size, or of this kind."""
LATER = frozenset({"AllocationFailed", "AllocationTimedout", "AllocationTimedOut", "ZonalAllocationFailed"})
"""Resize errors that waiting may mend: the region has no nodes now."""
STATUSES: dict[int, type[ServiceError]] = {401: NotAllowed, 403: NotAllowed, 404: NotFound}

SIGN_IN_AGAIN = (
    "sign in again (`az login`, or what credentials.yaml says under `aad`), to the account's own directory (tenant)"
)
A_ROLE = (
    "the signed-in identity needs a role on the account that allows it, such as Contributor or Azure Batch Data"
    " Contributor"
)
NEXT_STEPS = {
    "AuthenticationFailed": "check the account's name and key (AZURE_BATCH_ACCOUNT, AZURE_BATCH_ACCESS_KEY or"
    " credentials.yaml)",
    "AuthorizationFailure": A_ROLE,
    "AuthorizationFailed": "the signed-in identity needs the role Reader there, and Contributor to change anything",
    "InvalidAuthenticationTokenTenant": SIGN_IN_AGAIN,
    "PoolExists": "delete it with `batchtrain pool del ID`, run on it with `batchtrain run --reuse`, or use another id",
    "JobExists": "delete it with `batchtrain jobs del ID`, replace it with `batchtrain run --reuse` once it has"
    " completed, or use another id",
    "JobScheduleExists": "`batchtrain jobs add --recreate` replaces it, and `batchtrain jobs del ID` deletes it",
    "PoolBeingDeleted": "wait until it is gone; `batchtrain pool list` shows it",
    "JobBeingDeleted": "wait until it is gone; `batchtrain jobs list` shows it",
    "PoolNotFound": "`batchtrain pool list` shows the pools there are",
    "JobNotFound": "`batchtrain jobs list` shows the jobs there are",
    "TaskNotFound": "`batchtrain jobs tasks JOB` lists the tasks of the job",
}

NO_CONNECTION = "NoConnection"
"""The code of an Unreachable if Batch never accepted a connection, so the request had no effect."""
INVALID_ANSWER = "InvalidAnswer"
"""The code of an Unreachable if the answer is not the API's."""


class _Message(msgspec.Struct, frozen=True):
    value: str | None = None


class _Detail(msgspec.Struct, frozen=True):
    key: str | None = None
    value: str | None = None


class Fault(msgspec.Struct, frozen=True):
    """An error document: of Batch, whose message has a language, or of Azure Resource Manager, whose is in `error`."""

    code: str | None = None
    message: str | _Message | None = None
    values: tuple[_Detail, ...] | None = None
    error: Fault | None = None

    @property
    def text(self) -> str:
        return (self.message.value if isinstance(self.message, _Message) else self.message) or ""

    @property
    def details(self) -> dict[str, str]:
        return {detail.key or "": detail.value or "" for detail in self.values or ()}

    def reason(self, status_reason: str) -> str:
        """The service's message, or the reason of the HTTP status, with the property that caused it."""
        return sentence(self.text or status_reason, self.details.items())


def fault_of(body: bytes) -> Fault:
    """The error document in a body; an empty one if the body is none, such as a page of a proxy."""
    try:
        fault = answer_body.decoded(body, Fault)
    except InvalidAnswer:
        return Fault()
    return fault.error or fault


@contextmanager
def faults(operation: str, host: str = "") -> Iterator[None]:
    """Turn errors of the SDK, and invalid answers, into ServiceErrors that name the operation. host: of a service other
    than Batch."""
    answer_body.SIGN_IN.set(None)
    try:
        yield
    except InvalidAnswer as error:
        raise invalid(operation, error) from error
    except azure.ClientAuthenticationError as error:
        name = f"{operation}: signing in" if getattr(error, "signing_in", False) else operation
        raise (_refused(name, error) if error.response else _not_signed_in(operation, error, host)) from error
    except azure.DecodeError as error:
        raise _no_answer(operation, error, host) from error
    except azure.HttpResponseError as error:
        raise (_judged(operation, error) if error.status_code else _no_answer(operation, error, host)) from error
    except (azure.ServiceRequestError, azure.ServiceResponseError) as error:
        raise _no_answer(operation, error, host) from error


def invalid(operation: str, error: InvalidAnswer, step: str = "") -> Unreachable:
    """The error of a request whose answer is not the API's. step: what to do about it."""
    quote = f"; it begins with `{error.quote}`" if error.quote else ""
    step = step or "check the URL, and whether a proxy or a sign-in page answers in its place"
    text = f"{operation}: an answer that is not the API's, from {error.url}: {error.why}{quote}; {step}"
    return Unreachable(text, operation=operation, code=INVALID_ANSWER)


def _no_answer(operation: str, error: azure.AzureError, host: str) -> Unreachable:
    """No answer, or an unreadable one. NO_CONNECTION refers to Batch only: another service may be unreachable after
    Batch has created something."""
    never = isinstance(error, azure.ServiceRequestError) and not getattr(error, "met", True)
    url = _url(error, host)
    what = "" if not never else "this machine's network" if host else "the endpoint, and this machine's network"
    code = NO_CONNECTION if never and not host else ""
    if lost := getattr(error, "lost", ""):
        return Unreachable(f"{operation}: {lost}", operation=operation, code=code)
    return unreachable(operation, host or urlsplit(url).netloc or "the service", url, error, what, code)


def _url(error: azure.AzureError, host: str) -> str:
    """The URL of a request, which the retry policy adds to its error."""
    return str(getattr(error, "url", "")) or f"https://{host}"


def unreachable(
    operation: str, host: str, url: str, error: BaseException, what: str = "", code: str = ""
) -> Unreachable:
    """The error of a request to a URL without an answer. what: what to check."""
    proxy = retry.proxy_of(url)
    through = f" through the proxy {retry.proxy_name(proxy)}" if proxy else ""
    suspects = ", ".join(filter(None, ("the proxy (HTTPS_PROXY, NO_PROXY)" if proxy else "", what)))
    step = f"; check {suspects}" if suspects else ""
    text = f"{operation}: {host} does not answer{through}: {retry.reason(error)}{step}"
    return Unreachable(text, operation=operation, code=code)


def _not_signed_in(operation: str, error: azure.ClientAuthenticationError, host: str) -> ServiceError:
    if answer := answer_body.SIGN_IN.get():
        return invalid(f"{operation}: signing in", answer, SIGN_IN_AGAIN)
    if retry.unanswered(error):
        login, what = retry.host_of(error) or "the sign-in service", "`aad`, and this machine's network"
        return unreachable(f"{operation}: signing in", login, _url(error, host), error, what)
    message = f"{operation}: signing in failed: {_first_line(error).rstrip('.')}; {SIGN_IN_AGAIN}"
    return NotAllowed(message, operation=operation)


def code_of(error: azure.HttpResponseError) -> str:
    """The service's error code, or the HTTP status as text."""
    return _fault_of(error).code or str(error.status_code or "")


def _fault_of(error: azure.HttpResponseError) -> Fault:
    response: Any = error.response
    return Fault() if response is None else fault_of(response.content)


def failure(
    operation: str, code: str, message: str, request_id: str = "", *, status: int = 0, date: str = ""
) -> ServiceError:
    """The error for a fault code, or for the HTTP status of an unknown code. date: of the answer."""
    busy = Unreachable if retry.transient_status(status) else ServiceError
    kind = CODES.get(code) or STATUSES.get(status, busy)
    name = operation.rpartition(" ")[2]  # of the object
    step = NEXT_STEPS.get(code, "").replace(" ID", f" {name}").replace(" JOB`", f" {name.partition('/')[0]}`")
    step = clock_step(code, status, date) or (SIGN_IN_AGAIN if status == 401 else step)
    text = f"{operation}: {message} ({code})" + (f"; {step}" if step else "")
    return kind(text, operation=operation, code=code, request_id=request_id)


def _judged(operation: str, error: azure.HttpResponseError) -> ServiceError:
    """An answer with a status that the SDK does not expect. A success with another status is not the API's."""
    response: Any = error.response
    if response is None or response.status_code >= 400:
        return _refused(operation, error)
    why = f"the status {response.status_code} is not among those of this request"
    return invalid(operation, InvalidAnswer(why, response.request.url, response.content))


def _refused(operation: str, error: azure.HttpResponseError) -> ServiceError:
    fault, headers = _fault_of(error), getattr(error.response, "headers", None) or {}
    refusal = failure(
        operation,
        code_of(error),
        fault.reason(error.reason or _first_line(error)),
        str(headers.get("request-id", "")),
        status=error.status_code or 0,
        date=str(headers.get("Date", "")),
    )
    refusal.property_name = fault.details.get("PropertyName", "")
    return refusal


def is_final(code: str) -> bool:
    """Whether a resize error is one that no waiting mends."""
    return code in NEVER or CODES.get(code) is QuotaReached


def lacks_nodes(error: ServiceError) -> bool:
    """Whether an error is that an account has no nodes for a pool, so that another size or account may have them. A
    service that cannot be reached says nothing about its nodes."""
    refused = error.code == "InvalidPropertyValue" and error.property_name == "vmSize"
    return refused or error.code in LATER or is_final(error.code)


def clock_step(code: str, status: int, date: str | None) -> str:
    """What to do if this machine's clock explains a refusal; otherwise empty. date: of the answer.

    Only a token is answered with 401: a wrong signature is 403 AuthenticationFailed.
    """
    limit = TOKEN_LIMIT if status == 401 else KEY_LIMIT if code == "AuthenticationFailed" else None
    seconds = ahead(date)
    if limit is None or seconds is None or abs(seconds) <= limit:
        return ""
    return f"{difference(seconds)}, which allows {retry.span(limit)}: {STEP}"


def sentence(text: str, details: Iterable[tuple[str, str]]) -> str:
    """A message of the service with the property that it concerns, without request id and time, which are shown
    elsewhere."""
    first = text.split("\nRequestId", 1)[0].strip().rstrip(".")
    telling = ", ".join(f"{key}: {value}" for key, value in details if key in _TELLING)
    return f"{first} [{telling}]" if telling else first


_TELLING = ("PropertyName", "PropertyValue", "Reason", "AuthenticationErrorDetail")


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
