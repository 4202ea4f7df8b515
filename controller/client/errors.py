"""Errors between a client and the service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cbp.errors import CbpError, OperatingError

__all__ = [
    "FileUnreadableError",
    "FileWaitsError",
    "ServiceProblemError",
    "ServiceUnreachableError",
    "TokenMissingError",
]


class ServiceUnreachableError(OperatingError):
    """Nothing answers at the service's address."""

    code = "service_unreachable"

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"the service does not answer at {url} ({why}); start it with: cbp serve, or name the "
            "port of the one that runs: CBP_PORT=...",
            url=url,
            cause=why,
        )


class ServiceProblemError(CbpError):
    """The service refused a request; carries the service's problem document."""

    code = "service_problem"

    def __init__(self, document: Mapping[str, Any], status: int) -> None:
        message = document.get("message") or document.get("detail") or f"HTTP status {status}"
        super().__init__(str(message), **document.get("details", {}))
        self.error_code = str(document.get("error_code", self.code))

    def as_dict(self) -> dict[str, Any]:
        """Return the error document as the service made it."""
        return {**super().as_dict(), "error_code": self.error_code}


class TokenMissingError(OperatingError):
    """There is no token to send."""

    code = "token_missing"
    retryable = False

    def __init__(self, file: Path) -> None:
        super().__init__(
            f"no token: {file} does not exist. The service creates it when it first starts "
            "(cbp serve); if the token is elsewhere, set CBP_ROOT or CBP_TOKEN_FILE",
            token_file=str(file),
        )


class FileUnreadableError(OperatingError):
    """A file that a command names cannot be read."""

    code = "file_unreadable"
    retryable = False

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path} cannot be read: {why}", path=str(path), cause=why)


class FileWaitsError(OperatingError):
    """A file of the same name with other content waits in the drop folder."""

    code = "file_waits"
    retryable = True

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} already exists with other content. Start the service, which takes that "
            "file in, or drop this one under another name",
            path=str(path),
        )
