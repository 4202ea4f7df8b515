"""The change data feed of views' tables, read as Delta readers do: from the log and the files.

version n  --its change files, else what it only adds-->  version n + 1
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from cbp.engine.delta.actions import Action, AddFile, ChangeFile, RemoveFile
from cbp.engine.delta.log import DeltaLog
from cbp.engine.storage.files import LocalFiles
from tests.change_feeds import TYPE, apply_bag_feed, apply_feed, record_of
from tests.simulation.model import Broken, Record
from tests.simulation.world import World

__all__ = ["Feeds"]

Records = Counter[tuple[object, ...]]


class Feeds:
    """Follows the feeds of all views of a world, each from the first version that was seen.

    Args:
        world: Its files are read past all faults.
        rows_of: Returns what a version of a table shows.
        parquet: Returns the rows of a file.
    """

    def __init__(
        self,
        world: World,
        rows_of: Callable[[str, int], list[Record]],
        parquet: Callable[[str], list[Record]],
    ) -> None:
        self._world, self._rows_of, self._parquet = world, rows_of, parquet
        self._at: dict[str, tuple[int, Records]] = {}

    def check(self, table: str, columns: Sequence[str], key: Sequence[str]) -> None:
        """Check each version that came since the last time, unless those before it are gone.

        Args:
            table: The table's folder.
            columns: Columns of the view.
            key: Those that name a record; empty for a bag.
        """
        path = f"{self._world.folder}/{table}"
        log = DeltaLog(path, LocalFiles())
        versions = log.readable()
        for version in versions:
            before = self._at.get(table)
            if before is not None and version <= before[0]:
                continue
            shown = Counter(record_of(row, columns) for row in self._rows_of(table, version))
            self._at[table] = version, shown
            if before is None or before[0] != version - 1:
                continue
            changes = self._changes(
                path, log.entry(version), columns, newest=version == versions[-1]
            )
            if changes is None:
                continue
            try:
                at = [columns.index(name) for name in key]
                after = (
                    apply_feed(before[1], changes, at) if at else apply_bag_feed(before[1], changes)
                )
            except AssertionError as error:
                message = f"P9: the feed of {table} at {version} is {changes}: {error}"
                raise Broken(message) from error
            if after != shown:
                message = f"P9: the feed of {table} at {version} is {changes}, and it shows {shown}"
                raise Broken(message)

    def _changes(
        self, path: str, entry: Iterable[Action], columns: Sequence[str], *, newest: bool
    ) -> Counter[tuple[str, tuple[object, ...]]] | None:
        """Return the changes of a version; `None` if the collection has removed their files."""
        actions = list(entry)
        files = [f"{path}/{one.path}" for one in actions if isinstance(one, ChangeFile)]
        if files:
            gone = not all(map(os.path.exists, files))
            if gone and not newest and not self._world.plan.kept:
                return None
            rows = [row for file in files for row in self._parquet(file)]
            return Counter((row[TYPE], record_of(row, columns)) for row in rows)
        adds = [one for one in actions if isinstance(one, AddFile) and one.data_change]
        removes = [one for one in actions if isinstance(one, RemoveFile) and one.data_change]
        if removes or any(one.deletion_vector is not None for one in adds):
            message = f"P9: an entry of {path} changes records, and has no change files"
            raise Broken(message)
        if not all(os.path.exists(f"{path}/{one.path}") for one in adds) and not newest:
            return None
        rows = [row for one in adds for row in self._parquet(f"{path}/{one.path}")]
        return Counter(("insert", record_of(row, columns)) for row in rows)
