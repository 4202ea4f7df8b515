"""The fence of tables: marks a table as ours, keeps other writers out, detects foreign entries.

It is not the fence of the lease (`controller.loop.leadership.lease_keeper`). It is a writer feature
that only this engine knows. The Delta protocol asks every writer to refuse a table with an unknown
writer feature, and every reader still works. A writer that ignores the protocol is detected by
`ForeignWatch`, from the log entries that it leaves, unless it forges `engineInfo`, or this engine
wrote after it, as a repair does (`cbp.engine.delta.repair`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from cbp.engine.delta.actions import Action, AddFile, CommitInfo, Metadata, Protocol
from cbp.engine.delta.change_feed_settings import ENABLED, FEATURE, LATER, feed_flow
from cbp.engine.delta.log import Snapshot
from cbp.errors import (
    ForeignWriterError,
    InvariantError,
    PlacementDiffersError,
    TableFeatureError,
    TableForeignError,
    TableReleasedError,
)

ENGINE = "cbp/1"
FENCE = "cbp.managed"
HASH = "xxhash64"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Null in a path, as in `_runs/_bucket=__HIVE_DEFAULT_PARTITION__/x.parquet`."""

# Only `cbp.engine.commit.garbage_collection` removes deleted files. Spark is therefore set to keep
# them forever. Otherwise Spark refuses every version older than the retention of deleted files (by
# default a week), even the newest version of an idle table, although all of its files exist.
_RETENTION = "interval 36500 days"
OWN_SETTINGS = {
    "delta.deletedFileRetentionDuration": _RETENTION,
    "delta.enableExpiredLogCleanup": "false",
    "delta.enableInCommitTimestamps": "true",
    "delta.logRetentionDuration": _RETENTION,
}
"""Table settings that are set with the fence and removed with it."""

_PLACEMENT = ("cbp.hash", "cbp.buckets")
_PATH = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*\Z")

READER_FEATURES = ("deletionVectors",)
WRITER_FEATURES = ("appendOnly", "deletionVectors", "inCommitTimestamp")
_KNOWN_FEATURES = frozenset((*WRITER_FEATURES, FEATURE, "invariants", FENCE))
_REFUSED_SETTINGS = {
    "delta.columnMapping.mode": "columnMapping",
    "delta.enableRowTracking": "rowTracking",
    ENABLED: FEATURE,
    "delta.appendOnly": "appendOnly",
}
_REFUSED_COLUMNS = {
    "delta.generationExpression": "generatedColumns",
    "delta.identity.": "identityColumns",
    "delta.invariants": "invariants",
}


