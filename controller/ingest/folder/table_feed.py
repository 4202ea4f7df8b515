"""Claims the versions of a source's Delta table, a group at a time.

    all rows of the newest version      when the source begins
    the versions after it, in order    each by itself, or as many as the source's `batch` says

A group is claimed like an upload: a small file names the versions (`ChangeGroup`). The next group
is claimed only when the one before is settled: versions are never taken in out of order. While one
is in quarantine the source waits for an operator's decision, since the versions after it may undo
what it says.

How far a source has come (`FeedPosition`) is a record beside its increments. It is written before a
group is claimed, and once more afterwards (`claimed`). After a crash in between, the same group is
claimed under the same key, name and content, by which it is recognised.

Guaranteed: each version is in one increment, in the order of versions, over crashes, restarts and a
lost database. Not guaranteed: an increment for a version that changed no row, such as one of
OPTIMIZE.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from cbp.engine.delta.actions import (
    Action,
    AddFile,
    ChangeFile,
    Metadata,
    Protocol,
    RemoveFile,
    decode,
)
from cbp.engine.delta.log import DeltaLog
from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Files
from cbp.errors import Mistake, NotFoundError, TableFeatureError
from cbp.model.dataflow.dataflow import Dataflow, SourceNode
from controller.allowed_folders import AllowedFolders
from controller.ingest.errors import (
    FeedDisabledError,
    FeedHaltedError,
    TableGoneError,
    TablePlaceError,
    TableReplacedError,
    TableUnreadableError,
    TableVersionGoneError,
)
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.formats.delta import (
    LOG,
    ChangeGroup,
    has_change_feed,
    is_group_name,
    last_version,
    unsupported,
)
from controller.ingest.ports import Ports
from controller.store.base import Uploaded

_FILE = "_feed.json"


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """The newest group of versions; all earlier versions were taken in.

    Attributes:
        digest: SHA-256 of the log entry of its last version, in hex; it differs for another table
            in the same folder.
        claimed: Whether the group was claimed, or has no changes to claim.
    """

    group: ChangeGroup
    digest: str
    claimed: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FeedPosition:
        """Read the output of `save_position`."""
        return cls(ChangeGroup.from_json(value["group"]), value["digest"], value["claimed"])


def load_position(folder: str, files: Files) -> FeedPosition | None:
    """Return the position of a source, by its folder of increments; `None` before the first."""
    try:
        return read_record(files, f"{folder}/{_FILE}", FeedPosition.from_json)
    except NotFoundError:
        return None


def save_position(folder: str, files: Files, position: FeedPosition) -> None:
    """Replace the position of a source, durably."""
    path = f"{folder}/{_FILE}"
    value = {
        "group": position.group.to_json(),
        "digest": position.digest,
        "claimed": position.claimed,
    }
    files.write_durable(path, digested(json.dumps(value).encode(), path), what="feed_position")


Receive = Callable[[SourcePlace, str, BinaryIO, str], Uploaded]
"""Stores a file from a stream and claims it, as an upload: place, name, stream and key."""

ENTRY_BYTES_MAX = 256 << 20
_ASKED = 1_000
_FEED = "delta.enableChangeDataFeed"


def table_mistakes(dataflow: Dataflow, allowed: AllowedFolders) -> Iterator[Mistake]:
    """Yield the tables of a dataflow's sources that the settings do not allow."""
    for source in dataflow.sources.values():
        if source.format == "delta" and (why := allowed.refusal(source.options.get("table", ""))):
            yield Mistake("delta_place_refused", f"sources.{source.name}.options", why)


@dataclass(frozen=True, slots=True)
class TableFeeds:
    """Claims versions of tables; the caller makes one call at a time for each source."""

    ports: Ports
    receive: Receive
    allowed: AllowedFolders

    def locate(self, place: SourcePlace) -> SourcePlace:
        """Return the place of a `delta` source with its table's folder.

        Raises `TablePlaceError` if the settings do not allow the folder.
        """
        path = place.source.options["table"]
        if why := self.allowed.refusal(path):
            raise TablePlaceError(place.name, why)
        return replace(place, table=self.allowed.locate(path))

    def claim_next(self, place: SourcePlace) -> bool:
        """Claim the next versions, if there are any and no others are being taken in.

        Return whether claimed versions can be taken in now. Raises errors of
        `controller.ingest.errors`, `FileDamagedError`, or as an upload.
        """
        if self._waits(place):
            return False
        position = load_position(place.increments, self.ports.files)
        log = _Log(place.name, place.table, self.ports.files)
        while position is None or position.claimed:
            planned = log.begin() if position is None else log.behind(position, place.source)
            if planned is None:
                return False
            position = planned
            save_position(place.increments, self.ports.files, position)
        group = position.group
        key = f"delta:{group.table}:{'all of ' if group.snapshot else ''}{group.first}"
        # Versions that a roll-back dropped count as taken in; they are not claimed again.
        claim = self.ports.store.keyed_claim(place.dataflow, place.name, key, withdrawn=True)
        if claim is None or claim.status != "withdrawn":
            content = io.BytesIO(group.encoded())
            claim = self.receive(place, group.name, content, key).claim
        if (known := claim.path) != group.name:  # the position is older, from a back-up
            position = log.at(replace(group, last=last_version(known)))
        save_position(place.increments, self.ports.files, replace(position, claimed=True))
        return True

    def _waits(self, place: SourcePlace) -> bool:
        """Return whether a group is being taken in; raises `FeedHaltedError` if one was refused."""
        opened = self.ports.store.open_claims(place.dataflow, place.name)
        if any(is_group_name(claim.path) for claim in opened):
            return True
        cursor: str | None = None
        while True:  # people may have dropped any number of other files
            refused = self.ports.store.claims(
                place.dataflow, place.name, status="quarantined", cursor=cursor, limit=_ASKED
            )
            for claim in refused.items:
                if is_group_name(claim.path):
                    raise FeedHaltedError(place.name, claim.path, claim.id)
            if (cursor := refused.cursor) is None:
                return False


