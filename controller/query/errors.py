"""Why a query got no answer."""

from cbp.errors import CbpError, OperatingError

NOT_HELD = "an answer cannot hold {}; cast it in the query, such as: CAST(x AS VARCHAR)"


class QueryRefusedError(CbpError):
    """A query is not one SELECT over the tables of its dataflow."""

    code = "query_refused"

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}. A query is one SELECT over the tables of one dataflow", why=why)


class QueryInvalidError(CbpError):
    """A query has a wrong column, type or syntax, or fails on a value."""

    code = "query_invalid"

    def __init__(self, why: str) -> None:
        super().__init__(why)


class QueryTimeError(CbpError):
    """A query took too long, and was ended."""

    code = "query_time"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the query was ended after {seconds:g} s; ask for less, or raise CBP_QUERY_SECONDS "
            "and restart the service",
            seconds=seconds,
        )


class QueryTooLargeError(CbpError):
    """A query needs more memory than it may take, or its answer is too large."""

    code = "query_too_large"

    def __init__(self, what: str, most: int, setting: str) -> None:
        super().__init__(
            f"{what} takes more than {most >> 20} MiB; ask for fewer rows or columns"
            + (f", or raise {setting} and restart the service" if setting else ""),
            what=what,
            bytes_max=most,
        )


class QueriesBusyError(OperatingError):
    """As many queries run as may at a time."""

    code = "queries_busy"

    def __init__(self, parallel: int) -> None:
        super().__init__(
            f"{parallel} queries run on this instance already; try again when one has ended, or "
            "raise CBP_QUERIES_MAX and restart the service",
            queries_max=parallel,
        )


class QueryFailedError(OperatingError):
    """The process of a query ended without an answer."""

    code = "query_failed"

    def __init__(self, status: int) -> None:
        super().__init__(
            f"the process of the query ended with status {status}; the log of the service may say "
            "why. Ask for less, or try again",
            status=status,
        )
