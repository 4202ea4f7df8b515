"""Errors of ingestion beyond those of `cbp.errors`; each message advises the operator.

Errors of tables and buckets are shown with their source. They do not affect what was taken in, and
each pass tries again. An object that was deleted or rewritten ends only its own fetch: the next
listing shows its new state. No message contains a credential.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cbp.errors import DiskFullError, OperatingError


class DropFolderError(OperatingError, code="drop_folder_unusable"):
    """A folder of a source cannot be used; files stay where they are."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}", path=path, cause=why)


class DataflowDrainsError(OperatingError, code="dataflow_drains", retryable=False):
    """A dataflow takes in no files, since an operator drains it."""

    def __init__(self, dataflow: str) -> None:
        super().__init__(
            f"{dataflow!r} is drained, so it takes in no files. Send the file again after `cbp "
            f"resume {dataflow}`, or put it into the drop folder, where it waits until then",
            dataflow=dataflow,
        )


class SourceFailedError(OperatingError, code="source_failed"):
    """A pass over a source failed with an unexpected error; other sources continue."""

    def __init__(self, source: str, *, cause: str, place: str) -> None:
        super().__init__(
            f"source {source!r} could not be listed: {cause} (at {place}). Its files stay where "
            "they are, and the service retries automatically. The log has the traceback",
            source=source,
            cause=cause,
            place=place,
        )


class UploadTooLargeError(OperatingError, code="upload_too_large", retryable=False):
    """An upload is larger than the service accepts."""

    def __init__(self, source: str, bytes_max: int) -> None:
        super().__init__(
            f"an upload to source {source!r} can have at most {bytes_max} bytes. Split it into "
            "several files, or raise CBP_FILE_BYTES_MAX and restart the service",
            source=source,
            bytes_max=bytes_max,
        )


class FileUnreadError(OperatingError, code="file_unread"):
    """A request replaces or retracts a file that has arrived, but is not read yet."""

    def __init__(self, dataflow: str, source: str, name: str) -> None:
        super().__init__(
            f"{name!r} of {dataflow}.{source} has arrived, but is not read yet. Try again in a "
            f"moment; `cbp claims {dataflow}` shows when it is accepted",
            source=source,
            file=name,
        )


class FileRetractedError(OperatingError, code="file_retracted", retryable=False):
    """A request replaces or retracts a file that was already retracted."""

    def __init__(self, dataflow: str, source: str, name: str, *, at: str, by: str) -> None:
        asked = f" by {by}" if by else ""
        super().__init__(
            f"{name!r} of {dataflow}.{source} was retracted at {at}{asked}, so it has no records "
            "to replace. To add records under this name again, drop the file: cbp drop "
            f"{dataflow} {source} FILE",
            source=source,
            file=name,
        )


class FileNameSharedError(OperatingError, code="file_name_shared", retryable=False):
    """A request names a file to replace or retract, but several current files have this name."""

    def __init__(self, dataflow: str, source: str, name: str, increments: Sequence[int]) -> None:
        increments = list(dict.fromkeys(increments))
        without = " ".join(f"--without {source}/{index}" for index in increments)
        super().__init__(
            f"{shared_name(name, increments)}. Instead, roll back with `cbp rollback {dataflow} "
            f"... {without}` (name only increments with wrong files; all files of a named "
            "increment are left out). Then drop the right files again",
            source=source,
            file=name,
            increments=increments,
        )


def shared_name(name: str, increments: Sequence[int]) -> str:
    """Return why no single file of a name can be replaced, in words."""
    listed = " and ".join(f"increment {index}" for index in dict.fromkeys(increments))
    return (
        f"the source has current records of several files named {name!r} (in {listed}), so it is "
        "not clear which of these files is meant"
    )


class FileDecidedError(OperatingError, code="file_decided", retryable=False):
    """A file is no longer in quarantine, or the file admitted in its place is applied."""

    def __init__(self, file: str, status: str, claim: str = "", claim_status: str = "") -> None:
        became = f", and claim {claim} ({claim_status}) took its place" if claim else ""
        step = (
            "To remove the records of that claim, roll back to before its increment"
            if claim_status == "accepted"
            else "`cbp claims` lists what happened to it"
        )
        super().__init__(
            f"{file!r} is already {status}{became}, so this decision is refused. {step}",
            file=file,
            status=status,
            claim=claim,
            claim_status=claim_status,
        )


