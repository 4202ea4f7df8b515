"""Errors of the client: the service refuses, does not answer, or does not finish in time.

`_KINDS` has the HTTP statuses of refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cbp.errors import CbpError, OperatingError
from cbp.errors.masks import hide_secrets


class ServiceUnreachableError(OperatingError, code="service_unreachable"):
    """Nothing answers at the service's address."""

    def __init__(self, url: str, why: str) -> None:
        message = (
            f"the service does not answer at {url} ({why}). Start the service with `cbp serve`. "
            "If it runs on another port, set CBP_PORT"
        )
        super().__init__(message, url=url, cause=why)


class ServiceProblemError(CbpError, code="service_problem"):
    """The service refused a request; carries the service's problem document.

    `error_code` is the service's stable name for the error. The message says what is wrong and
    what to do, and `details` has names and figures, as JSON values.
    """

    def __init__(self, document: Mapping[str, Any], status: int) -> None:
        message = document.get("message") or document.get("detail") or f"HTTP status {status}"
        details = document.get("details")
        super().__init__(str(message))
        # A proxy's document can have a value of any type here.
        self.details = hide_secrets(details) if isinstance(details, Mapping) else {}
        self.error_code = str(document.get("error_code", self.code))
        self.status = status

    def as_dict(self) -> dict[str, Any]:
        """Return the error document as the service made it."""
        return {**super().as_dict(), "error_code": self.error_code}


class AccessRefusedError(ServiceProblemError):
    """There was no token, or its scope does not allow the request."""


class ResourceMissingError(ServiceProblemError):
    """There is no resource of this name, or it was removed."""


class ConflictRefusedError(ServiceProblemError):
    """The request conflicts with the current state."""


class RequestRefusedError(ServiceProblemError):
    """The request itself is wrong; repeating it changes nothing."""


class ServiceBusyError(ServiceProblemError, retryable=True):
    """The service cannot do this now; a request that is safe to repeat was repeated before."""


class ServiceFailedError(ServiceProblemError):
    """The service failed while it served the request."""


_KINDS = {
    401: AccessRefusedError,
    403: AccessRefusedError,
    404: ResourceMissingError,
    409: ConflictRefusedError,
    410: ResourceMissingError,
    412: ConflictRefusedError,
    429: ServiceBusyError,
    503: ServiceBusyError,
}


def problem_of(document: Mapping[str, Any], status: int) -> ServiceProblemError:
    """Return the error of a problem document."""
    kind = _KINDS.get(status, ServiceFailedError if status >= 500 else RequestRefusedError)
    return kind(document, status)


class TokenMissingError(OperatingError, code="token_missing", retryable=False):
    """There is no token to send."""

    def __init__(self, file: Path) -> None:
        message = (
            f"there is no token to send: {file} does not exist. The service creates this file "
            "when it first starts (`cbp serve`). If the token is in another file, set CBP_ROOT or "
            "CBP_TOKEN_FILE"
        )
        super().__init__(message, token_file=str(file))


class StagesStoppedError(OperatingError, code="stages_stopped", retryable=False):
    """Dropped files are not applied: the stages that should apply them do not start."""

    def __init__(self, dataflow: str, stages: Mapping[str, str]) -> None:
        reasons = "; ".join(f"{name} ({why})" for name, why in stages.items())
        message = (
            f"these stages of {dataflow!r} have queued input, but do not start: {reasons}. "
            f"`cbp status {dataflow}` shows the details"
        )
        super().__init__(message, dataflow=dataflow, stages=dict(stages))


class WaitEndedError(OperatingError, code="wait_ended"):
    """The awaited result did not arrive in time; the work continues."""

    def __init__(self, dataflow: str, seconds: float, left: Mapping[str, str]) -> None:
        work = "; ".join(f"{name} {what}" for name, what in left.items())
        message = (
            f"{dataflow!r} still has work to do after {seconds:g} s: {work}. The service "
            "continues this work; call wait() again to wait for its end"
        )
        super().__init__(message, dataflow=dataflow, seconds=seconds, left=dict(left))