class ForeignWatch:
    """Remembers the first foreign entry after our last one; skips those with only `commitInfo`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._foreign: ForeignWriterError | None = None

    def __call__(self, version: int, actions: Sequence[Action]) -> None:
        """Examine one entry; must be called in the order of versions."""
        if written_by_us(actions):
            self._foreign = None
        elif self._foreign is None and not all(isinstance(one, CommitInfo) for one in actions):
            operation, engine = writer_of(actions)
            self._foreign = ForeignWriterError(
                self._path, version=version, operation=operation, engine=engine
            )

    def check(self) -> None:
        """Raise `ForeignWriterError` if the newest entries are foreign."""
        if self._foreign:
            raise self._foreign


def writer_of(actions: Sequence[Action]) -> tuple[str, str]:
    """Return the operation and the engine of a foreign entry, according to the entry."""
    info = next((one for one in actions if isinstance(one, CommitInfo)), None)
    operation = info.operation if info else "unknown operation"
    return operation, (info.engine if info else "") or "an unknown engine"


def written_by_us(actions: Sequence[Action]) -> bool:
    """Return whether this engine wrote an entry, according to the entry."""
    return writer_of(actions)[1].startswith("cbp/")


def is_ours(snapshot: Snapshot) -> bool:
    """Return whether this engine made a table, even if its fence was removed."""
    fenced = FENCE in snapshot.protocol.writer_features
    return fenced or any(key.startswith("cbp.") for key in snapshot.metadata.configuration)


def require_ours(path: str, snapshot: Snapshot, watch: ForeignWatch | None = None) -> None:
    """Raise unless the table has the fence and this engine wrote last.

    `TableForeignError` if this service never managed it, `ForeignWriterError` if another writer
    wrote after our last entry, `TableReleasedError` if the fence is gone.
    """
    if not is_ours(snapshot):
        raise TableForeignError(path, "a Delta table of another writer")
    if watch is not None:
        watch.check()
    if FENCE not in snapshot.protocol.writer_features:
        raise TableReleasedError(path)


def require_readable(path: str, add: AddFile) -> None:
    """Raise InvariantError for a file that some reader would misread.

    Polars takes partition values from the path: if they are missing there, it fails or
    reads null. On percent-encoded paths it ignores deletion vectors.
    """
    folders = add.path.split("/")[:-1]
    for column, value in add.partition_values.items():
        if f"{column}={NULL_PARTITION if value is None else value}" not in folders:
            message = f"{path}: the path {add.path!r} has no folder {column}={value}"
            raise InvariantError(message, path=add.path)
    if not _PATH.match(add.path):
        message = f"{path}: the path {add.path!r} has characters outside A-Za-z0-9._=-"
        raise InvariantError(message, path=add.path)


def require_same(path: str, actual: Metadata, wanted: Metadata) -> None:
    """Raise `TableForeignError` unless id, columns and `cbp.*` settings are the same.

    A difference in `cbp.hash` or `cbp.buckets` is a `PlacementDiffersError`. The table of a
    view may lack its change data feed; then it continues without one.
    """
    if actual.id != wanted.id:
        raise TableForeignError(path, f"a table with the id {actual.id} (expected {wanted.id})")
    if json.loads(actual.schema) != json.loads(wanted.schema):
        raise TableForeignError(path, f"a table with another schema ({actual.schema})")
    if actual.partition_columns != wanted.partition_columns:
        columns = list(actual.partition_columns)
        raise TableForeignError(path, f"a table with the partition columns {columns}")
    for key in sorted(actual.configuration.keys() | wanted.configuration.keys()):
        one, other = actual.configuration.get(key), wanted.configuration.get(key)
        if key in _PLACEMENT and one != other:
            raise PlacementDiffersError(path, setting=key, found=one, expected=str(other))
        if key in LATER and None in (one, other):
            continue
        if key.startswith("cbp.") and one != other:
            raise TableForeignError(path, f"a table with {key}={one} (expected {other})")


def placement(buckets: int, key: Sequence[str]) -> dict[str, str]:
    """Return the settings of a state table that decide the bucket of a key's records."""
    return {"cbp.hash": HASH, "cbp.buckets": str(buckets), "cbp.key": ",".join(key)}


def require_placement(path: str, actual: Metadata, *, buckets: int, key: Sequence[str]) -> None:
    """Raise `PlacementDiffersError` unless a state's hash, buckets and key are as given."""
    for setting, expected in placement(buckets, key).items():
        value = actual.configuration.get(setting)
        if value != expected:
            raise PlacementDiffersError(path, setting=setting, found=value, expected=expected)


def foreign_features(protocol: Protocol) -> list[str]:
    """Return the features of a table that this engine does not know, sorted."""
    features = set(protocol.reader_features) | set(protocol.writer_features)
    return sorted(features - _KNOWN_FEATURES)


def require_features(path: str, snapshot: Snapshot) -> None:
    """Refuse a table with features that this engine does not know: its writes would corrupt it."""
    metadata = snapshot.metadata
    refused = set(foreign_features(snapshot.protocol))
    for key, feature in _REFUSED_SETTINGS.items():
        if metadata.configuration.get(key, "false") not in ("false", "none"):
            refused.add(feature)
    if feed_flow(metadata.configuration):
        refused.discard(FEATURE)
    if any(key.startswith("delta.constraints.") for key in metadata.configuration):
        refused.add("checkConstraints")
    for field in json.loads(metadata.schema)["fields"]:
        for prefix, feature in _REFUSED_COLUMNS.items():
            if any(key.startswith(prefix) for key in field.get("metadata") or {}):
                refused.add(feature)
    if refused:
        step = "another program enabled them. `cbp repair TABLE` undoes what other programs wrote"
        raise TableFeatureError(path, sorted(refused), next_step=step)
