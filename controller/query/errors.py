"""Why a query got no answer."""

from __future__ import annotations

from cbp.errors import CbpError, OperatingError

NOT_HELD = "an answer cannot contain {}; cast it in the query, for example: CAST(x AS VARCHAR)"


class QueryRefusedError(CbpError, code="query_refused"):
    """A query is not one SELECT over the tables of its dataflow."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}. A query is one SELECT over the tables of one dataflow", why=why)


class QueryInvalidError(CbpError, code="query_invalid"):
    """A query has a wrong column, type or syntax, or fails on a value."""


class QueryTimeError(CbpError, code="query_time"):
    """A query took too long, and was ended."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the query was stopped after {seconds:g} s. Query less data, or raise "
            "CBP_QUERY_SECONDS and restart the service",
            seconds=seconds,
        )


class QueryTooLargeError(CbpError, code="query_too_large"):
    """A query needs more memory than allowed, or its answer is too large."""

    def __init__(self, what: str, most: int, setting: str) -> None:
        super().__init__(
            f"{what} takes more than {most >> 20} MiB. Query fewer rows or columns"
            + (f", or raise {setting} and restart the service" if setting else ""),
            what=what,
            bytes_max=most,
        )


class QueriesBusyError(OperatingError, code="queries_busy"):
    """The limit of concurrent queries is reached."""

    def __init__(self, parallel: int) -> None:
        super().__init__(
            f"this instance is already running {parallel} queries. Try again when one of them has "
            "ended, or raise CBP_QUERIES_MAX and restart the service",
            queries_max=parallel,
        )


class QueryFailedError(OperatingError, code="query_failed"):
    """The process of a query ended without an answer."""

    def __init__(self, status: int) -> None:
        super().__init__(
            f"the process of the query ended with status {status}. The log of the service may "
            "show why. Query less data, or try again",
            status=status,
        )
