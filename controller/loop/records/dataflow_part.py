"""What the parts of a controller that work on dataflows have in common: where dataflows are kept.

A part inherits these attributes, and adds its own. `controller.loop.assembly` passes the same
values to all parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.storage.files import Files
from cbp.model.flow.generation import increments_dropped
from cbp.model.flow.increment import Increment
from controller.loop.records.compiled_dataflows import Catalog
from controller.loop.records.version_log import Descriptions
from controller.store.base import DataflowRecord, Store


@dataclass(kw_only=True, eq=False)
class DataflowPart:
    """The rows of dataflows, their folders, their versions, their code and their records."""

    store: Store
    files: Files
    clock: Callable[[], datetime]
    catalog: Catalog
    descriptions: Descriptions
    open_log: Callable[[str], IntentionLog]

    def now_ms(self) -> int:
        """Return the present time in milliseconds since 1970."""
        return int(self.clock().timestamp() * 1000)

    def dropped(self, record: DataflowRecord) -> dict[str, list[range]]:
        """Return flow -> the increments that roll-backs dropped."""
        return increments_dropped(self.open_log(record.folder).generations)

    def has_files(self, record: DataflowRecord, increment: Increment) -> bool:
        """Return whether all files of an increment still exist."""
        return all(self.files.exists(f"{record.folder}/{file.path}") for file in increment.kept)
