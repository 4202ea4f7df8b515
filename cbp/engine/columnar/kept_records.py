"""A kept state as its author sees it: the records of the called group, by their second key.

    group.orders.get(id=7)          -> a record, or None
    group.orders.range(id=(1, 10))  -> records with 1 <= id < 10, in order
    group.orders.range(reverse=True) -> all records, the last one first
    iter(group.orders)              -> all records, in order
    out.orders(...), out.orders.delete(id=7)

`KeptRecords` only checks arguments. Each engine has its own `KeptReader`, which finds the records
(`cbp.engine.kernel.kept_groups`). The puts and deletions of a call are a list in their order;
`changes_of` returns their result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, Protocol

from cbp.engine.columnar.row_codec import EXACT
from cbp.engine.columnar.values import (
    FLOATS,
    INT_BITS,
    Row,
    order_key,
    typed_column,
    typed_row,
    unify,
)
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.attributes import attribute, by_attribute
from cbp.model.flow.schema import Field, Schema

_NULL = (None,)

_REVERSE = "reverse"
"""The argument of `range` that is not a column."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """Marks a deletion among the puts of a call; `second` is the second key."""

    second: Row


@dataclass(frozen=True, slots=True)
class Bound:
    """A place in a group's order, by sort keys (`row_order`): before or behind these records."""

    order: tuple[Any, ...]
    behind: bool = False


class KeptReader(Protocol):
    """Finds the records of one group as they were before the call."""

    def get(self, second: Row) -> Any | None:
        """Return the record with this second key; `None` if there is none."""

    def between(self, low: Bound, high: Bound, *, reverse: bool = False) -> Iterator[Any]:
        """Yield the records from one place to another, in order, or from the last to the first."""


class KeptShape:
    """The second key of a state, and the meaning of the arguments of `get`, `range` and `delete`.

    Made once per state and process (`kept_shape`), since its functions are compiled. `second_of`
    and `seconds_of` return the second key of records in the form in which keys are compared.
    `getter` makes the author's `get` of a group from a function that takes a second key; it checks
    as `given` does.
    """

    def __init__(self, spec: StateSpec) -> None:
        self.name = spec.name
        self.schema = spec.schema.select(spec.second_key)
        self.second_of = key_reader(spec.schema, spec.second_key)
        self.seconds_of = keys_reader(spec.schema, spec.second_key)
        self._record, self._types = spec.schema, [column.type for column in self.schema.fields]
        self._is_typed = _row_checker(spec.schema)
        self._exact = [EXACT.get(column.type.kind) for column in spec.schema.fields]
        self._is_plain = not _has_floats(self.schema)
        self._delete = _binder(spec.name, "delete", self.schema)(tuple)
        self.getter = _binder(spec.name, "get", self.schema)

    def are_exact(self, puts: Sequence[Row]) -> bool:
        """Return whether all records have values of the Python types of their columns.

        Such records need no check one by one: other faults of a value, such as a number that is too
        large, are found when the column is encoded.
        """
        if not puts:
            return True
        if set(map(type, puts)) != {tuple}:
            return False
        pairs = zip(zip(*puts, strict=True), self._exact, strict=True)
        return all(exact is not None and exact.issuperset(map(type, v)) for v, exact in pairs)

    def order_of(self, second: Row) -> tuple[Any, ...]:
        """Return the sort key of a second key."""
        if self._is_plain:  # only a float can be NaN, which is sorted behind all others
            return tuple([(0,) if value is None else (1, value) for value in second])
        return tuple(map(order_key, second, self._types))

    def in_order(self, seconds: Collection[Row]) -> Sequence[Row]:
        """Return distinct second keys, in order."""
        if not self._is_plain:
            return sorted(seconds, key=self.order_of)
        ordered = list(seconds)
        if len(self._types) > 1 and any(None in second for second in ordered):
            return sorted(ordered, key=self.order_of)
        null = [_NULL] if _NULL in seconds else []  # a key of one column is null once
        if null:
            ordered.remove(_NULL)
        ordered.sort()
        return [*null, *ordered]

    def given(self, args: Row, named: dict[str, Any]) -> Row:
        """Return the second key that an author gave `delete`; `TypeError` for other arguments."""
        second: Row = self._delete(*args, **named)
        return second

    def compared(self, seconds: Iterable[Row]) -> Iterable[Row]:
        """Return a file's second keys in the form in which keys are compared."""
        return seconds if self._is_plain else map(unify, seconds)

    def reverse_of(self, named: dict[str, Any]) -> bool:
        """Remove `reverse` from the arguments of `range`, and return it, unless a column has it."""
        if _REVERSE in self.schema:
            return False
        given = named.pop(_REVERSE, False)
        if not isinstance(given, bool):
            message = f"group.{self.name}.range() got reverse={given!r}: give True or False"
            raise TypeError(message)
        return given

    def bounds(self, named: Mapping[str, Any]) -> tuple[Bound, Bound]:
        """Return the two bounds that the arguments of `range` name.

        It is a `TypeError` if the columns are not the first ones of the second key, a column other
        than the last has two bounds, or a value is of another type.
        """
        columns = self.schema.fields[: len(named)]
        names = [attribute(column.name) for column in columns]
        given = by_attribute(self.name, self.schema.names, dict(named))
        if set(names) != set(given):
            message = (
                f"group.{self.name}.range() got ({', '.join(named)}), expected "
                f"({', '.join(names)}): only the last columns of "
                f"({', '.join(self.schema.names)}) can be left out"
            )
            raise TypeError(message)
        low: list[Any] = []
        high: list[Any] = []
        for at, (name, column) in enumerate(zip(names, columns, strict=True)):
            value = given[name]
            if not isinstance(value, tuple):
                order = order_key(typed_column(value, column.name, column.type), column.type)
                low.append(order)
                high.append(order)
                continue
            if at + 1 < len(names) or len(value) != 2:
                message = (
                    f"group.{self.name}.range() got {name}={value!r}: give one value, or for the "
                    "last column a pair (low, high), in which None means no bound"
                )
                raise TypeError(message)
            least, most = (typed_column(one, column.name, column.type) for one in value)
            return (
                Bound((*low, *(() if least is None else (order_key(least, column.type),)))),
                Bound(tuple(high), behind=True)
                if most is None
                else Bound((*high, order_key(most, column.type))),
            )
        return Bound(tuple(low)), Bound(tuple(high), behind=True)

    def typed(self, row: Row) -> Row:
        """Return a record with every value in its declared type."""
        return row if self._is_typed(row) else typed_row(row, self._record)


