"""Repair after a foreign writer or a release: restores a table to our last version, fence included.

One log entry undoes what others did. Their versions stay in the history and can be read there.
None of their records is taken over: only this engine places records by hash and bucket.

Guaranteed: afterwards the live set, schema, settings and protocol are those of our newest
entry. Application transactions stay, so a publication under way continues undisturbed
(tests/cbp/engine/delta/test_repair.py). Nothing is written if a file of that version is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cbp.engine.delta.actions import (
    Action,
    AddFile,
    ChangeFile,
    CommitInfo,
    Metadata,
    difference,
    encode,
)
from cbp.engine.delta.deletion_vectors import vector_path
from cbp.engine.delta.foreign_writer_fence import (
    ENGINE,
    FENCE,
    OWN_SETTINGS,
    WRITER_FEATURES,
    foreign_features,
    is_ours,
    writer_of,
    written_by_us,
)
from cbp.engine.delta.log import DeltaLog, Snapshot
from cbp.engine.storage.files import Exists, Files
from cbp.errors import (
    LogConflictError,
    NotFoundError,
    RepairImpossibleError,
    TableFeatureError,
    TableForeignError,
    place_of,
)
from cbp.errors.counts import format_count


@dataclass(frozen=True, slots=True)
class Undone:
    """A foreign entry whose effect was undone."""

    version: int
    operation: str
    engine: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair; the table again has the contents of our version `shows`.

    If `undone` is empty, other programs had written nothing: at most the fence was restored.
    """

    version: int
    shows: int
    undone: tuple[Undone, ...]


Feed = Callable[[Snapshot, Snapshot], Sequence[ChangeFile]]
"""Writes the change files of an entry that leads from the first snapshot to the second."""


def repair(
    path: str, *, files: Files, now_ms: int, feed: Feed = lambda before, after: ()
) -> Repaired:
    """Restore a table to this engine's newest entry, by one new entry; idempotent.

    Args:
        feed: Writes the change files of a view's table (`cbp.engine.commit.change_feed`).

    Raises:
        NotFoundError: There is no table.
        TableForeignError: The table never belonged to this service.
        TableFeatureError: Another writer enabled a feature that cannot be removed.
        RepairImpossibleError: Our newest version can no longer be read.
        LogConflictError: Another process wrote at the same moment; try again.
    """
    log = DeltaLog(path, files)
    newest = log.snapshot()
    good, undone = _last_of_ours(log, newest)
    _require_files(path, good, files)
    if good.version == newest.version and FENCE in newest.protocol.writer_features:
        return Repaired(newest.version, good.version, ())
    if refused := foreign_features(newest.protocol):
        step = (
            "a repair cannot remove these features. Drop them with the program that added them "
            "(ALTER TABLE ... DROP FEATURE), then run `cbp repair TABLE` again; or delete the "
            "dataflow and start it again from its sources"
        )
        raise TableFeatureError(path, refused, next_step=step)
    target = newest.version + 1
    stamp = max(now_ms, newest.in_commit_timestamp + 1)
    info = CommitInfo(stamp, "CBP REPAIR", stamp, {"shows": str(good.version)}, ENGINE)
    features = tuple(sorted({*good.protocol.writer_features, *WRITER_FEATURES, FENCE}))
    protocol = replace(good.protocol, writer_features=features)
    actions: list[Action] = [info, protocol, _metadata(good, target, stamp)]
    actions += _restored(newest, good, stamp)
    actions += feed(newest, good)
    entry = log.entry_path(target)
    data = encode(actions, entry)
    result = files.put_if_absent(entry, data)
    if isinstance(result, Exists) and result.data != data:
        raise LogConflictError(entry)
    return Repaired(target, good.version, undone)


def _last_of_ours(log: DeltaLog, newest: Snapshot) -> tuple[Snapshot, tuple[Undone, ...]]:
    undone: list[Undone] = []
    try:
        for version in reversed(log.versions()):
            actions = log.entry(version)
            if written_by_us(actions):
                at = newest if version == newest.version else log.snapshot(version)
                return at, tuple(reversed(undone))
            undone.append(Undone(version, *writer_of(actions)))
    except NotFoundError as exc:
        why = "the log no longer has the entries before those of the other program"
        raise RepairImpossibleError(log.path, why) from exc
    if not is_ours(newest):
        raise TableForeignError(log.path, "a Delta table of another writer")
    raise RepairImpossibleError(log.path, "its log no longer has an entry that this service wrote")


def _restored(newest: Snapshot, good: Snapshot, stamp: int) -> list[Action]:
    """Return the actions after which the live files are those of our version.

    Another program may have added one of our files again, for example without its statistics. Only
    our own `add` counts: if the deletion vector is still ours, it simply replaces the other `add`.
    """
    before, again = dict[str, AddFile](), dict[str, AddFile]()
    for path, file in newest.live.items():
        ours = good.live.get(path)
        if ours is None or ours == file:
            before[path] = file
        elif ours.deletion_vector == file.deletion_vector:
            again[path] = ours
        else:
            before[path] = replace(ours, deletion_vector=file.deletion_vector)
    after = {path: file for path, file in good.live.items() if path not in again}
    replaced = difference({}, again, now_ms=stamp, data_change=False)
    return [*difference(before, after, now_ms=stamp), *replaced]


def _require_files(path: str, good: Snapshot, files: Files) -> None:
    needed: dict[str, None] = {}
    for add in good.live.values():
        vector = add.deletion_vector and vector_path(add.deletion_vector)
        needed |= dict.fromkeys(file for file in (add.path, vector) if file)
    gone = [file for file in needed if not files.exists(f"{path}/{file}")]
    if gone:
        first = f"{path}/{gone[0]}"
        why = f"version {good.version} lacks {format_count(len(gone), 'file')}, such as {first}"
        raise RepairImpossibleError(path, why, place_of(first).next_step)


def _metadata(good: Snapshot, version: int, stamp: int) -> Metadata:
    """Return our metadata; if a release had ended in-commit timestamps, they begin again."""
    settings = dict(good.metadata.configuration)
    if FENCE not in good.protocol.writer_features:
        settings |= OWN_SETTINGS | {
            "delta.inCommitTimestampEnablementVersion": str(version),
            "delta.inCommitTimestampEnablementTimestamp": str(stamp),
        }
    return replace(good.metadata, configuration=settings)
