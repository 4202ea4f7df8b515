"""The actions of a Delta log entry as values; writes and reads their JSON. Pure.

Each rule below is here because some reader fails if it is broken:
- Every number is an integer: one float timestamp makes the table unreadable.
- `operationParameters` is flat with string values, and `userMetadata` is a string:
  otherwise the table's history is unreadable.
- A `remove` names the deletion vector that the removed version of the file had.
- An `add` with a vector counts physical rows and says `tightBounds: false`.
- A path occurs in at most one `add` and one `remove` of an entry. Polars and delta-rs
  misread an entry made by joining several, so changes are computed as *differences*.

`decode` keeps unknown actions as `Unknown`, so that an entry with nothing else is not
taken for an empty one. Absent on purpose: row tracking, column mapping.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cbp.engine.storage.checked_json import digest_of, require_name
from cbp.errors import FileDamagedError, InvariantError, own_name

ROWS_UNKNOWN = -1
"""`AddFile.rows` of a foreign file without statistics."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Where the dead rows of a data file are listed.

    Attributes:
        storage_type: `u`: in a file below the table; `i`: inline.
        path_or_inline: `<folder><z85 of the file's UUID>`, or the z85 of the vector itself.
        offset: Where the vector begins in its file; None if inline.
        size_bytes: Size of the serialized vector, without length and checksum.
    """

    storage_type: str
    path_or_inline: str
    offset: int | None
    size_bytes: int
    cardinality: int

    def to_json(self) -> dict[str, Any]:
        """Return the descriptor as Delta spells it."""
        body: dict[str, Any] = {"storageType": self.storage_type}
        body["pathOrInlineDv"] = self.path_or_inline
        if self.offset is not None:
            body["offset"] = self.offset
        return body | {"sizeInBytes": self.size_bytes, "cardinality": self.cardinality}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> DeletionVector:
        """Read the JSON that `to_json` returns."""
        kind, text = body["storageType"], body["pathOrInlineDv"]
        return cls(kind, text, body.get("offset"), body["sizeInBytes"], body["cardinality"])


@dataclass(frozen=True, slots=True)
class AddFile:
    """A live data file.

    Attributes:
        path: Relative to the table, of `[A-Za-z0-9._=/-]`. It is never percent-encoded,
            because Polars ignores deletion vectors on encoded paths.
        partition_values: Column to value as text; None for null.
        rows: Physical rows, including dead rows.
        min_values, max_values: Statistics of columns; only bounds if there is a vector.
    """

    path: str
    partition_values: Mapping[str, str | None] = field(hash=False)
    size: int
    rows: int
    modified_ms: int
    deletion_vector: DeletionVector | None = None
    data_change: bool = True
    min_values: Mapping[str, Any] | None = field(default=None, hash=False)
    max_values: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def dead(self) -> int:
        """Number of rows that the deletion vector marks as dead."""
        return self.deletion_vector.cardinality if self.deletion_vector else 0

    @property
    def stats(self) -> str | None:
        """Delta's statistics as JSON text; None if the number of rows is unknown."""
        if self.rows == ROWS_UNKNOWN:
            return None
        stats: dict[str, Any] = {"numRecords": self.rows}
        if self.deletion_vector:
            stats["tightBounds"] = False
        if self.min_values is not None:
            stats["minValues"] = dict(self.min_values)
        if self.max_values is not None:
            stats["maxValues"] = dict(self.max_values)
        return _dumps(stats)

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `add` action."""
        body: dict[str, Any] = {
            "path": self.path,
            "partitionValues": dict(self.partition_values),
            "size": self.size,
            "modificationTime": self.modified_ms,
            "dataChange": self.data_change,
        }
        if (stats := self.stats) is not None:
            body["stats"] = stats
        if self.deletion_vector:
            body["deletionVector"] = self.deletion_vector.to_json()
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> AddFile:
        """Read the body of an `add` action."""
        stats = json.loads(body.get("stats") or "{}")
        return cls(
            path=body["path"],
            partition_values=dict(body["partitionValues"]),
            size=body["size"],
            rows=stats.get("numRecords", ROWS_UNKNOWN),
            modified_ms=body["modificationTime"],
            deletion_vector=_vector(body),
            data_change=body["dataChange"],
            min_values=stats.get("minValues"),
            max_values=stats.get("maxValues"),
        )


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A data file that is no longer live, or that gets a newer deletion vector."""

    path: str
    partition_values: Mapping[str, str | None] = field(hash=False)
    size: int
    deletion_ms: int
    deletion_vector: DeletionVector | None = None
    data_change: bool = True

    @classmethod
    def of(cls, add: AddFile, *, deletion_ms: int, data_change: bool = True) -> RemoveFile:
        """Return the action that removes `add` with its vector."""
        return cls(
            add.path, add.partition_values, add.size, deletion_ms, add.deletion_vector, data_change
        )

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `remove` action."""
        body: dict[str, Any] = {
            "path": self.path,
            "deletionTimestamp": self.deletion_ms,
            "dataChange": self.data_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(self.partition_values),
            "size": self.size,
        }
        if self.deletion_vector:
            body["deletionVector"] = self.deletion_vector.to_json()
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RemoveFile:
        """Read the body of a `remove` action; a foreign one may lack most fields."""
        return cls(
            body["path"],
            dict(body.get("partitionValues") or {}),
            body.get("size") or 0,
            body.get("deletionTimestamp") or 0,
            _vector(body),
            body.get("dataChange", True),
        )


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file of changes for readers of the change data feed; its path is relative to the table."""

    path: str
    partition_values: Mapping[str, str | None] = field(hash=False)
    size: int

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `cdc` action."""
        return {
            "path": self.path,
            "partitionValues": dict(self.partition_values),
            "size": self.size,
            "dataChange": False,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ChangeFile:
        """Read the body of a `cdc` action."""
        return cls(body["path"], dict(body.get("partitionValues") or {}), body["size"])


@dataclass(frozen=True, slots=True)
class Txn:
    """States that `app_id` has written everything up to its `version` into this table."""

    app_id: str
    version: int
    last_updated_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `txn` action."""
        body: dict[str, Any] = {"appId": self.app_id, "version": self.version}
        if self.last_updated_ms is not None:
            body["lastUpdated"] = self.last_updated_ms
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Txn:
        """Read the body of a `txn` action."""
        return cls(body["appId"], body["version"], body.get("lastUpdated"))


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Writer, time and operation of an entry.

    Its in-commit time, for time travel, is later than that of every earlier entry. The intention's
    id, written as `userMetadata`, is missing in entries without a run.
    """

    timestamp_ms: int
    operation: str
    in_commit_ms: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    engine: str = ""
    intention_id: str | None = None
    blind_append: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `commitInfo` action."""
        body: dict[str, Any] = {}
        if self.in_commit_ms is not None:
            body["inCommitTimestamp"] = self.in_commit_ms
        body |= {
            "timestamp": self.timestamp_ms,
            "operation": self.operation,
            "operationParameters": {str(k): str(v) for k, v in self.parameters.items()},
            "isBlindAppend": self.blind_append,
            "engineInfo": self.engine,
        }
        if self.intention_id is not None:
            body["userMetadata"] = str(self.intention_id)
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CommitInfo:
        """Read the body of any writer's `commitInfo`; every field may be missing."""
        parameters = body.get("operationParameters") or {}
        return cls(
            body.get("timestamp") or 0,
            body.get("operation") or "unknown operation",
            body.get("inCommitTimestamp"),
            {str(k): v if isinstance(v, str) else _dumps(v) for k, v in parameters.items()},
            body.get("engineInfo") or "",
            body.get("userMetadata"),
            bool(body.get("isBlindAppend")),
        )


