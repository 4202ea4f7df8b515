"""Compiles the declarations of states, views and timers, once the stage's key is known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import get_args

from cbp.model.dataflow.expiry import EXPIRY_SUFFIX
from cbp.model.dataflow.stage import SECONDS_MAX, TIMER_COLUMN, Grouping, InputSpec, StateSpec
from cbp.model.flow.schema import Schema
from cbp.model.flow.signed_changes import CHANGE_COLUMNS
from cbp.sdk.declare import State, Timers, View
from cbp.sdk.option_reader import OptionReader


class StateCompiler:
    """Compiles the states of one translator."""

    def __init__(self, options: OptionReader, key: Schema) -> None:
        self._options, self._key = options, key

    def spec(self, name: str, declared: State) -> StateSpec:
        """Return the plain values of a state; raise `DefinitionError` for its first mistake."""
        if isinstance(declared, Timers):
            return self._timers(name, declared)
        schema = self._options.schema(name, declared.schema)
        route = self._state_route(name, declared, schema)
        if declared.grouping not in get_args(Grouping):
            message = f"grouping={declared.grouping!r}; use 'inner' or 'outer'"
            self._options.fail("grouping_unknown", name, message)
        kind = self._view_key if isinstance(declared, View) else self._second_key
        second = kind(name, declared, schema, route)
        tolerance, not_compared = self._options.closeness(name, declared, schema, (*route, *second))
        order = self._options.plain(name, "order_by", declared.order_by, schema)
        self._require_ordered(name, "order_by_type", order, schema, "which has no order")
        if isinstance(declared, View):
            order = order or second
        return StateSpec(
            name,
            schema,
            declared.grouping,
            tolerance,
            not_compared,
            None if route == self._key.names else route,
            order,
            second,
            declared.keep,
            name if isinstance(declared, View) else "",
            expire_ms=self._expire_ms(name, declared),
            bag=isinstance(declared, View) and declared.key is None,
        )

    def _expire_ms(self, name: str, declared: State) -> int:
        if declared.expire is None:
            return 0
        if (age := age_ms(declared.expire)) is None:
            units = ", ".join(f"{unit}s" for unit in _SECONDS)
            message = (
                f"expire={declared.expire!r} is not an age; expected a whole number and a unit "
                f"({units}), such as '30 days', at most ten years"
            )
            self._options.fail("expire_invalid", name, message)
        return age

    def _timers(self, name: str, declared: Timers) -> StateSpec:
        key = self._key
        if declared != Timers():
            message = "Timers() takes no arguments: remove them"
            self._options.fail("timers_invalid", name, message)
        if TIMER_COLUMN in key:
            message = f"the key has a column {TIMER_COLUMN!r}, which timers also need"
            self._options.fail("timers_key", name, f"{message}; rename that column")
        schema = Schema((*key.fields, *self._options.schema(name, declared.schema).fields))
        return StateSpec(name, schema, order_by=(TIMER_COLUMN,), timers=True)

    def _second_key(
        self, name: str, declared: State, schema: Schema, route: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the columns that name a record of a kept state within its group."""
        if not declared.keep:
            if declared.key is not None:
                message = "key= needs a kept state: declare keep=True, too, or remove key="
                self._options.fail("key_without_keep", name, message)
            return ()
        if declared.key is None:
            message = (
                "keep=True needs key='...': the columns that identify a record, including those "
                "of the group's key"
            )
            self._options.fail("keep_key_missing", name, f"{message} ({', '.join(route)})")
        columns = self._options.plain(name, "key", declared.key, schema)
        missing = [column for column in route if column not in columns]
        if missing or len(set(columns)) < len(columns):
            message = f"key={declared.key!r} must name each column of the group's key"
            once = f"({', '.join(route)}) exactly once"
            self._options.fail("keep_key_invalid", name, f"{message} {once}")
        self._require_ordered(name, "keep_key_invalid", columns, schema)
        self._check_kept(name, declared)
        return tuple(column for column in columns if column not in route)

    def _check_kept(self, name: str, declared: State) -> None:
        if declared.grouping == "outer":
            message = (
                "grouping='outer' calls every group, but keep=True is for runs that touch few "
                "records: remove one of them"
            )
            self._options.fail("keep_unsupported", name, message)
        if declared.order_by is not None:
            message = "kept records are ordered by their key; remove order_by"
            self._options.fail("keep_unsupported", name, message)

    def _view_key(
        self, name: str, declared: State, schema: Schema, route: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the columns that name a record of a view within its group."""
        if declared.keep:
            self._check_kept(name, declared)
        if declared.keep and declared.key is None:
            message = (
                "keep=True puts and deletes records by their key, but a bag has no key: add "
                "key='...'"
            )
            self._options.fail("keep_key_missing", name, message)
        key = self._options.plain(name, "key", declared.key, schema)
        for column in schema.names:
            if column.lower() in CHANGE_COLUMNS:
                message = f"the column {column!r} is reserved for the changes of a view"
                self._options.fail("view_column_reserved", name, f"{message}; rename this column")
        if declared.key is None:
            self._check_bag(name, schema)
            return ()
        if missing := [column for column in route if column not in key]:
            message = (
                f"key={', '.join(key)!r} lacks {missing[0]!r}, by which the stage groups its "
                "records. Add that column to the key; without it two groups could emit records of "
                "the same key"
            )
            self._options.fail("view_key_incomplete", name, message)
        self._require_ordered(name, "view_key_type", key, schema)
        return tuple(column for column in key if column not in route)

    def _check_bag(self, name: str, schema: Schema) -> None:
        """Refuse columns by which the records of a bag cannot be distinguished and ordered."""
        for column in schema.fields:
            if not column.type.can_be_key:
                message = (
                    "without key= the view is a bag, whose records are ordered by all columns, but "
                    f"column {column.name!r} is {column.type}, which has no order; declare a key "
                    "(key='...'), or split the column into columns of simple types"
                )
                self._options.fail("view_bag_type", name, message)

    def _require_ordered(
        self,
        name: str,
        code: str,
        columns: Sequence[str],
        schema: Schema,
        why: str = "which cannot be a key",
    ) -> None:
        for column in columns:
            if not schema[column].type.can_be_key:
                message = f"column {column!r} is {schema[column].type}, {why}"
                advice = "name columns of a type such as STRING, BIGINT or TIMESTAMP"
                self._options.fail(code, name, f"{message}; {advice}")

    def _state_route(self, name: str, declared: State, schema: Schema) -> tuple[str, ...]:
        key = self._key
        if declared.route_by is not None:
            route = self._options.plain(name, "route_by", declared.route_by, schema)
            self._options.check_types(name, tuple(schema[column].type for column in route), key)
            return route
        for column in key.fields:
            if column.name not in schema or schema[column.name].type != column.type:
                message = (
                    f"the state needs the key column '{column.name} {column.type}', but has "
                    f"'{schema}': add that column, or name the columns that hold the key with "
                    "route_by='...'"
                )
                self._options.fail("state_key_missing", name, message)
        return key.names


_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_AGE = re.compile(rf"([1-9][0-9]{{0,11}}) ({'|'.join(_SECONDS)})s?")


def age_ms(given: object) -> int | None:
    """Return an age in milliseconds; `None` if it is not an age, or too long."""
    match = _AGE.fullmatch(given) if isinstance(given, str) else None
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    return 1000 * seconds if 0 < seconds <= SECONDS_MAX else None


def expiry_mistakes(
    states: Sequence[StateSpec], inputs: Sequence[InputSpec], *, key: Schema, names: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the name of a state that cannot expire, with the code and the message."""
    outer = next((one.name for one in states if one.grouping == "outer"), None)
    single = next((one.name for one in inputs if one.route_by is None), None)
    for state in states:
        if not state.expire_ms:
            continue
        if TIMER_COLUMN in key:
            message = f"the key has a column {TIMER_COLUMN!r}, which the hidden timers also need"
            yield state.name, "expire_unsupported", f"{message}; rename the key's column"
        if outer is not None:
            message = (
                f"state {outer!r} has grouping='outer', so each epoch calls every group, and no "
                "group would ever expire"
            )
            advice = "use grouping='inner', or leave out expire"
            yield state.name, "expire_unsupported", f"{message}; {advice}"
        if single is not None:
            message = (
                f"records of input {single!r} have no group, so they have no age: give that input "
                "route_by"
            )
            yield state.name, "expire_unsupported", f"{message}, or leave out expire"
        if state.name + EXPIRY_SUFFIX in names:
            message = (
                f"the name {state.name + EXPIRY_SUFFIX!r} is taken by the hidden timers of this "
                "state; rename your declaration of that name"
            )
            yield state.name, "name_invalid", message


def outer_mistakes(states: Sequence[StateSpec]) -> Iterator[tuple[str, str, str]]:
    """Yield name, code and message of timers that are useless, as each epoch calls every group."""
    outer = next((one.name for one in states if one.grouping == "outer"), None)
    for state in states if outer else ():
        if state.timers:
            message = (
                f"state {outer!r} has grouping='outer', so each epoch calls every group anyway"
            )
            advice = "compare group.run.time in each call, or use grouping='inner'"
            yield state.name, "timers_with_outer", f"{message}: {advice}"
