"""Errors about the folders, tables and file systems that hold records.

Guaranteed: the message names the path or the increment. No error here is retryable, since a table
does not repair itself.
Absent on purpose: conflicts between controllers that write one log; see `operating`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cbp.errors.masks import mask_credentials
from cbp.errors.operating import OperatingError


class TableForeignError(OperatingError, code="table_foreign", retryable=False):
    """A table's folder holds something that this engine did not create."""

    def __init__(self, path: str, content: str) -> None:
        message = (
            f"expected a table of this service in {path}, but found {content}; move that folder "
            "away, or choose another one"
        )
        super().__init__(message, path=path, found=content)


class PlacementDiffersError(TableForeignError, code="table_placement_differs"):
    """A state table was written with another hash, key or number of buckets than the stage has.

    A look-up would search the wrong files and silently find nothing.
    """

    def __init__(self, path: str, *, setting: str, found: str | None, expected: str) -> None:
        message = (
            f"{path} was written with {setting}={found}, but the stage expects "
            f"{setting}={expected}. Set {setting} of the stage back to {found}, or move the "
            "dataflow's folder away, register the dataflow again, and drop its files again"
        )
        OperatingError.__init__(
            self, message, path=path, setting=setting, found=found, expected=expected
        )


class TableReleasedError(TableForeignError, code="table_released"):
    """A managed table was released: other programs can write it, so the service does not."""

    def __init__(self, path: str) -> None:
        message = (
            f"the table {path} was released to other programs, so the service no longer writes to "
            f"it. To undo the release, run `cbp repair {path}`"
        )
        OperatingError.__init__(self, message, path=path)


class RepairImpossibleError(OperatingError, code="table_not_repairable", retryable=False):
    """A table cannot be restored to its contents before a foreign write."""

    def __init__(self, path: str, why: str, next_step: str = "") -> None:
        step = (
            next_step
            or "move the dataflow's folder away, register the dataflow again, and drop its files "
            "again"
        )
        super().__init__(f"{path} cannot be repaired: {why}; {step}", path=path, why=why)


class TableFeatureError(OperatingError, code="table_feature_unsupported", retryable=False):
    """A table uses a Delta feature that this engine does not write."""

    def __init__(self, path: str, features: Sequence[str], *, next_step: str) -> None:
        message = (
            f"{path} uses features of Delta that the service does not write "
            f"({', '.join(features)}); {next_step}"
        )
        super().__init__(message, path=path, features=list(features))


class VersionGoneError(OperatingError, code="version_gone", retryable=False):
    """The requested version of a table is no longer kept."""

    def __init__(self, path: str, version: int) -> None:
        message = (
            f"version {version} of {path} is no longer kept. Read a newer version, or start again "
            "at the first page. CBP_KEEP_HOURS sets how long versions are kept"
        )
        super().__init__(message, path=path, version=version)


class LookupTooLargeError(OperatingError, code="lookup_too_large", retryable=False):
    """A table has too many records for a look-up that gives all of them to every group."""

    def __init__(self, stage: str, lookup: str, records: int, most: int) -> None:
        message = (
            f"stage {stage!r}: with by=() every group gets all records of {lookup!r}, but there "
            f"are {records:,}, and the limit is {most:,}. Look the records up by their key instead"
        )
        super().__init__(message, stage=stage, lookup=lookup, records=records, most=most)


class IncrementCollectedError(OperatingError, code="increment_collected", retryable=False):
    """The requested increment is no longer kept."""

    def __init__(self, flow: str, index: int, oldest: int) -> None:
        message = (
            f"increment {index} of {flow!r} was removed: its retention (`keep`) was over and every "
            "reader had read it, or its stage was rebuilt. The oldest remaining increment is "
            f"{oldest}; to start there, read without a cursor"
        )
        super().__init__(message, flow=flow, index=index, oldest=oldest)


class VersionUnreadableError(OperatingError, code="version_unreadable", retryable=False):
    """The requested version of a state table was written for another version of its stage."""

    def __init__(self, path: str, version: int, why: str) -> None:
        message = (
            f"version {version} of {path} cannot be shown, because the stage was changed after "
            f"this version was written: {why}. Open the version with a Delta reader; `cbp "
            "snapshot` prints how"
        )
        super().__init__(message, path=path, version=version, why=why)


class ForeignWriterError(OperatingError, code="table_foreign_writer", retryable=False):
    """Another program wrote into a managed table; the stage stops instead of guessing."""

    def __init__(self, path: str, *, version: int, operation: str, engine: str) -> None:
        message = (
            f"{path}: version {version} was written by {engine} ({operation}), not by CBP, so the "
            f"stage stops. Undo that write with `cbp repair {path}`, then run `cbp resume "
            "DATAFLOW`"
        )
        super().__init__(message, path=path, version=version, operation=operation, engine=engine)


class FileSystemUnsafeError(OperatingError, code="file_system_unsafe", retryable=False):
    """Tables cannot be stored in this file system: two controllers could write one log entry."""

    def __init__(self, uri: str, scheme: str, why: str, how: str) -> None:
        uri = mask_credentials(uri)
        message = f"tables cannot be stored in {uri}: {why}; {how}"
        super().__init__(message, uri=uri, scheme=scheme, why=why)
