"""From recorded runs to what their tables are, and to the log entries that show it.

Between publications the intention log is the truth: a table *is* its published snapshot
and, on top of it, the changes of the recorded runs since. `live_files` gives that view to
the runs that follow. A publication writes the difference between the two, whatever number
of runs lies between: a file that came and went is never mentioned, and a file that lost
rows in ten runs gets one vector.

    snapshot ---- change ---- change ---- change ----> view
        '------------- one entry ---------------------> the same, published

Records, layout (compaction) and retention are entries of their own where they can be told apart
for nothing: readers of a table's changes then skip the second one, and know the third one, which
only removes, by that. Where a compaction took up rows that
runs of the same publication deleted, telling them apart would need vectors that nobody ever
reads, so they are one entry.

Invariants: what is published is the view (tests/cbp/engine/test_publication.py); which
changes a table shows already is told by its transactions alone, so that a publication may
be repeated, alone or together with later runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyroaring import BitMap64

from cbp.engine.delta.actions import AddFile, RemoveFile, difference
from cbp.engine.delta.log import Snapshot
from cbp.engine.delta.tables import ManagedTable
from cbp.engine.files import Files
from cbp.engine.layout import vectors_id
from cbp.engine.state.bucket import LiveFile
from cbp.engine.state.deletes import Deletes, read_deletes
from cbp.engine.state.vectorcache import VectorCache
from cbp.engine.state.vectors import VectorsFile, pack_vectors
from cbp.errors import InvariantError, LogConflictError
from cbp.model.intention import Intention, TableChange

__all__ = [
    "KINDS",
    "RECORDS",
    "Entry",
    "app_id",
    "begun_ms",
    "counts_epochs",
    "files_named",
    "generation_id",
    "horizon",
    "horizon_mark",
    "live_adds",
    "live_at",
    "live_files",
    "plan_entries",
    "require_generation",
    "shown_epoch",
    "shown_generation",
    "unpublished",
]

RECORDS, LAYOUT, RETENTION = KINDS = "run", "compaction", "retention"
"""The kinds of changes, in the order in which a publication enters them."""

_OPERATIONS = {RECORDS: "CBP RUN", LAYOUT: "CBP COMPACT", RETENTION: "CBP RETAIN"}
_HORIZON = "horizon"
CHANGE = "change-"
"""The begin of the kind of an entry that alters a table for a version of its dataflow."""

Changes = Sequence[TableChange]


@dataclass(frozen=True, slots=True)
class Entry:
    """One log entry of one table, without a version.

    Attributes:
        app_ids: Whose transactions reach `epoch` with it; the first one names the entry.
        epoch: Last epoch of the stage that it covers.
        intention: The record of that epoch.
        kind: Of `KINDS`; of several, the first.
        below: Of a retention: the first epoch that is kept.
        removes, adds: One of a type per path.
    """

    app_ids: tuple[str, ...]
    epoch: int
    intention: Intention
    kind: str
    removes: tuple[RemoveFile, ...]
    adds: tuple[AddFile, ...]
    below: int = 0

    def put_into(self, table: ManagedTable, timestamp_ms: int) -> int:
        """Write the entry unless the table has it; return the version that shows it."""
        return table.publish(
            adds=self.adds,
            removes=self.removes,
            app_id=self.app_ids[0],
            also=self.app_ids[1:],
            version=self.epoch,
            intention_id=self.intention.id,
            timestamp_ms=timestamp_ms,
            operation=_OPERATIONS[self.kind],
            marks=self._marks,
            require=lambda txns: require_generation(table.path, txns, self.intention),
        )

    @property
    def _marks(self) -> Mapping[str, int]:
        name = self.app_ids[0].rpartition("/")[0]
        return horizon_mark(name, self.below, self.intention.generation)


def app_id(dataflow: str, table: str, kind: str, generation: int = 0) -> str:
    """Return the name under which a table's log counts epochs.

    `kind` is of `KINDS`; or change-N, for the one entry of version N of the dataflow.
    Transactions never go back, so each generation of the dataflow counts under its own.
    """
    return f"cbp/{dataflow}/{table}/{kind}" + (f"@{generation}" if generation else "")


def generation_id(dataflow: str) -> str:
    """Return the name under which a table's log counts the generations of its dataflow."""
    return f"cbp/{dataflow}/generation"


