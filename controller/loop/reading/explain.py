"""Explanations: the physical plan of a dataflow, and the reason and effects of one run.

The plan follows from the description and from the figures on which the engine bases its decisions
(`cbp.model.plan.explain`). A run is explained from its records: the store, its intention while
the log holds it, and the tables' logs. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any

from cbp.engine.interface.readers import TableHistory
from cbp.engine.interface.runs import RunPreparer
from cbp.errors import NotFoundError
from cbp.model.flow.connector import Decision
from cbp.model.flow.framing import FrameNote
from cbp.model.flow.generation import home_of
from cbp.model.flow.increment import Increment
from cbp.model.plan.explain import Plan, explain
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.plan.picture import dot, mermaid, picture
from cbp.model.run.account import Account, changes_of, consumed, looked_up, reason
from cbp.model.run.intention import Intention, RunStatus
from cbp.model.schedule.left_to_do import left_to_do
from cbp.model.schedule.waiting import Wait
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.records.version_log import Description, Descriptions
from controller.loop.runs.in_flight import InFlight
from controller.store.base import DataflowRecord, IncrementRecord, RunRecord


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan and the graph of a dataflow."""

    plan: Plan
    picture: str
    mermaid: str
    dot: str


@dataclass(kw_only=True, eq=False)
class Explaining(DataflowPart):
    """Explains dataflows and runs; safe to use from several threads."""

    preparer: RunPreparer
    history: TableHistory
    in_flight: InFlight

    def plan(self, name: str) -> Explanation:
        """Explain a dataflow; raises `NotFoundError` or `DataflowInvalidError`."""
        record, dataflow = self.catalog.find(name)
        leaders = tuple(self.catalog.units(record))
        return Explanation(
            explain(dataflow, leaders, self.preparer.limits()),
            picture(dataflow, leaders),
            mermaid(dataflow, leaders),
            dot(dataflow, leaders),
        )

    def versions(
        self,
        name: str,
        *,
        below: int,
        limit: int,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[VersionEntry]:
        """Return up to `limit` versions with numbers below `below`, newest first.

        Args:
            since, until: Range of the time at which versions became current; `until` is exclusive.
        """
        record = self.store.dataflow(name)
        every = read_versions(self.descriptions, record, below=below)
        early = (one for one in every if until is None or one.at < until)
        wanted = takewhile(lambda one: since is None or one.at >= since, early)
        return list(islice(wanted, limit))

    def left(self, name: str, waits: Mapping[str, Wait] | None = None) -> dict[str, str]:
        """Return the work that each stage still has if nothing more arrives; only stages with work.

        With the `waits` of the last tick, no function of an author is called.
        """
        units = self.catalog.units(self.store.dataflow(name))
        running = {stage for dataflow, stage in self.in_flight.busy() if dataflow == name and stage}
        # Also the stages that another instance runs.
        running |= {run.stage for run in self.store.intended_runs() if run.dataflow == name}
        rules = {leader: unit.leader.runnable for leader, unit in units.items()}
        return left_to_do(rules, self.store.position(name), running, waits)

    def run(self, run_id: str) -> Account:
        """Return why a run ran, its input, and its output; raises `NotFoundError`."""
        run = self.store.run(run_id)
        record, dataflow = self.catalog.find(run.dataflow)
        unit = self.catalog.units(record).get(run.stage)
        if unit is None:  # a new version has just removed the stage, and its runs
            raise NotFoundError(kind="run", name=run_id)
        intention = self.open_log(record.folder).read(run.stage, run.epoch)
        if intention is not None and intention.run != run.id:
            intention = None  # the record is of another attempt
        node, (version, codes) = unit.leader, self._code(record, run, unit, intention)
        read = {(one.increment.flow, one.increment.index): one for one in self._read(run, unit)}
        known = {place: one.increment for place, one in read.items()}
        files = {place: one.file_names for place, one in read.items()}
        frames = self._frames(record, run, unit, intention)
        return Account(
            run=run.id,
            why=reason(
                node,
                run.read,
                run.remove,
                intention.correction if intention else None,
                frames,
                files,
            ),
            consumed=tuple(consumed(node, run.read, run.remove, known, frames, files)),
            produced=tuple(self._produced(run, unit, intention)),
            lookups=() if intention is None else looked_up(intention, dataflow.stages),
            changes=() if intention is None else tuple(changes_of(intention)),
            versions=self._versions(record, run, unit),
            recorded=intention is not None,
            version=version,
            codes=codes,
        )

    def _code(
        self,
        record: DataflowRecord,
        run: RunRecord,
        unit: PhysicalStage,
        intention: Intention | None,
    ) -> tuple[int, Mapping[str, str]]:
        """Return the code of a run: from its record, or from the version in force when it began."""
        if intention is not None:
            return intention.dataflow_version, intention.codes
        description = self.descriptions.at(record, int(run.started_at.timestamp() * 1000))
        stages = {} if description.shape is None else description.shape.stages
        codes = {n: stages[n].code.text for n in unit.names if n in stages and stages[n].code}
        return description.version, codes

    def _frames(
        self,
        record: DataflowRecord,
        run: RunRecord,
        unit: PhysicalStage,
        intention: Intention | None,
    ) -> Mapping[str, Sequence[FrameNote]]:
        """Return the known facts about a run's frames: from its record, or while they wait."""
        if not unit.leader.translator.framed:
            return {}
        if intention is not None:
            return intention.frames
        if run.status is RunStatus.COMMITTED or self._amended_since(record, run):
            return {}
        # The chosen frames still wait, unless another attempt read them: then they have no number.
        waiting = self.store.connectors(run.dataflow)[run.stage]
        read, remove = (
            {name: tuple(indexes) for name, indexes in chosen.items()}
            for chosen in (run.read, run.remove)
        )
        return Decision(read, remove).frames(waiting)

    def _amended_since(self, record: DataflowRecord, run: RunRecord) -> bool:
        """Return whether frame numbers may have been reassigned since a run began."""
        _, at_ms = self.descriptions.begins(record)
        rolled_back_ms = (one.prepared_ms for one in self.open_log(record.folder).generations)
        return max((at_ms, *rolled_back_ms)) >= run.started_at.timestamp() * 1000

    def _read(self, run: RunRecord, unit: PhysicalStage) -> Iterator[IncrementRecord]:
        for spec in unit.leader.translator.inputs:
            if spec.frame_by is not None:
                continue  # a frame's number names no increment
            flow = unit.leader.wiring[spec.name]
            indexes = {*run.read.get(spec.name, ()), *run.remove.get(spec.name, ())}
            for index in sorted(indexes):
                with suppress(NotFoundError):
                    yield self.store.increment(run.dataflow, flow, index)

    def _produced(
        self, run: RunRecord, unit: PhysicalStage, intention: Intention | None
    ) -> Iterator[Increment]:
        """Yield the outputs of a run's epoch; from the store if its record is gone."""
        if intention is not None:
            yield from intention.outputs.values()
            return
        if run.status is not RunStatus.COMMITTED:
            return
        for member in unit.members:
            for output in member.translator.outputs:
                flow = f"{member.name}.{output.name}"
                with suppress(NotFoundError):
                    yield self.store.increment(run.dataflow, flow, run.epoch).increment

    def _versions(
        self, record: DataflowRecord, run: RunRecord, unit: PhysicalStage
    ) -> dict[str, int]:
        if run.status is not RunStatus.COMMITTED:
            return {}
        versions: dict[str, int] = {}
        generations = self.open_log(record.folder).generations
        home = home_of(generations, unit.leader.name, run.epoch)
        for member in unit.members:
            shown_versions = self.history.first_shown(
                record.folder, record.name, member, run.epoch, home
            )
            versions.update((table, shown.version) for table, shown in shown_versions.items())
        return versions


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """One version.

    Attributes:
        at: When it became current; aware, in UTC.
        previous: The document of the previous version; `None` if it is the first.
        anew: Stages that it changed, or whose state it started over.
    """

    version: int
    at: datetime
    document: Mapping[str, Any]
    previous: Mapping[str, Any] | None
    anew: tuple[str, ...]


def read_versions(
    descriptions: Descriptions, record: DataflowRecord, *, below: int
) -> Iterator[VersionEntry]:
    """Yield the versions with numbers below `below`, newest first; each is read on demand."""
    newest = min(below - 1, record.version)
    later: Description | None = None
    for version in range(newest, 0, -1):
        one = later if later is not None else descriptions.version(record, version)
        later = descriptions.version(record, version - 1) if version > 1 else None
        begun = one.begin
        at = record.created_at if begun is None else datetime.fromtimestamp(begun.at_ms / 1000, UTC)
        anew = () if begun is None else begun.anew
        yield VersionEntry(version, at, one.document, later.document if later else None, anew)