@dataclass(frozen=True, slots=True)
class Protocol:
    """Protocol versions and features that readers and writers of the table must understand."""

    reader: int
    writer: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `protocol` action."""
        body: dict[str, Any] = {"minReaderVersion": self.reader, "minWriterVersion": self.writer}
        if self.reader >= 3:
            body["readerFeatures"] = list(self.reader_features)
        if self.writer >= 7:
            body["writerFeatures"] = list(self.writer_features)
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Protocol:
        """Read the body of a `protocol` action."""
        return cls(
            body["minReaderVersion"],
            body["minWriterVersion"],
            tuple(body.get("readerFeatures") or ()),
            tuple(body.get("writerFeatures") or ()),
        )


@dataclass(frozen=True, slots=True)
class Metadata:
    """Identity, columns (as Delta's JSON text) and settings of a table."""

    id: str
    schema: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict, hash=False)
    created_ms: int | None = None
    name: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the body of the `metaData` action."""
        body: dict[str, Any] = {"id": self.id}
        if self.name is not None:
            body["name"] = self.name
        body |= {
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
        }
        return body if self.created_ms is None else body | {"createdTime": self.created_ms}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Metadata:
        """Read the body of a `metaData` action."""
        return cls(
            body["id"],
            body["schemaString"],
            tuple(body["partitionColumns"]),
            dict(body.get("configuration") or {}),
            body.get("createdTime"),
            body.get("name"),
        )


@dataclass(frozen=True, slots=True)
class Unknown:
    """An action that this engine does not write; kept so that it is not overlooked."""

    kind: str
    body: Any = field(hash=False, default=None)


Action = AddFile | RemoveFile | ChangeFile | Txn | CommitInfo | Protocol | Metadata | Unknown

_KINDS: dict[str, Any] = {
    "commitInfo": CommitInfo,
    "protocol": Protocol,
    "metaData": Metadata,
    "txn": Txn,
    "remove": RemoveFile,
    "cdc": ChangeFile,
    "add": AddFile,
}
_NAMES = {class_: kind for kind, class_ in _KINDS.items()}
_NO_FLOATS = frozenset({str, int, bool, dict, list, type(None)})
_NAME = "cbpName"
_MARK, _MARK_END, _DIGITS = b',"cbpDigest":"', b'"}}', 16

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def encode(actions: Sequence[Action], path: str = "") -> bytes:
    """Return the bytes of an entry: one action per line, `commitInfo` first.

    `InvariantError` if an action contains a float, if two actions of one type name the same path,
    or if there is not exactly one `commitInfo`.
    """
    _check(actions)
    ordered = sorted(actions, key=lambda action: not isinstance(action, CommitInfo))
    lines = [_dumps({_kind(action): _body(action)}) for action in ordered]
    if name := own_name(path):
        lines[0] = f"{lines[0][:-2]},{_dumps({_NAME: name})[1:-1]}}}}}"
    first, rest = lines[0].encode(), "".join(f"\n{line}" for line in lines[1:]).encode() + b"\n"
    # The digest covers everything else. It is in `commitInfo`, which may have any member.
    return b"".join((first[:-2], _MARK, digest_of(first + rest), _MARK_END, rest))


def decode(data: bytes, path: str = "a log entry") -> list[Action]:
    """Read an entry of any writer; the actions keep their order. Raises `FileDamagedError`."""
    try:
        return _decode(_undigested(data, path), path)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        why = f"its content cannot be parsed ({type(exc).__name__}: {exc})"
        raise FileDamagedError(path, why) from exc


def _undigested(data: bytes, path: str) -> bytes:
    """Return an entry without its digest, after checking the digest if there is one."""
    if not data.strip():
        # A damaged entry, read as one without actions, would silently lose its changes.
        raise FileDamagedError(path, f"it contains no Delta action ({len(data)} bytes)")
    end = data.find(b"\n")
    start = end - len(_MARK) - _DIGITS - len(_MARK_END)
    if end < 0 or start < 0 or not data.startswith(_MARK, start):
        return data
    whole = data[:start] + b"}}" + data[end:]
    if data[start + len(_MARK) : end - len(_MARK_END)] != digest_of(whole):
        raise FileDamagedError(path, "its content does not match its digest")
    return whole


def _decode(data: bytes, path: str) -> list[Action]:
    actions: list[Action] = []
    for line in data.decode().split("\n"):  # `splitlines` would also cut texts at U+2028
        if not line.strip():
            continue
        for kind, body in json.loads(line).items():
            if kind == "commitInfo" and isinstance(name := body.get(_NAME), str):
                require_name(name, path)
            known = _KINDS.get(kind)
            actions.append(known.from_json(body) if known else Unknown(kind, body))
    return actions


def difference(
    before: Mapping[str, AddFile],
    after: Mapping[str, AddFile],
    *,
    now_ms: int,
    data_change: bool = True,
) -> list[Action]:
    """Return the actions that turn one live set, by path, into another; pure.

    These are removes, then adds, each ordered by path; at most one action of a type per path. A
    file whose rows are all dead in `after` is removed, or not added. `InvariantError` if an
    immutable file changed its size or its number of rows.

    Args:
        now_ms: Deletion time in the `remove` actions, in milliseconds since 1970.
        data_change: False if the records stay the same (compaction).
    """
    removes: list[Action] = []
    adds: list[Action] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old and new and (old.size, old.rows) != (new.size, new.rows):
            message = (
                f"data file {path} had {old.size} bytes and {old.rows} records, and now has "
                f"{new.size} bytes and {new.rows} records; data files must not change"
            )
            raise InvariantError(message, path=path)
        if new and new.rows != ROWS_UNKNOWN and 0 < new.rows <= new.dead:
            new = None
        if old and new and old.deletion_vector == new.deletion_vector:
            continue
        if old:
            removes.append(RemoveFile.of(old, deletion_ms=now_ms, data_change=data_change))
        if new:
            same = new.data_change == data_change  # usually so for a file that loses rows
            adds.append(new if same else replace(new, data_change=data_change))
    return removes + adds


def _check(actions: Sequence[Action]) -> None:
    if sum(isinstance(action, CommitInfo) for action in actions) != 1:
        message = "a log entry needs exactly one commitInfo"
        raise InvariantError(message)
    for class_ in (AddFile, RemoveFile):
        paths = [action.path for action in actions if isinstance(action, class_)]
        if len(paths) != len(set(paths)):
            twice = sorted({path for path in paths if paths.count(path) > 1})
            message = f"a log entry has two {class_.__name__} actions for the path {twice[0]}"
            raise InvariantError(message, paths=twice)


def _kind(action: Action) -> str:
    return action.kind if isinstance(action, Unknown) else _NAMES[type(action)]


def _body(action: Action) -> Any:
    body = action.body if isinstance(action, Unknown) else action.to_json()
    if _has_float(body):
        message = f"a {_kind(action)} action contains a float, which readers cannot read"
        raise InvariantError(message)
    return body


def _has_float(value: Any) -> bool:
    """Return whether a value or an object in it is a float; fast, since it is called often."""
    if not isinstance(value, dict):
        return isinstance(value, float)
    kinds = set(map(type, value.values()))  # few types, however many values
    if not kinds <= _NO_FLOATS and any(issubclass(kind, float) for kind in kinds):
        return True
    return dict in kinds and any(_has_float(part) for part in value.values() if type(part) is dict)


def _vector(body: Mapping[str, Any]) -> DeletionVector | None:
    vector = body.get("deletionVector")
    return DeletionVector.from_json(vector) if vector else None


def _dumps(value: Any) -> str:
    return _ENCODER.encode(value)
