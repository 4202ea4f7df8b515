"""Retained inputs: increments that a stage has read, from which runs recompute groups.

    stage of the first version     has read every increment of the source
    emptied by a later version     has read what was queued when it began with nothing, and what
                                   arrived since; refused if an earlier increment is missing
    changed by a later version     unknown, so it is refused

Increments that roll-backs dropped do not count. Increments that wait are not read yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cbp.errors import NotFoundError, ReplacementUnfollowedError, ReplaceRefusedError
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.dataflow.replacement_obstacles import is_signed, obstacles
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from controller.loop.records.correction_log import Corrected, is_undone, read_notes
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.records.version_log import Begin
from controller.store.base import DataflowRecord


@dataclass(kw_only=True, eq=False)
class RetainedInputs(DataflowPart):
    """Finds retained inputs in the store and the folder; only reads."""

    def check(self, name: str, source: str, *, rebuild: bool = False) -> DataflowRecord:
        """Raise `ReplaceRefusedError` if a reader cannot follow a replacement of files."""
        record, dataflow = self.catalog.find(name)
        if source not in dataflow.sources:
            raise NotFoundError(kind="source", name=f"{name}.{source}")
        unable = _unable(dataflow, source, self._altered(record, dataflow))
        waits = {one for one in unable if rebuild and one.startswith("stages.")}
        if readers := {one: why for one, why in unable.items() if one not in waits}:
            raise ReplaceRefusedError(record.name, source, _words(readers), readers)
        node = dataflow.sources[source]
        if not is_signed(node, dataflow.stages):
            for stage in dataflow.stages.values():
                if source in stage.wiring.values() and f"stages.{stage.name}" not in waits:
                    for flow in stage.wiring.values():
                        self._require_kept(record, stage, flow, source)
        return record

    def of(self, record: DataflowRecord, node: StageNode) -> dict[str, tuple[Increment, ...]]:
        """Return what each input has read, in order; raises `ReplacementUnfollowedError`."""
        dataflow = self.catalog.compiled(record)
        altered = self._altered(record, dataflow)
        for flow in dict.fromkeys(node.wiring.values()):
            if readers := _unable(dataflow, flow, altered, only=node.name):
                why = next(iter(readers.values()))
                raise ReplacementUnfollowedError(record.name, node.name, why)
            self._require_kept(record, node, flow, flow)
        connectors = self.store.connectors(record.name)[node.name]
        dropped = self.dropped(record)
        read = {}
        for input_, flow in node.wiring.items():
            unread = {one.index for one in connectors[input_].unread}
            gone = dropped.get(flow, ())
            read[input_] = tuple(
                one.increment
                for one in self.store.oldest_increments(record.name, flow)
                if (index := one.increment.index) not in unread
                and not any(index in part for part in gone)
            )
        return read

    def _require_kept(
        self, record: DataflowRecord, node: StageNode, flow: str, source: str
    ) -> None:
        """Refuse files of a source if a flow of a stage no longer has all its increments."""
        oldest = self.store.oldest_increments(record.name, flow, limit=1)
        if oldest and (first := oldest[0].increment.index):
            why = (
                f"only increments of {flow!r} from number {first} on are kept, but stage "
                f"{node.name!r} recomputes groups from all of its input. To keep increments "
                "longer, raise `keep` of their source or stage, or CBP_KEEP_INPUTS_HOURS"
            )
            raise ReplaceRefusedError(record.name, source, why)

    def _altered(self, record: DataflowRecord, dataflow: Dataflow) -> frozenset[str]:
        """Return stages whose tables differ from the result of their present code and input."""
        begins = tuple(self.descriptions.begins_that_count(record))
        altered = set[str]()
        for begin in reversed(begins):
            altered = (altered | set(begin.anew)) - set(begin.emptied)
        dropped = self.dropped(record)
        for name, node in dataflow.stages.items():
            began = _began(begins, name)
            if began is not None and name in began.stages and _lacks(began, node, dropped):
                altered.add(name)
        return frozenset(altered | set(self._corrected(record, begins)))

    def _corrected(self, record: DataflowRecord, begins: Sequence[Begin]) -> Iterator[str]:
        """Yield the stages whose present state an operator corrected.

        A correction no longer counts after a roll-back to a point before it, after a later rebuild,
        or after the swap that brought the corrected tables was taken back.
        """
        generations = self.open_log(record.folder).generations
        taken_back = self.descriptions.taken_back(record)
        for one in read_notes(self.files, record.folder):
            rebuilt = any(_began_after(one, begin) for begin in begins)
            if not rebuilt and not is_undone(one, generations, taken_back):
                yield one.note.stage


def _unable(
    dataflow: Dataflow, source: str, altered: frozenset[str], only: str = ""
) -> dict[str, str]:
    """Return reader -> why it cannot apply corrections, for the readers of a source.

    With `only`, check that stage alone: its run is about to read what was taken back.
    """
    node = dataflow.sources.get(source)
    every = dataflow.sources, dataflow.stages, dataflow.sinks, altered
    return {
        one.reader: one.why
        for one in (() if node is None else obstacles(node, *every, taken_back=bool(only)))
        if not only or one.reader == f"stages.{only}"
    }


def _began(begins: Sequence[Begin], stage: str) -> Position | None:
    """Return the position at which a stage last began with nothing; `None` if it never did.

    Args:
        begins: Newest first.
    """
    begin = next((one for one in begins if stage in one.emptied), None)
    # Tables that were built beside contain all input from before the swap.
    return None if begin is None or begin.swapped is not None else begin.position


def _began_after(one: Corrected, begin: Begin) -> bool:
    """Return whether a corrected stage began with nothing after the correction."""
    stages, name = begin.position.stages, one.note.stage
    first = stages.get(name) or stages.get(one.leader)
    return name in begin.emptied and first is not None and one.epoch < first.epoch


def _words(readers: Mapping[str, str]) -> str:
    return "; ".join(f"{reader} cannot apply corrections: {why}" for reader, why in readers.items())


def _lacks(began: Position, node: StageNode, dropped: Mapping[str, Sequence[range]]) -> bool:
    """Return whether a stage began without an earlier increment that is still valid."""
    newest = {one.flow: one.index for one in began.newest}
    for input_, flow in node.wiring.items():
        connector = began.stages[node.name].connectors.get(input_)
        # A later version added the input: then that version has altered the stage.
        queued = set() if connector is None else {one.index for one in connector.waiting}
        queued |= {index for part in dropped.get(flow, ()) for index in part}
        if not queued.issuperset(range(newest.get(flow, -1) + 1)):
            return True
    return False
