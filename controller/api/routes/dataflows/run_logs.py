"""The log of a run: its lines, oldest first, and those that come."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import ConfigDict, Field

from controller.access.scopes import Scope
from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import GrantedRunDep, RunLogsDep
from controller.api.routing.routers import problems, router
from controller.api.routing.scope_check import needs
from controller.store.errors import CursorInvalidError

routes = router("runs")

_PLACE_MAX = 1 << 40


class LogLineOut(Model):
    """One line of a run's log, with its further fields."""

    model_config = ConfigDict(extra="allow")

    time: datetime | None = Field(description="`null` if the line has no time.")
    level: str
    event: str


class LogQuery(PageQuery):
    """The part of a log that a client wants."""

    oldest: bool = Field(False, description="Without `cursor`: begin at the first line.")


@routes.get("/runs/{run}/log", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True)
def show_log(
    record: GrantedRunDep,
    run_logs: RunLogsDep,
    cursors: CursorsDep,
    query: Annotated[LogQuery, Query()],
) -> Page[LogLineOut]:
    """Show the last lines of a run's log; with `cursor`, the lines after it.

    The lines are kept for some days, on the machine of the instance that executed the run. Each
    answer has a cursor: send it with the next request to follow a run.
    """
    place = _place(cursors.open(query.cursor), first=0 if query.oldest else None)
    page = run_logs.read(record.dataflow, record.id, place, limit=cursors.size(query))
    return Page(items=[_shown(line) for line in page.lines], cursor=cursors.seal(str(page.place)))


def _place(cursor: str | None, *, first: int | None) -> int | None:
    if cursor is None:
        return first
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > 15 or int(cursor) > _PLACE_MAX:
        raise CursorInvalidError(cursor)
    return int(cursor)


def _shown(line: dict[str, Any]) -> LogLineOut:
    more = {name: value for name, value in line.items() if name not in ("timestamp", *_OWN)}
    return LogLineOut(
        time=_time(line.get("timestamp")),
        level=str(line.get("level", "info")),
        event=str(line.get("event", "")),
        **more,
    )


_OWN = ("time", "level", "event")


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
