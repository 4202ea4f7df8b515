"""Why no more versions of a Delta table are taken in; each is shown at its source, with advice.

OperatingError
|- TablePlaceError        the settings do not allow the table's folder
|- TableGoneError         there is no Delta table in the folder
|- TableReplacedError     another table lies in the folder, or its history went back
|- FeedDisabledError      the table does not record its changes
|- TableUnreadableError   the table uses a feature of Delta that is not read
|- TableVersionGoneError  the log of the next version was removed
'- FeedHaltedError        versions are in quarantine; those behind them wait

None of them touches what was taken in, and each pass looks again.
"""

from __future__ import annotations

from cbp.errors import OperatingError

__all__ = [
    "FeedDisabledError",
    "FeedHaltedError",
    "TableGoneError",
    "TablePlaceError",
    "TableReplacedError",
    "TableUnreadableError",
    "TableVersionGoneError",
]

_ANEW = (
    "To take in the table as it is now, rename the source in the document and register that: it "
    "begins with all rows of the table"
)


class TablePlaceError(OperatingError):
    """The service's settings do not allow the folder of a source's table."""

    code = "delta_place_refused"
    retryable = False

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"the table of source {source!r}: {why}", source=source, cause=why)


class TableGoneError(OperatingError):
    """There is no Delta table in the folder that a source names."""

    code = "delta_table_gone"

    def __init__(self, source: str, table: str) -> None:
        super().__init__(
            f"there is no Delta table in {table}, which source {source!r} reads; mount its disk, "
            "put it back, or correct `table` in the document",
            source=source,
            path=table,
        )


class TableReplacedError(OperatingError):
    """Another table lies in the folder, or the table's history went back."""

    code = "delta_table_replaced"
    retryable = False

    def __init__(self, source: str, table: str, why: str) -> None:
        super().__init__(
            f"{table} is another table than the one that source {source!r} has read: {why}. Put "
            f"the former back. {_ANEW}",
            source=source,
            path=table,
            cause=why,
        )


class FeedDisabledError(OperatingError):
    """A table does not record its changes."""

    code = "delta_feed_disabled"
    retryable = False

    def __init__(self, source: str, table: str, version: int, *, began: bool) -> None:
        advice = (
            f"what changes since then is not recorded. {_ANEW}, once they are recorded again"
            if began
            else "call ALTER TABLE ... SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        super().__init__(
            f"version {version} of {table}, which source {source!r} reads, has no change data "
            f"feed; {advice}",
            source=source,
            path=table,
            version=version,
        )


class TableUnreadableError(OperatingError):
    """A table uses a feature of Delta that is not read."""

    code = "delta_unsupported"
    retryable = False

    def __init__(self, source: str, table: str, version: int, why: str) -> None:
        super().__init__(
            f"version {version} of {table}, which source {source!r} reads, uses {why}, which is "
            "not read here; drop the feature from the table, or let its writer export Parquet "
            "files",
            source=source,
            path=table,
            version=version,
            cause=why,
        )


class TableVersionGoneError(OperatingError):
    """The log entry of the next version was removed before it was read."""

    code = "delta_version_gone"
    retryable = False

    def __init__(self, source: str, table: str, version: int) -> None:
        super().__init__(
            f"version {version} of {table} comes next for source {source!r}, and its log entry "
            "was removed: the log is kept for a shorter time "
            f"(delta.logRetentionDuration) than the source was behind. {_ANEW}",
            source=source,
            path=table,
            version=version,
        )


class FeedHaltedError(OperatingError):
    """Versions of a table are in quarantine; those behind them wait, so that none is left out."""

    code = "delta_changes_refused"
    retryable = False

    def __init__(self, source: str, file: str, claim: str) -> None:
        super().__init__(
            f"source {source!r} waits: {file} is in quarantine, and later versions of its table "
            "come behind it. See its reason there; admit it again once that is mended, or discard "
            "it to go on without these versions",
            source=source,
            file=file,
            claim=claim,
        )
