"""The snapshot that a request asks for: as of an epoch or a time; the same for all tables.

The answer has the records of the versions that `GET /dataflows/{name}/snapshot` returns for the
same parameters, so requests for several tables agree.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from cbp.model.instants import zoned
from controller.api.answers.request_errors import RequestInvalidError
from controller.api.answers.schemas import Model, PageQuery
from controller.loop.reading.reader import AsOf

_NUMBER = re.compile(r"\s*[-+]?[0-9.]*(?:[eE][-+]?[0-9]+)?\s*")


def _utc(value: datetime) -> datetime:
    try:
        return zoned(value).astimezone(UTC)
    except OverflowError as exc:
        message = "expected a time whose year in UTC is between 1 and 9999"
        raise ValueError(message) from exc


def _no_number(value: Any) -> Any:
    """Refuse a number, which pydantic would read as seconds, or as milliseconds if it is large."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        message = "expected a time, such as 2026-11-21T10:00:00Z, not a number"
        raise ValueError(message)
    return value


Instant = Annotated[datetime, BeforeValidator(_no_number), AfterValidator(_utc)]
"""A time as text; without a zone it is in UTC."""


class RangeQuery(Model):
    """A range of time."""

    since: Instant | None = Field(
        None, description="Only entries that began or arrived at this time or later."
    )
    until: Instant | None = Field(
        None, description="Only entries that began or arrived before this time."
    )

    def holds(self, at: datetime | None) -> bool:
        """Return whether a time is in the range; `None`, which means unknown, is in no range."""
        if at is None:
            return self.since is None and self.until is None
        is_late = self.until is not None and at >= self.until
        return not is_late and (self.since is None or at >= self.since)

    def holds_ms(self, at_ms: int) -> bool:
        """Return whether a time, in milliseconds since 1970, is in the range."""
        return self.holds(datetime.fromtimestamp(at_ms / 1000, UTC))


class RangePageQuery(PageQuery, RangeQuery):
    """A page of entries in a range of time."""


ErrorCode = Annotated[str | None, Field(pattern=r"^[a-z][a-z0-9_]{0,99}$")]
"""The code of an error, or of the reason for a refusal."""


class RefusalPageQuery(RangePageQuery):
    """A page of refusals in a range of time."""

    code: ErrorCode = Field(None, description="Only entries that were refused with this code.")


class MomentQuery(Model):
    """The snapshot that a client asks for; without parameters, the newest one."""

    epoch: int | None = Field(None, ge=0, description="The first snapshot that shows this epoch.")
    stage: str | None = Field(
        None, max_length=200, description="Stage that `epoch` refers to; by default every stage."
    )
    at: Instant | None = Field(None, description="The snapshot that was the newest at this time.")


class MomentPageQuery(PageQuery, MomentQuery):
    """A page of a snapshot; a cursor keeps the snapshot of its first page."""


def as_of(query: MomentQuery, *, prefix: str = "") -> AsOf | None:
    """Return the requested snapshot; `None` if the request names none.

    Raises `RequestInvalidError` if a stage is given without an epoch; its text names the
    parameters with their prefix.
    """
    if query.stage is not None and query.epoch is None:
        message = "needs `epoch`: the first snapshot that shows this epoch of the stage is read"
        mistake = {"code": "epoch_missing", "where": f"query.{prefix}stage", "message": message}
        raise RequestInvalidError([mistake])
    if query.epoch is None and query.at is None:
        return None
    at_ms = None if query.at is None else int(query.at.timestamp() * 1000)
    return AsOf(query.epoch, query.stage, at_ms)
