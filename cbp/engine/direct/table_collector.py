"""Table collector: removes the garbage of the tables of one stage.

It remembers which files their logs named. `controller.loop.housekeeping.collector` decides when a
dataflow is collected, and `cbp.engine.commit.garbage_collection` which files are garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from cbp.engine.commit.garbage_collection import NamedFiles, collect_table, plan_table
from cbp.engine.interface.garbage_collector import Retention, TablePlan
from cbp.engine.outputs.retention import expired
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import stage_tables
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.retention import Expiry, KeptFlow


@dataclass
class TableCollector:
    """Removes files and log entries; implements `GarbageCollector`."""

    tables: OpenTables
    files: Files
    now_ms: Callable[[], int]
    _named: dict[str, NamedFiles] = field(init=False, default_factory=dict)

    def collect(
        self,
        folder: str,
        node: StageNode,
        *,
        queued: Callable[[], Collection[str]],
        retention: Retention,
        dry_run: bool = False,
    ) -> Mapping[str, TablePlan]:
        """Collect the garbage of a stage's tables; see `GarbageCollector.collect`."""
        plans: dict[str, TablePlan] = {}
        for name in stage_tables(node):
            table = self.tables.table(f"{folder}/{name}")
            plans[name] = plan_table(
                table,
                self.files,
                named=self._named.setdefault(table.path, NamedFiles(table.log)),
                queued=partial(self._needed, name, table.path, queued),
                retention=retention,
                now_ms=self.now_ms(),
            )
            if not dry_run:
                collect_table(table, self.files, plans[name])
        return plans

    def _needed(self, name: str, path: str, queued: Callable[[], Collection[str]]) -> set[str]:
        waiting = (one for one in queued() if one.startswith(f"{name}/"))
        return {one.removeprefix(f"{name}/") for one in waiting} | self.tables.files_in_use(path)

    def expired(self, folder: str, kept: Mapping[str, KeptFlow]) -> Mapping[str, Expiry]:
        """Return files that the next runs would drop; see `GarbageCollector.expired`."""
        lives = {flow: self.tables.output(folder, flow).live.values() for flow in kept}
        now_ms = self.now_ms()
        return {flow: expired(live, kept[flow], now_ms=now_ms) for flow, live in lives.items()}

    def forget(self, folder: str) -> None:
        """Drop cached data about a folder's tables."""
        for path in list(self._named):  # a copy, since another thread may add to it
            if path.startswith(f"{folder}/"):
                self._named.pop(path, None)