class ReadmitRefusedError(OperatingError, code="readmit_refused", retryable=False):
    """A quarantined file cannot be admitted as it is."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file!r} cannot be admitted as it is: {why}", file=file, cause=why)


class NewColumnsError(Exception):
    """A claimed file has columns that its source adds to the schema; it is then read again.

    The claim stays open. Columns are declarations as in a schema, such as `device STRING`.
    """

    def __init__(self, source: str, claim: str, file: str, columns: tuple[str, ...]) -> None:
        super().__init__(f"{file!r} of source {source!r} has new columns: {', '.join(columns)}")
        self.source, self.claim, self.file, self.columns = source, claim, file, columns


class IntakeStoppedError(OperatingError, code="intake_stopped"):
    """The service is stopping or no longer leads; the next pass takes the file in."""

    def __init__(self, path: str) -> None:
        message = (
            f"{path} is not taken in now, because the service is stopping or this instance no "
            "longer leads. The file stays where it is, and the next pass takes it in"
        )
        super().__init__(message, path=path)


@contextmanager
def device_errors(path: str) -> Iterator[None]:
    """Turn errors of the operating system into `DiskFullError`, or else `DropFolderError`."""
    try:
        yield
    except OSError as exc:
        place = exc.filename if isinstance(exc.filename, str) else path
        if DiskFullError.is_disk_full(exc):
            raise DiskFullError(place) from exc
        why = exc.strerror or str(exc)
        if isinstance(exc, PermissionError):
            why += "; give the user that runs the service read, write and search permission there"
        raise DropFolderError(place, why) from exc


_ANEW = (
    "To take in the table as it is now, rename the source in the document and register the "
    "document: the renamed source begins with all rows of the table"
)


class TablePlaceError(OperatingError, code="delta_place_refused", retryable=False):
    """The service's settings do not allow the folder of a source's table."""

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"the table of source {source!r}: {why}", source=source, cause=why)


class TableGoneError(OperatingError, code="delta_table_gone"):
    """There is no Delta table in the folder that a source names."""

    def __init__(self, source: str, table: str) -> None:
        super().__init__(
            f"there is no Delta table in {table}, which source {source!r} reads; mount its disk, "
            "restore it, or correct `table` in the document",
            source=source,
            path=table,
        )


class TableReplacedError(OperatingError, code="delta_table_replaced", retryable=False):
    """The folder holds another table, or the table was set back to an earlier version."""

    def __init__(self, source: str, table: str, why: str) -> None:
        super().__init__(
            f"{table} is no longer the table that source {source!r} has read so far: {why}. "
            f"Restore the original table, if the change was a mistake. {_ANEW}",
            source=source,
            path=table,
            cause=why,
        )


class FeedDisabledError(OperatingError, code="delta_feed_disabled", retryable=False):
    """A table does not record its changes."""

    def __init__(self, source: str, table: str, version: int, *, began: bool) -> None:
        enable = "ALTER TABLE ... SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        advice = (
            ", so the source cannot read the changes from that version on. Turn the feed on: "
            f"{enable}. {_ANEW}"
            if began
            else f"; turn it on: {enable}"
        )
        super().__init__(
            f"version {version} of {table}, which source {source!r} reads, has no change data "
            f"feed{advice}",
            source=source,
            path=table,
            version=version,
        )


class TableUnreadableError(OperatingError, code="delta_unsupported", retryable=False):
    """A table uses a feature of Delta that the service cannot read."""

    def __init__(self, source: str, table: str, version: int, why: str) -> None:
        super().__init__(
            f"source {source!r} cannot read version {version} of {table}, because {why}. Change "
            "the table so that the service can read it, or export its rows as Parquet files and "
            "drop these",
            source=source,
            path=table,
            version=version,
            cause=why,
        )


class TableVersionGoneError(OperatingError, code="delta_version_gone", retryable=False):
    """The log entry of the next version was removed before it was read."""

    def __init__(self, source: str, table: str, version: int) -> None:
        super().__init__(
            f"source {source!r} must read version {version} of {table} next, but the log entry of "
            "that version was removed: the source was behind for longer than the table keeps its "
            f"log (delta.logRetentionDuration). {_ANEW}",
            source=source,
            path=table,
            version=version,
        )


class FeedHaltedError(OperatingError, code="delta_changes_refused", retryable=False):
    """Versions of a table are in quarantine; later versions wait, so that none is left out."""

    def __init__(self, source: str, file: str, claim: str) -> None:
        super().__init__(
            f"source {source!r} waits, because {file} is in quarantine and must be applied before "
            f"later versions of the table. `cbp quarantine show DATAFLOW {source} {claim}` prints "
            "why. Fix the cause and readmit the file, or discard it to continue without these "
            "versions",
            source=source,
            file=file,
            claim=claim,
        )


class LocationRefusedError(OperatingError, code="location_refused", retryable=False):
    """The service's settings do not allow the location of a source."""

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"the location of source {source!r}: {why}", source=source, cause=why)


class BucketPackagesError(OperatingError, code="s3_packages_missing", retryable=False):
    """A location needs packages of the extra `cbp[s3]`."""

    def __init__(self, package: str) -> None:
        super().__init__(
            f"the location of a source needs the package {package}, which is not installed; "
            "install `cbp[s3]` and restart the service",
            package=package,
        )


class BucketGoneError(OperatingError, code="bucket_gone"):
    """There is no such bucket."""

    def __init__(self, bucket: str) -> None:
        super().__init__(
            f"there is no bucket {bucket!r}; create the bucket, correct `location` in the "
            "document, or correct CBP_S3_ENDPOINT",
            bucket=bucket,
        )


class BucketDeniedError(OperatingError, code="bucket_denied"):
    """The key may not list or read a bucket, or is not a valid key."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} cannot be read, because access was denied: {why}. Grant ListBucket and "
            "GetObject to the key CBP_S3_ACCESS_KEY_ID, or correct the key",
            object=what,
            cause=why,
        )


class BucketFailedError(OperatingError, code="bucket_failed"):
    """The service that hosts a bucket does not answer, or answers with an error."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} could not be read: {why}. The service retries automatically. If this keeps "
            "failing, check the service that hosts the bucket, or correct CBP_S3_ENDPOINT",
            object=what,
            cause=why,
        )


class ObjectSlowError(OperatingError, code="object_too_slow"):
    """An object is transferred too slowly."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(
            f"{what} was not transferred within {seconds:.0f} s. The service retries "
            "automatically. Check the network, or raise CBP_FILE_SECONDS_MAX",
            object=what,
            seconds=seconds,
        )


class ObjectGoneError(OperatingError, code="object_gone"):
    """An object was deleted since it was listed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was deleted after it was listed, so it was not taken in", object=what
        )


class ObjectChangedError(OperatingError, code="object_changed"):
    """An object was rewritten since it was listed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was rewritten after it was listed; the next listing takes in the new content",
            object=what,
        )
