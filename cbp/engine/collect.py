"""Collection of one table: which versions stay readable, and which files nobody needs.

A table is cleaned in two steps. First the log is cut before a checkpoint, the *base*:
the oldest version that stays readable. Then every file goes that (1) a run wrote whose
epoch is below the one that the base shows, and (2) no readable version, no queue and
no unpublished record names.

Epochs are those of the dataflow's generation (`cbp.model.generation`): where the base is from
before a roll-back, nothing can be told dead by its epoch until the base has moved on.

Why that is enough. Runs of a stage are serial and publish in order, so a file of an
epoch below the base's was published, or belongs to an attempt that was never recorded
and never will be. A run under way, and whatever a deposed controller still writes,
have later epochs. So no lock is needed, and no clock decides whether a file is dead.

Guaranteed, whatever crashes or runs meanwhile: every version from the base on, every
increment in a queue and every unpublished intention keep their files
(tests/cbp/engine/test_collect.py). A reader of a version that was the newest one less
than `Retention.seconds` ago finds its files, unless `versions_max` newer ones exist.
Not guaranteed: that all garbage goes in one call; each removes at most `FILES_MAX`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.log import DeltaLog
from cbp.engine.delta.tables import ManagedTable
from cbp.engine.files import Files, StoredFile
from cbp.engine.layout import file_epoch
from cbp.engine.publication import shown_epoch, shown_generation
from cbp.engine.state.vectors import vector_path

__all__ = [
    "ONE_DAY",
    "Dead",
    "Kept",
    "NamedFiles",
    "Retention",
    "TablePlan",
    "collect_table",
    "paths_of",
    "plan_table",
]

FILES_MAX = 2_000
"""Files that one call removes of a table: some tenths of a second."""

_FOLDERS = ("_runs", "_vectors")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a table's past stays readable; all three hold.

    Attributes:
        versions_min: Versions before the newest that stay, however old they are.
        versions_max: Versions before the newest that may stay, however young they are.
        seconds: A version stays that was the newest one within this time.
        attempt_seconds: Longest time that a task writes: a temporary, or a file of a
            failed attempt, is left alone until it is older.
    """

    versions_min: int = 20
    versions_max: int = 10_000
    seconds: float = 86_400.0
    attempt_seconds: float = 3_600.0


ONE_DAY = Retention()
"""For whom nobody has chosen."""


@dataclass(frozen=True, slots=True)
class Dead:
    """A file that goes, and why, in words.

    Attributes:
        path: Relative to the table.
    """

    path: str
    bytes: int
    because: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Files that stay for one reason, in words."""

    because: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What a collection removes.

    Attributes:
        base: The oldest version that stays readable.
        entries: Log entries and checkpoints before it.
        dead: Files, oldest epoch first.
        kept: The others, by the reason.
    """

    base: int
    entries: int
    dead: tuple[Dead, ...]
    kept: tuple[Kept, ...] = ()


class NamedFiles:
    """What the readable versions of one table name; reads each log entry once.

    Args:
        log: Of the table.
    """

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._added: dict[int, frozenset[str]] = {}

    def since(self, base: int, generation: int = 0) -> tuple[int, set[str]]:
        """Return the newest epoch that a version shows, and what it and later ones name.

        Args:
            base: The version.
            generation: By which the table counts epochs now; -1 is returned for a version
                that shows none of it.
        """
        snapshot = self._log.snapshot(base)
        for version in self._log.versions():
            if version > base and version not in self._added:
                actions = self._log.entry(version)
                adds = (action for action in actions if isinstance(action, AddFile))
                self._added[version] = frozenset(paths_of(adds))
        self._added = {v: paths for v, paths in self._added.items() if v > base}
        named = paths_of(snapshot.live.values()).union(*self._added.values())
        return shown_epoch(snapshot.txns, generation), named


