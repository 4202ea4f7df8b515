"""Output retention: which part of a dataflow's outputs, messages included, must be kept.

Four things keep an output: the retention that its stage declares, readers that have not read it
yet, sinks that have not published it yet, and possible roll-backs. The answer is needed by a run
that trims its outputs (`cbp.engine.outputs.retention`), and by code that shows what would be
removed. It is computed from the oldest position that is kept; before the first position is written,
everything is kept. An answer stays valid until the run is recorded: the oldest position only moves
forward, and queues and sinks only lose what was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.storage.file_names import file_epoch
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.flow.generation import SinkPosition
from cbp.model.flow.retention import AT_ONCE, FOREVER, KeptFlow, kept_flow
from controller.loop.records.dataflow_part import DataflowPart
from controller.store.base import DataflowRecord, Store


@dataclass(frozen=True, slots=True)
class SinkReads:
    """Finds the oldest increment of each flow that a sink may still read; reads only.

    What a sink may still read stays. A sink that has not begun, or whose row was lost with a
    database, may need everything. A sink that is paused or fails needs what it has not published.
    """

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


@dataclass(kw_only=True, eq=False)
class OutputRetention(DataflowPart):
    """Computes which part of each output must be kept; reads only."""

    sinks: SinkReads

    def of(self, record: DataflowRecord, nodes: Iterable[StageNode]) -> dict[str, KeptFlow]:
        """Return, for each output with limited retention, the part that must be kept.

        Messages that only their own stage reads are not results. They are removed after they
        are read, unless their stage declares a retention.
        """
        dataflow = self.catalog.compiled(record)
        messages = dataflow.own_messages()
        wishes = {
            f"{node.name}.{loopback.name}": AT_ONCE
            for node in nodes
            for loopback in node.translator.loopbacks
            if f"{node.name}.{loopback.name}" in messages
        }
        wishes |= {
            f"{node.name}.{output}": wish.over(FOREVER)
            for node in nodes
            for output, wish in node.keep.items()
        }
        if not wishes:
            return {}
        log = self.open_log(record.folder)
        oldest, unpublished = log.oldest_position(), self.sinks.needed(record, dataflow, log)
        kept = {
            flow: kept_flow(
                flow,
                retention,
                readers=dataflow.consumers(flow),
                oldest=oldest,
                epoch_of=file_epoch,
            )
            for flow, retention in wishes.items()
        }
        return {
            flow: replace(one, first_waiting=min(one.first_waiting, unpublished[flow]))
            if flow in unpublished
            else one
            for flow, one in kept.items()
        }
