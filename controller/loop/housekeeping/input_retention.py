"""Input retention: removes increments of sources that every reader has read, oldest first.

    files of an increment -> its row in the store         either step can be repeated

The increment's entry in the source's log stays. It holds the fingerprint that identifies the same
file when it comes again, and the number that the next increment follows. Rows of old runs and of
old increments of stages are removed, too: the tables contain the same facts. So are rows of
increments that their own retention has removed from a table (`cbp.engine.outputs.retention`).

Invariants (tests/controller/loop/housekeeping/test_retention.py): whatever a queue or a roll-back
needs stays, wherever a crash happens; a flow is read from the oldest increment that exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.interface.readers import IncrementReader
from cbp.engine.storage.table_names import source_folder
from cbp.model.dataflow.dataflow import SourceNode
from cbp.model.flow.connector import Connector
from cbp.model.flow.position import Position
from cbp.model.flow.retention import Expiry, FlowRetention, Held, expire
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.runs.output_retention import SinkReads
from controller.store.base import DataflowRecord, IncrementRecord

INCREMENTS_MAX = 500
"""How many increments of a source are examined at a time."""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long inputs and runs are kept; for tables see `garbage_collector.Retention`.

    Attributes:
        inputs: For increments of sources that all readers have read; a declaration of the
            source takes precedence.
        runs: For rows in the store: of a stage's runs, and of increments of its flows.
    """

    inputs: FlowRetention
    runs: int


SEVEN_DAYS = Keep(FlowRetention(7 * 86_400.0), 10_000)
"""The default."""


@dataclass(kw_only=True, eq=False)
class Inputs(DataflowPart):
    """Decides which inputs are removed, and removes them."""

    increments: IncrementReader
    keep: Keep
    sinks: SinkReads
    building: Collection[str]
    retention: Retention

    def plan(self, record: DataflowRecord, needed: Collection[str]) -> dict[str, Expiry]:
        """Return the removed increments by source; reads only.

        Args:
            needed: Files that connectors and positions name, relative to the dataflow's folder.
        """
        log, dataflow = self.open_log(record.folder), self.catalog.compiled(record)
        oldest, unpublished = log.oldest_position(), self.sinks.needed(record, dataflow, log)
        replayed = {} if oldest is None else _ends(oldest)
        queues: list[Mapping[str, Connector]] = [*self.store.connectors(record.name).values()]
        if oldest is not None:
            queues += _queues(oldest)
        if (stood := self._before_swap(record)) is not None:
            replayed = {flow: min(n, _ends(stood).get(flow, 0)) for flow, n in replayed.items()}
            needed = {*needed, *files_of(_queues(stood))}
            queues += _queues(stood)
        needs_all = record.name in self.building
        if needs_all or self._may_be_recomputed(record.name, dataflow.sources, replayed, queues):
            return {}
        return {
            name: self._expiry(record, source, replayed.get(name, 0), needed, unpublished.get(name))
            for name, source in dataflow.sources.items()
        }

    def _may_be_recomputed(
        self,
        name: str,
        sources: Collection[str],
        replayed: Mapping[str, int],
        queues: Iterable[Mapping[str, Connector]],
    ) -> bool:
        """Return whether a replacement waits, or can wait again: its groups need all inputs."""
        if any(one.gone for inputs in queues for c in inputs.values() for one in c.waiting):
            return True
        claims = (one for source in sources for one in self.store.open_claims(name, source))
        if any((one.same_as or {}).get("by") in ("replaced", "retracted") for one in claims):
            return True
        return any(
            one.increment.gone
            for source in sources
            for one in self.store.oldest_increments(name, source, first=replayed.get(source, 0))
        )

    def _before_swap(self, record: DataflowRecord) -> Position | None:
        """Return the position of the dataflow at the last swap, if that swap can still be undone.

        The earlier version then reads what arrived since.
        """
        begin = self.descriptions.of(record).begin
        if begin is None or begin.back:
            return None
        past = self.clock().timestamp() > begin.at_ms / 1000 + self.retention.seconds
        return None if past else begin.swapped

    def remove(self, record: DataflowRecord, plans: Mapping[str, Expiry]) -> None:
        """Carry out a plan; can be interrupted anywhere, and repeated."""
        for source, plan in plans.items():
            if not plan.gone:
                continue
            for one in plan.gone:
                for path in one.paths:
                    self.files.remove(f"{record.folder}/{path}", what="dead_file")
            self.store.forget_increments(record.name, source, below=plan.gone[-1].index + 1)

    def forget(self, record: DataflowRecord, position: Position) -> int:
        """Remove rows of old runs and of old increments of stages; return their number."""
        forgotten = 0
        for leader, unit in self.catalog.units(record).items():
            if leader not in position.stages:
                continue
            below = max(0, position.stages[leader].epoch - self.keep.runs)
            if below:
                forgotten += self.store.forget_runs(record.name, leader, below=below)
            for member in unit.members:
                for output in member.translator.outputs:
                    flow = f"{member.name}.{output.name}"
                    gone = max(below, self.increments.horizon(record.folder, flow))
                    if gone:
                        forgotten += self.store.forget_increments(record.name, flow, below=gone)
        return forgotten

    def _expiry(
        self,
        record: DataflowRecord,
        node: SourceNode,
        replayed: int,
        needed: Collection[str],
        unpublished: int | None,
    ) -> Expiry:
        source, retention = node.name, node.keep.over(self.keep.inputs)
        # The newest increment always stays: the store derives the next number from it.
        oldest = self.store.oldest_increments(record.name, source, limit=INCREMENTS_MAX)
        newest = self.store.next_index(record.name, source) - 1
        held = [_held(one) for one in oldest if one.increment.index < newest]
        total = 0
        if retention.bytes:
            folder = f"{record.folder}/{source_folder(source)}"
            stored = self.files.list_files(folder)
            total = sum(file.bytes for file in stored if not file.path.startswith("_"))
        return expire(
            held,
            total_bytes=total,
            first_replayed=replayed,
            needed=needed,
            retention=retention,
            now=self.clock(),
            next_index=newest + 1,
            **({} if unpublished is None else {"first_waiting": unpublished}),
        )


def files_of(queues: Iterable[Mapping[str, Connector]]) -> set[str]:
    """Return the files of everything that connectors hold, stage by stage."""
    return {
        file.path
        for connectors in queues
        for connector in connectors.values()
        for increment in connector.held
        for file in increment.kept
    }


def _queues(position: Position) -> list[Mapping[str, Connector]]:
    return [stage.connectors for stage in position.stages.values()]


def _ends(position: Position) -> dict[str, int]:
    """Return flow -> the first increment that had not arrived yet at a position."""
    return {one.flow: one.index + 1 for one in position.newest}


def _held(record: IncrementRecord) -> Held:
    files = record.increment.kept
    return Held(
        record.increment.index,
        sum(file.bytes for file in files),
        record.created_at,
        tuple(file.path for file in files),
    )