_CLASSES: dict[str, Any] = {f"_{one.__name__}": one for one in (type, str, int, float, bool, bytes)}
"""Names in compiled functions, with a `_`, since a column can be named `type`."""


def _usual(column: Field, value: str) -> str:
    """Return an expression for whether a value already has its declared type.

    It is true for usual values, and takes a tenth of the time of a full check. All other values,
    valid ones included, need the full check. Numbers must be in their range, and texts in ASCII,
    which can always be written.
    """
    kind = column.type.kind
    (class_,) = (one.__name__ for one in EXACT[kind] if one is not type(None))
    expression = f"_type({value}) is _{class_}"
    if kind == "STRING":
        expression += f" and {value}.isascii()"
    if kind in INT_BITS:
        most = 1 << (INT_BITS[kind] - 1)
        expression += f" and {-most} <= {value} < {most}"
    return f"({value} is None or {expression})" if column.nullable else f"({expression})"


def _usual_row(schema: Schema, values: Sequence[str]) -> str:
    if any(column.type.kind not in EXACT for column in schema.fields):
        return "False"
    pairs = zip(schema.fields, values, strict=True)
    return " and ".join([_usual(*pair) for pair in pairs]) or "True"


def _row_checker(schema: Schema) -> Callable[[Row], bool]:
    values = [f"v{at}" for at in range(len(schema))]
    unpacked = f"    {', '.join(values)}, = row\n" if values else ""
    scope: dict[str, Any] = {**_CLASSES}
    exec(f"def check(row):\n{unpacked}    return {_usual_row(schema, values)}", scope)
    check: Callable[[Row], bool] = scope["check"]
    return check


def key_reader(schema: Schema, names: Sequence[str]) -> Callable[[Row], Row]:
    """Return a function that gives some columns of a record as a key that can be compared."""
    places = [schema.index(name) for name in names]
    if any(schema[name].type.kind in FLOATS for name in names):
        return lambda row: unify([row[place] for place in places])
    if len(places) > 1:
        several: Callable[[Row], Row] = itemgetter(*places)
        return several
    if places:
        (only,) = places
        return lambda row: (row[only],)
    return lambda row: ()


