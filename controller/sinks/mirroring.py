"""Replaces a mirrored view as a whole: at its begin, and where its changes do not lead on.

    when it begins                         its changes may be collected, or not add up to the view
    a roll-back undid what is published    there are no changes that take it back
    its stage started again                   it writes no deletions of what it wrote before
    increments are missing                 the changes in between are lost
    the view has other columns
    an operator chose `rewrite`            somebody else wrote into the table

The records are those of one version of the view's table. The changes after the epoch that the
version shows come next, so none is lost, and none counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from cbp.engine.interface.readers import RecordReader
from cbp.engine.storage.table_names import state_table
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.sinks import SinkNode
from cbp.model.version.flow_life import NEW_LIFE
from controller.loop.reading.snapshots import Snapshots
from controller.loop.records.description_log import Descriptions
from controller.sinks.delta_table import DeltaMirror
from controller.sinks.notes import SinkNote
from controller.store.base import DataflowRecord

PAGE_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Corrects mirrors; safe to use from several threads."""

    snapshots: Snapshots
    records: RecordReader
    descriptions: Descriptions

    def set_right(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        sink: SinkNode,
        note: SinkNote,
        target: DeltaMirror,
        *,
        anew: bool,
    ) -> SinkNote:
        """Replace the target by the view, if changes alone cannot bring it up to date."""
        life = self.descriptions.lives(record).get(sink.view, NEW_LIFE)
        begins = max(life.first, life.signed)
        if note.replacement and note.life == begins and not anew and target.fits():
            return note
        stage, _, view = sink.view.partition(".")
        table = self.snapshots.take(record.name).tables[state_table(stage, view)]
        batches = self._batches(record, dataflow, stage, view, table.version, target.schema)
        made = target.replace(note, record.generation, table.epoch, batches)
        return replace(made, life=begins)

    def _batches(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        stage: str,
        view: str,
        version: int,
        schema: pa.Schema,
    ) -> Iterator[pa.RecordBatch]:
        reader, place = self.records.versions(record.folder, dataflow.stages[stage]), (0, 0)
        while True:
            rows, behind = reader.state_page(view, version, place, PAGE_RECORDS)
            columns = [{name: row[name] for name in schema.names} for row in rows]
            yield from pa.Table.from_pylist(columns, schema=schema).to_batches()
            if behind is None:
                return
            place = behind
