"""Output retention: which part of a dataflow's outputs must be kept.

Three things keep an output: what its stage declares, readers that have not read it yet, and
possible roll-backs. Asked before a run that trims its outputs (`cbp.engine.outputs.retention`), and
by code that shows what would be removed. The answer is computed from the oldest position that is
kept; before the first position is written, everything is kept. An answer stays valid until the run
is recorded: the oldest position only moves forward, and queues only lose what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.storage.file_names import file_epoch
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.retention import FOREVER, KeptFlow, kept_flow
from controller.loop.records.catalog import Catalog
from controller.store.base import DataflowRecord

__all__ = ["Keeping"]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Computes what must be kept of outputs; reads only.

    Attributes:
        log: Returns the intention log of a folder.
    """

    catalog: Catalog
    log: Callable[[str], IntentionLog]

    def of(self, record: DataflowRecord, nodes: Iterable[StageNode]) -> dict[str, KeptFlow]:
        """Return, for each output of some stages that is not kept for good, what must be kept."""
        wishes = {
            f"{node.name}.{output}": wish.over(FOREVER)
            for node in nodes
            for output, wish in node.keep.items()
        }
        if not wishes:
            return {}
        oldest = self.log(record.folder).oldest_position()
        dataflow = self.catalog.compiled(record)
        return {
            flow: kept_flow(
                flow,
                retention,
                readers=dataflow.consumers(flow),
                oldest=oldest,
                epoch_of=file_epoch,
            )
            for flow, retention in wishes.items()
        }
