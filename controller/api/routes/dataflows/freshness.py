"""Freshness: whether everything that was delivered is applied, for one dataflow or for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from fastapi import Query
from pydantic import Field

from cbp.errors import CbpError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.schedule.freshness import Freshness, FreshnessState, Left, judge_freshness, worst_of
from controller.alerts.disk_room import disk_rooms
from controller.api.answers.schemas import Model
from controller.api.requests.present_state import PresentState
from controller.api.routing.dependencies import (
    ControllerDep,
    DropFolderDep,
    ExchangeDep,
    PresentStateDep,
    SettingsDep,
    StoreDep,
    granted_dataflows,
)
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller
from controller.store.base import DataflowRecord, Store


@dataclass(frozen=True, kw_only=True)
class FreshnessFigures:
    """Judges the dataflows of one request; reads facts that they share once.

    Folders are listed before queues are read, so that a file that is taken in meanwhile is found in
    its queue. The position of a dataflow is read only if its queues are not empty. No author's code
    is called.
    """

    controller: Controller
    store: Store
    drop_folder: DropFolder
    present: PresentState

    def of(self, records: Sequence[DataflowRecord]) -> dict[str, Freshness]:
        """Return the freshness of each dataflow; one that was deleted meanwhile is left out."""
        loaded: dict[str, Dataflow | str] = {}
        arriving: dict[str, dict[str, int]] = {}
        for record in records:
            try:
                dataflow = self.controller.compiled(record)
                arriving[record.name] = self.drop_folder.arriving(record, dataflow)
                loaded[record.name] = dataflow
            except CbpError as error:
                loaded[record.name] = error.message
        judged = {}
        for record in records:
            with suppress(NotFoundError):
                files = arriving.get(record.name, {})
                judged[record.name] = self._judge(record, loaded[record.name], files)
        return judged

    def _judge(
        self, record: DataflowRecord, dataflow: Dataflow | str, arriving: dict[str, int]
    ) -> Freshness:
        if isinstance(dataflow, str):
            return judge_freshness(Left({}, {}, {}, {}, broken=dataflow))
        waits = self.present.waits(record.name)
        held = dict(self._paused.get(record.name, {}))
        held |= {
            stage: wait.words
            for stage, wait in waits.items()
            if wait.kind == "stopped" and stage not in held
        }
        try:
            quiet = self._is_quiet(record.name, dataflow)
            left = {} if quiet else self.controller.explaining.left(record.name, waits)
        except NotFoundError:
            raise
        except CbpError as error:
            return judge_freshness(Left({}, {}, {}, {}, broken=error.message))
        return judge_freshness(
            Left(
                arriving=arriving,
                quarantined=self._quarantined[record.name],
                stages=left,
                held=held,
                set_aside=self.controller.set_aside_counts.of(record, self._revisions),
                troubles=self.present.troubles(record.name),
                desired=record.desired,
            )
        )

    def _is_quiet(self, name: str, dataflow: Dataflow) -> bool:
        """Return whether nothing runs and nothing is queued; `False` if inputs are framed."""
        framed = any(stage.translator.framed for stage in dataflow.stages.values())
        return not framed and name not in self._busy

    @cached_property
    def _revisions(self) -> dict[str, int]:
        return self.store.revisions()

    @cached_property
    def _busy(self) -> set[str]:
        """The dataflows with a run under way, or with an increment in a queue."""
        return self.store.queued() | {run.dataflow for run in self.store.intended_runs()}

    @cached_property
    def _paused(self) -> Mapping[str, Mapping[str, str]]:
        return self.store.paused_stages()

    @cached_property
    def _quarantined(self) -> defaultdict[str, dict[str, int]]:
        files = defaultdict[str, dict[str, int]](dict)
        for (dataflow, source), count in self.store.quarantined().items():
            files[dataflow][source] = count
        return files


routes = router("freshness")

_STATES = (
    "`up_to_date`: every stage has applied every file that arrived; `catching_up`: some files are "
    "still being processed; `stuck`: something needs an operator."
)


class FreshnessQuery(Model):
    """Which dataflows to judge."""

    dataflow: str | None = Field(None, max_length=200, description="Only this dataflow.")


class DataflowFreshnessOut(Model):
    """Whether one dataflow is up to date."""

    dataflow: str
    state: FreshnessState = Field(description=_STATES)
    left: list[str] = Field(
        description="The remaining work, in words; empty if the dataflow is up to date."
    )


class FreshnessOut(Model):
    """Whether the dataflows are up to date."""

    state: FreshnessState = Field(
        description=f"The worst of its dataflows; `stuck` if the service cannot work. {_STATES}"
    )
    dataflows: list[DataflowFreshnessOut]
    service: list[str] = Field(
        description="Why the service itself cannot work, such as a full disk, and what to do; "
        "empty if it can."
    )


@routes.get("/freshness", responses=problems(404))
@needs(Scope.VIEWER, any_dataflow=True)
def show(
    store: StoreDep,
    controller: ControllerDep,
    drop_folder: DropFolderDep,
    present: PresentStateDep,
    exchange: ExchangeDep,
    settings: SettingsDep,
    query: FreshnessQuery = Query(),
) -> FreshnessOut:
    """Return whether all delivered files are applied: drop folders, queues, quarantine.

    A token that is limited to some dataflows sees only those. Sinks are not considered.
    """
    figures = FreshnessFigures(
        controller=controller, store=store, drop_folder=drop_folder, present=present
    )
    judged = figures.of(granted_dataflows(store, exchange, query.dataflow))
    stopping = [f"{one.words}; {one.action}" for one in disk_rooms(settings) if one.stops]
    return FreshnessOut(
        state="stuck" if stopping else worst_of(one.state for one in judged.values()),
        service=stopping,
        dataflows=[DataflowFreshnessOut.of(one, dataflow=name) for name, one in judged.items()],
    )
