"""Compiles the declarations of states, views and timers, once the stage's key is known."""

from __future__ import annotations

from typing import get_args

from cbp.model.dataflow.stage import TIMER_COLUMN, Form, Grouping, StateSpec
from cbp.model.flow.schema import Schema
from cbp.sdk.declare import State, Timers, View
from cbp.sdk.expiry import age_mistake, age_ms
from cbp.sdk.option_reader import OptionReader
from cbp.sdk.timers import timers_mistakes
from cbp.sdk.views import view_mistakes

__all__ = ["StateCompiler"]


class StateCompiler:
    """Compiles the states of one translator; see `spec`.

    Args:
        options: Reads their options.
        form: The translator's form.
        key: The stage's key.
    """

    def __init__(self, options: OptionReader, form: Form, key: Schema) -> None:
        self._options, self._form, self._key = options, form, key

    def spec(self, name: str, declared: State) -> StateSpec:
        """Return the plain values of a state.

        Raises:
            DefinitionError: For its first mistake.
        """
        if isinstance(declared, Timers):
            return self._timers(name, declared)
        schema = self._options.schema(name, declared.schema)
        route = self._state_route(name, declared, schema)
        if declared.grouping not in get_args(Grouping):
            message = f"{declared.grouping!r}; use 'inner' or 'outer'"
            self._options.fail("grouping_unknown", name, message)
        second = self._second_key(name, declared, schema, route)
        tolerance, not_compared = self._options.closeness(name, declared, schema, (*route, *second))
        order = self._state_order(name, declared, schema)
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
        if mistake := age_mistake(declared.expire):
            self._options.fail("expire_invalid", name, mistake)
        return age_ms(declared.expire)

    def _timers(self, name: str, declared: Timers) -> StateSpec:
        key = self._key
        for code, message in timers_mistakes(declared, key):
            self._options.fail(code, name, message)
        schema = Schema((*key.fields, *self._options.schema(name, declared.schema).fields))
        return StateSpec(name, schema, order_by=(TIMER_COLUMN,), timers=True)

    def _second_key(
        self, name: str, declared: State, schema: Schema, route: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the columns that name a record of a view or a kept state within its group."""
        if isinstance(declared, View):
            return self._view_key(name, declared, schema, route)
        if not declared.keep:
            if declared.key is not None:
                message = "key= needs a kept state: declare keep=True too, or leave key= out"
                self._options.fail("key_without_keep", name, message)
            return ()
        if declared.key is None:
            message = "keep=True needs key='...': the columns that name a record, with the group's"
            self._options.fail(
                "keep_key_missing", name, f"{message} ({', '.join(route)}) among them"
            )
        columns = self._options.plain(name, "key", declared.key, schema)
        missing = [column for column in route if column not in columns]
        if missing or len(set(columns)) < len(columns):
            message = f"key={declared.key!r} must name each column of the group's key"
            self._options.fail(
                "keep_key_invalid", name, f"{message} ({', '.join(route)}), and none twice"
            )
        for column in columns:
            if not schema[column].type.can_be_key:
                message = f"column {column!r} is {schema[column].type}, which cannot be a key"
                message += "; name columns of a type such as STRING, BIGINT or TIMESTAMP"
                self._options.fail("keep_key_invalid", name, message)
        self._check_kept(name, declared)
        return tuple(column for column in columns if column not in route)

    def _check_kept(self, name: str, declared: State) -> None:
        """Refuse a kept state where it is not supported."""
        if declared.grouping == "outer":
            message = "'outer' calls every key, keep=True touches few records: choose one"
            self._options.fail("keep_unsupported", name, message)
        if declared.order_by is not None:
            message = "kept records are ordered by their key; leave out order_by"
            self._options.fail("keep_unsupported", name, message)

    def _view_key(
        self, name: str, declared: View, schema: Schema, route: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the columns that name a record of a view within its group."""
        if declared.keep:
            self._check_kept(name, declared)
        bag = declared.key is None
        if bag and declared.keep:
            message = "keep=True puts and deletes records by their key, and a bag has none: add key"
            self._options.fail("keep_key_missing", name, message)
        key = self._options.plain(name, "key", declared.key, schema)
        for code, message in view_mistakes(schema, None if bag else key, route):
            self._options.fail(code, name, message)
        return tuple(column for column in key if column not in route)

    def _state_route(self, name: str, declared: State, schema: Schema) -> tuple[str, ...]:
        """Return the columns of a state that hold the key."""
        key = self._key
        if declared.route_by is not None:
            route = self._options.plain(name, "route_by", declared.route_by, schema)
            self._options.check_types(name, tuple(schema[column].type for column in route), key)
            return route
        for column in key.fields:
            if column.name not in schema or schema[column.name].type != column.type:
                self._options.fail(
                    "state_key_missing",
                    name,
                    f"state needs the key column '{column.name} {column.type}'; it has '{schema}'; "
                    "add it, or name the columns that hold the key: route_by='...'",
                )
        return key.names

    def _state_order(self, name: str, declared: State, schema: Schema) -> tuple[str, ...]:
        order = self._options.plain(name, "order_by", declared.order_by, schema)
        for column in order:
            if not schema[column].type.can_be_key:
                message = f"column {column!r} is {schema[column].type}, which has no order"
                message += "; name columns of a type such as STRING, BIGINT or TIMESTAMP"
                self._options.fail("order_by_type", name, message)
        return order