def counts_epochs(application: str) -> bool:
    """Tell whether the transactions of an application are epochs, of whatever generation.

    The one of a new version is not: it says 0 behind epoch 0, and before it too.
    """
    return application.rpartition("/")[2].partition("@")[0] in KINDS


def shown_epoch(txns: Mapping[str, int], generation: int) -> int:
    """Return the newest epoch of a generation that a table shows; -1 when it shows none.

    Args:
        txns: The table's application ids to their versions.
        generation: Of the table's dataflow.
    """
    ends = tuple(app_id("", "", kind, generation).rpartition("/")[2] for kind in KINDS)
    return max((n for name, n in txns.items() if name.rpartition("/")[2] in ends), default=-1)


def horizon_mark(name: str, below: int, generation: int) -> dict[str, int]:
    """Return the transaction by which an output's table says what retention has left of it.

    Args:
        name: `cbp/<dataflow>/<table>`.
        below: The first epoch that is kept; 0: all are, and no mark is needed.
        generation: Of the dataflow; like epochs, a horizon goes back with a roll-back.
    """
    mark = f"{name}/{_HORIZON}" + (f"@{generation}" if generation else "")
    return {mark: below} if below else {}


def horizon(txns: Mapping[str, int]) -> int:
    """Return the first epoch that retention has left in an output's table; 0: it took none."""
    generation = shown_generation(txns)
    end = f"/{_HORIZON}" + (f"@{generation}" if generation else "")
    return max((n for name, n in txns.items() if name.endswith(end)), default=0)


def shown_generation(txns: Mapping[str, int]) -> int:
    """Return the generation of its dataflow that a table shows."""
    marked = (n for name, n in txns.items() if name.endswith("/generation"))
    # A table that was made later has no mark.
    counted = (int(n) for name in txns for n in name.rpartition("/")[2].split("@")[1:])
    return max((*marked, *counted), default=0)


def require_generation(path: str, txns: Mapping[str, int], intention: Intention) -> None:
    """Refuse a record of a life of the dataflow that was rolled back meanwhile.

    Raises:
        LogConflictError: If the table shows a later generation.
    """
    if shown_generation(txns) > intention.generation:
        raise LogConflictError(path)


def unpublished(
    txns: Mapping[str, int], table: str, intentions: Iterable[Intention]
) -> list[TableChange]:
    """Return the changes of a table that a snapshot with these transactions does not show.

    Args:
        txns: Of the snapshot: application to its newest version.
        table: Folder of the table, relative to the dataflow's.
        intentions: Of the table's stage, oldest first.
    """
    return [
        change
        for intention in intentions
        for change in intention.changes
        if change.table == table
        and intention.epoch
        > txns.get(app_id(intention.dataflow, table, _kind(change), intention.generation), -1)
    ]


def live_files(
    snapshot: Snapshot, table: str, intentions: Iterable[Intention]
) -> dict[int, tuple[LiveFile, ...]]:
    """Return the files of a state table as of the newest of these intentions, by bucket.

    Args:
        snapshot: What is published; intentions that it shows are passed over.
        table: Folder of the table, relative to the dataflow's.
        intentions: Of the table's stage, oldest first.

    Raises:
        InvariantError: If a change does not fit what was there before it.
    """
    view = _view(snapshot.live, unpublished(snapshot.txns, table, intentions))
    buckets: dict[int, list[LiveFile]] = {}
    for path, (add, deletes) in view.items():
        bucket = int(dict(add.partition_values)["_bucket"] or 0)
        file = LiveFile(path, add.size, add.rows, add.deletion_vector, deletes)
        buckets.setdefault(bucket, []).append(file)
    return {bucket: tuple(files) for bucket, files in buckets.items()}


