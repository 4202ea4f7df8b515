"""Errors of files that a command names."""

from __future__ import annotations

from pathlib import Path

from cbp.errors import OperatingError


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
