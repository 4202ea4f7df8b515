"""Roll-back of one table to what it showed at an earlier epoch, by one log entry.

    version  7    8    9   10   11 (roll-back)   12
    shows    e4   e5   e6  e7   e5               e6 again, of the next generation

Versions 9 and 10 stay in the history. The entry has the difference to the earlier version. It
counts epochs under the new generation's transactions, since Delta's transactions never go back.
From its generation mark, every writer of an older generation sees that it no longer leads.

Guaranteed: nothing is written unless every file of the earlier version exists; a roll-back is
written once, however often it is repeated (tests/controller/loop/recovery/test_rollback.py). Not
guaranteed: that earlier versions are kept longer than the table's retention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cbp.engine.commit.change_feed import ChangeFeed, is_derivable
from cbp.engine.commit.garbage_collection import paths_of
from cbp.engine.commit.table_entries import (
    KINDS,
    app_id,
    counts_epochs,
    generation_id,
    horizon,
    horizon_mark,
    live_at,
    newest_epoch,
    shown_generation,
)
from cbp.engine.delta.actions import Action, AddFile, ChangeFile, RemoveFile, Txn, difference
from cbp.engine.delta.change_feed_settings import feed_flow
from cbp.engine.delta.deletion_vectors import VectorsFile
from cbp.engine.delta.log import DeltaLog, Snapshot
from cbp.engine.delta.managed_table import ManagedTable
from cbp.engine.interface.tables import TableRewind, Target
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import Files
from cbp.errors import RollbackImpossibleError
from cbp.errors.counts import format_count
from cbp.model.run.intention import Intention

Records = Callable[[int], Sequence[Intention]]
"""Returns the records of the table's stage after an epoch, up to the target."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a table will show after the roll-back: files, their unwritten vectors, the horizon."""

    live: Mapping[str, AddFile]
    vectors: VectorsFile | None = None
    horizon: int = 0


def plan_table_rollback(
    folder: str, name: str, table: ManagedTable, target: Target, records: Records, *, files: Files
) -> tuple[TableRewind, Shown]:
    """Find the files that a table showed at an earlier epoch; check that all exist; writes nothing.

    `RollbackImpossibleError` if that version is no longer known, or a file is missing.
    """
    now = table.refresh()
    past = _past(table.log, target)
    if past.metadata != now.metadata:
        why = (
            f"the columns or the number of buckets of table {name} changed after that point "
            f"(after version {past.version})"
        )
        raise RollbackImpossibleError(target.dataflow, why, table=name)
    since = records(newest_epoch(past.txns))
    below = [change.below for one in since for change in one.changes if change.table == name]
    left = max([horizon(past.txns), *below])
    live, vectors = past.live, None
    if since:
        live, vectors = live_at(folder, name, past, since, files=files)
    needed = sorted(paths_of(live.values()) - ({vectors.path} if vectors else set()))
    gone = [path for path in needed if not files.exists(f"{table.path}/{path}")]
    if gone:
        lacking = f"{format_count(len(gone), 'file')} of that point, such as {gone[0]}"
        why = f"table {name} no longer has {lacking}"
        raise RollbackImpossibleError(target.dataflow, why, table=name)
    figures = TableRewind(
        shows=past.version,
        files_removed=len(now.live.keys() - live.keys()),
        files_added=len(live.keys() - now.live.keys()),
        records_now=_records(now.live.values()),
        records_then=_records(live.values()),
        bytes_now=sum(add.size for add in now.live.values()),
        bytes_then=sum(add.size for add in live.values()),
    )
    return figures, Shown(live, vectors, left)


def roll_back_table(
    folder: str,
    name: str,
    table: ManagedTable,
    target: Target,
    records: Records,
    *,
    files: Files,
    limits: EngineLimits,
) -> TableRewind | None:
    """Make a table show the records of an earlier epoch; `None` if that is done already.

    Raises as `plan_table_rollback`; `LogConflictError` if another controller writes meanwhile.
    """
    if shown_generation(table.refresh().txns) >= target.generation:
        return None
    figures, shown = plan_table_rollback(folder, name, table, target, records, files=files)
    if shown.vectors is not None:
        shown.vectors.write(table.path, files)
    actions = difference(table.snapshot.live, shown.live, now_ms=target.timestamp_ms)
    kinds = KINDS if target.epoch >= 0 else ()
    marks = {app_id(target.dataflow, name, k, target.generation): target.epoch for k in kinds}
    marks |= horizon_mark(f"cbp/{target.dataflow}/{name}", shown.horizon, target.generation)
    adds = [action for action in actions if isinstance(action, AddFile)]
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    feed: tuple[ChangeFile, ...] = ()
    if feed_flow(table.snapshot.metadata.configuration) and not is_derivable(adds, removes):
        feeder = ChangeFeed(table.path, table.snapshot, max(target.epoch, 0), files, limits)
        feed = feeder.write_difference(table.snapshot.live, shown.live)
    table.publish(
        adds=adds,
        removes=removes,
        feed=feed,
        app_id=generation_id(target.dataflow),
        version=target.generation,
        marks=marks,
        intention_id=f"{target.dataflow}/generation/{target.generation}",
        timestamp_ms=target.timestamp_ms,
        operation="CBP ROLLBACK",
    )
    return figures


def _past(log: DeltaLog, target: Target) -> Snapshot:
    """Return the newest version that shows no epoch after the target.

    Versions that an earlier roll-back undid show epochs after the target of that roll-back, so they
    are skipped for every target. A later entry that shows no epoch, such as one that alters the
    table, belongs to the epoch before it.
    """
    versions = log.readable()
    newest: int | None = None
    for version in reversed(versions):
        shown = _shown_by(log.entry(version))
        if version == 0 or (shown is not None and shown <= target.epoch):
            return log.snapshot(version if newest is None else newest)
        if shown is not None:
            newest = None
        elif newest is None:
            newest = version
    oldest = log.snapshot(log.base_of(versions[0]))
    if (first := newest_epoch(oldest.txns)) > target.epoch:
        why = (
            f"the history of {log.path} begins at epoch {first}; earlier versions are no longer "
            "kept (CBP_KEEP_HOURS, CBP_KEEP_VERSIONS_MIN)"
        )
        raise RollbackImpossibleError(target.dataflow, why, oldest=first)
    return oldest if newest is None else log.snapshot(newest)


def _shown_by(actions: Iterable[Action]) -> int | None:
    """Return the epoch that an entry of a run or roll-back shows; `None` for other entries."""
    txns = {action.app_id: action.version for action in actions if isinstance(action, Txn)}
    runs = [n for name, n in txns.items() if counts_epochs(name)]
    if not runs and not shown_generation(txns):
        return None
    return max(runs, default=-1)


def _records(adds: Iterable[AddFile]) -> int:
    return sum(add.rows - add.dead for add in adds)
