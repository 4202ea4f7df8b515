"""Managed Delta tables: created, published to and released by this engine, read by everybody.

A managed table has a writer feature that only this engine knows (`FENCE`), so writers that obey the
protocol refuse it (INSERT, DELETE, OPTIMIZE, RESTORE and VACUUM of Spark, and delta-rs).

Guaranteed by `publish`:
- A publication (`app_id`, `version`) appears once, however often it is repeated, by
  one process or by several (tests/cbp/engine/delta/test_managed_table.py).
- Before each put, all entries since the last one read are checked. If ours is among them, the
  publication is done. Entries with nothing but `commitInfo` are skipped. Any other entry raises:
  a redo that ignored a foreign OPTIMIZE would double rows.
- In-commit timestamps rise from entry to entry.

Not guaranteed: protection from a writer that ignores the protocol. It is only detected, and only
from entries after the checkpoint from which the log was read. Only one publisher may work on a
table at a time. A second one is detected, and one of them stops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cbp.engine.delta.actions import (
    Action,
    AddFile,
    ChangeFile,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    encode,
)
from cbp.engine.delta.change_feed_settings import FEATURE, feed_flow
from cbp.engine.delta.checkpoint import encode_checkpoint
from cbp.engine.delta.columns import declares_not_null, schema_string
from cbp.engine.delta.foreign_writer_fence import (
    ENGINE,
    FENCE,
    OWN_SETTINGS,
    READER_FEATURES,
    WRITER_FEATURES,
    ForeignWatch,
    require_features,
    require_ours,
    require_readable,
    require_same,
)
from cbp.engine.delta.log import DeltaLog, Snapshot
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.files import Exists, Files, Written, files_for
from cbp.errors import (
    InvariantError,
    LogConflictError,
    NotFoundError,
    OperatingError,
    TableForeignError,
)
from cbp.model.flow.schema import Schema

__all__ = ["ENGINE", "FENCE", "ManagedTable", "create_table", "open_table", "release"]

_OWN_FOLDERS = frozenset(("_change_data", "_delta_log", "_runs", "_vectors"))
_logger = logging.getLogger(__name__)


def create_table(
    path: str,
    schema: Schema,
    *,
    files: Files,
    table_id: str,
    now_ms: int,
    partition_by: Sequence[str] = (),
    extra: Sequence[tuple[str, str]] = (),
    configuration: Mapping[str, str] | None = None,
) -> ManagedTable:
    """Create a managed table, or open the existing one if it is identical.

    Args:
        path: Folder of the table; it may exist if it is empty.
        table_id: A UUID that stays with the table.
        now_ms: The table's first in-commit timestamp, in milliseconds since 1970.
        partition_by: Partition columns, from `extra` or `schema`.
        extra: Engine columns after the author's, such as `("_hash", "BIGINT")`.
        configuration: Settings `cbp.*`, such as `cbp.buckets`; part of the table's identity.

    Raises:
        TableForeignError: The folder contains anything else: other files, another service's
            table, or a table with another id, schema, partitioning or configuration.
    """
    own = {"delta.enableDeletionVectors": "true", **OWN_SETTINGS, **(configuration or {})}
    columns = schema_string(schema, extra=extra)
    metadata = Metadata(table_id, columns, tuple(partition_by), own, created_ms=now_ms)
    writer_features = [*WRITER_FEATURES, FENCE] + ["invariants"] * declares_not_null(columns)
    writer_features += [FEATURE] if feed_flow(metadata.configuration) else []
    protocol = Protocol(3, 7, READER_FEATURES, tuple(sorted(writer_features)))
    log = DeltaLog(path, files)
    if log.latest_version() < 0:
        strange = sorted(set(files.list_names(path)) - _OWN_FOLDERS)
        if strange:
            raise TableForeignError(path, f"other files ({', '.join(strange[:3])})")
        info = CommitInfo(now_ms, "CBP CREATE", now_ms, {"table": table_id}, ENGINE)
        first = log.entry_path(0)
        files.put_if_absent(first, encode([info, protocol, metadata], first))
    snapshot = log.snapshot()
    require_ours(path, snapshot)
    require_same(path, snapshot.metadata, metadata)
    return open_table(path, files)


def open_table(
    path: str, files: Files, *, checkpoint_interval: int = DEFAULT_LIMITS.checkpoint_entries
) -> ManagedTable:
    """Open a managed table; `publish` writes a checkpoint after `checkpoint_interval` entries.

    Raises:
        NotFoundError: There is no table.
        TableFeatureError: The table uses a feature that this engine does not write.
        TableForeignError: The table is not managed.
        TableReleasedError: The table was released.
        ForeignWriterError: Another writer wrote the newest entries; see `repair`.
    """
    return ManagedTable(path, files, checkpoint_interval=checkpoint_interval)


def release(path: str, *, files: Files | None = None, now_ms: int = 0) -> int:
    """Remove the fence: other programs may write to the table then, and the engine does not.

    In-commit timestamps are switched off too, because delta-rs does not write them. Time travel
    by timestamp then uses the times of the log's files, as in any other table. Idempotent; returns
    the version that released the table. Recorded runs must be published before:
    `cbp.engine.commit.release.release_table` does both.

    Raises:
        NotFoundError: There is no table.
        LogConflictError: Another process wrote at the same moment; try again.
    """
    files = files or files_for(path)
    log = DeltaLog(path, files)
    snapshot = log.snapshot()
    if FENCE not in snapshot.protocol.writer_features:
        return snapshot.version
    now = snapshot.protocol
    own = (FENCE, "inCommitTimestamp")
    other_features = tuple(name for name in now.writer_features if name not in own)
    settings = {k: v for k, v in snapshot.metadata.configuration.items() if k not in OWN_SETTINGS}
    info = CommitInfo(max(now_ms, snapshot.in_commit_timestamp + 1), "CBP RELEASE", engine=ENGINE)
    protocol = Protocol(now.reader, now.writer, now.reader_features, other_features)
    target = log.entry_path(snapshot.version + 1)
    data = encode([info, protocol, replace(snapshot.metadata, configuration=settings)], target)
    result = files.put_if_absent(target, data)
    if isinstance(result, Exists) and result.data != data:
        raise LogConflictError(target)
    return snapshot.version + 1


class ManagedTable:
    """One managed table; several threads may use it, but only one publisher at a time."""

    def __init__(self, path: str, files: Files, *, checkpoint_interval: int) -> None:
        self.path, self.log = path, DeltaLog(path, files)
        self._files, self._interval = files, checkpoint_interval
        self._lock = threading.RLock()
        watch = ForeignWatch(path)
        self._snapshot = self.log.snapshot(visit=watch)
        require_ours(path, self._snapshot, watch)
        require_features(path, self._snapshot)
        self._checkpointed = max(self.log.checkpoints(), default=0)

    @property
    def snapshot(self) -> Snapshot:
        """The newest version that this object has seen; no I/O."""
        return self._snapshot

    def refresh(self) -> Snapshot:
        """Read the new entries; return the newest version.

        `ForeignWriterError` if others wrote one of them, `TableReleasedError` after a release.
        """
        with self._lock:
            watch = ForeignWatch(self.path)
            try:
                entries = list(self.log.entries_since(self._snapshot.version))
            except NotFoundError:  # the entries that were needed next have been cleaned up
                newer = self.log.snapshot(visit=watch)
            else:
                if not entries:
                    return self._snapshot
                for version, actions in entries:
                    watch(version, actions)
                newer = self._snapshot.after(entries)
            require_ours(self.path, newer, watch)
            self._snapshot = newer
            return newer

    def publish(
        self,
        *,
        app_id: str,
        version: int,
        intention_id: str,
        timestamp_ms: int,
        adds: Sequence[AddFile] = (),
        removes: Sequence[RemoveFile] = (),
        feed: Sequence[ChangeFile] = (),
        operation: str = "CBP RUN",
        also: Sequence[str] = (),
        metadata: Metadata | None = None,
        marks: Mapping[str, int] | None = None,
        parameters: Mapping[str, str] | None = None,
        require: Callable[[Mapping[str, int]], None] = lambda txns: None,
    ) -> int:
        """Make the table show a change, once; return the version that shows it; idempotent redo.

        An empty change is published too: its transaction records up to which epoch the table is
        published.

        Args:
            app_id: The application that publishes; each has its own increasing versions.
            version: Number of the publication, such as the epoch.
            timestamp_ms: In-commit timestamp; raised if the table already has a later one.
            removes: Files to remove; also files that get a new vector, with their old vector.
            also: Further applications for which the entry states the same `version`.
            metadata: Columns and settings from this entry on; None: unchanged.
            marks: Further transactions of the same entry, with versions of their own.
            require: Called with the table's transactions before each try; raises to stop.

        Raises:
            ForeignWriterError: Another writer wrote since the last entry.
            TableForeignError: The table was released meanwhile.
            InvariantError: Actions do not fit what the table shows, or some reader would
                misread a file because of its path.
        """
        with self._lock:
            while True:
                self.refresh()
                require(self._snapshot.txns)
                if self._snapshot.txns.get(app_id, -1) >= version:
                    return self.version_of(app_id, version)
                change = self._checked(adds, removes)
                for action in change:
                    if isinstance(action, AddFile):
                        require_readable(self.path, action)
                stamp = max(timestamp_ms, self._snapshot.in_commit_timestamp + 1)
                info = CommitInfo(
                    timestamp_ms=stamp,
                    operation=operation,
                    in_commit_ms=stamp,
                    parameters={"appId": app_id, "version": str(version), **(parameters or {})},
                    engine=ENGINE,
                    intention_id=intention_id,
                    blind_append=not any(isinstance(action, RemoveFile) for action in change),
                )
                txns = [Txn(name, version, stamp) for name in (app_id, *also)]
                txns += [Txn(name, number, stamp) for name, number in (marks or {}).items()]
                if self._put([info, *self._described(metadata), *txns, *change, *feed]):
                    return self._snapshot.version

    def _described(self, metadata: Metadata | None) -> list[Action]:
        if metadata is None:
            return []
        now = self._snapshot.protocol
        if "invariants" in now.writer_features or not declares_not_null(metadata.schema):
            return [metadata]
        features = tuple(sorted((*now.writer_features, "invariants")))
        return [replace(now, writer_features=features), metadata]

    def version_of(self, app_id: str, version: int) -> int:
        """Return the oldest readable version that shows a publication (`NotFoundError`: none)."""
        with self._lock:
            if self._snapshot.txns.get(app_id, -1) < version:
                raise NotFoundError(kind="publication", name=f"{app_id}@{version}")
            return self.log.first_with(app_id, version)

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version seen; return that version."""
        with self._lock:
            now = self._snapshot
            txns = [Txn(app_id, number) for app_id, number in sorted(now.txns.items())]
            adds = [now.live[path] for path in sorted(now.live)]
            path = self.log.checkpoint_path(now.version)
            data, actions = encode_checkpoint(now.protocol, now.metadata, txns, adds, path=path)
            self.log.put_checkpoint(now.version, data, actions=actions, adds=len(adds))
            self._checkpointed = now.version
            return now.version

    def clean_before(self, version: int) -> int:
        """Remove the log before the newest checkpoint up to `version`; return that checkpoint.

        The rest can be read: the checkpoint, its own entry, and the later entries.
        """
        with self._lock:
            self._files.remove_temporaries(self.log.folder)
            keep = self.log.base_of(version)
            self.log.remove_before(keep)
            return keep

    def _put(self, actions: list[Action]) -> bool:
        """Try to write the next entry; False if another entry was written first."""
        target = self._snapshot.version + 1
        path = self.log.entry_path(target)
        data = encode(actions, path)
        result = self._files.put_if_absent(path, data)
        if not isinstance(result, Written) and result.data != data:
            return False
        self._snapshot = self._snapshot.after([(target, actions)])
        if target - self._checkpointed >= self._interval:
            try:
                self.checkpoint()
            except OperatingError as exc:
                # The entry is durable; the next entry tries the checkpoint again.
                _logger.warning("the checkpoint of %s could not be written: %s", self.path, exc)
        return True

    def _checked(self, adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> list[Action]:
        """Return the actions if they fit the live set, so that no redo applies wrong ones."""
        live, at = self._snapshot.live, self._snapshot.version
        gone = set()
        for remove in removes:
            old = live.get(remove.path)
            if old is None or old.deletion_vector != remove.deletion_vector:
                message = (
                    f"{self.path}: {remove.path} cannot be removed, because it is not in the table "
                    "or has another deletion vector"
                )
                raise InvariantError(message, path=remove.path, version=at)
            gone.add(remove.path)
        for add in adds:
            if add.path in live and add.path not in gone:
                message = f"{self.path}: {add.path} cannot be added: it is already in the table"
                raise InvariantError(message, path=add.path, version=at)
        return [*removes, *adds]
