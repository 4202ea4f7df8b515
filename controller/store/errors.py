"""Errors of the metadata store, in addition to `cbp.errors`; none shows the password in a URL."""

from __future__ import annotations

from cbp.errors import OperatingError


class CursorInvalidError(OperatingError, code="cursor_invalid", retryable=False):
    """A cursor does not come from this listing."""

    def __init__(self, cursor: str) -> None:
        super().__init__(
            "the cursor does not belong to this listing; begin again without a cursor",
            cursor=cursor[:100],
        )


class DatabaseDamagedError(OperatingError, code="database_damaged", retryable=False):
    """A SQLite file is damaged, or is not a database; the tables are not affected."""

    def __init__(self, database: str, why: str) -> None:
        super().__init__(
            f"the database {database} is damaged: {why}. No record is lost: stop the service and "
            "run `cbp recover --rebuild`, which moves the damaged file aside and fills a new "
            "database from the folders of the tables",
            database=database,
            why=why,
        )


class DatabaseSilentError(OperatingError, code="database_silent"):
    """PostgreSQL did not answer in time; the statement may have been executed."""

    def __init__(self, database: str, why: str) -> None:
        super().__init__(
            f"database {database} does not answer: {why}. The service keeps retrying",
            database=database,
            why=why,
        )


class DatabaseUrlError(OperatingError, code="database_url_invalid", retryable=False):
    """A URL names no database that the store can use."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"database {url!r}: {why}; use sqlite:///<file> or postgresql://<user>@<host>/<name>",
            url=url,
        )


class DatabaseInUseError(OperatingError, code="database_in_use", retryable=False):
    """Another process serves this SQLite database."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(
            f"{path} is already in use by {f'process {holder}' if holder else 'another process'}. "
            "Stop that process first; to run several processes, use PostgreSQL",
            path=path,
            holder=holder,
        )


class DatabaseNewerError(OperatingError, code="database_newer", retryable=False):
    """A newer version of the service wrote this database."""

    def __init__(self, url: str, found: str, known: str) -> None:
        super().__init__(
            f"database {url} has schema version {found}, but this release knows only versions up "
            f"to {known}. Start the release that wrote the database, or a newer one",
            url=url,
            found=found,
            known=known,
        )


class StagePausedError(OperatingError, code="stage_paused", retryable=False):
    """A stage that an operator paused is not retried before it is resumed."""

    def __init__(self, dataflow: str, stage: str) -> None:
        super().__init__(
            f"{dataflow}.{stage} was paused by an operator, so it is not retried; resume it "
            f"first: cbp resume {dataflow} {stage}",
            dataflow=dataflow,
            stage=stage,
        )
