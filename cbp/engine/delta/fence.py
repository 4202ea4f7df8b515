"""What makes a table ours, and what is noticed when it is not.

The fence is a writer feature that nobody else knows: the Delta protocol tells every
writer to refuse a table with an unknown one, and every reader to go on. A writer that
does not keep the protocol is noticed by `ForeignWatch`, through the entries it leaves.

Not guaranteed: that a foreign entry is noticed when its writer forges `engineInfo`,
or when this engine wrote behind it, as a repair does (`cbp.engine.delta.repair`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from cbp.engine.delta.actions import Action, AddFile, CommitInfo, Metadata, Protocol
from cbp.engine.delta.log import Snapshot
from cbp.errors import (
    ForeignWriterError,
    InvariantError,
    PlacementDiffersError,
    TableFeatureError,
    TableForeignError,
    TableReleasedError,
)

__all__ = [
    "ENGINE",
    "FENCE",
    "HASH",
    "NULL_PARTITION",
    "OWN_SETTINGS",
    "READER_FEATURES",
    "WRITER_FEATURES",
    "ForeignWatch",
    "foreign_features",
    "is_ours",
    "placement",
    "require_features",
    "require_ours",
    "require_placement",
    "require_readable",
    "require_same",
    "written_by_us",
]

ENGINE = "cbp/1"
FENCE = "cbp.managed"
HASH = "xxhash64"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Stands for null in a path, as in `_runs/_bucket=__HIVE_DEFAULT_PARTITION__/x.parquet`."""

# What was deleted is removed by `cbp.engine.collect` alone, so Spark is told that nothing is: it
# refuses a version older than the retention of deleted files (a week, by default), though all its
# files are there, and so the newest one of a table at rest.
_RETENTION = "interval 36500 days"
OWN_SETTINGS = {
    "delta.deletedFileRetentionDuration": _RETENTION,
    "delta.enableExpiredLogCleanup": "false",
    "delta.enableInCommitTimestamps": "true",
    "delta.logRetentionDuration": _RETENTION,
}
"""Come with the fence, and go with it."""

_PLACEMENT = ("cbp.hash", "cbp.buckets")
_PATH = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*\Z")

READER_FEATURES = ("deletionVectors",)
WRITER_FEATURES = ("appendOnly", "deletionVectors", "inCommitTimestamp")
_KNOWN_FEATURES = frozenset((*WRITER_FEATURES, "invariants", FENCE))
_REFUSED_SETTINGS = {
    "delta.columnMapping.mode": "columnMapping",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.appendOnly": "appendOnly",
}
_REFUSED_COLUMNS = {
    "delta.generationExpression": "generatedColumns",
    "delta.identity.": "identityColumns",
    "delta.invariants": "invariants",
}