class _Log:
    def __init__(self, source: str, table: str, files: Files) -> None:
        self._source, self._table, self._files = source, table, files
        self._log = DeltaLog(table, files)

    def at(self, group: ChangeGroup) -> FeedPosition:
        return FeedPosition(group, self._digest(group.last))

    def begin(self) -> FeedPosition:
        newest = self._newest()
        try:
            snapshot = self._log.snapshot(newest)
        except TableFeatureError as error:
            why = "it uses checkpoints that are not classic single-file checkpoints"
            raise TableUnreadableError(self._source, self._table, newest, why) from error
        metadata = snapshot.metadata
        if why := unsupported(metadata, snapshot.protocol):
            raise TableUnreadableError(self._source, self._table, newest, f"it uses {why}")
        if not has_change_feed(metadata):
            raise FeedDisabledError(self._source, self._table, newest, began=False)
        group = ChangeGroup(metadata.id, newest, newest, metadata.partition_columns, snapshot=True)
        return FeedPosition(group, self._digest(newest))

    def behind(self, position: FeedPosition, source: SourceNode) -> FeedPosition | None:
        """Return the group after a position; `None` if the table has no later version."""
        before = position.group
        if not self._require_next(position):
            return None
        made: ChangeGroup | None = None
        partitions, size, digest, changes = before.partitions, 0, "", False
        for version, data in self._entries(before.last + 1):
            actions = decode(data, self._log.entry_path(version))
            if any(isinstance(one, Metadata | Protocol) for one in actions):
                if made is not None:
                    break  # changed settings begin a group of their own
                partitions = self._require_readable(before, version, actions, partitions)
            bytes_ = sum(_changed_bytes(actions))
            if made is not None and size + bytes_ > source.batch.bytes:
                break
            first = version if made is None else made.first
            made = ChangeGroup(before.table, first, version, partitions)
            size, digest = size + bytes_, hashlib.sha256(data).hexdigest()
            changes = changes or bytes_ > 0
            if version - first + 1 >= source.batch.files:
                break
        assert made is not None, "there is no log entry, although _require_next found one"
        return FeedPosition(made, digest, claimed=not changes)

    def _require_next(self, position: FeedPosition) -> bool:
        """Return whether the same table has the version after a position.

        Raises `TableGoneError`, `TableReplacedError` or `TableVersionGoneError`.
        """
        last, table = position.group.last, position.group.table
        has_next, digest = self._has(last + 1), self._digest(last)
        if digest and digest != position.digest:
            why = f"the log entry of version {last} has changed since it was read"
            raise TableReplacedError(self._source, self._table, why)
        if not digest:
            newest = self._newest()
            if newest < last:
                why = f"its newest version is {newest}, but version {last} was already read"
                raise TableReplacedError(self._source, self._table, why)
            if self._log.snapshot(newest).metadata.id != table:
                raise TableReplacedError(self._source, self._table, "its id has changed")
        if not has_next and self._newest() > last:
            if self._has(last + 1):  # written meanwhile
                return True
            raise TableVersionGoneError(self._source, self._table, last + 1)
        return has_next

    def _require_readable(
        self, before: ChangeGroup, version: int, actions: list[Action], partitions: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Check a version that changes the table's settings; return its partition columns."""
        protocol = next((one for one in actions if isinstance(one, Protocol)), None)
        metadata = next((one for one in actions if isinstance(one, Metadata)), None)
        if metadata is None:
            metadata = Metadata(before.table, "", partitions, {_FEED: "true"})
        if metadata.id != before.table:
            why = f"its id changed at version {version}"
            raise TableReplacedError(self._source, self._table, why)
        if not has_change_feed(metadata):
            raise FeedDisabledError(self._source, self._table, version, began=True)
        if why := unsupported(metadata, protocol):
            raise TableUnreadableError(self._source, self._table, version, f"it uses {why}")
        return metadata.partition_columns

    def _entries(self, version: int) -> Iterator[tuple[int, bytes]]:
        while (data := self._entry(version)) is not None:
            yield version, data
            version += 1

    def _entry(self, version: int) -> bytes | None:
        path = self._log.entry_path(version)
        try:
            if os.path.getsize(path) > ENTRY_BYTES_MAX:
                why = f"its log entry has more than {ENTRY_BYTES_MAX >> 20} MiB"
                raise TableUnreadableError(self._source, self._table, version, why)
            return self._files.read(path)
        except (NotFoundError, FileNotFoundError):
            return None

    def _digest(self, version: int) -> str:
        """Return the SHA-256 of an entry; `""` if it was removed."""
        data = self._entry(version)
        return "" if data is None else hashlib.sha256(data).hexdigest()

    def _has(self, version: int) -> bool:
        return self._files.exists(self._log.entry_path(version))

    def _newest(self) -> int:
        newest = self._log.latest_version() if os.path.isdir(f"{self._table}/{LOG}") else -1
        if newest < 0:
            raise TableGoneError(self._source, self._table)
        return newest


def _changed_bytes(actions: list[Action]) -> Iterator[int]:
    """Yield the size of each file that records changes of a version, at least 1."""
    for action in actions:
        if isinstance(action, ChangeFile) or (
            isinstance(action, AddFile | RemoveFile) and action.data_change
        ):
            yield max(1, action.size)
