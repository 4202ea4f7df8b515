"""Combiners: the author's functions, or columns, that merge several records of a group into fewer.

Every engine runs them, so that a wrong one shows on any engine: before a shuffle, on each batch
that a task reads; otherwise in the task that has the group. The results have the schema and the key
of the combined records, and take the place of the group's first record. A column counts the records
that each result represents, so that a lost record is still detected.

Guaranteed: a record that is alone in its group and batch is unchanged. The author must ensure that
the result of `translate` stays the same (`cbp.sdk.Input`);
tests/cbp/engine/shuffle/test_combine.py checks it for the translators of this repository.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.author_errors import author_error
from cbp.engine.columnar.groups import key_rows
from cbp.engine.columnar.row_codec import (
    check_row,
    decode_columns,
    decode_table,
    encode_rows,
    rows_maker,
)
from cbp.engine.columnar.values import Row
from cbp.engine.shuffle.layout import FlowRoute
from cbp.engine.shuffle.merged_records import merge_records, merged_table
from cbp.engine.shuffle.routing_keys import slot_columns
from cbp.errors import is_authors
from cbp.errors.counts import format_count
from cbp.model.author.translator_state import StateWatch
from cbp.model.dataflow.stage import InputSpec, TranslatorSpec


def combined(table: pa.Table, route: FlowRoute) -> tuple[pa.Table, pa.Array]:
    """Return a batch with its groups combined, and how many records each row represents.

    The batch has the input's columns and `_seq`; it ascends by `_seq`, and so does the result.
    Raises `AuthorCodeError` if the combiner raised, returned something that is not a record of the
    input, returned more records than it got, or changed the key.
    """
    spec, stage, input_ = route.spec, route.stage, route.input
    assert input_.combine is not None, "only called for inputs that combine"
    if input_.combine.columns and (done := merged_table(table, input_)) is not None:
        return done
    name, line = f"{spec.name}.{input_.name}.combine", input_.combine.place
    function = input_.combine.function or partial(merge_records, input_=input_)
    fresh = StateWatch(function, stage=stage, name=name, place=line)
    rows = rows_maker(input_.name, input_.schema.names)(decode_table(table, input_.schema))
    keys = _keys(table, route)
    merged: list[tuple[int, Row, int]] = []
    groups: dict[Row, list[int]] = {}
    for at, key in enumerate(keys):
        groups.setdefault(key, []).append(at)
    for places in groups.values():
        if len(places) == 1:
            merged.append((places[0], rows[places[0]], 1))
        else:
            merged += _combine(fresh.function, places, rows, spec, input_, stage)
    fresh.check()
    merged.sort(key=lambda one: one[0])
    firsts = [place for place, _, _ in merged]
    columns = encode_rows([row for _, row, _ in merged], input_.schema)
    fewer = pa.Table.from_arrays(columns, schema=arrow_schema(input_.schema))
    for place, key in zip(firsts, _keys(fewer, route), strict=True):
        if key != keys[place]:
            message = (
                f"returned a record of the key {key!r} when combining records of the key "
                f"{keys[place]!r}"
            )
            raise _failure(ValueError(message), [rows[place]], spec, input_, stage)
    fewer = fewer.append_column("_seq", table.column("_seq").take(pa.array(firsts, pa.int64())))
    return fewer, pa.array([count for _, _, count in merged], pa.int64())


def _keys(table: pa.Table, route: FlowRoute) -> list[Row]:
    slots, types = slot_columns(table, route), route.key_types
    keys = pa.table({name: slots[name] for name in route.layout.keys})
    return key_rows(decode_columns(keys, route.layout.keys, types), types)


def _combine(
    function: Callable[[list[Row]], Iterable[Row]],
    places: list[int],
    rows: list[Row],
    spec: TranslatorSpec,
    input_: InputSpec,
    stage: str,
) -> list[tuple[int, Row, int]]:
    """Return the place, content and weight of each record that replaces one group's records."""
    group = [rows[at] for at in places]
    try:
        combined = [tuple(row) for row in function(list(group))]
        if not 0 < len(combined) <= len(group):
            returned = format_count(len(combined), "record")
            message = (
                f"returned {returned} records when combining {len(group)}; expected 1 to "
                f"{len(group)}"
            )
            raise ValueError(message)
        for row in combined:
            if len(row) != len(input_.schema):
                message = f"returned {row!r}, which is not a record of ({input_.schema})"
                raise TypeError(message)
            check_row(row, input_.schema, f"{input_.name}.combine")
    except BaseException as exc:
        if not is_authors(exc):
            raise
        raise _failure(exc, group, spec, input_, stage) from exc
    # Each result represents one record, and the last one all remaining records.
    counts = [1] * (len(combined) - 1) + [len(group) - len(combined) + 1]
    return list(zip(places, combined, counts, strict=False))


def _failure(
    exc: BaseException, group: list[Row], spec: TranslatorSpec, input_: InputSpec, stage: str
) -> Exception:
    assert input_.combine is not None
    at = replace(spec, place=input_.combine.place)
    inputs = {input_.name: group}
    return author_error(exc, at, stage=stage, inputs=inputs, function=f"{input_.name}.combine")
