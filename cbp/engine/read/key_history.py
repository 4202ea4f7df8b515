"""History of a key: the versions of a state's table that changed its records.

The log entry of a version names the files that it added and removed, each with its bucket, so a
version that did not touch the key's bucket is skipped without a look-up. In all others, the records
of the key are compared with those of the version before, since a compaction touches a bucket and
changes no record.

Guaranteed: a call reads at most `VERSIONS_MAX` log entries, and looks the key up in at most
`LOOKUPS_MAX` versions; beyond that, it reports that there are more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from cbp.engine.columnar.values import unify
from cbp.engine.commit.table_entries import newest_epoch, shown_generation
from cbp.engine.delta.actions import AddFile, RemoveFile
from cbp.engine.delta.log import DeltaLog
from cbp.engine.interface.readers import KeyChange, KeyChanges
from cbp.errors import NotFoundError, VersionGoneError, VersionUnreadableError
from cbp.model.dataflow.equality import identity

VERSIONS_MAX = 1000
LOOKUPS_MAX = 200

_Records = list[dict[str, Any]]


def find_changes(
    log: DeltaLog,
    bucket: int,
    look_up: Callable[[int], _Records],
    *,
    behind: int | None,
    limit: int,
) -> KeyChanges:
    """Return the versions that changed the records of one key; see `TableVersions.key_changes`."""
    versions = [one for one in log.readable() if behind is None or one < behind]
    changes: list[KeyChange] = []
    lookups = 0
    for examined, version in enumerate(reversed(versions)):
        if len(changes) == limit or examined == VERSIONS_MAX or lookups == LOOKUPS_MAX:
            return KeyChanges(tuple(changes), "more", version + 1)
        try:
            files = (one for one in log.entry(version) if isinstance(one, AddFile | RemoveFile))
            if not any(int(one.partition_values.get("_bucket") or 0) == bucket for one in files):
                continue
            lookups += 1
            after, before = look_up(version), look_up(version - 1) if version else []
            if _multiset(after) != _multiset(before):
                changes.append(_change(log, version, before, after))
        except (NotFoundError, VersionGoneError, VersionUnreadableError):
            return KeyChanges(tuple(changes), "not_kept")
    return KeyChanges(tuple(changes), "begin" if versions[:1] in ([], [0]) else "not_kept")


def having(records: _Records, values: Mapping[str, Any]) -> _Records:
    """Return the records that have these values in these columns; all if there are none."""
    wanted = identity(list(values.values()))
    return [one for one in records if identity([one[name] for name in values]) == wanted]


def _multiset(records: _Records) -> Counter[str]:
    return Counter(repr(unify(list(record.values()))) for record in records)


def _change(log: DeltaLog, version: int, before: _Records, after: _Records) -> KeyChange:
    shown = log.snapshot(version)
    earlier = newest_epoch(log.snapshot(version - 1).txns) if version else -1
    epoch = newest_epoch(shown.txns)
    # After a roll-back, epochs can be smaller than those of the version before.
    first = earlier + 1 if earlier < epoch else epoch
    stamp, generation = shown.in_commit_timestamp, shown_generation(shown.txns)
    return KeyChange(version, first, epoch, generation, stamp, before, after)