def keys_reader(schema: Schema, names: Sequence[str]) -> Callable[[Iterable[Row]], Iterable[Row]]:
    """Return a function that gives some columns of many records as keys that can be compared."""
    if len(names) == 1 and schema[names[0]].type.kind not in FLOATS:
        read = itemgetter(schema.index(names[0]))
        return lambda rows: zip(map(read, rows))  # no call of Python's per record
    return partial(map, key_reader(schema, names))


@lru_cache(maxsize=1024)
def kept_shape(spec: StateSpec) -> KeptShape:
    """Return the shape of a kept state."""
    return KeptShape(spec)


class KeptRecords:
    """The records of one group, for its author; it can be read any number of times."""

    __slots__ = ("_reader", "_shape", "get")
    __hash__ = object.__hash__

    def __init__(self, shape: KeptShape, reader: KeptReader) -> None:
        self._shape, self._reader = shape, reader
        self.get: Callable[..., Any | None] = shape.getter(reader.get)

    def range(self, **named: Any) -> Iterator[Any]:
        """Return an iterator of records in order; it reads only requested records, from either end.

        The first columns of the second key have a value each; other arguments are a `TypeError`.
        The last of them can have two bounds, `(low, high)`: from `low` on, and before `high`;
        `None` means no bound. `reverse=True` returns the last record first, unless `reverse` is a
        column.
        """
        reverse = self._shape.reverse_of(named)
        return self._reader.between(*self._shape.bounds(named), reverse=reverse)

    def __iter__(self) -> Iterator[Any]:
        """Yield all records, in order."""
        return self._reader.between(Bound(()), Bound((), behind=True))

    def __bool__(self) -> bool:
        """Refuse a truth test, which would always be true."""
        name = self._shape.name
        message = (
            f"the state {name!r} cannot be used as a condition. To test for one record, write "
            f"group.{name}.get(...) is not None; for any record, next(iter(group.{name}), None) "
            "is not None"
        )
        raise TypeError(message)

    def __eq__(self, other: object) -> bool:
        """Refuse a comparison, which would never be true."""
        message = f"the state {self._shape.name!r} cannot be compared; compare its records"
        raise TypeError(message)


def changes_of(shape: KeptShape, operations: Iterable[Row | Deletion]) -> dict[Row, Row | None]:
    """Return the result of puts and deletions: second key to record, or `None` if deleted."""
    changes: dict[Row, Row | None] = {}
    for one in operations:
        if isinstance(one, Deletion):
            changes[one.second] = None
        else:
            row = shape.typed(one)
            changes[shape.second_of(row)] = row
    return changes


def _has_floats(schema: Schema) -> bool:
    return any(column.type.kind in FLOATS for column in schema.fields)


def _typed_values(values: Row, schema: Schema) -> Row:
    pairs = zip(values, schema.fields, strict=True)
    return tuple(typed_column(value, column.name, column.type) for value, column in pairs)


def _binder(
    state: str, verb: str, schema: Schema
) -> Callable[[Callable[[Row], Any]], Callable[..., Any]]:
    """Return a wrapper that turns a function of a second key into one for the author.

    The author's function binds its arguments to the columns of the second key, as Python does, and
    passes the key on in the form in which keys are compared. It is compiled, like the functions
    that emit records. This is safe, since attributes of columns are checked identifiers.
    """
    names = [attribute(column) for column in schema.names]
    values = "".join(f"{name}, " for name in names)
    plain = f"_compared(({values}))" if _has_floats(schema) else f"({values})"
    lines = [
        "def make(_take):",
        f"    def bound({', '.join(names)}):",
        f"        if {_usual_row(schema, names)}:",
        f"            return _take({plain})",
        f"        return _take(_compared(_typed_values(({values}), _schema)))",
        "    bound.__qualname__ = _name",
        "    return bound",
    ]
    scope: dict[str, Any] = {
        **_CLASSES,
        "_compared": unify,
        "_typed_values": _typed_values,
        "_schema": schema,
        "_name": f"{'out' if verb == 'delete' else 'group'}.{state}.{verb}",
    }
    exec("\n".join(lines), scope)
    make: Callable[[Callable[[Row], Any]], Callable[..., Any]] = scope["make"]
    if names == [*schema.names]:
        return make

    def by_both_names(take: Callable[[Row], Any]) -> Callable[..., Any]:
        bound = make(take)
        return lambda *args, **named: bound(*args, **by_attribute(state, schema.names, named))

    return by_both_names
