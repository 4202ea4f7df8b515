"""What a route can ask for: one dependency for each part of the service.

    def show(name: str, reading: ReadingDep) -> Records: ...

A route names the narrowest part that it needs, so its signature says what it can touch.
`create_api` stores the parts in the state of the application.

`GrantedRunDep`, `touchable_run` and `granted_dataflows` return the runs and the dataflows of a
request, and check that its caller may touch them. The path of a run does not name its dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import anyio
from fastapi import Depends, Header, Request

from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.schedule.lease import Standing
from controller.access.access import Access
from controller.access.identity import Identity
from controller.alerts import AlertWatch
from controller.api.requests.idempotency import IdempotencyKeys
from controller.api.requests.present_state import PresentState
from controller.api.requests.request_counts import RequestCounts
from controller.api.requests.shared_answers import KeptSummaries, SharedAnswers
from controller.api.routing.scope_check import require_granted, require_touchable
from controller.api.security.exchange import Exchange, exchange_of
from controller.events import EventFeed
from controller.ingest.drop_folder import DropFolder
from controller.ingest.folder.source_place import SourcePlace
from controller.loop.controller import Controller
from controller.loop.housekeeping.collector import Collector
from controller.loop.housekeeping.scrubbing import Scrubs
from controller.loop.operations.amendments import Amendments
from controller.loop.operations.jobs import GiveBackJobs, RollbackJobs
from controller.loop.reading.explain import Explaining
from controller.loop.reading.lineage import Lineages
from controller.loop.reading.reader import Reader
from controller.loop.reading.snapshots import Snapshots
from controller.loop.reading.stage_facts import StageFacts
from controller.loop.rebuild.rebuild_jobs import RebuildJobs
from controller.loop.verification.verifications import Verifications
from controller.query import Queries
from controller.registry import Registry
from controller.run_logs import RunLogFiles
from controller.settings import Settings
from controller.store.base import DataflowRecord, RunRecord, Store

Now = Callable[[], datetime]


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of a service that routes use; kept in the state of the application.

    Attributes:
        present: Returns the present state that only the service's own process knows.
        slow_figures: Returns the figures for metrics that cost too much for every scrape.
    """

    controller: Controller
    store: Store
    drop_folder: DropFolder
    settings: Settings
    standing: Callable[[], Standing]
    alerts: AlertWatch
    idempotency_keys: IdempotencyKeys
    access: Access
    uploads: anyio.CapacityLimiter
    events: EventFeed
    requests: RequestCounts
    slow_figures: Callable[[], tuple[Mapping[tuple[str, str], int], int]]
    run_logs: RunLogFiles
    queries: Queries
    present: Callable[[], PresentState]
    now: Now
    answers: SharedAnswers
    summaries: KeptSummaries = field(default_factory=KeptSummaries)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The parts for routes of the files of sources."""

    store: Store
    controller: Controller
    folder: DropFolder

    def of(self, name: str) -> tuple[DataflowRecord, Dataflow]:
        """Return a dataflow's record and definition; the drop folder needs both."""
        return self.store.dataflow(name), self.controller.dataflow(name)

    def place(self, name: str, source: str) -> SourcePlace:
        """Return the place of a source; raises `NotFoundError`."""
        return self.folder.place(*self.of(name), source)

    def require(self, name: str, source: str) -> None:
        """Refuse a name that is not a source of the dataflow; raises `NotFoundError`."""
        if source not in self.controller.dataflow(name).sources:
            raise NotFoundError(kind="source", name=f"{name}.{source}")


def parts_of(request: Request) -> Parts:
    """Return the parts of the application that serves a request."""
    parts: Parts = request.app.state.parts
    return parts


def _part(choose: Callable[[Parts], object]) -> Any:
    # A coroutine, since FastAPI calls any other function in a thread.
    async def dependency(request: Request) -> object:
        return choose(parts_of(request))

    return Depends(dependency)


async def _exchange(request: Request) -> Exchange:
    return exchange_of(request.scope)


async def _caller(request: Request) -> Identity:
    caller = exchange_of(request.scope).caller
    assert caller is not None, "a route that is not public has a caller"
    return caller


