"""What readers of Delta's change data feed see, and whether it is exact."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from cbp.engine.delta.actions import CommitInfo, Txn
from cbp.engine.delta.log import DeltaLog
from cbp.engine.storage.files import LocalFiles

__all__ = [
    "UPDATE_AFTER",
    "UPDATE_BEFORE",
    "Feed",
    "apply_bag_feed",
    "apply_feed",
    "epochs_shown",
    "feed_by_delta_rs",
    "feed_of_rows",
    "is_compacted",
    "records_at",
    "require_exact",
    "require_exact_bag",
    "versions_of",
]

OURS = ("_hash", "_bucket")
TYPE, VERSION = "_change_type", "_commit_version"

UPDATE_BEFORE, UPDATE_AFTER = "update_preimage", "update_postimage"
"""As Delta's protocol has them, in which readers look for them."""

Feed = dict[int, Counter[tuple[str, tuple[Any, ...]]]]
"""Version to its changes: a type and a record."""


def plain(value: Any) -> Any:
    """Return a value that can be hashed and compared: one NaN, one zero, tuples for lists."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return tuple(map(plain, value)) if isinstance(value, list) else value


def record_of(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(plain(row[name]) for name in columns)


def feed_of_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Feed:
    """Return the rows of a feed by version."""
    feed: Feed = {}
    for row in rows:
        feed.setdefault(row[VERSION], Counter())[row[TYPE], record_of(row, columns)] += 1
    return feed


def columns_of(path: str) -> list[str]:
    """Return the columns of a view."""
    names = [field.name for field in DeltaTable(path).schema().fields]
    return [name for name in names if name not in OURS]


def feed_by_delta_rs(path: str, first: int = 0) -> Feed:
    """Return a table's feed from a version on, as delta-rs reads it."""
    table = pa.table(DeltaTable(path).load_cdf(starting_version=first))
    return feed_of_rows(table.to_pylist(), columns_of(path))


def records_at(path: str, version: int | None = None) -> Counter[tuple[Any, ...]]:
    """Return what a version of a table shows, as delta-rs reads it."""
    query = QueryBuilder().register("t", DeltaTable(path, version=version))
    rows = pa.table(query.execute("select * from t").read_all()).to_pylist()
    return Counter(record_of(row, columns_of(path)) for row in rows)


def versions_of(path: str) -> dict[int, str]:
    """Return the versions of a table, each with its operation."""
    log = DeltaLog(path, LocalFiles())
    return {
        version: next(one.operation for one in log.entry(version) if isinstance(one, CommitInfo))
        for version in log.versions()
    }


def is_compacted(path: str) -> bool:
    """Tell whether files of a table were merged, in entries of their own or in those of runs."""
    applications = DeltaLog(path, LocalFiles()).snapshot().txns
    return any(name.endswith("/compaction") for name in applications)


def epochs_shown(path: str) -> dict[int, int]:
    """Return the versions that show runs, each with the newest epoch that it shows."""
    log = DeltaLog(path, LocalFiles())
    return {
        version: one.version
        for version in log.versions()
        for one in log.entry(version)
        if isinstance(one, Txn) and one.app_id.endswith("/run")
    }


def apply_feed(
    before: Counter[tuple[Any, ...]],
    changes: Counter[tuple[str, tuple[Any, ...]]],
    key: Sequence[int],
) -> Counter[tuple[Any, ...]]:
    """Return the records after the changes of one version.

    Fails if what goes was not there, if a key has two changes, or if one changes nothing.
    """
    assert all(count == 1 for count in changes.values()), changes
    sides: dict[tuple[Any, ...], dict[str, tuple[Any, ...]]] = {}
    for kind, record in changes:
        sides.setdefault(tuple(record[at] for at in key), {})[kind] = record
    for kinds in sides.values():
        assert set(kinds) in ({"insert"}, {"delete"}, {UPDATE_BEFORE, UPDATE_AFTER}), kinds
        assert len(set(kinds.values())) == len(kinds), kinds
    gone = Counter(r for kind, r in changes if kind in ("delete", UPDATE_BEFORE))
    came = Counter(r for kind, r in changes if kind in ("insert", UPDATE_AFTER))
    assert not gone - before, gone - before
    return before - gone + came


def apply_bag_feed(
    before: Counter[tuple[Any, ...]], changes: Counter[tuple[str, tuple[Any, ...]]]
) -> Counter[tuple[Any, ...]]:
    """Return the records of a bag after the changes of one version.

    Fails if what goes was not there, if a record both comes and goes, or if one is an update.
    """
    sides: dict[str, Counter[tuple[Any, ...]]] = {"insert": Counter(), "delete": Counter()}
    for (kind, record), times in changes.items():
        sides[kind][record] += times
    assert not sides["insert"].keys() & sides["delete"].keys(), changes
    assert not sides["delete"] - before, changes
    return before - sides["delete"] + sides["insert"]


def require_exact(path: str, feed: Feed, key: Sequence[str]) -> None:
    """Fail unless the changes of each version lead from the version before to it."""
    at = [columns_of(path).index(name) for name in key]
    shown: Counter[tuple[Any, ...]] = Counter()
    for version in versions_of(path):
        shown = apply_feed(shown, feed.get(version, Counter()), at)
        assert shown == records_at(path, version), version


def require_exact_bag(path: str, feed: Feed) -> None:
    """Fail unless the changes of each version of a bag lead from the version before to it.

    They are inserts and deletes, and no version has both of one record.
    """
    shown: Counter[tuple[Any, ...]] = Counter()
    for version in versions_of(path):
        shown = apply_bag_feed(shown, feed.get(version, Counter()))
        assert shown == records_at(path, version), version
