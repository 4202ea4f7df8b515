"""Table entries: from recorded runs to one table's current view, and to its Delta log entries.

    snapshot ---- change ---- change ---- change ----> view
        '------------- one entry ---------------------> the same, published

A table *is* its published snapshot plus the changes of the runs recorded since. `live_files`
returns that view for the next runs. A publication writes the difference between snapshot and view,
whatever number of runs it covers: a file that was added and dropped in between is never mentioned.

Changes of records, of layout (compaction) and by retention become separate entries, so that readers
of a table's changes skip the layout entry, and recognize the retention entry, which only removes.
If a compaction merged rows that runs of the same publication deleted, separate entries would need
deletion vectors that no version shows. In that case all changes become one entry.

Invariants: what is published equals the view (tests/cbp/engine/commit/test_table_entries.py). A
table's transactions alone determine which changes it shows already, so a publication can be
repeated, alone or together with later runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyroaring import BitMap64

from cbp.engine.delta.actions import AddFile, ChangeFile, RemoveFile, difference
from cbp.engine.delta.deletion_vectors import VectorCache, VectorsFile, pack_vectors
from cbp.engine.delta.log import Snapshot
from cbp.engine.delta.managed_table import ManagedTable
from cbp.engine.state.bucket_state import LiveFile
from cbp.engine.state.pending_deletes import Deletes, read_deletes
from cbp.engine.storage.file_names import vectors_id
from cbp.engine.storage.files import Files
from cbp.errors import InvariantError, LogConflictError
from cbp.model.run.intention import Intention, TableChange

RECORDS, LAYOUT, RETENTION = KINDS = "run", "compaction", "retention"
"""The kinds of changes, in the order in which a publication writes their entries."""

_OPERATIONS = {RECORDS: "CBP RUN", LAYOUT: "CBP COMPACT", RETENTION: "CBP RETAIN"}
OPERATIONS = frozenset(_OPERATIONS.values())
"""The operation names of publications in a table's history."""

_HORIZON = "horizon"
TOGETHER = "publication"
"""Parameter of an entry: the application ids of all entries that are published together."""

CHANGE = "change-"
"""Prefix of the kind of an entry that alters a table for a new version of its dataflow."""

Changes = Sequence[TableChange]


@dataclass(frozen=True, slots=True)
class Entry:
    """One log entry of one table, without a version.

    Attributes:
        app_ids: Application ids whose transactions the entry sets to `epoch`; the first one
            identifies the entry.
        epoch: Last epoch of the stage that the entry covers.
        kind: One of `KINDS`; the first if the entry has several.
        below: In a retention entry, the first epoch that is kept.
    """

    app_ids: tuple[str, ...]
    epoch: int
    intention: Intention
    kind: str
    removes: tuple[RemoveFile, ...]
    adds: tuple[AddFile, ...]
    below: int = 0
    feed: tuple[ChangeFile, ...] = ()

    def put_into(
        self, table: ManagedTable, timestamp_ms: int, *, together: Sequence[Entry] = ()
    ) -> int:
        """Write the entry, unless the table has it; return the version that shows it."""
        names = " ".join(each for entry in together for each in entry.app_ids)
        name = self.app_ids[0].rpartition("/")[0]
        return table.publish(
            adds=self.adds,
            removes=self.removes,
            feed=self.feed,
            app_id=self.app_ids[0],
            also=self.app_ids[1:],
            version=self.epoch,
            intention_id=self.intention.id,
            timestamp_ms=timestamp_ms,
            operation=_OPERATIONS[self.kind],
            marks=horizon_mark(name, self.below, self.intention.generation),
            parameters={TOGETHER: names} if names else {},
            require=lambda txns: require_generation(table.path, txns, self.intention),
        )


def app_id(dataflow: str, table: str, kind: str, generation: int = 0) -> str:
    """Return the application id under which a table's log counts epochs.

    `kind` is one of `KINDS`, or `change-N` for the one entry of version N of the dataflow.
    Transactions never go back, so each generation of the dataflow has its own id.
    """
    return f"cbp/{dataflow}/{table}/{kind}" + (f"@{generation}" if generation else "")


def generation_id(dataflow: str) -> str:
    """Return the application id under which a table's log counts its dataflow's generations."""
    return f"cbp/{dataflow}/generation"


