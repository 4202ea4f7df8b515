"""A table's Delta log, read into a snapshot from files alone; no JVM, no Spark.

A snapshot is the newest checkpoint with the later entries replayed. Updating one costs the entries
since then, and one copy of the live set.

Guaranteed: a snapshot is a version that the table had, whatever writers and log
clean-up do meanwhile. Not guaranteed: that it is still the newest when it is returned.
Absent on purpose: checkpoints in several parts or of version 2, which this engine
never writes; compacted logs; tombstones of removed files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cbp.engine.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    decode,
)
from cbp.engine.delta.checkpoint import read_checkpoint
from cbp.engine.storage.files import Files
from cbp.errors import (
    FileDamagedError,
    FileLostError,
    InvariantError,
    NotFoundError,
    TableFeatureError,
)

Visit = Callable[[int, Sequence[Action]], None]
"""Called with version and actions of each entry that is replayed, in order."""

_ENTRY = re.compile(r"(\d{20})\.json\Z")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet\Z")
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The contents of a table at one version; must not be modified.

    `live` has files by path, `txns` the newest version by application. The in-commit timestamp is
    in milliseconds since 1970; 0 if the version has none.
    """

    version: int
    live: Mapping[str, AddFile]
    txns: Mapping[str, int]
    metadata: Metadata
    protocol: Protocol
    in_commit_timestamp: int

    def after(self, entries: Sequence[tuple[int, Sequence[Action]]]) -> Snapshot:
        """Return the snapshot after these entries, which are in order."""
        replay = _Replay(self.version, dict(self.live), dict(self.txns))
        replay.metadata, replay.protocol = self.metadata, self.protocol
        replay.in_commit_ms = self.in_commit_timestamp
        for version, actions in entries:
            replay.entry(version, actions)
        return replay.snapshot()


def written_by(actions: Iterable[Action], app_id: str) -> int | None:
    """Return the version of an application's transaction in an entry, or None."""
    txns = (one for one in actions if isinstance(one, Txn) and one.app_id == app_id)
    return next((txn.version for txn in txns), None)


