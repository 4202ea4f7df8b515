"""Errors of the drop folder beyond those of `cbp.errors`.

OperatingError
|- DropFolderError        the folders cannot be used: device, rights, a failed disk
|- SourceFailedError      a pass over a source failed with an unexpected error
|- UploadTooLargeError    an upload is larger than the service accepts
|- FileDecidedError       a file is not in quarantine any more
|- ReadmitRefusedError    a quarantined file cannot be admitted as it is
|- DataflowDrainsError    a dataflow takes in no files, since it is drained
'- IntakeStoppedError     a file is not read: the service is stopping, or no longer leads
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cbp.errors import DiskFullError, OperatingError

__all__ = [
    "DataflowDrainsError",
    "DropFolderError",
    "FileDecidedError",
    "IntakeStoppedError",
    "ReadmitRefusedError",
    "SourceFailedError",
    "UploadTooLargeError",
    "device_errors",
]


class DropFolderError(OperatingError):
    """A folder of a source cannot be used; files stay where they are."""

    code = "drop_folder_unusable"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}", path=path, cause=why)


class DataflowDrainsError(OperatingError):
    """A dataflow takes in no files, since an operator drains it."""

    code = "dataflow_drains"
    retryable = False

    def __init__(self, dataflow: str) -> None:
        super().__init__(
            f"{dataflow!r} takes in no files: it is drained. Send the file again after "
            f"`cbp resume {dataflow}`, or put it into the drop folder, where it waits",
            dataflow=dataflow,
        )


class SourceFailedError(OperatingError):
    """A pass over a source failed with an unexpected error; other sources continue."""

    code = "source_failed"

    def __init__(self, source: str, *, cause: str, place: str) -> None:
        super().__init__(
            f"source {source!r} could not be looked through: {cause} (at {place}). Its files stay "
            "where they are and it is tried again by itself; the log has the stack",
            source=source,
            cause=cause,
            place=place,
        )


class UploadTooLargeError(OperatingError):
    """An upload is larger than the service accepts."""

    code = "upload_too_large"
    retryable = False

    def __init__(self, source: str, bytes_max: int) -> None:
        super().__init__(
            f"an upload to source {source!r} may have {bytes_max} bytes at most; send it in "
            "several files, or raise CBP_FILE_BYTES_MAX and restart the service",
            source=source,
            bytes_max=bytes_max,
        )


class FileDecidedError(OperatingError):
    """A file is not in quarantine any more, or what was admitted in its place counts."""

    code = "file_decided"
    retryable = False

    def __init__(self, file: str, status: str, claim: str = "", claim_status: str = "") -> None:
        became = f"; the file in its place is claim {claim} ({claim_status})" if claim else ""
        step = (
            "roll back to before its increment to take it out"
            if claim_status == "accepted"
            else "look at its claims"
        )
        super().__init__(
            f"{file!r} is {status}{became}: this cannot be decided again; {step}",
            file=file,
            status=status,
            claim=claim,
            claim_status=claim_status,
        )


class ReadmitRefusedError(OperatingError):
    """A quarantined file cannot be admitted as it is."""

    code = "readmit_refused"
    retryable = False

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file!r} cannot be admitted as it is: {why}", file=file, cause=why)


class IntakeStoppedError(OperatingError):
    """The service is stopping or no longer leads; the next pass takes the file in."""

    code = "intake_stopped"

    def __init__(self, path: str) -> None:
        message = (
            f"{path} is not taken in now: the service is stopping, or this instance no longer "
            "leads; it stays where it is, and the next pass takes it in"
        )
        super().__init__(message, path=path)


@contextmanager
def device_errors(path: str) -> Iterator[None]:
    """Translate errors of the operating system into the library's errors.

    Raises:
        DiskFullError: No space or quota is left.
        DropFolderError: Anything else.
    """
    try:
        yield
    except OSError as exc:
        if DiskFullError.is_disk_full(exc):
            raise DiskFullError(path) from exc
        raise DropFolderError(path, exc.strerror or str(exc)) from exc