def counts_epochs(application: str) -> bool:
    """Return whether an application id counts epochs, of any generation.

    The id of a new version (`change-N`) counts none: its number is 0 both before and after epoch 0.
    """
    return application.rpartition("/")[2].partition("@")[0] in KINDS


def shown_epoch(txns: Mapping[str, int], generation: int) -> int:
    """Return the newest epoch of a generation that a table shows; -1 if it shows none."""
    ends = tuple(app_id("", "", kind, generation).rpartition("/")[2] for kind in KINDS)
    return max((n for name, n in txns.items() if name.rpartition("/")[2] in ends), default=-1)


def newest_epoch(txns: Mapping[str, int]) -> int:
    """Return the newest epoch, in the newest generation, that a table shows; -1 if none."""
    return shown_epoch(txns, shown_generation(txns))


def horizon_mark(name: str, below: int, generation: int) -> dict[str, int]:
    """Return the transaction that records the first epoch which retention kept in an output.

    There is none if the epoch is 0 or less. A roll-back resets the horizon, as it resets epochs.
    `name` is `cbp/<dataflow>/<table>`.
    """
    return {f"{name}/{_horizon_kind(generation)}": below} if below > 0 else {}


def horizon(txns: Mapping[str, int]) -> int:
    """Return the first epoch that retention kept in an output's table; 0 if it removed none."""
    end = f"/{_horizon_kind(shown_generation(txns))}"
    return max((n for name, n in txns.items() if name.endswith(end)), default=0)


def _horizon_kind(generation: int) -> str:
    return _HORIZON + (f"@{generation}" if generation else "")


def shown_generation(txns: Mapping[str, int]) -> int:
    """Return the newest generation of the dataflow that a table shows; 0 before any roll-back."""
    marked = (n for name, n in txns.items() if name.endswith("/generation"))
    # A table that was created after the roll-back has no mark, only epochs with `@generation`.
    counted = (int(n) for name in txns for n in name.rpartition("/")[2].split("@")[1:])
    return max((*marked, *counted), default=0)


def require_generation(path: str, txns: Mapping[str, int], intention: Intention) -> None:
    """Refuse a run's record if a roll-back has given the table a newer generation."""
    if shown_generation(txns) > intention.generation:
        raise LogConflictError(path)


def unpublished(
    txns: Mapping[str, int], table: str, intentions: Iterable[Intention]
) -> list[TableChange]:
    """Return the changes of a table that its snapshot does not show yet, oldest first.

    The intentions are those of the table's stage, oldest first.
    """
    return [
        change
        for intention in intentions
        for change in intention.changes
        if change.table == table
        and intention.epoch
        > txns.get(app_id(intention.dataflow, table, kind_of(change), intention.generation), -1)
    ]


def live_files(
    snapshot: Snapshot, table: str, intentions: Iterable[Intention]
) -> dict[int, tuple[LiveFile, ...]]:
    """Return the files of a state table as of the newest of these intentions, by bucket.

    Intentions that the published snapshot shows already are skipped. `InvariantError` if a change
    does not fit the files before it.
    """
    view = _view(snapshot.live, unpublished(snapshot.txns, table, intentions))
    buckets: dict[int, list[LiveFile]] = {}
    for path, (add, deletes) in view.items():
        bucket = int(dict(add.partition_values)["_bucket"] or 0)
        file = LiveFile(path, add.size, add.rows, add.deletion_vector, deletes)
        buckets.setdefault(bucket, []).append(file)
    return {bucket: tuple(files) for bucket, files in buckets.items()}


def live_adds(snapshot: Snapshot, table: str, intentions: Iterable[Intention]) -> list[AddFile]:
    """Return the live files of an output table, as `live_files` does for a state."""
    view = _view(snapshot.live, unpublished(snapshot.txns, table, intentions))
    return [file.add for file in view.values()]


def live_at(
    folder: str, table: str, snapshot: Snapshot, intentions: Sequence[Intention], *, files: Files
) -> tuple[dict[str, AddFile], VectorsFile | None]:
    """Return the files of a table after the newest of these intentions, in the form of an entry.

    The intentions are later than `snapshot`. The caller has to write the file of new vectors.
    """
    changes = unpublished(snapshot.txns, table, intentions)
    touched = _touched(changes)
    view = _view(snapshot.live, changes)
    fresh = {path: file for path, file in view.items() if path in touched}
    adds = {path: file.add for path, file in view.items()}
    if not fresh:
        return adds, None
    marked, vectors = _marked(f"{folder}/{table}", fresh, intentions[-1].epoch, files)
    return adds | marked, vectors


