"""What an author writes: a class with inputs, outputs, state and `translate`.

    class UrlCount(Translate):
        '''Count how often each URL was seen.'''
        urls   = Input("url STRING", route_by="url")
        counts = State("url STRING, n BIGINT", grouping="inner")
        totals = Output("url STRING, n BIGINT", key="url")

        def translate(self, key, group, out):
            n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
            out.counts(url=key.url, n=n)
            out.totals(url=key.url, n=n)

A class whose shape depends on parameters sets the same attributes on `self` in
`__init__`. `spec()` compiles an instance to the plain `TranslatorSpec` that every
engine executes; it finds every mistake that can be found without data.

Translators must be deterministic and free of side effects: a run may be tried
again, and the results of both tries must be the same.

Source: CBP (SoCC'10), section 2.
"""

from __future__ import annotations

import inspect
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar, NoReturn, cast, get_args

from cbp.errors import DefinitionError, Mistake
from cbp.model.framing import FrameBy
from cbp.model.runnable import RunAll, RunAny
from cbp.model.schema import Schema, is_name
from cbp.model.stage import (
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

__all__ = [
    "Declared",
    "Input",
    "Loopback",
    "Output",
    "State",
    "Translate",
    "TranslateRecords",
    "by",
    "by_sql",
    "place_of",
    "route",
]


_RESERVED = ("associate", "key", "runnable", "spec", "translate")
"""Attributes of every translator, or of `out`; a flow of that name would hide them."""

_FRAMING_KINDS = ("STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DATE", "TIMESTAMP")
"""Types of columns whose values label increments."""


def place_of(function: Callable[..., Any] | type) -> str:
    """Return `file.py:12`, where a function or class is defined; `""` if unknown."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):
        return ""


def route(function: Callable[[Any], Any], type_: str) -> Computed:
    """Send a record to any groups: several keys, `ALL`, multicast addresses, or none.

        Input("src BIGINT, dst BIGINT", route_by=route(lambda e: [e.src, e.dst], "BIGINT"))
        Input("total DOUBLE", route_by=route(lambda r: All("ranks"), "BIGINT"))
        Loopback("src BIGINT, n INT", route_by=route(lambda m: Multicast(m.src), "BIGINT"))

    Args:
        function: `record -> destination`, or a list or set of destinations. A destination
            is a key (a tuple when `type_` names several), `ALL`, `All("flow", ...)`, or, on
            a `Loopback`, `Multicast(address)`; see `cbp.model.routing`.
        type_: Types of the key, such as `"STRING"` or `"STRING, BIGINT"`.
    """
    return replace(by(function, type_), many=True)


def by(function: Callable[[Any], Any], type_: str) -> Computed:
    """Compute a routing or ordering key from a record.

    Args:
        function: `record -> value`; a tuple of values when `type_` names several.
        type_: Types of the key, such as `"STRING"` or `"STRING, BIGINT"`.
    """
    parts = Schema.parse(
        ", ".join(f"k{i} {t}" for i, t in enumerate(_split_types(type_))), where=type_
    )
    return Computed(function, tuple(f.type for f in parts.fields), place_of(function))


def framed(function: Callable[..., Any], *, memo: bool = False) -> FrameBy:
    """Cut a flow into the increments of one input, by a key of each record.

        Input("url STRING, at TIMESTAMP", frame_by=framed(lambda r: f"{r.at:%Y-%m-%d %H}"))
        Input("n BIGINT", frame_by=framed(lambda r, total: ..., memo=True))

    Args:
        function: `record -> key`: the records of each output increment are grouped by key.
            With memo, `(record, memo) -> (key, memo)`: one pass in order, `A A B A` are three
            increments. A key is a number, a text, a date or a time.
        memo: Whether it remembers; JSON values, `None` at first.
    """
    return FrameBy(function, memo, "", place_of(function))


def by_sql(
    expression: str | Sequence[str],
    type_: str,
    *,
    function: Callable[[Any], Any] | None = None,
) -> Computed:
    """Compute a routing or ordering key by an expression of Spark SQL, without Python.

        Input("url STRING", route_by=by_sql("parse_url(url, 'HOST')", "STRING"))

    Such an input always takes Spark's way, however small it is, since no other evaluates
    the expression to the same value. So it pays where increments are large.

    Args:
        expression: Over the columns of one record, deterministic; several for a key of
            several columns.
        type_: Types of the key, which the expressions have to have.
        function: `record -> value`, the very same value, for engines without Spark: the
            test kit, and `local`. Without it the dataflow runs on Spark only.
    """
    texts = (expression,) if isinstance(expression, str) else tuple(expression)
    frame = sys._getframe(1)
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def needs_spark(record: Any) -> Any:
        message = f"Spark alone evaluates {texts}; give by_sql a function= to run without it"
        raise NotImplementedError(message)

    types = by(needs_spark, type_).types
    if len(types) != len(texts):
        message = f"{len(texts)} expressions for {len(types)} types; give one for each"
        raise DefinitionError(Mistake("by_sql_types", type_, message, place))
    return Computed(function or needs_spark, types, place, sql=texts)


def _split_types(text: str) -> list[str]:
    """Split at commas outside of `<...>` and `(...)`."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


@dataclass(frozen=True)
class Input:
    """An input flow.

    Args:
        schema: DDL, such as `"url STRING, n BIGINT"`; a wired flow may have more columns.
        route_by: Column or comma-separated columns of the group's key, `by(...)`, or
            `route(...)` for several groups. The key's types must be the same on every input
            of one translator.
        order_by: Columns, or `by(...)`, that order the records of a group.
        frame_by: Column, or `framed(...)`, whose value labels the input's increments; an
            increment is read once a record with another value, or a close, is behind it.
            Default: what one epoch of the writer wrote is one increment, read at once.
        combine: `records -> records`, run on some records of one group, a list, before they
            are shuffled, to shuffle fewer. The law: whatever records of a group it is given,
            replacing them by its result must not change what `translate` does; as adding up
            does for a sum. It runs on large increments only, so nothing may depend on it,
            and gives at least one record, of the same columns and key. Not with `order_by`.
    """

    schema: str
    route_by: str | Computed | None = None
    order_by: str | Computed | None = None
    frame_by: str | FrameBy | None = None
    combine: Callable[[list[Any]], Iterable[Any]] | None = None


@dataclass(frozen=True)
class Loopback:
    """Messages that groups of a stage send to groups of the same stage.

    What `out.<name>(...)` emits in one epoch comes back as `group.<name>` in a later one (the
    next, unless the stage's Runnable prefers other inputs) and calls the groups that it
    reaches. It wires itself. On a loopback with `route(...)`, `out.associate(key, address)`
    binds a key to the address of a `Multicast` for the messages of the same epoch.

    Args:
        schema: DDL of a message.
        route_by: Who gets it; as of an `Input`.
        order_by: As of an `Input`.
    """

    schema: str
    route_by: str | Computed | None = None
    order_by: str | Computed | None = None


@dataclass(frozen=True)
class Output:
    """An output flow.

    Args:
        schema: DDL of its records.
        key: Columns whose last value counts (an updated view); default: every record counts.
        history: The sequence of epochs is the result; compared epoch by epoch.
    """

    schema: str
    key: str | None = None
    history: bool = False


@dataclass(frozen=True)
class State:
    """Records that are kept between epochs, grouped by the key.

    The records of a *called* group are kept only if `translate` emits them again;
    groups that are not called keep theirs. Writes are visible in the next epoch. A record
    of another key is appended to that key's, and does not call it.

    Args:
        schema: DDL; holds every column of the stage's key, by name.
        grouping: `"inner"`: only groups that some input carries; `"outer"`: every key in state.
    """

    schema: str
    grouping: Grouping = "inner"


class Declared:
    """What all kinds of translators share: the collection of declarations.

    Attributes:
        form: How `translate` is called.
        taken: Names that an input or state cannot have in this form.
    """

    # Not declared, so that a class may set a rule or define a method: `runnable`.
    key: str | None = None
    form: ClassVar[Form] = "groupwise"
    taken: ClassVar[tuple[str, ...]] = ()

    def spec(self) -> TranslatorSpec:
        """Compile this instance to plain values.

        Raises:
            DefinitionError: Naming class, attribute, place, and what to do instead.
        """
        return _Compiler(self).spec()


class Translate(Declared):
    """A groupwise translator: called once for each group of an epoch.

    When it runs, and on what, says `runnable`: a rule such as `runnable = Align()`, or a
    method `runnable(self, connectors, memo) -> Decision`; by default `RunAll()`, or with
    a `Loopback` `RunAny()`.

    Attributes:
        key: DDL of the group's key, such as `"site STRING"`; by default the columns
            that the first input routes by.
    """

    @abstractmethod
    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Turn the records of one group into output and state records.

        Args:
            key: The group's key, with a field per key column.
            group: One iterator of records per input and state, by name. They may be
                read in any order, once, or not at all; a group may exceed memory.
            out: One function per output, loopback and state, by name; takes the columns
                by keyword, or a record by `out.name(*record)`. With multicast also
                `associate(key, address)`; see `Loopback`.
        """


class TranslateRecords(Declared):
    """A record-wise translator: every record is its own group, nothing is shuffled."""

    @abstractmethod
    def translate(self, record: Any, out: Any) -> None:
        """Turn one record into output records.

        Args:
            record: With a field per column of the input.
            out: One function per output, by name.
        """


class _Compiler:
    """Turns the declarations of one instance into a `TranslatorSpec`."""

    def __init__(self, stage: Declared) -> None:
        self._stage = stage
        self._name = type(stage).__name__
        self._translate: Callable[..., None] = stage.translate  # type: ignore[attr-defined]
        function = type(stage).translate  # type: ignore[attr-defined]
        ours = inspect.unwrap(function).__module__.startswith(__package__)
        self._place = place_of(type(stage) if ours else function)

    def spec(self) -> TranslatorSpec:
        self._check_function()
        found = self._declarations()
        record_wise = isinstance(self._stage, TranslateRecords)
        inputs = tuple(
            self._input(n, d) for n, d in found.items() if isinstance(d, Input | Loopback)
        )
        outputs = tuple(
            self._output(n, d) for n, d in found.items() if isinstance(d, Output | Loopback)
        )
        if all(spec.loopback for spec in inputs):
            self._fail("input_missing", "", "declare at least one Input")
        if record_wise:
            self._check_record_wise(inputs, found)
        if self._stage.form == "sql":
            self._check_sql(inputs, found)
        key = None if record_wise else self._key(inputs)
        states = tuple(
            self._state(n, d, key) for n, d in found.items() if isinstance(d, State) and key
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
            self._stage.form,
        )

    def _runnable(self, inputs: tuple[InputSpec, ...]) -> RunnableSpec:
        """The rule or the method that says when the stage runs."""
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
        function = inspect.unwrap(type(self._stage).translate)  # type: ignore[attr-defined]
        if getattr(function, "__isabstractmethod__", False):
            self._fail("translate_missing", "translate", "define it: the base class's does nothing")
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            self._fail(
                "translate_kind",
                "translate",
                "must be a plain function: emit with out.<output>(...), not with yield or await",
            )

    def _declarations(self) -> dict[str, Input | Loopback | Output | State]:
        """Class attributes in the order of definition, base classes first, then the instance's."""
        values: dict[str, Any] = {}
        for class_ in reversed(type(self._stage).__mro__):
            values.update(vars(class_))
        values.update(vars(self._stage))
        found = {
            n: v for n, v in values.items() if isinstance(v, Input | Loopback | Output | State)
        }
        for name, declared in found.items():
            taken = _RESERVED if isinstance(declared, Output) else (*_RESERVED, *self._stage.taken)
            if not is_name(name) or name in taken:
                self._fail(
                    "name_invalid",
                    name,
                    f"use a-z, 0-9 and '_', beginning with a letter; {', '.join(taken)} are taken",
                )
            if not isinstance(declared.schema, str):
                self._fail("schema_invalid", name, "the schema is DDL text, such as 'url STRING'")
        return found

    def _input(self, name: str, declared: Input | Loopback) -> InputSpec:
        schema = Schema.parse(declared.schema, where=f"{self._name}.{name}")
        return InputSpec(
            name,
            schema,
            self._columns(name, "route_by", declared.route_by, schema),
            self._order(name, declared.order_by, schema),
            isinstance(declared, Loopback),
            None if isinstance(declared, Loopback) else self._frame_by(name, declared, schema),
            None if isinstance(declared, Loopback) else self._combine(name, declared),
        )

    def _frame_by(self, name: str, declared: Input, schema: Schema) -> FrameBy | None:
        given = declared.frame_by
        if given is None or isinstance(given, FrameBy):
            return given
        if not isinstance(cast(object, given), str) or given not in schema:
            has = ", ".join(schema.names)
            message = f"{given!r} is no column; name one of {has}, or use framed(function)"
            self._fail("frame_by_invalid", name, message)
        if schema[given].type.kind not in _FRAMING_KINDS:
            message = f"column {given!r} is {schema[given].type}; use framed(function)"
            self._fail("frame_by_invalid", name, message)
        return FrameBy(attrgetter(given), column=given, place=self._place)

    def _combine(self, name: str, declared: Input) -> CombineSpec | None:
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
        schema = Schema.parse(declared.schema, where=f"{self._name}.{name}")
        if isinstance(declared, Loopback):
            return OutputSpec(name, schema)
        key = self._columns(name, "key", declared.key, schema)
        if isinstance(key, Computed):
            self._fail("key_invalid", name, "the key of an output names columns")
        return OutputSpec(name, schema, key or (), declared.history)

    def _state(self, name: str, declared: State, key: Schema) -> StateSpec:
        schema = Schema.parse(declared.schema, where=f"{self._name}.{name}")
        for column in key.fields:
            if column.name not in schema or schema[column.name].type != column.type:
                self._fail(
                    "state_key_missing",
                    name,
                    f"state needs the key column '{column.name} {column.type}'; it has '{schema}'",
                )
        if declared.grouping not in get_args(Grouping):
            self._fail("grouping_unknown", name, f"{declared.grouping!r}; use 'inner' or 'outer'")
        return StateSpec(name, schema, declared.grouping)

    def _check_record_wise(self, inputs: tuple[InputSpec, ...], found: dict[str, Any]) -> None:
        if any(isinstance(declared, Loopback) for declared in found.values()):
            self._fail("record_wise_shape", "", "cannot send messages; derive from Translate")
        if len(inputs) != 1 or inputs[0].route_by is not None:
            self._fail("record_wise_shape", "", "needs exactly one Input, without route_by")
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

    def _key(self, inputs: tuple[InputSpec, ...]) -> Schema:
        """The stage's key: declared, or the columns that the first input routes by."""
        for spec in inputs:
            if spec.route_by is None:
                self._fail(
                    "route_by_missing",
                    spec.name,
                    "a groupwise translator needs route_by on every input; "
                    "derive from TranslateRecords for record-wise work",
                )
        first = next(spec for spec in inputs if not spec.loopback)
        if self._stage.key is not None:
            key = Schema.parse(self._stage.key, where=f"{self._name}.key")
        elif isinstance(first.route_by, tuple):
            key = first.schema.select(first.route_by)
        else:
            self._fail("key_missing", "key", 'declare `key = "..."` when route_by is computed')
        for column in key.fields:
            if not column.type.can_be_key:
                self._fail("key_type", column.name, f"{column.type} cannot be a key; use an atom")
        for spec in inputs:
            self._check_route(spec, key)
        return key

    def _check_route(self, spec: InputSpec, key: Schema) -> None:
        route = spec.route_by
        types = (
            route.types
            if isinstance(route, Computed)
            else tuple(spec.schema[c].type for c in route or ())
        )
        if types != tuple(column.type for column in key.fields):
            came = ", ".join(map(str, types))
            self._fail("route_by_type", spec.name, f"routes by ({came}), but the key is ({key})")

    def _columns(
        self, name: str, option: str, value: str | Computed | None, schema: Schema
    ) -> tuple[str, ...] | Computed | None:
        if value is None or isinstance(value, Computed):
            return value
        if not isinstance(cast(object, value), str):
            self._fail(f"{option}_invalid", name, f"{option} takes columns or by(function, type)")
        columns = tuple(part.strip() for part in value.split(","))
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