def live_adds(snapshot: Snapshot, table: str, intentions: Iterable[Intention]) -> list[AddFile]:
    """Return the live files of an output table as of the newest of these intentions.

    Args and errors are those of `live_files`.
    """
    view = _view(snapshot.live, unpublished(snapshot.txns, table, intentions))
    return [file.add for file in view.values()]


def live_at(
    folder: str, table: str, snapshot: Snapshot, intentions: Sequence[Intention], *, files: Files
) -> tuple[dict[str, AddFile], VectorsFile | None]:
    """Return the files of a table as of the newest of these intentions, as a log shows them.

    Vectors that the log does not have yet are in a file that is still to be written.

    Args:
        folder: The dataflow's folder.
        table: Folder of the table, relative to it.
        snapshot: What the table showed once.
        intentions: Of the table's stage, those behind that, oldest first.
        files: Where the vectors that there are are read.

    Raises:
        InvariantError: If a change does not fit what was there before it.
    """
    changes = unpublished(snapshot.txns, table, intentions)
    touched = _touched(changes)
    view = _view(snapshot.live, changes)
    fresh = {path: file for path, file in view.items() if path in touched}
    if not fresh:
        return {path: file.add for path, file in view.items()}, None
    marked, vectors = _marked(f"{folder}/{table}", fresh, intentions[-1].epoch, files)
    return {path: marked.get(path, file.add) for path, file in view.items()}, vectors


def files_named(intentions: Iterable[Intention]) -> set[str]:
    """Return the files that these records need until they are published, and all they add.

    Whoever collects files keeps these, for every intention that is not published: data
    files, and files of deleted rows. Relative to the dataflow's folder.
    """
    named: set[str] = set()
    for change in (change for intention in intentions for change in intention.changes):
        named.update(f"{change.table}/{add['path']}" for add in change.adds)
        named.update(f"{change.table}/{path}" for path in change.deletes)
        stored = (Deletes.from_json(deletes).path for deletes in change.deletes.values())
        named.update(f"{change.table}/{path}" for path in stored if path)
    return named


def begun_ms(tables: Mapping[str, ManagedTable], intentions: Sequence[Intention]) -> int | None:
    """Return the timestamp of a publication that died between two entries; `None`: none did.

    Its repetition may be told a later time, since other stages were published meanwhile;
    then readers as of the time between would see half of it.

    Args:
        tables: Those that the publication changes: path to table, refreshed.
        intentions: What it covers, oldest first.
    """
    last = intentions[-1]
    begun = [
        (table, application)
        for name, table in tables.items()
        for kind in KINDS
        for application in [app_id(last.dataflow, name, kind, last.generation)]
        if table.snapshot.txns.get(application, -1) == last.epoch
    ]
    if not begun or not any(
        unpublished(table.snapshot.txns, name, intentions) for name, table in tables.items()
    ):
        return None
    return min(table.log.stamp(table.version_of(name, last.epoch)) for table, name in begun)


def plan_entries(
    folder: str,
    table: str,
    snapshot: Snapshot,
    intentions: Sequence[Intention],
    *,
    timestamp_ms: int,
    files: Files,
    vectors: VectorCache | None = None,
) -> list[Entry]:
    """Return the entries after which a table shows these intentions; vectors are durable then.

    Pure but for the vectors, which are named after the last epoch and their content.

    Args:
        folder: The dataflow's folder.
        table: Folder of the table, relative to it.
        snapshot: What the table shows now.
        intentions: Of the table's stage, oldest first; at least one.
        timestamp_ms: When what goes is deleted.
        files: Where the vectors are written.
        vectors: Where those that were written lately are kept in memory, if anywhere.

    Raises:
        InvariantError: If a change does not fit what was there before it.
        LogConflictError: If the dataflow was rolled back meanwhile.
    """
    entries: list[Entry] = []
    live, last = dict(snapshot.live), intentions[-1]
    require_generation(f"{folder}/{table}", snapshot.txns, last)
    for changes in _groups(unpublished(snapshot.txns, table, intentions)):
        touched = _touched(changes)
        before = {path: live[path] for path in touched if path in live}
        view = _view(before, changes)
        after, unwritten = _marked(f"{folder}/{table}", view, last.epoch, files, vectors)
        if unwritten is not None:
            unwritten.write(f"{folder}/{table}", files)
        kinds = sorted({_kind(change) for change in changes}, key=KINDS.index)
        seen = kinds != [LAYOUT]
        actions = difference(before, after, now_ms=timestamp_ms, data_change=seen)
        ids = tuple(app_id(last.dataflow, table, kind, last.generation) for kind in kinds)
        removes = tuple(action for action in actions if isinstance(action, RemoveFile))
        adds = tuple(action for action in actions if isinstance(action, AddFile))
        below = max(change.below for change in changes)
        entries.append(Entry(ids, last.epoch, last, kinds[0], removes, adds, below))
        for path in touched:
            live.pop(path, None)
        live.update(after)
    return entries