def files_named(intentions: Iterable[Intention]) -> set[str]:
    """Return the files named by unpublished records: those that they add, and those that they need.

    Garbage collection keeps these until the records are published. Paths are relative to the
    dataflow's folder.
    """
    named: set[str] = set()
    for change in (change for intention in intentions for change in intention.changes):
        named.update(f"{change.table}/{add['path']}" for add in change.adds)
        named.update(f"{change.table}/{path}" for path in change.deletes)
        stored = (Deletes.from_json(deletes).path for deletes in change.deletes.values())
        named.update(f"{change.table}/{path}" for path in stored if path)
    return named


def begun_ms(tables: Mapping[str, ManagedTable], intentions: Sequence[Intention]) -> int | None:
    """Return the timestamp of a publication that crashed between two entries; `None` if none did.

    The repetition must use that timestamp. With a later timestamp, readers as of a time in
    between would see half of the publication.
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
    """Return the entries that make a table show these intentions; writes their vectors durably.

    Pure except for the deletion vectors, whose file is named after the last epoch and its content.
    The intentions are of the table's stage, oldest first. `InvariantError` if a change does not fit
    the files before it, `LogConflictError` if the dataflow was rolled back meanwhile.
    """
    entries: list[Entry] = []
    live, last = dict(snapshot.live), intentions[-1]
    path = f"{folder}/{table}"
    require_generation(path, snapshot.txns, last)
    for changes in _groups(unpublished(snapshot.txns, table, intentions)):
        touched = _touched(changes)
        before = {name: live[name] for name in touched if name in live}
        after, unwritten = _marked(path, _view(before, changes), last.epoch, files, vectors)
        if unwritten is not None:
            unwritten.write(path, files)
        kinds = sorted({kind_of(change) for change in changes}, key=KINDS.index)
        seen = kinds != [LAYOUT]
        actions = difference(before, after, now_ms=timestamp_ms, data_change=seen)
        ids = tuple(app_id(last.dataflow, table, kind, last.generation) for kind in kinds)
        removes = tuple(action for action in actions if isinstance(action, RemoveFile))
        adds = tuple(action for action in actions if isinstance(action, AddFile))
        below = max(change.below for change in changes)
        entries.append(Entry(ids, last.epoch, last, kinds[0], removes, adds, below))
        for name in touched:
            live.pop(name, None)
        live.update(after)
    return entries


class _File(NamedTuple):
    """A live file, as published or added, and the rows deleted from it since."""

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
                message = f"{change.table}: {add.path} cannot be added: it is already in the table"
                raise InvariantError(message, path=add.path)
            view[add.path] = _File(add)
    return view


def _known(view: Mapping[str, _File], change: TableChange, path: str) -> _File:
    if path not in view:
        message = f"{change.table}: {path} cannot be changed or removed: it is not in the table"
        raise InvariantError(message, path=path)
    return view[path]


def _groups(changes: Changes) -> list[list[TableChange]]:
    """Return the changes per entry: one entry per kind, or one for all (see the header)."""
    records, layout, retention = ([c for c in changes if kind_of(c) == kind] for kind in KINDS)
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
    """Return the files as an entry lists them, and the vectors of those that lost rows."""
    known = known or VectorCache()
    lessened = sorted(path for path, file in view.items() if file.deletes)
    bitmaps = {path: _dead(table, view[path], files, known) for path in lessened}
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
        dead = dead | read_deletes(table, deletes, files=files)  # `|=` would alter the cached one
        expected += deletes.rows
    if len(dead) != expected or len(dead) >= file.add.rows:
        message = (
            f"{table}/{file.add.path}: {len(dead)} of {file.add.rows} rows are deleted; expected "
            f"{expected} deleted rows, and at least one remaining row"
        )
        raise InvariantError(message, expected=expected)
    return dead


def kind_of(change: TableChange) -> str:
    """Return the kind of a change, one of `KINDS`."""
    if change.below:
        return RETENTION
    return RECORDS if change.data_change else LAYOUT
