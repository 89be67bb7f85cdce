"""The service's faults as ours, matched by code; the only place that knows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from azure.core import exceptions as azure

from batchtrain.errors import AlreadyExists, NotAllowed, NotFound, QuotaReached, ServiceError, Unreachable

CODES: dict[str, type[ServiceError]] = {
    **dict.fromkeys(
        ("PoolNotFound", "NodeNotFound", "JobNotFound", "TaskNotFound", "FileNotFound", "JobScheduleNotFound"),
        NotFound,
    ),
    **dict.fromkeys(("PoolExists", "JobExists", "TaskExists", "JobScheduleExists"), AlreadyExists),
    **dict.fromkeys(("AuthenticationFailed", "InsufficientAccountPermissions"), NotAllowed),
    **dict.fromkeys(
        (
            "PoolQuotaReached",
            "ActiveJobAndScheduleQuotaReached",
            "AccountCoreQuotaReached",
            "AccountLowPriorityCoreQuotaReached",
            "AccountVMSeriesCoreQuotaReached",
        ),
        QuotaReached,
    ),
}
STATUSES: dict[int, type[ServiceError]] = {401: NotAllowed, 403: NotAllowed, 404: NotFound}

NEXT_STEPS = {
    "AuthenticationFailed": "check the account's name and key (AZURE_BATCH_ACCOUNT, AZURE_BATCH_ACCESS_KEY or"
    " credentials.yaml) and this machine's clock",
    "PoolExists": "delete it with `batchtrain pool del ID` or use another id",
    "JobExists": "delete it with `batchtrain jobs del ID` or use another id",
    "PoolBeingDeleted": "wait until it is gone; `batchtrain pool list` shows it",
    "JobBeingDeleted": "wait until it is gone; `batchtrain jobs list` shows it",
    "PoolNotFound": "`batchtrain pool list` shows the pools there are",
    "JobNotFound": "`batchtrain jobs list` shows the jobs there are",
}


@contextmanager
def faults(operation: str) -> Iterator[None]:
    """Turn what the SDK raises inside into ServiceErrors that name the operation."""
    try:
        yield
    except azure.ClientAuthenticationError as error:
        raise (
            _refused(operation, error)
            if error.response
            else NotAllowed(f"{operation}: signing in failed: {_first_line(error)}", operation=operation)
        ) from error
    except azure.HttpResponseError as error:
        raise _refused(operation, error) from error
    except (azure.ServiceRequestError, azure.ServiceResponseError) as error:
        raise Unreachable(
            f"{operation}: the service does not answer: {_first_line(error)}", operation=operation
        ) from error


def code_of(error: azure.HttpResponseError) -> str:
    """The service's own error code, or the HTTP status as text."""
    code = getattr(getattr(error, "error", None), "code", None)
    return str(code or error.status_code or "")


def failure(operation: str, code: str, message: str, request_id: str = "") -> ServiceError:
    """The error for a fault code."""
    step = NEXT_STEPS.get(code)
    text = f"{operation}: {message} ({code})" + (f"; {step}" if step else "")
    return CODES.get(code, ServiceError)(text, operation=operation, code=code, request_id=request_id)


def _refused(operation: str, error: azure.HttpResponseError) -> ServiceError:
    code = code_of(error)
    kind = CODES.get(code) or STATUSES.get(error.status_code or 0, ServiceError)
    step = NEXT_STEPS.get(code)
    message = _message(error)
    text = f"{operation}: {message} ({code})" + (f"; {step}" if step else "")
    return kind(text, operation=operation, code=code, request_id=_request_id(error))


def _message(error: azure.HttpResponseError) -> str:
    """The service's sentence with the property it is about; without request id and time, which have their own place."""
    said = getattr(getattr(getattr(error, "error", None), "message", None), "value", None)
    first = str(said).split("\nRequestId", 1)[0].strip().rstrip(".") if said else _first_line(error)
    details = [f"{item.key} {item.value}" for item in _values(error) if item.key in ("PropertyName", "Reason")]
    return first + (f" [{', '.join(details)}]" if details else "")


def _values(error: Any) -> list[Any]:
    return list(getattr(getattr(error, "error", None), "error_values", None) or [])


def _request_id(error: azure.HttpResponseError) -> str:
    headers = getattr(error.response, "headers", None) or {}
    return str(headers.get("request-id", ""))


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