class ForeignWatch:
    """Remembers the first foreign entry after our last one, while entries pass.

    An entry with nothing but `commitInfo` changes nothing, and is passed over.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: ForeignWriterError | None = None

    def __call__(self, version: int, actions: Sequence[Action]) -> None:
        """Look at one entry; to be called in the order of versions."""
        infos = [action for action in actions if isinstance(action, CommitInfo)]
        if written_by_us(actions):
            self._found = None
        elif len(infos) < len(actions) and self._found is None:
            self._found = ForeignWriterError(
                self._path,
                version=version,
                operation=infos[0].operation if infos else "unknown operation",
                engine=(infos[0].engine if infos else "") or "an unknown engine",
            )

    def check(self) -> None:
        """Raise if the newest entries are foreign."""
        if self._found:
            raise self._found


def written_by_us(actions: Sequence[Action]) -> bool:
    """Tell whether an entry says that this engine wrote it."""
    infos = [action for action in actions if isinstance(action, CommitInfo)]
    return bool(infos) and infos[0].engine.startswith("cbp/")


def is_ours(snapshot: Snapshot) -> bool:
    """Tell whether this engine made a table, fenced still or not."""
    fenced = FENCE in snapshot.protocol.writer_features
    return fenced or any(key.startswith("cbp.") for key in snapshot.metadata.configuration)


def require_ours(path: str, snapshot: Snapshot, watch: ForeignWatch | None = None) -> None:
    """Raise unless the table carries the fence, and nobody else wrote last.

    Raises:
        TableForeignError: If this service never managed it.
        ForeignWriterError: If `watch` saw foreign entries, fence or not.
        TableReleasedError: If the fence is gone.
    """
    if not is_ours(snapshot):
        raise TableForeignError(path, "a Delta table that this service does not manage")
    if watch is not None:
        watch.check()
    if FENCE not in snapshot.protocol.writer_features:
        raise TableReleasedError(path)


def require_readable(path: str, add: AddFile) -> None:
    """Raise InvariantError for a file that some reader would read wrong.

    Polars takes partition values from the path and fails, or reads null, where they
    are missing; on percent-encoded paths it ignores deletion vectors.
    """
    folders = add.path.split("/")[:-1]
    for column, value in add.partition_values.items():
        if f"{column}={NULL_PARTITION if value is None else value}" not in folders:
            message = f"{path}: the path {add.path} does not say {column}={value}"
            raise InvariantError(message, path=add.path)
    if not _PATH.match(add.path):
        message = f"{path}: the path {add.path!r} has other characters than A-Za-z0-9._=-"
        raise InvariantError(message, path=add.path)


def require_same(path: str, found: Metadata, wanted: Metadata) -> None:
    """Raise TableForeignError unless id, columns and `cbp.*` settings are the same."""
    if found.id != wanted.id:
        raise TableForeignError(path, f"the table {found.id} instead of {wanted.id}")
    if json.loads(found.schema) != json.loads(wanted.schema):
        raise TableForeignError(path, f"a table with another schema: {found.schema}")
    if found.partition_columns != wanted.partition_columns:
        raise TableForeignError(path, f"a table partitioned by {list(found.partition_columns)}")
    for key in sorted(found.configuration.keys() | wanted.configuration.keys()):
        one, other = found.configuration.get(key), wanted.configuration.get(key)
        if key in _PLACEMENT and one != other:
            raise PlacementDiffersError(path, setting=key, found=one, expected=str(other))
        if key.startswith("cbp.") and one != other:
            raise TableForeignError(path, f"a table with {key}={one} instead of {other}")


def placement(buckets: int, key: Sequence[str]) -> dict[str, str]:
    """Return the settings of a state table that say where a key's records lie.

    Args:
        buckets: Of the stage.
        key: Columns of the state that hold the key.
    """
    return {"cbp.hash": HASH, "cbp.buckets": str(buckets), "cbp.key": ",".join(key)}


def require_placement(path: str, found: Metadata, *, buckets: int, key: Sequence[str]) -> None:
    """Raise PlacementDiffersError unless a state lies by our hash of these columns in buckets."""
    for setting, expected in placement(buckets, key).items():
        value = found.configuration.get(setting)
        if value != expected:
            raise PlacementDiffersError(path, setting=setting, found=value, expected=expected)


def foreign_features(protocol: Protocol) -> list[str]:
    """Return the features of a table that this engine does not know, sorted."""
    found = set(protocol.reader_features) | set(protocol.writer_features)
    return sorted(found - _KNOWN_FEATURES)


def require_features(path: str, snapshot: Snapshot) -> None:
    """Refuse what this engine would write wrong: it would corrupt the table silently."""
    metadata = snapshot.metadata
    refused = set(foreign_features(snapshot.protocol))
    for key, feature in _REFUSED_SETTINGS.items():
        if metadata.configuration.get(key, "false") not in ("false", "none"):
            refused.add(feature)
    if any(key.startswith("delta.constraints.") for key in metadata.configuration):
        refused.add("checkConstraints")
    for field in json.loads(metadata.schema)["fields"]:
        for prefix, feature in _REFUSED_COLUMNS.items():
            if any(key.startswith(prefix) for key in field.get("metadata") or {}):
                refused.add(feature)
    if refused:
        raise TableFeatureError(path, sorted(refused))
