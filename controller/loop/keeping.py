"""What of a dataflow's outputs must stay: what their stages say, readers wait for, roll-backs need.

Asked before a run that looks after its outputs (`cbp.engine.expiry`), and by who looks at what
would go. Read from the oldest position that is kept: until the first is put, everything stays.
Since positions only grow older, and queues only lose what was read, what was told once stays
right until the run is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cbp.engine.intentions import IntentionLog
from cbp.engine.layout import file_epoch
from cbp.model.dataflow import StageNode
from cbp.model.retention import FOREVER, KeptFlow, kept_flow
from controller.loop.catalog import Catalog
from controller.store.base import DataflowRecord

__all__ = ["Keeping"]


@dataclass(frozen=True, slots=True)
class Keeping:
    """Knows what must stay of outputs; reads only.

    Attributes:
        log: Returns the records of a folder.
    """

    catalog: Catalog
    log: Callable[[str], IntentionLog]

    def of(self, record: DataflowRecord, nodes: Iterable[StageNode]) -> dict[str, KeptFlow]:
        """Return what must stay of those outputs of some stages that are not kept for good."""
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
