"""Records with several destinations become copies: one per key, and one shared by groups.

Each distinct key gets a copy, which is routed like any record of one key. Only the tasks know the
groups that `ALL` and addresses reach. So a record with such destinations gets one more copy, which
is sent to every task and has these destinations as text. A record without any destination gets such
a copy too, so that it is counted.

    route gives   ["b", "a", "b", Multicast("x"), All("items")]
    copies        key "b"  |  key "a"  |  to '["x", ["items"]]'

Guaranteed: all copies of a record have its position, by which a group recognises them as one
record. Exactly one of them counts as the record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_type
from cbp.engine.columnar.row_codec import ENCODE_ERRORS, EXACT
from cbp.engine.columnar.values import Row, typed_key, unify
from cbp.engine.shuffle.layout import COUNT, MADE, TO, FlowRoute
from cbp.engine.shuffle.routing_keys import (
    Column,
    key_columns,
    option_of,
    order_columns,
    record_error,
    records_of,
)
from cbp.errors import is_authors
from cbp.model.dataflow.call_rules import Watches
from cbp.model.dataflow.routing import Targets, targets
from cbp.model.dataflow.stage import Computed, InputSpec, TranslatorSpec

EPOCH = "_epoch"
"""Column of a flow's files with the epoch that wrote a record."""

_SURE = frozenset({"STRING", "BINARY", "BOOLEAN", "BIGINT"})
"""Key types whose values Python compares as the engine does."""


def copies(table: pa.Table, route: FlowRoute) -> tuple[dict[str, Column], pa.Table]:
    """Return the slots of every copy of some records, and a table with each copy's record.

    Shared copies have no key, and are the only ones with a value in `TO`. A table of messages has
    `EPOCH`, too. Raises `AuthorCodeError`, also for an invalid destination.
    """
    spec, input_, by = route.spec, route.input, route.input.route_by
    assert isinstance(by, Computed), "only a function gives several destinations"
    watches = Watches(spec, stage=route.stage)
    copier = _Copies(spec, input_, watches.fresh(by.function, option_of(input_, by), by.place))
    for start, rows in records_of(table, input_):
        for at, row in enumerate(rows, start):
            try:
                copier.add(at, row)
            except BaseException as exc:
                if not is_authors(exc):
                    raise
                raise record_error(exc, spec, input_, route.stage, by, row) from exc
        try:
            copier.seal()
        except ENCODE_ERRORS as exc:
            raise copier.explain(exc, route.stage, start, rows) from exc
    watches.check()
    orders, place = order_columns(table, route), route.layout.flows[route.flow]
    at = pa.array(copier.at)
    records = table.take(at)
    columns: dict[str, Any] = {slot: records.column(source) for slot, source in place.payload}
    columns |= {slot: column.take(at) for slot, column in orders.items()}
    columns |= dict(zip(route.layout.keys, copier.keys, strict=True))
    columns[TO] = copier.to
    # The last copy of a record counts as the record; a copy that groups share is always the last.
    columns[COUNT] = pa.array(np.diff(copier.at, append=-1) != 0).cast(pa.int64())
    if EPOCH in records.column_names:
        columns[MADE] = records.column(EPOCH)
    return columns, records


def destinations(text: str) -> Iterator[str | int | tuple[str, ...]]:
    """Yield the addresses in a text of `TO`, and for each broadcast the flows that limit it."""
    for each in json.loads(text):
        yield tuple(each) if isinstance(each, list) else each


@dataclass
class _Copies:
    """The copies of some records, collected window by window."""

    spec: TranslatorSpec
    input: InputSpec
    function: Callable[[Any], Any]
    at: Any = field(init=False, default_factory=lambda: np.empty(0, np.int64))
    _places: list[int] = field(init=False, default_factory=list)
    _keys: list[Row] = field(init=False, default_factory=list)
    _texts: list[str | None] = field(init=False, default_factory=list)
    _sealed: list[list[pa.Array]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        by = self.input.route_by
        assert isinstance(by, Computed), "only a function gives several destinations"
        self._types = by.types
        kinds = [type_.kind for type_ in by.types]
        # Values of exactly this Python type are not checked one by one, but as a column.
        self._plain = EXACT[kinds[0]] if len(kinds) == 1 and kinds[0] in _SURE else frozenset()
        self._flows = [*(i.name for i in self.spec.inputs), *(s.name for s in self.spec.states)]
        self._none = (None,) * len(kinds)

    def add(self, at: int, row: Row) -> None:
        """Call the route function for a record, and add its copies."""
        given = self.function(row)
        if type(given) in self._plain:
            self._put(at, (given,))
        elif type(given) is list and given and self._plain.issuperset(map(type, given)):
            for key in dict.fromkeys(given):
                self._put(at, (key,))
        else:
            self._resolve(at, targets(given, self._flows, messages=self.input.loopback))

    def _resolve(self, at: int, went: Targets) -> None:
        keys = dict.fromkeys(unify(typed_key(key, self._types)) for key in went.keys)
        for key in keys:
            self._put(at, key)
        shared = [*went.addresses, *(list(destination.flows) for destination in went.alls)]
        if shared or not keys:
            self._put(at, self._none, json.dumps(shared))

    def _put(self, at: int, key: Row, text: str | None = None) -> None:
        self._places.append(at)
        self._keys.append(key)
        self._texts.append(text)

    def seal(self) -> None:
        """Turn the added copies into columns."""
        keys = key_columns(self._keys, self._types)
        self.at = np.concatenate([self.at, np.array(self._places, np.int64)])
        self._sealed.append([*keys, pa.array(self._texts, pa.string())])
        self._places, self._keys, self._texts = [], [], []

    def explain(self, exc: Exception, stage: str, start: int, rows: Sequence[Row]) -> Exception:
        """Return an error that names the first record with an invalid key; `exc` if none has."""
        by = self.input.route_by
        assert isinstance(by, Computed)
        for at, key in zip(self._places, self._keys, strict=True):
            try:
                typed_key(key[0] if len(key) == 1 else key, self._types)
            except TypeError as wrong:
                return record_error(wrong, self.spec, self.input, stage, by, rows[at - start])
        return exc

    @property
    def keys(self) -> Sequence[pa.ChunkedArray]:
        """The key columns of the copies."""
        return self._columns()[:-1]

    @property
    def to(self) -> pa.ChunkedArray:
        """The `TO` texts of the copies."""
        return self._columns()[-1]

    def _columns(self) -> list[pa.ChunkedArray]:
        types = [*map(arrow_type, self._types), pa.string()]
        parts = [list(column) for column in zip(*self._sealed, strict=True)] or [[] for _ in types]
        return [pa.chunked_array(part, type_) for part, type_ in zip(parts, types, strict=True)]
