"""Explanations: the physical plan of a dataflow, and what one run did and why.

The plan is a function of the description and of what the engine decides by
(`cbp.model.explain`). A run is told from what is recorded of it: the store, its intention
as long as the log holds it, and the tables' logs. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cbp.engine.base import Engine
from cbp.errors import NotFoundError
from cbp.model.account import Account, changes_of, consumed, reason
from cbp.model.connector import Decision
from cbp.model.explain import Plan, explain
from cbp.model.framing import FrameNote
from cbp.model.fusion import PhysicalStage
from cbp.model.generation import home_of
from cbp.model.increment import Increment
from cbp.model.intention import Intention, RunStatus
from cbp.model.picture import dot, mermaid, picture
from cbp.model.settled import left_to_do
from controller.loop.catalog import Catalog
from controller.loop.description import Descriptions
from controller.loop.runs import Runs
from controller.store.base import DataflowRecord, RunRecord, Store

__all__ = ["Explaining", "Explanation"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A dataflow's plan and its graph.

    Attributes:
        picture: For a terminal.
        mermaid, dot: For other programs.
    """

    plan: Plan
    picture: str
    mermaid: str
    dot: str


class Explaining:
    """Explains dataflows and runs; safe to use from several threads."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        catalog: Catalog,
        runs: Runs,
        descriptions: Descriptions,
    ) -> None:
        self._store, self._engine, self._catalog, self._runs = store, engine, catalog, runs
        self._descriptions = descriptions

    def plan(self, name: str) -> Explanation:
        """Explain a dataflow.

        Raises:
            NotFoundError: If there is no such dataflow.
            DataflowInvalidError: If the document names what is no longer installed.
        """
        record, dataflow = self._catalog.find(name)
        leaders = tuple(self._catalog.units(record))
        return Explanation(
            explain(dataflow, leaders, self._engine.limits()),
            picture(dataflow, leaders),
            mermaid(dataflow, leaders),
            dot(dataflow, leaders),
        )

    def left(self, name: str) -> dict[str, str]:
        """Return the stages that have something left to do until something arrives, and what.

        Raises:
            NotFoundError: If there is no such dataflow.
            DataflowInvalidError: If the document names what is no longer installed.
        """
        units = self._catalog.units(self._store.dataflow(name))
        running = {stage for dataflow, stage in self._runs.busy() if dataflow == name and stage}
        rules = {leader: unit.leader.runnable for leader, unit in units.items()}
        return left_to_do(rules, self._store.position(name), running)

    def run(self, run_id: str) -> Account:
        """Tell why a run ran, on what, and what it produced.

        Raises:
            NotFoundError: If there is no such run.
            DataflowInvalidError: If the document names what is no longer installed.
        """
        run = self._store.run(run_id)
        record, _ = self._catalog.find(run.dataflow)
        unit = self._catalog.units(record)[run.stage]
        intention = self._runs.log(record.folder).read(run.stage, run.epoch)
        if intention is not None and intention.run != run.id:
            intention = None  # another attempt was recorded
        node = unit.leader
        known = {
            (increment.flow, increment.index): increment for increment in self._read(run, unit)
        }
        frames = self._frames(record, run, unit, intention)
        return Account(
            run=run.id,
            why=reason(
                node, run.read, run.remove, intention.correction if intention else None, frames
            ),
            consumed=tuple(consumed(node, run.read, run.remove, known, frames)),
            produced=tuple(self._produced(run, unit, intention)),
            changes=() if intention is None else tuple(changes_of(intention)),
            versions=self._versions(record, run, unit),
            recorded=intention is not None,
        )

    def _frames(
        self,
        record: DataflowRecord,
        run: RunRecord,
        unit: PhysicalStage,
        intention: Intention | None,
    ) -> Mapping[str, Sequence[FrameNote]]:
        """Return what is known of the frames that a run took: of its record, or while they wait."""
        if not unit.leader.translator.framed:
            return {}
        if intention is not None:
            return intention.frames
        if run.status is RunStatus.COMMITTED or self._amended_since(record, run):
            return {}
        # What it chose waits still, unless another attempt took it; then its number is gone.
        waiting = self._store.connectors(run.dataflow)[run.stage]
        read, remove = (
            {name: tuple(indexes) for name, indexes in chosen.items()}
            for chosen in (run.read, run.remove)
        )
        return Decision(read, remove).frames(waiting)

    def _amended_since(self, record: DataflowRecord, run: RunRecord) -> bool:
        """Tell whether frames may have got the numbers of others since a run began."""
        _, at_ms = self._descriptions.begins(record)
        rolled_back_ms = (one.prepared_ms for one in self._runs.log(record.folder).generations)
        return max((at_ms, *rolled_back_ms)) >= run.started_at.timestamp() * 1000

    def _read(self, run: RunRecord, unit: PhysicalStage) -> Iterator[Increment]:
        """Yield the increments that a run took, as far as they are known."""
        for spec in unit.leader.translator.inputs:
            if spec.frame_by is not None:
                continue  # a frame's number names no increment
            flow = unit.leader.wiring[spec.name]
            taken = {*run.read.get(spec.name, ()), *run.remove.get(spec.name, ())}
            for index in sorted(taken):
                try:
                    yield self._store.increment(run.dataflow, flow, index).increment
                except NotFoundError:
                    continue

    def _produced(
        self, run: RunRecord, unit: PhysicalStage, intention: Intention | None
    ) -> Iterator[Increment]:
        """Yield the increments of a run's epoch; out of the store where its record is gone."""
        if intention is not None:
            yield from intention.outputs.values()
            return
        if run.status is not RunStatus.COMMITTED:
            return
        for member in unit.members:
            for output in member.translator.outputs:
                flow = f"{member.name}.{output.name}"
                try:
                    yield self._store.increment(run.dataflow, flow, run.epoch).increment
                except NotFoundError:
                    continue

    def _versions(
        self, record: DataflowRecord, run: RunRecord, unit: PhysicalStage
    ) -> dict[str, int]:
        if run.status is not RunStatus.COMMITTED:
            return {}
        versions: dict[str, int] = {}
        generations = self._runs.log(record.folder).generations
        home = home_of(generations, unit.leader.name, run.epoch)
        for member in unit.members:
            found = self._engine.first_shown(record.folder, record.name, member, run.epoch, home)
            versions.update((table, shown.version) for table, shown in found.items())
        return versions
