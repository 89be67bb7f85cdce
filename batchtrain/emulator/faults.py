"""The refusals of the service: a fault has a status, a code, a text and details."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from batchtrain.catalog.meaning import INVALID, Refusal

Code = tuple[int, str]

FAULTS: Mapping[str, Code] = {
    "MissingRequiredProperty": (400, "A required property was not specified in the request body."),
    "MissingRequiredQueryParameter": (400, "A required query parameter was not specified for this request."),
    "InvalidPropertyValue": (400, "The value provided for one of the properties in the request body is invalid."),
    "InvalidQueryParameterValue": (400,
        "Value for one of the query parameters specified in the request URI is invalid."),
    "UnsupportedQueryParameter": (400, "One of the query parameters specified in the request URI is not supported."),
    "MissingRequiredHeader": (400, "A required HTTP header was not specified."),
    "InvalidHeaderValue": (400, "The value provided for one of the HTTP headers was not in the correct format."),
    "InvalidRequestBody": (400, "The specified Request Body is not syntactically valid."),
    "InvalidUri": (400, "The requested URI does not represent any resource on the server."),
    "InvalidAutoScalingSettings": (400, "The auto scaling settings specified on the pool are invalid."),
    "AutoScalingFormulaSyntaxError": (400, "The specified auto scaling formula has a syntax error."),
    "UnsupportedProperty": (400, "One of the properties specified in the request body is not supported."),
    "TaskDependencyListTooLong": (400, "The task's list of dependencies is too long."),
    "TaskDependencyRangesTooLong": (400, "The task's list of dependency ranges is too long."),
    "AuthenticationFailed": (403,
        "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly"
        " including the signature."),
    "AuthorizationFailure": (403, "This request is not authorized to perform this operation."),
    "PoolNotFound": (404, "The specified pool does not exist."),
    "NodeNotFound": (404, "The specified node does not exist."),
    "NodeUserNotFound": (404, "The specified node user does not exist."),
    "NodeExtensionNotFound": (404, "The specified node extension does not exist."),
    "ApplicationNotFound": (404, "The specified application does not exist."),
    "JobNotFound": (404, "The specified job does not exist."),
    "JobScheduleNotFound": (404, "The specified job schedule does not exist."),
    "TaskNotFound": (404, "The specified task does not exist."),
    "FileNotFound": (404, "The specified file does not exist."),
    "ResourceNotFound": (404, "The specified resource does not exist."),
    "UnsupportedHttpVerb": (405, "The resource doesn't support the specified HTTP verb."),
    "PoolExists": (409, "The specified pool already exists."),
    "PoolBeingDeleted": (409, "The specified pool is being deleted."),
    "PoolBeingResized": (409, "The specified pool is being resized."),
    "PoolQuotaReached": (409, "The specified account has reached the pool quota limit."),
    "OperationNotValidOnPool": (409, "The specified operation is not valid on the specified pool."),
    "InvalidApplicationPackageReferences": (409, "One or more application package references could not be satisfied."),
    "ActiveJobAndScheduleQuotaReached": (409,
        "The specified account has reached the active jobs and job schedules quota limit."),
    "JobExists": (409, "The specified job already exists."),
    "JobBeingDeleted": (409, "The specified job is being deleted."),
    "JobBeingTerminated": (409, "The specified job is being terminated."),
    "JobCompleted": (409, "The specified job is already in a completed state."),
    "JobDisabled": (409, "The specified job is disabled."),
    "JobPreparationTaskOrReleaseTaskNotSpecified": (409,
        "The specified job does not have either job preparation task or job release task."),
    "JobWithSameIdExists": (409, "The job schedule cannot be created because a job with the same id already exists."),
    "JobScheduleExists": (409, "The specified job schedule already exists."),
    "JobScheduleWithSameIdExists": (409,
        "The job cannot be created because a job schedule with the same id already exists."),
    "JobScheduleBeingDeleted": (409, "The specified job schedule is being deleted."),
    "JobScheduleBeingTerminated": (409, "The specified job schedule is being terminated."),
    "JobScheduleCompleted": (409, "The specified job schedule is already in a completed state."),
    "TaskExists": (409, "The specified task already exists."),
    "TaskCompleted": (409, "The specified task is already in a completed state."),
    "TaskNotCompleted": (409, "The specified task is not in a completed state."),
    "TaskSucceeded": (409, "The specified task has already completed successfully."),
    "TaskIdSameAsJobPreparationTask": (409, "The task id is the same as that of the job preparation task."),
    "TaskIdSameAsJobReleaseTask": (409, "The task id is the same as that of the job release task."),
    "TaskFilesCleanedup": (409, "The task files were cleaned up: the retention time of the task is over."),
    "TaskFilesUnavailable": (409,
        "The task files are unavailable because the node where the task ran is unavailable or the task has not run."),
    "NodeBeingCreated": (409, "The specified node is being created."),
    "NodeBeingStarted": (409, "The specified node is being started."),
    "NodeBeingRebooted": (409, "The specified node is being rebooted."),
    "NodeBeingReimaged": (409, "The specified node is being reimaged."),
    "NodeUserExists": (409, "The specified node user already exists."),
    "NodeStateUnusable": (409, "The specified node is unusable."),
    "NodeAlreadyInTargetSchedulingState": (409, "The specified node is already in the target scheduling state."),
    "OperationInvalidForCurrentState": (409,
        "The specified operation is not valid for the current state of the resource."),
    "OperationNotValidOnNode": (409, "The specified operation is not valid on the current node."),
    "ConditionNotMet": (412, "The condition specified using HTTP conditional header(s) is not met."),
    "RequestEntityTooLarge": (413, "The request entity is too large."),
    "RequestBodyTooLarge": (413, "The request body is too large and exceeds the maximum permissible limit."),
    "InvalidRange": (416, "The range specified is invalid for the current size of the resource."),
    "InternalError": (500, "Server encountered an internal error. Please try again after some time."),
    "OperationTimedOut": (500, "The operation could not be completed within the permitted time."),
    "TooManyRequests": (429, "Request failed as server encountered too many requests. Please try again."),
    "TooManyEnableAutoScaleRequests": (503, "Auto scaling was enabled on the pool less than 30 seconds ago."),
    "ServerBusy": (503, "The server is currently unable to receive requests. Please retry your request."),
    "NotImplementedByEmulator": (501, "The emulator does not implement this operation."),
}  # fmt: skip
"""Code -> status, and the service's own text (the last line has the emulator's own)."""


class Fault(Exception):
    """A refusal; `details` become the body's `values`."""

    def __init__(self, code: str, /, text: str = "", **details: str) -> None:
        self.code = code
        self.status, standard = FAULTS[code]
        self.text = text or standard
        self.details = details
        self.retry_after: float | None = None
        """Seconds for the answer's Retry-After."""
        self.property_path = ""
        """The full path of a refused property, for people; the service names only the property itself."""
        self.date: int | None = None
        """The Date of the answer in ticks, unless it is the machine's time."""
        super().__init__(f"{code}: {self.text}")


