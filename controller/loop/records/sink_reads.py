"""Unpublished increments of sinks, by flow: a sink is a reader whose increments stay.

A sink that was registered and has not begun, or whose row was lost with a database, may need
everything. A sink that is paused or fails keeps what it has not published, for as long as that
takes; the list of sinks and the metric `cbp_sink_waiting_increments` show it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cbp.engine.commit.intention_log import IntentionLog
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.generation import SinkPosition
from controller.store.base import DataflowRecord, Store


@dataclass(frozen=True, slots=True)
class SinkReads:
    """Finds the oldest increment of each flow that a sink may still read; reads only."""

    store: Store

    def needed(
        self, record: DataflowRecord, dataflow: Dataflow, log: IntentionLog
    ) -> dict[str, int]:
        """Return flow -> the first increment that a sink may still read; other flows are absent."""
        if not dataflow.sinks:
            return {}
        rows = {(row.sink, row.flow): row for row in self.store.sinks(record.name)}
        generations, needed = log.generations, dict[str, int]()
        for sink in dataflow.sinks.values():
            flow, row = sink.reads, rows.get((sink.name, sink.reads))
            first = 0
            if row is not None:
                position = SinkPosition(row.generation, row.next)
                first = position.needed(flow, generations if "." in flow else ())
            needed[flow] = min(first, needed.get(flow, first))
        return needed
