"""Views in the reference engine: the changes of a group's records, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence

from cbp.engine.columnar.values import Row, row_order, unify
from cbp.model.dataflow.call_rules import refuse_output_foreign, refuse_output_twice, refuse_twice
from cbp.model.dataflow.equality import identity
from cbp.model.dataflow.stage import InputSpec, StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema
from cbp.model.flow.signed_changes import (
    AFTER,
    CHANGE_TYPE,
    DELETE,
    INSERT,
    SIGNS,
    UPDATE_AFTER,
    UPDATE_BEFORE,
)


def group_changes(view: StateSpec, before: Sequence[Row], after: Sequence[Row]) -> Iterator[Row]:
    """Yield the changes of one group, ordered by the second key; of a bag, by all columns."""
    if view.bag:
        yield from _bag_changes(view, before, after)
        return
    at = [view.schema.index(name) for name in view.second_key]
    types = [view.schema.fields[place].type for place in at]
    olds, news = ({unify([row[i] for i in at]): row for row in rows} for rows in (before, after))
    for key in sorted(olds | news, key=lambda key: row_order(key, types)):
        old, new = olds.get(key), news.get(key)
        if old is None and new is not None:
            yield _change(new, INSERT)
        elif new is None and old is not None:
            yield _change(old, DELETE)
        elif old is not None and new is not None and identity(old) != identity(new):
            yield _change(old, UPDATE_BEFORE)
            yield _change(new, UPDATE_AFTER)


def _bag_changes(view: StateSpec, before: Sequence[Row], after: Sequence[Row]) -> Iterator[Row]:
    """Yield a change for each record that a group has more often on one side than on the other."""
    at = [view.schema.index(name) for name in view.order]
    types = [view.schema.fields[place].type for place in at]
    surplus: Counter[Hashable] = Counter()
    records: dict[Hashable, Row] = {}
    for sign, rows in ((-1, before), (1, after)):
        for row in rows:
            surplus[identity(row)] += sign
            records[identity(row)] = tuple(v + 0.0 if isinstance(v, float) else v for v in row)
    for name in sorted(records, key=lambda name: row_order([records[name][i] for i in at], types)):
        kind = INSERT if surplus[name] > 0 else DELETE
        yield from [_change(records[name], kind)] * abs(surplus[name])


def _change(row: Row, type_: str) -> Row:
    return (*row, type_, SIGNS[type_])


def read_changes(rows: Sequence[Row], flow: Schema, input_: InputSpec) -> Sequence[Row]:
    """Return a flow's records that an input reads; among changes, the inserted and updated ones."""
    if input_.changes != "after" or CHANGE_TYPE not in flow:
        return rows
    at = flow.index(CHANGE_TYPE)
    return [row for row in rows if row[at] is None or row[at] in AFTER]


class ViewKeys:
    """The keys of the records that one group has emitted to each view."""

    def __init__(self, spec: TranslatorSpec) -> None:
        self._places: dict[str, list[int]] = {}
        for view in spec.keyed_views:
            key = (*spec.key_of(view).names, *view.second_key)
            self._places[view.name] = [view.schema.index(name) for name in key]
        self._seen: dict[str, set[Row]] = {name: set() for name in self._places}

    def take(self, view: str, row: Row) -> None:
        """Note a record that was emitted. Raises `AuthorMisuse`: its key was emitted before."""
        if view not in self._places:
            return
        key = unify([row[place] for place in self._places[view]])
        if key in self._seen[view]:
            refuse_twice(view, key)
        self._seen[view].add(key)


class OutputKeys:
    """The keys of the records that one call has emitted to each output with a key."""

    def __init__(self, spec: TranslatorSpec) -> None:
        self._places: dict[str, tuple[list[int], list[int]]] = {}
        for output in spec.outputs if spec.key is not None else ():
            if output.single and spec.key is not None:
                names = (spec.key.names, output.key)
                group, key = ([output.schema.index(name) for name in each] for each in names)
                self._places[output.name] = group, key
        self._seen: dict[str, set[Row]] = {name: set() for name in self._places}

    def take(self, output: str, row: Row, called: Collection[Row]) -> None:
        """Note a record that was emitted; its key must be new, and belong to a called group."""
        if output not in self._places:
            return
        group, key = (unify([row[at] for at in places]) for places in self._places[output])
        if group not in called:
            refuse_output_foreign(output, group, *called if len(called) == 1 else ())
        if key in self._seen[output]:
            refuse_output_twice(output, key)
        self._seen[output].add(key)
