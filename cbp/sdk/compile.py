"""Compile a translator's declarations to a `TranslatorSpec`, and check them.

Every mistake that can be found without data is found here. Its message names the class, the
attribute, the place (`file.py:12`), and what to do instead.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NoReturn, cast, get_args

from cbp.errors import DefinitionError, Mistake
from cbp.model.author.code_fingerprint import Code
from cbp.model.author.fingerprint import fingerprint, held_by
from cbp.model.dataflow.runnable import RunAll, RunAny
from cbp.model.dataflow.stage import (
    SECONDS_MAX,
    CombineSpec,
    Computed,
    Form,
    Grouping,
    InputSpec,
    OutputSpec,
    RunnableSpec,
    StateSpec,
    TranslatorSpec,
)
from cbp.model.flow.framing import FrameBy
from cbp.model.flow.schema import DataType, Schema, is_name
from cbp.sdk.declare import Input, Loopback, Output, State, place_of, place_of_attribute

__all__ = ["Compiler"]

_RESERVED = (
    "associate",
    "form",
    "key",
    "record_wise",
    "runnable",
    "spec",
    "taken",
    "translate",
)
"""Attributes of every translator or of `out`, which a flow of the same name would hide."""

_FRAMING_KINDS = ("STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DATE", "TIMESTAMP")
"""Types that a column in `frame_by` can have."""


class Compiler:
    """Compiles the declarations of one instance to a `TranslatorSpec`; call `spec` once.

    Args:
        record_wise: Whether every record is its own group.
    """

    def __init__(
        self, stage: Any, *, form: Form, taken: tuple[str, ...], record_wise: bool
    ) -> None:
        self._stage, self._form, self._taken = stage, form, taken
        self._record_wise = record_wise
        self._name = type(stage).__name__
        self._translate: Callable[..., object] = stage.translate
        function = type(stage).translate
        ours = inspect.unwrap(function).__module__.startswith(__package__)
        self._place = place_of(type(stage) if ours else function)
        self._declared = ours and form == "sql"

    @staticmethod
    def refuse_hidden(stage: Any) -> None:
        """Refuse a declaration that hides an attribute of every translator, such as `spec`.

        Raises:
            DefinitionError: With the name of that declaration.
        """
        for name in _RESERVED:
            if isinstance(getattr(stage, name, None), Input | Loopback | Output | State):
                message = f"the name {name!r} is taken by every translator itself; use another"
                class_ = type(stage)
                where = f"{class_.__name__}.{name}"
                raise DefinitionError(Mistake("name_invalid", where, message, place_of(class_)))

    def spec(self) -> TranslatorSpec:
        """Return the plain values.

        Raises:
            DefinitionError: For the first mistake, naming class, attribute and place.
        """
        self._check_function()
        declarations = self._declarations()
        record_wise = self._record_wise
        inputs = tuple(
            self._input(n, d) for n, d in declarations.items() if isinstance(d, Input | Loopback)
        )
        outputs = tuple(
            self._output(n, d) for n, d in declarations.items() if isinstance(d, Output | Loopback)
        )
        if all(spec.loopback for spec in inputs):
            self._fail("input_missing", "", "declare at least one Input")
        if record_wise:
            self._check_record_wise(inputs, declarations)
        if self._form == "sql":
            self._check_sql(inputs, declarations)
        key = None if record_wise else self._key(inputs, declarations)
        states = tuple(
            self._state(n, d, key) for n, d in declarations.items() if isinstance(d, State) and key
        )
        return TranslatorSpec(
            self._name,
            key,
            inputs,
            outputs,
            states,
            self._translate,
            self._place,
            self._runnable(inputs),
            self._form,
            self._code(),
            self._declared,
            record_wise,
        )

    def _code(self) -> Code:
        """Fingerprint the class, the functions on its instance, and the function that made it."""
        code = held_by(vars(self._stage), type(self._stage))
        made_by = self._stage.made_by
        return code if made_by is None else code + fingerprint(made_by)

    def _runnable(self, inputs: tuple[InputSpec, ...]) -> RunnableSpec:
        """Return the rule or method that decides when the stage runs."""
        rule = getattr(self._stage, "runnable", None)
        if rule is None:
            # A stage that waited for its own messages before its first run would never run.
            return RunnableSpec(RunAny() if any(spec.loopback for spec in inputs) else RunAll())
        if isinstance(rule, type) or not callable(rule):
            self._fail(
                "runnable_invalid",
                "runnable",
                f"{rule!r} is no rule; use one such as RunAny(), or define "
                "runnable(self, connectors, memo) -> Decision",
            )
        place = place_of(rule) if inspect.isroutine(rule) else place_of(type(self._stage))
        return RunnableSpec(rule, place)

    def _check_function(self) -> None:
        function = inspect.unwrap(type(self._stage).translate)
        if getattr(function, "__isabstractmethod__", False):
            self._fail("translate_missing", "translate", "define it: the base class's does nothing")
        kinds = (
            inspect.isgeneratorfunction,
            inspect.iscoroutinefunction,
            inspect.isasyncgenfunction,
        )
        if any(is_kind(function) for is_kind in kinds):
            self._fail(
                "translate_kind",
                "translate",
                "must be a plain function: emit with out.<output>(...), not with yield or await",
            )

    def _declarations(self) -> dict[str, Input | Loopback | Output | State]:
        """Collect attributes in definition order: base classes, the class, then the instance."""
        values: dict[str, Any] = {}
        for class_ in reversed(type(self._stage).__mro__):
            values.update(vars(class_))
        values.update(vars(self._stage))
        declarations = {
            n: v for n, v in values.items() if isinstance(v, Input | Loopback | Output | State)
        }
        for name, declared in declarations.items():
            reserved = _RESERVED if isinstance(declared, Output) else (*_RESERVED, *self._taken)
            if not is_name(name) or name in reserved or keyword.iskeyword(name):
                self._fail(
                    "name_invalid",
                    name,
                    "use a-z, 0-9 and '_', beginning with a letter, and no word of Python's; "
                    f"{', '.join(reserved)} are taken",
                )
            if not isinstance(declared.schema, str):
                self._fail("schema_invalid", name, "the schema is DDL text, such as 'url STRING'")
        return declarations

    def _schema(self, name: str, text: str) -> Schema:
        try:
            return Schema.parse(text, where=f"{self._name}.{name}")
        except DefinitionError as error:
            place = place_of_attribute(type(self._stage), name) or self._place
            raise DefinitionError(replace(error.mistake, place=place)) from None

    def _input(self, name: str, declared: Input | Loopback) -> InputSpec:
        schema = self._schema(name, declared.schema)
        return InputSpec(
            name,
            schema,
            self._columns(name, "route_by", declared.route_by, schema),
            self._order(name, declared.order_by, schema),
            isinstance(declared, Loopback),
            None if isinstance(declared, Loopback) else self._frame_by(name, declared, schema),
            self._combine(name, declared),
            0.0 if isinstance(declared, Loopback) else self._idle(name, declared),
        )

    def _idle(self, name: str, declared: Input) -> float:
        seconds = declared.close_idle_seconds
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not number or not 0 <= seconds <= SECONDS_MAX:
            message = f"close_idle_seconds is {seconds!r}; it takes seconds, or 0 for never"
            message += f", and {SECONDS_MAX} at most"
            self._fail("close_idle_invalid", name, message)
        if seconds and declared.frame_by is None:
            message = "close_idle_seconds closes what frame_by keeps open; declare frame_by too"
            self._fail("close_idle_invalid", name, message)
        return float(seconds)

    def _frame_by(self, name: str, declared: Input, schema: Schema) -> FrameBy | None:
        given = declared.frame_by
        if given is None:
            return None
        if isinstance(given, FrameBy):
            code = fingerprint(given.function)
            return replace(given, code=code + Code.of({"memo": "yes"}) if given.memo else code)
        if not isinstance(cast(object, given), str) or given not in schema:
            has = ", ".join(schema.names)
            message = f"{given!r} is no column; name one of {has}, or use framed(function)"
            self._fail("frame_by_invalid", name, message)
        if schema[given].type.kind not in _FRAMING_KINDS:
            message = f"column {given!r} is {schema[given].type}; use framed(function)"
            self._fail("frame_by_invalid", name, message)
        return FrameBy(attrgetter(given), column=given, place=self._place)

    def _combine(self, name: str, declared: Input | Loopback) -> CombineSpec | None:
        if declared.combine is None:
            return None
        route = declared.route_by
        if not callable(declared.combine):
            self._fail("combine_invalid", name, "combine takes a function: records -> records")
        if route is None or (isinstance(route, Computed) and route.many):
            self._fail("combine_invalid", name, "what is combined goes to exactly one group")
        if isinstance(route, Computed) and route.sql:
            self._fail("combine_invalid", name, "Python combines, and cannot evaluate by_sql(...)")
        if declared.order_by is not None:
            message = "records in an order cannot be combined; leave out order_by or combine"
            self._fail("combine_invalid", name, message)
        return CombineSpec(declared.combine, place_of(declared.combine))

    def _order(
        self, name: str, value: str | Computed | None, schema: Schema
    ) -> tuple[str, ...] | Computed | None:
        if isinstance(value, Computed) and value.many:
            self._fail("order_by_invalid", name, "route(...) gives no order; use by(...)")
        return self._columns(name, "order_by", value, schema)

    def _output(self, name: str, declared: Output | Loopback) -> OutputSpec:
        schema = self._schema(name, declared.schema)
        if isinstance(declared, Loopback):
            return OutputSpec(name, schema)
        key = self._plain(name, "key", declared.key, schema)
        tolerance, not_compared = self._closeness(name, declared, schema, key)
        return OutputSpec(name, schema, key, declared.history, tolerance, not_compared)

    def _state(self, name: str, declared: State, key: Schema) -> StateSpec:
        schema = self._schema(name, declared.schema)
        route = self._state_route(name, declared, schema, key)
        if declared.grouping not in get_args(Grouping):
            self._fail("grouping_unknown", name, f"{declared.grouping!r}; use 'inner' or 'outer'")
        tolerance, not_compared = self._closeness(name, declared, schema, route)
        return StateSpec(
            name,
            schema,
            declared.grouping,
            tolerance,
            not_compared,
            None if route == key.names else route,
            self._state_order(name, declared, schema),
        )

    def _state_route(
        self, name: str, declared: State, schema: Schema, key: Schema
    ) -> tuple[str, ...]:
        """Return the columns of a state that hold the key."""
        if declared.route_by is not None:
            route = self._plain(name, "route_by", declared.route_by, schema)
            self._check_types(name, tuple(schema[column].type for column in route), key)
            return route
        for column in key.fields:
            if column.name not in schema or schema[column.name].type != column.type:
                self._fail(
                    "state_key_missing",
                    name,
                    f"state needs the key column '{column.name} {column.type}'; it has '{schema}'; "
                    "add it, or name the columns that hold the key: route_by='...'",
                )
        return key.names

    def _state_order(self, name: str, declared: State, schema: Schema) -> tuple[str, ...]:
        order = self._plain(name, "order_by", declared.order_by, schema)
        for column in order:
            if not schema[column].type.can_be_key:
                message = f"column {column!r} is {schema[column].type}, which has no order"
                self._fail("order_by_type", name, f"{message}; name columns of atoms")
        return order

    def _closeness(
        self, name: str, declared: Output | State, schema: Schema, key: Sequence[str]
    ) -> tuple[float, tuple[str, ...]]:
        """Return how closely records are compared: the tolerance, and the columns left out."""
        columns = self._plain(name, "not_compared", declared.not_compared, schema)
        for column in columns:
            if column in key:
                self._fail("not_compared_invalid", name, f"{column!r} is of the key: compared")
        if not 0 <= declared.tolerance < 1:
            message = f"tolerance={declared.tolerance!r}; give a number from 0 to below 1"
            self._fail("tolerance_invalid", name, message)
        if declared.tolerance and not any(
            column.name not in {*key, *columns} and _floats(column.type) for column in schema.fields
        ):
            message = f"tolerance={declared.tolerance!r}, but no column that is compared has floats"
            self._fail("tolerance_invalid", name, message)
        return declared.tolerance, columns

    def _check_record_wise(self, inputs: tuple[InputSpec, ...], found: dict[str, Any]) -> None:
        if any(isinstance(declared, Loopback) for declared in found.values()):
            self._fail("record_wise_shape", "", "cannot send messages; derive from Translate")
        if len(inputs) != 1 or inputs[0].route_by is not None:
            self._fail(
                "record_wise_shape",
                "",
                "needs exactly one Input, without route_by; for several derive from Translate: "
                "a record of an input without route_by is a group of its own there too",
            )
        if any(isinstance(declared, State) for declared in found.values()):
            self._fail("record_wise_shape", "", "cannot keep state; derive from Translate instead")

    def _check_sql(self, inputs: tuple[InputSpec, ...], found: dict[str, Any]) -> None:
        for spec in inputs:
            in_python = isinstance(spec.route_by, Computed) or spec.combine is not None
            if spec.loopback or spec.order_by is not None or in_python:
                self._fail(
                    "sql_shape",
                    spec.name,
                    "an input of this form is no Loopback, is routed by columns, and has neither "
                    "order_by nor combine; compute a key in the stage before, or derive from "
                    "Translate",
                )
        for name, declared in found.items():
            if isinstance(declared, State) and declared.order_by is not None:
                message = "a query is given records in any order: leave out order_by, sort in it"
                self._fail("sql_shape", name, f"{message}, or derive from Translate")
        queries = getattr(self._stage, "queries", {})
        emitted = {name for name, declared in found.items() if not isinstance(declared, Input)}
        if not queries and self._place == place_of(type(self._stage)):
            self._fail("translate_missing", "queries", "define queries, or translate")
        for name in emitted if queries else ():
            if name not in queries:
                self._fail("query_missing", name, f"give queries[{name!r}], a SELECT")
        for name in queries:
            if not is_name(name) or name in {spec.name for spec in inputs}:
                self._fail("query_name", "queries", f"{name!r} is an input, or no name")

    def _key(self, inputs: tuple[InputSpec, ...], found: dict[str, Any]) -> Schema | None:
        """Return the stage's key: as declared, or the columns by which the first input routes.

        `None` if no input has groups.
        """
        grouped = [spec for spec in inputs if spec.route_by is not None]
        if self._form != "groupwise" and len(grouped) < len(inputs):
            self._fail(
                "route_by_missing",
                next(spec.name for spec in inputs if spec.route_by is None),
                "this form is given whole groups, so every input needs route_by; derive from "
                "Translate or TranslateRecords where each record is a group of its own",
            )
        if not grouped:
            self._check_without_groups(found)
            return None
        first = next((spec for spec in grouped if not spec.loopback), grouped[0])
        if self._stage.key is not None:
            key = self._schema("key", self._stage.key)
        elif isinstance(first.route_by, tuple):
            key = first.schema.select(first.route_by)
        else:
            self._fail("key_missing", "key", 'declare `key = "..."` when route_by is computed')
        for column in key.fields:
            if not column.type.can_be_key:
                self._fail("key_type", column.name, f"{column.type} cannot be a key; use an atom")
        for spec in grouped:
            self._check_route(spec, key)
        return key

    def _check_without_groups(self, found: dict[str, Any]) -> None:
        for name, declared in found.items():
            if isinstance(declared, State):
                message = (
                    "no input has route_by, so no group has this state: say by which columns "
                    "the records of an input are grouped"
                )
                self._fail("route_by_missing", name, message)
        if self._stage.key is not None:
            message = f"key is {self._stage.key!r}, but no input has route_by to give its values"
            self._fail("route_by_missing", "key", message)

    def _check_route(self, spec: InputSpec, key: Schema) -> None:
        route = spec.route_by
        types = (
            route.types
            if isinstance(route, Computed)
            else tuple(spec.schema[c].type for c in route or ())
        )
        self._check_types(spec.name, types, key)

    def _check_types(self, name: str, types: tuple[DataType, ...], key: Schema) -> None:
        if types != tuple(column.type for column in key.fields):
            came = ", ".join(map(str, types))
            self._fail("route_by_type", name, f"routes by ({came}), but the key is ({key})")

    def _plain(self, name: str, option: str, value: str | None, schema: Schema) -> tuple[str, ...]:
        """Return the columns that an option names; the option does not take `by(...)`."""
        if value is not None and not isinstance(cast(object, value), str):
            message = f"{option} takes names of columns, such as 'a, b'; got {value!r}"
            self._fail(f"{option}_invalid", name, f"{message}; keep what is computed as a column")
        columns = self._columns(name, option, value, schema)
        return columns if isinstance(columns, tuple) else ()

    def _columns(
        self, name: str, option: str, value: str | Computed | None, schema: Schema
    ) -> tuple[str, ...] | Computed | None:
        if value is None or isinstance(value, Computed):
            return value
        if not isinstance(cast(object, value), str):
            self._fail(f"{option}_invalid", name, f"{option} takes columns or by(function, type)")
        columns = tuple(part.strip() for part in value.split(","))
        if option == "route_by" and len(set(columns)) < len(columns):
            message = f"route_by={value!r} names a column twice; give one for each of the key"
            self._fail("route_by_invalid", name, message)
        for column in columns:
            if column not in schema:
                has = ", ".join(schema.names)
                self._fail(
                    f"{option}_unknown", name, f"there is no column {column!r}; it has {has}"
                )
        return columns

    def _fail(self, code: str, name: str, message: str) -> NoReturn:
        where = f"{self._name}.{name}" if name else self._name
        raise DefinitionError(Mistake(code, where, message, self._place))


def _floats(type_: DataType) -> bool:
    """Tell whether values of a type are floating-point numbers or contain any."""
    return type_.kind in ("FLOAT", "DOUBLE") or any(map(_floats, type_.arguments))
