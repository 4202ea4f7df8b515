"""Errors about the folders, tables and file systems that hold records.

Guaranteed: the message names the path or the increment. No error here is retryable, since a table
does not repair itself.
Absent on purpose: conflicts between controllers that write one log; see `operating`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cbp.errors.masks import mask_credentials
from cbp.errors.operating import OperatingError


class TableForeignError(OperatingError):
    """A table's folder holds something that this engine did not create."""

    code = "table_foreign"
    retryable = False

    def __init__(self, path: str, content: str) -> None:
        super().__init__(
            f"{path} holds {content}, not a table of this service; "
            "move it away or choose another folder",
            path=path,
            found=content,
        )


class PlacementDiffersError(TableForeignError):
    """A state table was written with another hash, key or number of buckets than the stage has.

    A look-up would search the wrong files and silently find nothing.
    """

    code = "table_placement_differs"

    def __init__(self, path: str, *, setting: str, found: str | None, expected: str) -> None:
        OperatingError.__init__(
            self,
            f"{path} was made with {setting}={found}, but the stage expects {setting}={expected}. "
            f"Set {setting} of the stage back to {found}, or start the dataflow again in another "
            "folder",
            path=path,
            setting=setting,
            found=found,
            expected=expected,
        )


class TableReleasedError(TableForeignError):
    """A managed table was released: other programs can write it, so the service does not."""

    code = "table_released"

    def __init__(self, path: str) -> None:
        OperatingError.__init__(
            self,
            f"{path} was released, so the service no longer writes to the table. `cbp repair "
            "TABLE` takes the table back",
            path=path,
        )


class RepairImpossibleError(OperatingError):
    """A table cannot be restored to its contents before a foreign write."""

    code = "table_not_repairable"
    retryable = False

    def __init__(self, path: str, why: str, next_step: str = "") -> None:
        step = (
            next_step
            or "move the dataflow's folder away and start the dataflow again from its sources"
        )
        super().__init__(f"{path} cannot be repaired: {why}; {step}", path=path, why=why)


class TableFeatureError(OperatingError):
    """A table uses a Delta feature that this engine does not write."""

    code = "table_feature_unsupported"
    retryable = False

    def __init__(self, path: str, features: Sequence[str], *, next_step: str) -> None:
        super().__init__(
            f"{path} uses {', '.join(features)}, which this engine refuses to write; {next_step}",
            path=path,
            features=list(features),
        )


class VersionGoneError(OperatingError):
    """The requested version of a table is no longer kept."""

    code = "version_gone"
    retryable = False

    def __init__(self, path: str, version: int) -> None:
        super().__init__(
            f"version {version} of {path} is no longer kept. Read a newer version, or start again "
            "at the first page. `keep_hours` sets how long versions are kept",
            path=path,
            version=version,
        )


class LookupTooLargeError(OperatingError):
    """A looked-up table that goes to every group as a whole has too many records."""

    code = "lookup_too_large"
    retryable = False

    def __init__(self, stage: str, lookup: str, records: int, most: int) -> None:
        super().__init__(
            f"stage {stage!r}: every group gets all records of {lookup!r} (by=()), which has "
            f"{records} records, but the limit is {most}. Look the records up by their key instead",
            stage=stage,
            lookup=lookup,
            records=records,
            most=most,
        )


class IncrementCollectedError(OperatingError):
    """The requested increment is older than its flow is kept."""

    code = "increment_collected"
    retryable = False

    def __init__(self, flow: str, index: int, oldest: int) -> None:
        super().__init__(
            f"increment {index} of {flow!r} was removed. Either it was older than `keep` and "
            "every reader had read it, or its stage was rebuilt. The oldest readable increment is "
            f"{oldest}: read without a cursor to start there",
            flow=flow,
            index=index,
            oldest=oldest,
        )


class VersionUnreadableError(OperatingError):
    """The requested version of a state table was written for another version of its stage."""

    code = "version_unreadable"
    retryable = False

    def __init__(self, path: str, version: int, why: str) -> None:
        super().__init__(
            f"version {version} of {path} cannot be shown, because its stage was changed after it "
            f"was written: {why}. Open that version with a Delta reader: `cbp snapshot` prints how",
            path=path,
            version=version,
            why=why,
        )


class ForeignWriterError(OperatingError):
    """Another program wrote into a managed table; the stage stops instead of guessing."""

    code = "table_foreign_writer"
    retryable = False

    def __init__(self, path: str, *, version: int, operation: str, engine: str) -> None:
        super().__init__(
            f"{path}: version {version} was written by {engine} ({operation}), not by CBP, "
            "so the stage stops. Undo that write with `cbp repair TABLE`, then resume the dataflow",
            path=path,
            version=version,
            operation=operation,
            engine=engine,
        )


class FileSystemUnsafeError(OperatingError):
    """Tables cannot be stored there: two controllers could both write one log entry."""

    code = "file_system_unsafe"
    retryable = False

    def __init__(self, uri: str, scheme: str, why: str, how: str) -> None:
        uri = mask_credentials(uri)
        super().__init__(f"{uri}: {why}; {how}", uri=uri, scheme=scheme, why=why)
