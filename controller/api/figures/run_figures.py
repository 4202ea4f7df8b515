"""Figures of runs: how long their input had waited, and the phases of each run.

The store is read once for a whole page of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends

from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.plan.spark_or_worker import lanes_of
from cbp.model.run.intention import RunStatus
from cbp.model.run.timeline import is_begin, timeline
from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import PhaseOut, RunOut
from controller.api.figures.overview import members_of
from controller.api.requests.present_state import PresentState
from controller.api.routing.dependencies import PartsDep, PresentStateDep
from controller.loop.controller import Controller
from controller.store.base import RunRecord, Store

_Key = tuple[str, str, int]
"""Dataflow, flow and index of an increment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Collects the figures of runs; `present` returns the phases of runs under way."""

    controller: Controller
    store: Store
    present: PresentState

    def one(self, run: RunRecord) -> RunOut:
        """Return one run with its figures."""
        (shown,) = self.page([run])
        return shown

    def page(self, runs: Sequence[RunRecord]) -> list[RunOut]:
        """Return runs with their figures, in the same order."""
        names = {run.dataflow for run in runs}
        members = {name: members_of(self.controller, name) for name in names}
        nodes = {name: self._nodes(name) for name in names}
        keys = {run.id: list(_oldest(run, nodes[run.dataflow].get(run.stage))) for run in runs}
        times = self.store.arrival_times({key for many in keys.values() for key in many})
        return [
            self._shown(
                run,
                members[run.dataflow].get(run.stage, (run.stage,)),
                min((times[key] for key in keys[run.id] if key in times), default=None),
            )
            for run in runs
        ]

    def _nodes(self, dataflow: str) -> Mapping[str, StageNode]:
        try:
            return self.controller.dataflow(dataflow).stages
        except CbpError:  # it does not compile, so the flows that its runs read are unknown
            return {}

    def _shown(self, run: RunRecord, members: Sequence[str], arrived_at: datetime | None) -> RunOut:
        ended, figures = run.finished_at, run.figures
        if run.status is RunStatus.INTENDED:
            figures = self.present.phases(run.id)
        seconds = None if ended is None else (ended - run.started_at).total_seconds()
        waited = None if arrived_at is None else (run.started_at - arrived_at).total_seconds()
        return RunOut.of(
            run,
            stages=list(members),
            finished_at=ended,
            seconds=seconds,
            waited_seconds=None if waited is None else max(0.0, waited),
            phases=[
                PhaseOut(name=one.name, begin_seconds=one.begin, end_seconds=one.end)
                for one in timeline(figures, seconds)
            ],
            figures={name: value for name, value in run.figures.items() if not is_begin(name)},
            lanes=list(lanes_of(run.figures)),
            error=json_value(run.error),
        )


def _oldest(run: RunRecord, node: StageNode | None) -> Iterator[_Key]:
    """Yield the oldest increment that a run read from each input.

    Framed inputs are left out: the number of a frame is not the index of an increment.
    """
    if node is None:
        return
    framed = {spec.name for spec in node.translator.framed}
    for name, indexes in run.read.items():
        if indexes and name in node.wiring and name not in framed:
            yield run.dataflow, node.wiring[name], min(indexes)


async def _run_figures(parts: PartsDep, present: PresentStateDep) -> RunFigures:
    return RunFigures(controller=parts.controller, store=parts.store, present=present)


RunFiguresDep = Annotated[RunFigures, Depends(_run_figures)]