class NeedsToken(Fault):
    """401: the token is missing, invalid or expired. The answer names the sign-in address."""

    def __init__(self, detail: str) -> None:
        super().__init__("AuthenticationFailed", AuthenticationErrorDetail=detail)
        self.status = 401


class NotModified(Exception):
    """A conditional GET that is answered with 304."""


def invalid_property(name: str, value: object, reason: str) -> Fault:
    """400 for one property, named without its parents, as in recorded answers of azure-sdk-for-node."""
    leaf = name.rpartition("/")[2].partition("[")[0]
    fault = Fault("InvalidPropertyValue", PropertyName=leaf, PropertyValue=str(value), Reason=reason)
    fault.property_path = name
    return fault


def invalid_parameter(name: str, value: str, **details: str) -> Fault:
    """400 for one parameter of the query."""
    return Fault("InvalidQueryParameterValue", QueryParameterName=name, QueryParameterValue=value, **details)


def check(refusals: Iterable[Refusal]) -> None:
    """Raise a fault for the first refusal."""
    for refusal in refusals:
        if refusal.code != INVALID:
            raise Fault(refusal.code, PropertyName=refusal.path, Reason=refusal.reason)
        raise invalid_property(refusal.path, refusal.value, refusal.reason)


def not_implemented(what: str) -> Fault:
    """501 that names the unsupported feature; ignoring it would look like success."""
    return Fault("NotImplementedByEmulator", text=f"The emulator does not implement {what}.", Operation=what)
