"""Lineage of one run: the runs and files that made its input, and the runs that read its output.

    run of up ---> increment ---> THIS RUN ---> increment ---> run of down

Reads only the store. Not guaranteed: completeness. Increments and runs that retention removed are
no longer known. The number of a frame is not that of an increment. A run that read an output long
after it was written is not found (`RUNS_SEARCHED`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.run.intention import RunStatus
from controller.loop.records.compiled_dataflows import Catalog, Units
from controller.store.base import RunRecord, Store

CAUSES_MAX = 200
"""Maximum number of increments whose origin is looked up; a run can read thousands."""

RUNS_SEARCHED = 100
"""Number of a reader's later runs that are searched for the one that read a run's output."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The origin of an increment that a run read.

    Attributes:
        run: The run that wrote it; `None` for a source, or if it is no longer known.
        origin: What is known about its arrival, such as the files of a source's increment.
    """

    input: str
    flow: str
    index: int
    run: str | None
    origin: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Effect:
    """The progress of one reader on an output of a run."""

    flow: str
    index: int
    stage: str
    input: str
    run: str | None
    waits: bool


@dataclass(frozen=True, slots=True)
class Lineage:
    """The causes and effects of a run."""

    causes: tuple[Cause, ...]
    effects: tuple[Effect, ...]


class Lineages:
    """Finds the lineage of runs; safe to use from several threads."""

    def __init__(self, *, store: Store, catalog: Catalog) -> None:
        self._store, self._catalog = store, catalog

    def of(self, run_id: str) -> Lineage:
        """Return the lineage of a run; raises `NotFoundError` or `DataflowInvalidError`."""
        run = self._store.run(run_id)
        record, _ = self._catalog.find(run.dataflow)
        units = self._catalog.units(record)
        unit = units.get(run.stage)
        if unit is None:
            return Lineage((), ())
        effects = self._effects(run, unit, units) if run.status is RunStatus.COMMITTED else ()
        return Lineage(tuple(self._causes(run, unit.leader)), tuple(effects))

    def _causes(self, run: RunRecord, node: StageNode) -> Iterator[Cause]:
        framed = {spec.name for spec in node.translator.framed}
        left = CAUSES_MAX
        for name, indexes in run.read.items():
            if name in framed or name not in node.wiring:
                continue
            flow = node.wiring[name]
            for index in sorted(indexes, reverse=True)[:left]:
                origin = self._origin(run.dataflow, flow, index)
                yield Cause(name, flow, index, _run_of(origin), origin)
            left = max(0, left - len(indexes))

    def _origin(self, dataflow: str, flow: str, index: int) -> Mapping[str, Any]:
        try:
            return self._store.increment(dataflow, flow, index).origin
        except NotFoundError:
            return {}

    def _effects(self, run: RunRecord, unit: PhysicalStage, units: Units) -> Iterator[Effect]:
        outputs = {
            f"{member.name}.{output.name}"
            for member in unit.members
            for output in member.translator.outputs
        }
        connectors = self._store.connectors(run.dataflow)
        for leader, reader in units.items():
            inputs = {n: flow for n, flow in reader.leader.wiring.items() if flow in outputs}
            if not inputs:
                continue
            later = self._store.committed_runs(
                run.dataflow, leader, since=run.started_at, limit=RUNS_SEARCHED
            )
            for name, flow in inputs.items():
                connector = connectors.get(leader, {}).get(name)
                queue = () if connector is None else (*connector.unread, *connector.arrived)
                waits = any(one.flow == flow and one.index == run.epoch for one in queue)
                framed = connector is not None and connector.framing is not None
                first = None
                if not framed:
                    read = (one.id for one in later if run.epoch in one.read.get(name, ()))
                    first = next(read, None)
                yield Effect(flow, run.epoch, leader, name, first, waits)


def _run_of(origin: Mapping[str, Any]) -> str | None:
    run = origin.get("run")
    return run if isinstance(run, str) else None
