"""Errors of the drop folder beyond those of `cbp.errors`.

OperatingError
|- DropFolderError        the folders cannot be used: device, rights, a failed disk
|- UploadTooLargeError    an upload is larger than what the service takes
'- IntakeStoppedError     a file is not read to its end, since the service stops
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cbp.errors import DiskFullError, OperatingError

__all__ = ["DropFolderError", "IntakeStoppedError", "UploadTooLargeError", "device_errors"]


class DropFolderError(OperatingError):
    """A folder of a source cannot be used; files stay where they are."""

    code = "drop_folder_unusable"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}", path=path, cause=why)


class UploadTooLargeError(OperatingError):
    """An upload is larger than what the service takes."""

    code = "upload_too_large"
    retryable = False

    def __init__(self, source: str, bytes_max: int) -> None:
        super().__init__(
            f"an upload to source {source!r} may have {bytes_max} bytes at most",
            source=source,
            bytes_max=bytes_max,
        )


class IntakeStoppedError(OperatingError):
    """The service stops, or leads no more: a claimed file is left to the next pass."""

    code = "intake_stopped"

    def __init__(self, path: str) -> None:
        message = f"{path} is not taken in: the service stops; its claim stays open"
        super().__init__(message, path=path)


@contextmanager
def device_errors(path: str) -> Iterator[None]:
    """Turn what the operating system raises into the library's errors.

    Raises:
        DiskFullError: No space or quota is left.
        DropFolderError: Anything else.
    """
    try:
        yield
    except OSError as exc:
        if DiskFullError.is_told_by(exc):
            raise DiskFullError(path) from exc
        raise DropFolderError(path, exc.strerror or str(exc)) from exc