class _File(NamedTuple):
    """A live file: as published or as added, and what was deleted from it since."""

    add: AddFile
    deletes: tuple[Deletes, ...] = ()


def _view(live: Mapping[str, AddFile], changes: Changes) -> dict[str, _File]:
    view = {path: _File(add) for path, add in live.items()}
    for change in changes:
        for path, deletes in change.deletes.items():
            file = _known(view, change, path)
            view[path] = _File(file.add, (*file.deletes, Deletes.from_json(deletes)))
        for path in change.drops:
            _known(view, change, path)
            del view[path]
        for body in change.adds:
            add = AddFile.from_json(body)
            if add.path in view:
                message = f"{change.table}: {add.path} is live already"
                raise InvariantError(message, path=add.path)
            view[add.path] = _File(add)
    return view


def _known(view: Mapping[str, _File], change: TableChange, path: str) -> _File:
    if path not in view:
        message = f"{change.table}: {path} is to lose rows, but is not live"
        raise InvariantError(message, path=path)
    return view[path]


def _groups(changes: Changes) -> list[list[TableChange]]:
    """Return the changes by entry, kind after kind; or all in one, see the header."""
    records, layout, retention = ([c for c in changes if _kind(c) == kind] for kind in KINDS)
    moved = _touched(layout)
    if any(not moved.isdisjoint([*change.deletes, *change.drops]) for change in records):
        return [list(changes)]
    return [group for group in (records, layout, retention) if group]


def _touched(changes: Changes) -> set[str]:
    return {
        path
        for change in changes
        for path in [*change.drops, *change.deletes, *(add["path"] for add in change.adds)]
    }


def _marked(
    table: str,
    view: Mapping[str, _File],
    epoch: int,
    files: Files,
    known: VectorCache | None = None,
) -> tuple[dict[str, AddFile], VectorsFile | None]:
    """Return the files as the log shall show them, and the vectors of those that lost rows."""
    known = known or VectorCache()
    bitmaps = {
        path: _dead(table, file, files, known)
        for path, file in sorted(view.items())
        if file.deletes
    }
    for bitmap in bitmaps.values():
        bitmap.run_optimize()
    content = [path.encode() + bytes(bitmap.serialize()) for path, bitmap in bitmaps.items()]
    name = vectors_id(epoch, b"".join(content))
    vectors, unwritten = pack_vectors("_vectors", name, bitmaps)
    for path, vector in vectors.items():
        known.put(table, vector, bitmaps[path])
    marked = {
        path: replace(file.add, deletion_vector=vectors[path]) if path in vectors else file.add
        for path, file in view.items()
    }
    return marked, unwritten


def _dead(table: str, file: _File, files: Files, known: VectorCache) -> BitMap64:
    old = file.add.deletion_vector
    dead = known.read(table, old, files=files) if old else BitMap64()
    expected = len(dead)
    for deletes in file.deletes:
        dead = dead | read_deletes(table, deletes, files=files)  # what is kept stays as it is
        expected += deletes.rows
    if len(dead) != expected or len(dead) >= file.add.rows:
        message = f"{table}/{file.add.path}: {len(dead)} of {file.add.rows} rows are dead"
        raise InvariantError(message, expected=expected)
    return dead


def _kind(change: TableChange) -> str:
    if change.below:
        return RETENTION
    return RECORDS if change.data_change else LAYOUT
