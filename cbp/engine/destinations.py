"""From records with several destinations to copies: one per key, and one that groups share.

A route function is asked once per record. Each distinct key gets a copy, which goes its way
like any record of one key. Whom `ALL` and addresses reach only the tasks know: of such a
record one more copy goes to every task, whatever the number of groups that it reaches there,
and carries its destinations as text. So does one that nobody gets, to be counted.

    route gives   ["b", "a", "b", Multicast("x"), All("items")]
    copies        key "b"  |  key "a"  |  to '["x", ["items"]]'

Guaranteed: all copies of a record have its position, by which a group tells them from
different records; exactly one of them counts as the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.arrow import arrow_type
from cbp.engine.layout import COUNT, MADE, TO, ShuffleLayout
from cbp.engine.route import key_columns, order_columns, record_error, records_of
from cbp.engine.rows import ENCODE_ERRORS, EXACT
from cbp.engine.values import Row, typed_key, unify
from cbp.model.routing import Targets, targets
from cbp.model.stage import Computed, InputSpec, TranslatorSpec

__all__ = ["EPOCH", "copies", "destinations"]

EPOCH = "_epoch"
"""Column of a flow's files that tells which epoch wrote a record."""

_SURE = frozenset({"STRING", "BINARY", "BOOLEAN", "BIGINT"})
"""Types of keys whose values Python compares as we do."""


def copies(
    table: pa.Table, spec: TranslatorSpec, layout: ShuffleLayout, flow: int, *, stage: str
) -> tuple[dict[str, pa.Array | pa.ChunkedArray], pa.Table]:
    """Return the slots of every copy of some records, and beside each copy its record.

    A copy that groups share has no key, and `TO` where others have null.

    Shape:
        table: the input's columns, of a message `EPOCH` too, and whatever else.

    Raises:
        AuthorCodeError: A function of the author raised, or gave what is no destination.
    """
    input_, place = spec.inputs[flow], layout.flows[flow]
    found = _Copies(spec, input_)
    for start, rows in records_of(table, input_):
        for at, row in enumerate(rows, start):
            try:
                found.add(at, row)
            except Exception as exc:
                assert isinstance(input_.route_by, Computed)
                raise record_error(exc, spec, input_, stage, input_.route_by, row) from exc
        try:
            found.seal()
        except ENCODE_ERRORS as exc:
            raise found.explain(exc, stage, start, rows) from exc
    orders = order_columns(table, spec, layout, flow, stage=stage)
    at = pa.array(found.at)
    records = table.take(at)
    columns: dict[str, Any] = {slot: records.column(source) for slot, source in place.payload}
    columns |= {slot: column.take(at) for slot, column in orders.items()}
    columns |= dict(zip(layout.keys, found.keys, strict=True))
    columns[TO] = found.to
    # The last copy of a record is the one that groups share, if there is one.
    columns[COUNT] = pa.array(np.diff(found.at, append=-1) != 0).cast(pa.int64())
    if EPOCH in records.column_names:
        columns[MADE] = records.column(EPOCH)
    return columns, records


def destinations(text: str) -> Iterator[str | int | tuple[str, ...]]:
    """Yield the addresses in a text of `TO`, and of each broadcast the flows that limit it."""
    for each in json.loads(text):
        yield tuple(each) if isinstance(each, list) else each


@dataclass
class _Copies:
    """The copies of some records, window by window.

    Attributes:
        at: Position of each copy's record; ascending.
    """

    spec: TranslatorSpec
    input: InputSpec
    at: Any = field(init=False, default_factory=lambda: np.empty(0, np.int64))
    _places: list[int] = field(init=False, default_factory=list)
    _keys: list[Row] = field(init=False, default_factory=list)
    _texts: list[str | None] = field(init=False, default_factory=list)
    _sealed: list[list[pa.Array]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        by = self.input.route_by
        assert isinstance(by, Computed), "only a function gives several destinations"
        self._function, self._types = by.function, by.types
        kinds = [type_.kind for type_ in by.types]
        # What has exactly this type is checked as a whole column.
        self._plain = EXACT[kinds[0]] if len(kinds) == 1 and kinds[0] in _SURE else frozenset()
        self._flows = [*(i.name for i in self.spec.inputs), *(s.name for s in self.spec.states)]
        self._none = (None,) * len(kinds)

    def add(self, at: int, row: Row) -> None:
        """Ask where a record goes."""
        given = self._function(row)
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
        """Turn what was added into columns."""
        keys = key_columns(self._keys, self._types)
        self.at = np.concatenate([self.at, np.array(self._places, np.int64)])
        self._sealed.append([*keys, pa.array(self._texts, pa.string())])
        self._places, self._keys, self._texts = [], [], []

    def explain(self, exc: Exception, stage: str, start: int, rows: Sequence[Row]) -> Exception:
        """Find the key that is none, to name its record."""
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
        """The texts of their destinations."""
        return self._columns()[-1]

    def _columns(self) -> list[pa.ChunkedArray]:
        types = [*map(arrow_type, self._types), pa.string()]
        parts = [list(column) for column in zip(*self._sealed, strict=True)] or [[] for _ in types]
        return [pa.chunked_array(part, type_) for part, type_ in zip(parts, types, strict=True)]
