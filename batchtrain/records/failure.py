"""Why something of the service failed."""

from __future__ import annotations

import msgspec

EXIT_CODE = "FailureExitCode"
"""The service's code for a task whose exit code was not 0."""
TASK_ENDED = "TaskEnded"
"""The service's code for a task that was terminated: by a user, with its job, or at its limit of run time."""


CORE_QUOTAS = (
    "AccountCoreQuotaReached", "AccountVMSeriesCoreQuotaReached", "AccountLowPriorityCoreQuotaReached",
    "AccountSpotCoreQuotaReached",
)  # fmt: skip
"""The service's codes for a resize that the quotas of cores of the account do not allow, whichever pools use them."""


class Detail(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A named text of an error."""

    name: str = ""
    value: str = ""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The service's reason. It is false if nothing failed; as text it is `code: message`."""

    code: str = ""
    """The service's code, such as `BlobAccessDenied`."""
    message: str = ""
    details: tuple[Detail, ...] = ()
    values: tuple[Detail, ...] = ()
    """The details of an error of a resize."""

    def __bool__(self) -> bool:
        return bool(self.code or self.message)

    @property
    def is_core_quota(self) -> bool:
        """Whether the quota of cores that the pools of the account share was reached."""
        return self.code in CORE_QUOTAS

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.code, self.message)))

    @property
    def detailed(self) -> str:
        """The same with the details."""
        texts = (detail.value for detail in self.details or self.values)
        return "; ".join((str(self), *(text for text in texts if text and text not in (self.message, self.code))))
