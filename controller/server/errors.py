"""Errors of the service as a process."""

from __future__ import annotations

from collections.abc import Sequence

from cbp.errors import OperatingError

__all__ = ["ServiceFailedError"]


class ServiceFailedError(OperatingError):
    """A service that a command started did not come up, or ended."""

    code = "demo_service_failed"

    def __init__(self, what: str, *, log: str, last_lines: Sequence[str]) -> None:
        shown = "\n".join(last_lines) or "(the log is empty)"
        super().__init__(
            f"the service {what}; the end of {log}:\n{shown}",
            log=log,
            last_lines=list(last_lines),
        )
