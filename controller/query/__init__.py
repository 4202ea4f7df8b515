"""SQL over one consistent snapshot of a dataflow: one SELECT, in a process with limits."""

from controller.query.current_records import CurrentTable, current_table
from controller.query.errors import (
    QueriesBusyError,
    QueryInvalidError,
    QueryRefusedError,
    QueryTimeError,
    QueryTooLargeError,
)
from controller.query.queries import Answer, Queries, Question
from controller.query.query_limits import QueryLimits

__all__ = [
    "Answer",
    "CurrentTable",
    "Queries",
    "QueriesBusyError",
    "QueryInvalidError",
    "QueryLimits",
    "QueryRefusedError",
    "QueryTimeError",
    "QueryTooLargeError",
    "Question",
    "current_table",
]