class DeltaLog:
    """The log of one table."""

    def __init__(self, path: str, files: Files) -> None:
        self.path, self.folder = path, f"{path}/_delta_log"
        self._files = files

    def entry_path(self, version: int) -> str:
        """Return the path of an entry."""
        return f"{self.folder}/{version:020d}.json"

    def checkpoint_path(self, version: int) -> str:
        """Return the path of a checkpoint."""
        return f"{self.folder}/{version:020d}.checkpoint.parquet"

    def versions(self) -> list[int]:
        """Return the versions whose entries still exist, ascending."""
        return self._matching(_ENTRY)

    def checkpoints(self) -> list[int]:
        """Return the versions that have a checkpoint, ascending."""
        return self._matching(_CHECKPOINT)

    def readable(self) -> list[int]:
        """Return the versions that can be opened, ascending.

        After an interrupted clean-up, entries may lack the checkpoint that they build on. After a
        loss of power, some entries in between may be missing too.
        """
        whole = self.versions()
        gaps = [at for at in range(1, len(whole)) if whole[at] != whole[at - 1] + 1]
        whole = whole[gaps[-1] :] if gaps else whole
        if not whole or whole[0] == 0:
            return whole
        # A checkpoint may exist without its own entry.
        base = min((v for v in self.checkpoints() if v >= whole[0] - 1), default=None)
        return [version for version in whole if base is not None and version >= base]

    def base_of(self, version: int) -> int:
        """Return the newest checkpoint up to `version`; 0 if there is none."""
        return max((v for v in self.checkpoints() if v <= version), default=0)

    def latest_version(self) -> int:
        """Return the newest version; -1 if there is no log."""
        return max([-1, *self.versions(), *self.checkpoints()])

    def entry(self, version: int) -> list[Action]:
        """Return the actions of one entry; `NotFoundError` if it does not exist."""
        path = self.entry_path(version)
        return decode(self._files.read(path), path)

    def entries_since(self, version: int) -> Iterator[tuple[int, list[Action]]]:
        """Yield version and actions of each entry after `version`, in order.

        `NotFoundError` if the entries right after it were cleaned up, `FileLostError` if one is
        missing.
        """
        if self._ends_at(version):
            return
        expected = version + 1
        for present in (each for each in self.versions() if each > version):
            if present != expected and expected == version + 1:
                raise NotFoundError(kind="log entry", name=self.entry_path(expected))
            if present != expected:
                why = f"{self.folder} has the later version {present}"
                raise FileLostError(self.entry_path(expected), why)
            yield present, self.entry(present)
            expected += 1

    def snapshot(self, at: int | None = None, *, visit: Visit | None = None) -> Snapshot:
        """Read the newest version, or the older one `at` that still exists (`NotFoundError`).

        `visit` is called with every entry that is read, the checkpoint's own entry included.
        `TableFeatureError` if the log begins with a checkpoint of another format.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return self._snapshot(at, visit)
            except NotFoundError:
                # A clean-up may remove the oldest entries between listing and reading.
                if attempt == _ATTEMPTS - 1 or not self.versions():
                    raise
        raise AssertionError

    def update(self, snapshot: Snapshot) -> Snapshot:
        """Return the newest version; reads only the entries since `snapshot`."""
        try:
            entries = list(self.entries_since(snapshot.version))
        except NotFoundError:
            return self.snapshot()
        return snapshot.after(entries) if entries else snapshot

    def stamp(self, version: int) -> int:
        """Return the in-commit timestamp of an entry in milliseconds; 0 if it has none."""
        infos = (one for one in self.entry(version) if isinstance(one, CommitInfo))
        return next((info.in_commit_ms or 0 for info in infos), 0)

    def first_with(self, app_id: str, version: int) -> int:
        """Return the oldest readable version with a transaction of at least `version`."""
        oldest = self.latest_version()
        readable = self.readable()
        for candidate in reversed(readable):
            written = written_by(self.entry(candidate), app_id)
            if written is None:
                continue
            if written < version:
                return oldest
            oldest = candidate
            if written == version:
                return oldest
        if readable and self.snapshot(readable[0]).txns.get(app_id, -1) >= version:
            return readable[0]
        return oldest

    def put_checkpoint(self, version: int, data: bytes, *, actions: int, adds: int) -> None:
        """Write a checkpoint, then the hint file by which readers find it without a listing."""
        self._files.write_durable(self.checkpoint_path(version), data, what="checkpoint")
        hint = {"version": version, "size": actions, "sizeInBytes": len(data)}
        hint["numOfAddFiles"] = adds
        target = f"{self.folder}/_last_checkpoint"
        self._files.write_durable(target, json.dumps(hint).encode(), what="checkpoint")

    def remove_before(self, version: int) -> None:
        """Remove entries and checkpoints older than `version`, which must have a checkpoint."""
        # Oldest first, so that an interrupted clean-up leaves no gap.
        for old in self.versions():
            if old < version:
                self._files.remove(self.entry_path(old), what="dead_entry")
        for old in self.checkpoints():
            if old < version:
                self._files.remove(self.checkpoint_path(old), what="dead_entry")

    def _snapshot(self, at: int | None, visit: Visit | None) -> Snapshot:
        replay, versions, start = _Replay(), self.versions(), -1
        checkpoints = (v for v in self.checkpoints() if at is None or v <= at)
        for checkpoint in sorted(checkpoints, reverse=True):
            try:
                path = self.checkpoint_path(checkpoint)
                actions = list(read_checkpoint(self._files.read(path), path))
            except FileDamagedError:
                # The checkpoint repeats the log: if all entries exist, it is not needed.
                if not versions or versions[0] > 0:
                    raise
                continue
            for action in actions:
                replay.action(action)
            replay.version = start = checkpoint
            break
        if start < 0 and (not versions or versions[0] != 0):
            if versions and not self.checkpoints():
                self._refuse_begin(versions[0])
            kind, name = ("version", f"{self.path}@{at}") if versions else ("table", self.path)
            raise NotFoundError(kind=kind, name=name)
        # The in-commit timestamp of a checkpoint's version is only in that version's entry.
        first = start - 1 if start in versions else start
        for version, actions in self.entries_since(first):
            if at is not None and version > at:
                break
            if visit:
                visit(version, actions)
            if version > start:
                replay.entry(version, actions)
            else:
                replay.stamp(actions)
        if at is not None and replay.version != at:
            raise NotFoundError(kind="version", name=f"{self.path}@{at}")
        return replay.snapshot()

    def _refuse_begin(self, first: int) -> None:
        """Raise the error for a log that begins with a later entry and has no checkpoint."""
        if any(".checkpoint." in name for name in self._files.list_names(self.folder)):
            step = (
                f"restore the log's entries before version {first} from a backup, or "
                "delete the dataflow and start it again from its sources"
            )
            strange = ["checkpoints other than classic ones"]
            raise TableFeatureError(self.path, strange, next_step=step)
        why = f"{self.folder} begins with version {first}, but has no checkpoint"
        raise FileLostError(self.entry_path(first - 1), why)

    def _ends_at(self, version: int) -> bool:
        """Return whether `version` is the last one, without listing thousands of entries.

        Entries are removed oldest first, so if this entry exists, no later one was removed. Its
        existence is checked last: then it also existed when the next entry did not.
        """
        exists = self._files.exists
        return not exists(self.entry_path(version + 1)) and exists(self.entry_path(version))

    def _matching(self, pattern: re.Pattern[str]) -> list[int]:
        matches = (pattern.match(name) for name in self._files.list_names(self.folder))
        return [int(match[1]) for match in matches if match]


@dataclass(slots=True)
class _Replay:
    """A snapshot under construction."""

    version: int = -1
    live: dict[str, AddFile] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    in_commit_ms: int = 0

    def entry(self, version: int, actions: Sequence[Action]) -> None:
        """Apply one entry: first its removes, then its adds, in whatever order it lists them."""
        self.version = version
        for action in sorted(actions, key=lambda action: isinstance(action, AddFile)):
            self.action(action)

    def stamp(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, CommitInfo) and action.in_commit_ms is not None:
                self.in_commit_ms = action.in_commit_ms

    def action(self, action: Action) -> None:
        if isinstance(action, AddFile):
            # `data_change` belongs to the entry, not to the live file.
            file = action if action.data_change else replace(action, data_change=True)
            self.live[file.path] = file
        elif isinstance(action, RemoveFile):
            self.live.pop(action.path, None)
        elif isinstance(action, Txn):
            self.txns[action.app_id] = action.version
        elif isinstance(action, Metadata):
            self.metadata = action
        elif isinstance(action, Protocol):
            self.protocol = action
        else:
            self.stamp([action])

    def snapshot(self) -> Snapshot:
        if self.metadata is None or self.protocol is None:
            message = f"up to version {self.version}, the log has no metaData or no protocol action"
            raise InvariantError(message, version=self.version)
        return Snapshot(
            self.version, self.live, self.txns, self.metadata, self.protocol, self.in_commit_ms
        )
