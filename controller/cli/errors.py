"""Errors between the command line and the service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cbp.errors import CbpError, OperatingError

__all__ = [
    "ChecksFailedError",
    "FileUnreadableError",
    "FileWaitsError",
    "FilesRefusedError",
    "PortTakenError",
    "ServiceProblemError",
    "ServiceUnreachableError",
    "SoakGrewError",
    "StagesStoppedError",
    "TokenMissingError",
]


class ServiceUnreachableError(OperatingError):
    """Nothing answers at the service's address."""

    code = "service_unreachable"

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"the service does not answer at {url} ({why}); start it with: cbp serve",
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
            f"there is no token: {file} is made when the service first starts; "
            "start it with: cbp serve, or set CBP_ROOT or CBP_TOKEN_FILE to where it is",
            token_file=str(file),
        )


class PortTakenError(OperatingError):
    """Another process listens on the service's port."""

    code = "port_taken"
    retryable = False

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(
            f"port {port} on {host} cannot be used ({why}); stop what uses it, "
            "or choose another one: cbp serve --port N, or CBP_PORT=N",
            host=host,
            port=port,
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
            f"another file waits at {path}, with other content. Files are told apart by name: "
            "start the service, which takes in that file, or drop this one under another name",
            path=str(path),
        )


class ChecksFailedError(OperatingError):
    """A check of `cbp doctor` failed."""

    code = "checks_failed"
    retryable = False

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"{len(names)} check(s) failed: {', '.join(names)}", checks=names)


class DamagesFoundError(OperatingError):
    """`cbp scrub` found files that differ from what was written."""

    code = "damages_found"
    retryable = False

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} damage(s) found; `cbp help damage` says what each means and what mends it",
            damages=count,
        )


class SoakGrewError(OperatingError):
    """During `cbp soak` something grew with the number of runs; nothing may."""

    code = "soak_grew"
    retryable = False

    def __init__(
        self, runs: int, grown: Mapping[str, float], growth_max: float, disk_per_run_max: float
    ) -> None:
        told = ", ".join(f"{words} by {growth:.2f}" for words, growth in grown.items())
        super().__init__(
            f"from the middle to the end of {runs} runs grew: {told}; --growth-max allows "
            f"{growth_max}, --disk-per-run-max {disk_per_run_max:.0f} bytes and no files",
            runs=runs,
            grown=dict(grown),
            growth_max=growth_max,
            disk_per_run_max=disk_per_run_max,
        )


class FilesRefusedError(OperatingError):
    """Dropped files went to quarantine."""

    code = "files_refused"
    retryable = False

    def __init__(self, dataflow: str, files: Mapping[str, str]) -> None:
        told = "; ".join(
            why if why.startswith(f"{name}, ") else f"{name}: {why}" for name, why in files.items()
        )
        super().__init__(
            f"{len(files)} file(s) are in quarantine ({told}); see: "
            f"cbp claims {dataflow} --status quarantined",
            dataflow=dataflow,
            files=dict(files),
        )


class StagesStoppedError(OperatingError):
    """Dropped files are not applied: the stages that should apply them do not start."""

    code = "stages_stopped"
    retryable = False

    def __init__(self, dataflow: str, stages: Mapping[str, str]) -> None:
        told = "; ".join(f"{name}: {why}" for name, why in stages.items())
        super().__init__(
            f"{dataflow!r} does not apply what it has: {told}",
            dataflow=dataflow,
            stages=dict(stages),
        )
