"""Sinks of a dataflow: list them, and pause, resume or retry one.

An operator's choice is written to the store; the leader applies it within a second.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from fastapi import Query
from pydantic import Field

from cbp.model.instants import instant_of
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import Model, Page, PageQuery
from controller.api.routing.cursors import CursorsDep
from controller.api.routing.dependencies import ControllerDep, Now, NowDep, StoreDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.loop.controller import Controller
from controller.sinks.sink_standing import SinkReport, find_row, report_sinks, require_choosing
from controller.store.base import Store

routes = router("sinks", "/dataflows/{name}/sinks")


class SinkOut(Model):
    """A sink and its progress."""

    dataflow: str
    name: str
    to: str = Field(description="`parquet`, `csv`, `delta` or `webhook`.")
    flow: str = Field(
        description="The flow that the sink follows; the flow of a view has the name of the view."
    )
    mirrors_view: bool = Field(
        description="Whether the sink mirrors the view itself, not its changes."
    )
    target: str = Field(description="Its folder as written in the document, or its host.")
    state: Literal["stopped", "retrying", "paused", "behind", "current"] = Field(
        description="`stopped` needs an operator, `retrying` continues automatically."
    )
    begun: bool = Field(
        description="Whether the service has started the sink since it was registered."
    )
    first: int = Field(description="First increment that it published, or will publish.")
    next: int = Field(description="Increment that it publishes next.")
    generation: int = Field(
        description="Number of the last roll-back that the sink has taken into account."
    )
    waiting: int = Field(description="Increments of the flow that it has not published.")
    lag_seconds: float | None = Field(
        description="Age of the oldest increment that it has not published, in seconds."
    )
    increments: int = Field(description="Increments with records that it published.")
    records: int
    dead: int = Field(description="Deliveries that were refused and skipped.")
    published_at: datetime | None
    error: dict[str, Any] | None = Field(description="Why the last attempt failed.")
    failures: int = Field(description="Failed attempts in a row.")
    retry_at: datetime | None
    choices: list[str] = Field(
        description="Values of `undone`, of which an operator must choose one before the sink "
        "continues."
    )


class SinksQuery(PageQuery):
    """Which sinks to list."""

    state: Literal["stopped", "retrying", "paused", "behind", "current"] | None = None


class ResumeQuery(Model):
    """What happens to published increments that a roll-back undid."""

    undone: Literal["rewrite", "keep"] | None = Field(
        None,
        description="For increments that were published and then undone by a roll-back: `rewrite` "
        "removes them and publishes their replacements; `keep` leaves them and continues.",
    )


@routes.get("", responses=problems(404))
@needs(Scope.VIEWER)
def list_sinks(
    name: str,
    store: StoreDep,
    controller: ControllerDep,
    now: NowDep,
    cursors: CursorsDep,
    query: SinksQuery = Query(),
) -> Page[SinkOut]:
    """List the sinks of a dataflow by name, with their progress."""
    cursors = cursors.about(query.state or "")
    after = cursors.open(query.cursor) or ""
    left = [
        one
        for one in _reports(name, store, controller, now)
        if one.node.name > after and query.state in (None, one.state)
    ]
    return cursors.first_of(left, query, lambda one: one.node.name, _shown)


@routes.get("/{sink}", responses=problems(404))
@needs(Scope.VIEWER)
def show(name: str, sink: str, store: StoreDep, controller: ControllerDep, now: NowDep) -> SinkOut:
    """Show a sink: its target, its progress, and its last error."""
    return _one(name, sink, store, controller, now)


@routes.post("/{sink}/pause", responses=problems(404))
@needs(Scope.OPERATOR, any_instance=True)
def pause(name: str, sink: str, store: StoreDep, controller: ControllerDep, now: NowDep) -> SinkOut:
    """Pause a sink; unpublished increments are kept. Durable, idempotent."""
    store.want_sink(name, sink, desired="paused")
    return _one(name, sink, store, controller, now)


@routes.post("/{sink}/resume", responses=problems(404, 409))
@needs(Scope.OPERATOR, any_instance=True)
def resume(
    name: str,
    sink: str,
    store: StoreDep,
    controller: ControllerDep,
    now: NowDep,
    query: ResumeQuery = Query(),
) -> SinkOut:
    """Let a sink continue; idempotent.

    If a roll-back undid increments that the sink had published, give the choice `undone`.
    """
    row = find_row(store.sinks(name), name, sink)
    require_choosing(controller.dataflow(name), row, query.undone)
    store.want_sink(name, sink, desired="running", choice=query.undone)
    return _one(name, sink, store, controller, now)


@routes.post("/{sink}/retry", responses=problems(404))
@needs(Scope.OPERATOR, any_instance=True)
def retry(name: str, sink: str, store: StoreDep, controller: ControllerDep, now: NowDep) -> SinkOut:
    """Retry a failed sink now, and not only when its next attempt is due; idempotent."""
    store.want_sink(name, sink)
    return _one(name, sink, store, controller, now)


def _reports(name: str, store: Store, controller: Controller, now: Now) -> list[SinkReport]:
    dataflow = controller.dataflow(name)
    return report_sinks(dataflow, store.sinks(name), now())


def _one(name: str, sink: str, store: Store, controller: Controller, now: Now) -> SinkOut:
    reports = _reports(name, store, controller, now)
    find_row((one.record for one in reports), name, sink)
    return next(_shown(one) for one in reports if one.node.name == sink)


def _shown(one: SinkReport) -> SinkOut:
    node, row, standing = one.node, one.record, one.standing
    return SinkOut.of(
        one,
        standing,
        dataflow=row.dataflow,
        name=node.name,
        to=node.to,
        flow=node.reads,
        mirrors_view=bool(node.view),
        target=node.path or urlsplit(node.url).hostname or "",
        next=row.next,
        generation=row.generation,
        published_at=_time(standing.published_ms),
        error=None if standing.error is None else json_value(dict(standing.error)),
        retry_at=_time(standing.retry_ms),
    )


def _time(ms: int) -> datetime | None:
    return instant_of(ms) if ms else None
