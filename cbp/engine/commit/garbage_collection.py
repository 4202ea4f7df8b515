"""Garbage collection of one table: which versions stay readable, which files can be removed.

A table is cleaned in two steps. First the log is cut before a checkpoint, the *base*: the oldest
version that stays readable. Then every file is removed for which both conditions hold:

1. it was written by a run whose epoch is below the epoch that the base shows;
2. no readable version, no queue and no unpublished record names it.

If the base is from before a roll-back (`cbp.model.flow.generation`), no file counts as dead by its
epoch until the base has moved on.

Why that is enough: runs of a stage are serial and publish in order. So a file of an epoch
below the base's was published, or belongs to an attempt that was never recorded and never will
be. A run under way, and writes of a controller that no longer leads, have later epochs.

Guaranteed, whatever crashes or runs meanwhile: every version from the base on, every
increment in a queue and every unpublished intention keep their files
(tests/cbp/engine/commit/test_garbage_collection.py). A reader of a version that was the newest one
less than `Retention.seconds` ago finds its files, unless `versions_max` newer ones exist.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from cbp.engine.commit.table_entries import shown_epoch, shown_generation
from cbp.engine.delta.actions import AddFile, ChangeFile
from cbp.engine.delta.deletion_vectors import vector_path
from cbp.engine.delta.log import DeltaLog
from cbp.engine.delta.managed_table import ManagedTable
from cbp.engine.interface.garbage_collector import UNFINISHED, Dead, Kept, Retention, TablePlan
from cbp.engine.storage.file_names import file_epoch
from cbp.engine.storage.files import Files, StoredFile

FILES_MAX = 2_000
"""Maximum number of files of a table that one call removes; this takes some tenths of a second."""

_FOLDERS = ("_change_data", "_runs", "_vectors")
ONE_DAY = Retention()
"""The default retention of tables."""


class NamedFiles:
    """The files that a table's readable versions name; reads each log entry once."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._added: dict[int, frozenset[str]] = {}

    def since(self, base: int, generation: int = 0) -> tuple[int, set[str]]:
        """Return a version's newest epoch, and the files that it and later versions name.

        The epoch is -1 if the version shows none.
        """
        snapshot = self._log.snapshot(base)
        for version in self._log.versions():
            if version >= base and version not in self._added:
                actions = self._log.entry(version)
                adds = (action for action in actions if isinstance(action, AddFile))
                changes = {action.path for action in actions if isinstance(action, ChangeFile)}
                self._added[version] = frozenset(paths_of(adds) | changes)
        self._added = {v: paths for v, paths in self._added.items() if v >= base}
        named = paths_of(snapshot.live.values()).union(*self._added.values())
        return shown_epoch(snapshot.txns, generation), named


def oldest_kept(
    versions: Sequence[int], stamp: Callable[[int], int], retention: Retention, *, now_ms: int
) -> int:
    """Return the oldest version to keep; `versions` ascend, `stamp` returns a version's time."""
    newest, horizon = versions[-1], now_ms - int(retention.seconds * 1000)
    first = max(versions[0], newest - retention.versions_max)
    last = max(versions[0], newest - retention.versions_min)
    if first >= last:
        return last
    # Bisect for the version that was the newest one at the horizon: reads only a few entries.
    at = bisect_right(range(first, last + 1), horizon, key=stamp)
    return first + max(at - 1, 0)


def dead_files(
    stored: Iterable[StoredFile], named: Collection[str], floor: int, *, attempt_seconds: float
) -> list[Dead]:
    """Return the dead files by the rule in the module header, oldest epoch first; pure.

    `named` files are still needed; `floor` is the epoch that the oldest kept version shows.
    """
    dead: list[tuple[int, Dead]] = []
    for file in stored:
        epoch = file_epoch(file.path)
        if file.age_seconds < attempt_seconds or file.path in named:
            continue
        if file.temporary:
            dead.append((-1, Dead(file.path, file.bytes, UNFINISHED)))
        elif epoch is not None and epoch < floor:
            because = f"written by epoch {epoch}, but not in the table at epoch {floor} or later"
            dead.append((epoch, Dead(file.path, file.bytes, because)))
    return [file for _, file in sorted(dead, key=lambda pair: (pair[0], pair[1].path))]


def plan_table(
    table: ManagedTable,
    files: Files,
    *,
    named: NamedFiles,
    queued: Callable[[], Collection[str]],
    retention: Retention,
    now_ms: int,
) -> TablePlan:
    """Decide which files of a table a collection removes; reads only.

    Args:
        named: This table's `NamedFiles`, the same object in every call.
        queued: Returns the files that connectors and unpublished records still need,
            relative to the table. Called last: by then, increments published earlier are in queues,
            unless they were consumed.
    """
    log = table.log
    oldest = oldest_kept(log.readable(), log.stamp, retention, now_ms=now_ms)
    base = log.base_of(oldest)
    old = sum(v < base for v in log.versions()) + sum(v < base for v in log.checkpoints())
    floor, alive = named.since(base, shown_generation(table.snapshot.txns))
    stored = [
        replace(file, path=f"{folder}/{file.path}")
        for folder in _FOLDERS
        for file in files.list_files(f"{table.path}/{folder}")
    ]
    waiting = set(queued())
    dead = dead_files(stored, alive | waiting, floor, attempt_seconds=retention.attempt_seconds)
    reasons = {
        "in the newest version of the table": paths_of(table.snapshot.live.values()),
        f"in version {base} or a later one (CBP_KEEP_HOURS, CBP_KEEP_VERSIONS_MIN)": alive,
        "needed by a queue or an unpublished run, now or after a roll-back": waiting,
        "left for a later collection": {file.path for file in dead[FILES_MAX:]},
    }
    gone = {file.path for file in dead}
    remaining = kept_files([file for file in stored if file.path not in gone], reasons)
    return TablePlan(base, old, tuple(dead[:FILES_MAX]), remaining)


def kept_files(
    stored: Iterable[StoredFile], reasons: Mapping[str, Collection[str]]
) -> tuple[Kept, ...]:
    """Count the files that stay, each under the first applicable reason; pure."""
    counts: dict[str, list[int]] = {because: [] for because in reasons}
    for file in stored:
        named = (because for because, paths in reasons.items() if file.path in paths)
        because = next(named, "may belong to a run under way (CBP_ATTEMPT_HOURS)")
        counts.setdefault(because, []).append(file.bytes)
    return tuple(Kept(why, len(sizes), sum(sizes)) for why, sizes in counts.items() if sizes)


def collect_table(table: ManagedTable, files: Files, plan: TablePlan) -> None:
    """Carry out a plan; can be interrupted anywhere and repeated.

    The log is cut first: versions that can no longer be opened need no files.
    """
    table.clean_before(plan.base)
    if plan.dead:
        # Without the sync, a power loss could bring back entries whose files are gone.
        files.sync_dir(table.log.folder)
    for file in plan.dead:
        files.remove(f"{table.path}/{file.path}", what="dead_file")


def paths_of(adds: Iterable[AddFile]) -> set[str]:
    """Return the data files and deletion vectors that these actions name, relative to the table."""
    paths = set()
    for add in adds:
        paths.add(add.path)
        if add.deletion_vector is not None and (path := vector_path(add.deletion_vector)):
            paths.add(path)
    return paths