def oldest_kept(
    versions: Sequence[int], stamp: Callable[[int], int], retention: Retention, *, now_ms: int
) -> int:
    """Return the oldest version that has to stay readable; pure but for `stamp`.

    Args:
        versions: Those that can be read, ascending, at least one.
        stamp: Version to its in-commit timestamp, which rises with the version.
        retention: What is asked for.
        now_ms: Milliseconds since 1970.
    """
    newest, horizon = versions[-1], now_ms - int(retention.seconds * 1000)
    first = max(versions[0], newest - retention.versions_max)
    last = max(versions[0], newest - retention.versions_min)
    if first >= last:
        return last
    # The version that was the newest one at the horizon, found in a few entries.
    at = bisect_right(range(first, last + 1), horizon, key=stamp)
    return first + max(at - 1, 0)


def dead_files(
    stored: Iterable[StoredFile], named: Collection[str], floor: int, *, attempt_seconds: float
) -> list[Dead]:
    """Return the files that the header's rule gives up, oldest epoch first; pure.

    Args:
        stored: Files of the table; paths relative to it.
        named: What somebody needs.
        floor: The epoch that the base shows.
        attempt_seconds: See `Retention`.
    """
    dead: list[tuple[int, Dead]] = []
    for file in stored:
        epoch = file_epoch(file.path)
        if file.age_seconds < attempt_seconds or file.path in named:
            continue
        if file.temporary:
            dead.append((-1, Dead(file.path, file.bytes, "an unfinished write")))
        elif epoch is not None and epoch < floor:
            because = f"written by epoch {epoch}; not in the table as of epoch {floor}"
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
    """Decide what a collection of a table removes; reads only.

    Args:
        table: The table, as its publisher knows it.
        files: Where it lies.
        named: Of this table, from call to call.
        queued: Returns the files that connectors and unpublished records still need,
            relative to the table. Called last: what was published before is queued by
            then, unless it was consumed.
        retention: What stays readable.
        now_ms: Milliseconds since 1970.
    """
    log = table.log
    oldest = oldest_kept(log.readable(), log.stamp, retention, now_ms=now_ms)
    base = log.base_of(oldest)
    old = sum(v < base for v in log.versions()) + sum(v < base for v in log.checkpoints())
    floor, alive = named.since(base, shown_generation(table.snapshot.txns))
    stored = [
        StoredFile(f"{folder}/{file.path}", file.bytes, file.age_seconds, file.temporary)
        for folder in _FOLDERS
        for file in files.list_files(f"{table.path}/{folder}")
    ]
    waiting = set(queued())
    dead = dead_files(stored, alive | waiting, floor, attempt_seconds=retention.attempt_seconds)
    reasons = {
        "shown by the newest version": paths_of(table.snapshot.live.values()),
        f"readable as of version {base} or later (keep_hours, keep_versions)": alive,
        "wait in a queue, are not published, or did so at a position that is kept": waiting,
        "goes in a later call": {file.path for file in dead[FILES_MAX:]},
    }
    gone = {file.path for file in dead}
    kept = kept_files([file for file in stored if file.path not in gone], reasons)
    return TablePlan(base, old, tuple(dead[:FILES_MAX]), kept)


def kept_files(
    stored: Iterable[StoredFile], reasons: Mapping[str, Collection[str]]
) -> tuple[Kept, ...]:
    """Count files by the first reason that names them; pure."""
    counts: dict[str, list[int]] = {because: [] for because in reasons}
    for file in stored:
        named = (because for because, paths in reasons.items() if file.path in paths)
        because = next(named, "may belong to a run under way (attempt_hours)")
        counts.setdefault(because, []).append(file.bytes)
    return tuple(Kept(why, len(sizes), sum(sizes)) for why, sizes in counts.items() if sizes)


def collect_table(table: ManagedTable, files: Files, plan: TablePlan) -> None:
    """Carry out a plan; may be interrupted anywhere, and repeated.

    The log goes first: what cannot be opened any more needs no files.
    """
    table.clean_before(plan.base)
    if plan.dead:
        # Else a loss of power could bring back entries whose files are gone.
        files.sync_dir(table.log.folder)
    for file in plan.dead:
        files.remove(f"{table.path}/{file.path}", what="dead_file")


def paths_of(adds: Iterable[AddFile]) -> set[str]:
    """Return the data files and the vectors that these actions name, relative to the table."""
    found = set()
    for add in adds:
        found.add(add.path)
        if add.deletion_vector is not None and (path := vector_path(add.deletion_vector)):
            found.add(path)
    return found
