"""Which snapshot a request wants: as of an epoch or a time; asked alike wherever tables are read.

The answer's records are those of the versions that `GET /dataflows/{name}/snapshot` names for
the same parameters, so that requests for several tables agree.
"""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from controller.api.problems import RequestInvalidError
from controller.api.schemas import Model, PageQuery
from controller.loop.reading import AsOf

__all__ = ["MomentPageQuery", "MomentQuery", "as_of"]


class MomentQuery(Model):
    """Which snapshot a client wants; none of these: the newest."""

    epoch: int | None = Field(None, ge=0, description="The first that shows this epoch.")
    stage: str | None = Field(
        None, max_length=200, description="Whose epoch; by default every stage's."
    )
    at: AwareDatetime | None = Field(None, description="The newest one as of this time.")


class MomentPageQuery(PageQuery, MomentQuery):
    """A page as of a snapshot; a cursor keeps that of its first page, whatever else is asked."""


def as_of(query: MomentQuery, *, prefix: str = "") -> AsOf | None:
    """Return what is asked for; `None`: nothing is.

    Args:
        query: The request's.
        prefix: Of the names of its parameters, for messages.

    Raises:
        RequestInvalidError: If a stage comes without an epoch.
    """
    if query.stage is not None and query.epoch is None:
        message = "a stage needs an epoch"
        mistake = {
            "code": "epoch_missing",
            "where": f"query.{prefix}stage",
            "message": message,
        }
        raise RequestInvalidError([mistake])
    if query.epoch is None and query.at is None:
        return None
    at_ms = None if query.at is None else int(query.at.timestamp() * 1000)
    return AsOf(query.epoch, query.stage, at_ms)