AccessDep = Annotated[Access, _part(lambda parts: parts.access)]
CallerDep = Annotated[Identity, Depends(_caller)]
ExchangeDep = Annotated[Exchange, Depends(_exchange)]
"""Facts for the audit log; a route adds its subject, if its path does not name it."""
ControllerDep = Annotated[Controller, _part(lambda parts: parts.controller)]
AmendmentsDep = Annotated[Amendments, _part(lambda parts: parts.controller.amendments)]
ExplainingDep = Annotated[Explaining, _part(lambda parts: parts.controller.explaining)]
HousekeepingDep = Annotated[Collector, _part(lambda parts: parts.controller.housekeeping)]
LineagesDep = Annotated[Lineages, _part(lambda parts: parts.controller.lineages)]
ReadingDep = Annotated[Reader, _part(lambda parts: parts.controller.reading)]
GiveBackJobsDep = Annotated[GiveBackJobs, _part(lambda parts: parts.controller.give_back_jobs)]
RebuildJobsDep = Annotated[RebuildJobs, _part(lambda parts: parts.controller.rebuild_jobs)]
RollbackJobsDep = Annotated[RollbackJobs, _part(lambda parts: parts.controller.rollback_jobs)]
QueriesDep = Annotated[Queries, _part(lambda parts: parts.queries)]
RegistryDep = Annotated[Registry, _part(lambda parts: parts.controller.registry)]
ScrubsDep = Annotated[Scrubs, _part(lambda parts: parts.controller.scrubs)]
SnapshotsDep = Annotated[Snapshots, _part(lambda parts: parts.controller.snapshots)]
StageFactsDep = Annotated[StageFacts, _part(lambda parts: parts.controller.stage_facts)]
VerificationsDep = Annotated[Verifications, _part(lambda parts: parts.controller.verifications)]
StoreDep = Annotated[Store, _part(lambda parts: parts.store)]
DeliveriesDep = Annotated[
    Deliveries, _part(lambda p: Deliveries(p.store, p.controller, p.drop_folder))
]
DropFolderDep = Annotated[DropFolder, _part(lambda parts: parts.drop_folder)]
NowDep = Annotated[Now, _part(lambda parts: parts.now)]
PartsDep = Annotated[Parts, _part(lambda parts: parts)]
"""All parts, for figures; a route names only the parts that it needs."""
RunLogsDep = Annotated[RunLogFiles, _part(lambda parts: parts.run_logs)]
PresentStateDep = Annotated[PresentState, _part(lambda parts: parts.present())]
EventFeedDep = Annotated[EventFeed, _part(lambda parts: parts.events)]
SettingsDep = Annotated[Settings, _part(lambda parts: parts.settings)]
AlertsDep = Annotated[AlertWatch, _part(lambda parts: parts.alerts)]
StandingDep = Annotated[Standing, _part(lambda parts: parts.standing())]
IdempotencyKeysDep = Annotated[IdempotencyKeys, _part(lambda parts: parts.idempotency_keys)]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]
"""The header Idempotency-Key; its parameter must be named `idempotency_key`."""
UploadLimiterDep = Annotated[anyio.CapacityLimiter, _part(lambda parts: parts.uploads)]


def touchable_run(run: str, store: Store, exchange: Exchange) -> RunRecord:
    """Return one run of a request for many, if the caller may touch its dataflow."""
    record = store.run(run)
    require_touchable(exchange, record.dataflow)
    return record


def _granted_run(run: str, store: StoreDep, exchange: ExchangeDep) -> RunRecord:
    record = store.run(run)
    require_granted(exchange, record.dataflow)
    return record


GrantedRunDep = Annotated[RunRecord, Depends(_granted_run)]
"""The run that the path names, by `{run}`."""


def granted_dataflows(
    store: Store, exchange: Exchange, dataflow: str | None
) -> list[DataflowRecord]:
    """Return the named dataflow; without a name, every one that the caller may touch.

    Raises `DataflowNotGrantedError`, `NotFoundError`.
    """
    if dataflow is not None:
        require_granted(exchange, dataflow)
        return [store.dataflow(dataflow)]
    caller = exchange.caller
    assert caller is not None, "a route that is not public has a caller"
    return [record for record in store.dataflows() if caller.may_touch(record.name)]
