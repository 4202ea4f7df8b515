"""One version of a table, for people and services: a page of its records, the records of a key.

A page begins at a *place* and ends at the place of the next one: in a state (bucket, record of
the bucket by hash), in an output (file in the order of the flow, live record of the file). Files
never change and a version names its files, so a place means the same whenever and wherever it is
read: pages of one version, put together, are the table of that version, whatever is published
meanwhile.

Guaranteed: memory holds the hashes of one bucket, or a batch of a file, and the records of the
page. Not guaranteed: that a version stays; what collection has taken is `VersionGoneError`.

Invariants: tests/cbp/engine/test_pages.py, tests/controller/test_consistent_reads.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cbp.engine.base import Page, Place, flow_table, state_table
from cbp.engine.batches import live_batches, page_of
from cbp.engine.delta.fence import require_placement
from cbp.engine.delta.log import Snapshot
from cbp.engine.delta.tables import ManagedTable
from cbp.engine.publication import live_files
from cbp.engine.read import look_up, state_rows
from cbp.engine.state.bucket import BucketState, StateTable
from cbp.engine.state.index import IndexCache
from cbp.engine.tiers import in_order
from cbp.errors import (
    NotFoundError,
    PlacementDiffersError,
    VersionGoneError,
    VersionUnreadableError,
)
from cbp.model.dataflow import StageNode

__all__ = ["VersionReader"]


class VersionReader:
    """Reads versions of the tables of one stage; holds nothing but what it is given.

    Args:
        table_of: Opens a table by its full path.
        folder: Of the dataflow.
        node: The stage.
    """

    def __init__(
        self,
        table_of: Callable[[str], ManagedTable],
        folder: str,
        node: StageNode,
        cache: IndexCache,
        *,
        hash_mask: int,
    ) -> None:
        self._table_of, self._folder, self._node = table_of, folder, node
        self._cache, self._hash_mask = cache, hash_mask

    def look_up(self, state: str, key: Mapping[str, Any], version: int) -> list[dict[str, Any]]:
        """Return the records of one key as of a version of a state's table."""
        name = state_table(self._node.name, state)
        with self._kept(name, version):
            table = self._state(name, state, version)
            return look_up(table, self._node, state, key, self._cache, hash_mask=self._hash_mask)

    def state_page(self, state: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of a state from a place on, bucket by bucket, by hash."""
        name = state_table(self._node.name, state)
        schema = self._node.translator.state(state).schema
        rows: list[dict[str, Any]] = []
        with self._kept(name, version):
            table = self._state(name, state, version)
            for number in sorted(number for number in table.live if number >= start[0]):
                at = start[1] if number == start[0] else 0
                if len(rows) >= limit:
                    return rows, (number, 0)
                bucket = BucketState(table, self._cache, (number,))
                found = bucket.find(None)
                part = found.part(at, at + limit - len(rows))
                if len(part.hashes):
                    rows += state_rows(bucket.take(part, schema.names), schema)
                at += len(part.hashes)
                if at < len(found.hashes):
                    return rows, (number, at)
        return rows, None

    def output_page(self, output: str, version: int, start: Place, limit: int) -> Page:
        """Return at most `limit` records of an output from a place on, in the flow's order."""
        name = flow_table(self._node.name, output)
        rows: list[dict[str, Any]] = []
        with self._kept(name, version):
            files = in_order(self._snapshot(name, version).live.values())
            for number in range(start[0], len(files)):
                file, first = files[number], start[1] if number == start[0] else 0
                batches = live_batches(f"{self._folder}/{name}", file)
                part = page_of(batches, first, limit - len(rows))
                rows += part
                if first + len(part) < file.rows - file.dead:
                    return rows, (number, first + len(part))
        return rows, None

    def _state(self, name: str, state: str, version: int) -> StateTable:
        """Return a version's files, in an order that does not depend on how its log was read."""
        snapshot = self._snapshot(name, version)
        path = f"{self._folder}/{name}"
        spec = self._node.translator.state(state)
        key = self._node.translator.key_of(spec).names
        try:
            require_placement(path, snapshot.metadata, buckets=self._node.buckets, key=key)
        except PlacementDiffersError as error:
            why = f"{error.details['setting']} was {error.details['found']}"
            raise VersionUnreadableError(path, version, why) from error
        there = {field["name"] for field in json.loads(snapshot.metadata.schema)["fields"]}
        if missing := [column for column in spec.schema.names if column not in there]:
            raise VersionUnreadableError(path, version, f"it has no {', '.join(missing)}")
        live = live_files(snapshot, name, ())
        ordered = {b: tuple(sorted(files, key=lambda f: f.path)) for b, files in live.items()}
        return StateTable(path, snapshot.metadata.id, ordered)

    def _snapshot(self, name: str, version: int) -> Snapshot:
        return self._table_of(f"{self._folder}/{name}").log.snapshot(version)

    @contextmanager
    def _kept(self, name: str, version: int) -> Iterator[None]:
        """Say of what is gone that the version is."""
        try:
            yield
        except (NotFoundError, FileNotFoundError) as error:
            path = f"{self._folder}/{name}"
            raise VersionGoneError(path, version) from error
