"""One call of the author's code by the reference engine: its arguments, emissions and errors.

The author emits through `Emitter.out`; each emission is checked immediately, so that an error names
the author's line. `AuthorCall` turns whatever the author's code raises into an `AuthorCodeError`
with stage, function, place, key and the first records.
"""

from __future__ import annotations

import inspect
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

from cbp.engine.columnar.kept_records import Bound, Deletion, KeptRecords, KeptShape, kept_shape
from cbp.engine.columnar.looked_up import LookedUp
from cbp.engine.columnar.values import Row, bound_key, emitted_row, own_row, unify
from cbp.engine.reference.views import OutputKeys, ViewKeys
from cbp.errors import author_cause, author_line, is_authors
from cbp.model.author.decimals import author_decimals
from cbp.model.author.read_once import Once
from cbp.model.dataflow.call_rules import (
    emitted_columns,
    emitting_many,
    error_class,
    nothing_is_kept,
    refuse_expiring_remote,
    refuse_foreign,
    refuse_remote,
    refuse_view_row,
)
from cbp.model.dataflow.equality import identity
from cbp.model.dataflow.expiry import authored
from cbp.model.dataflow.routing import checked_address
from cbp.model.dataflow.run_context import RunContext, hidden
from cbp.model.dataflow.stage import OutputSpec, StateSpec, TranslatorSpec
from cbp.model.flow.attributes import attribute, by_attribute, record_class
from cbp.model.flow.schema import Schema

_RECORDS_SHOWN = 3
_CHARACTERS_SHOWN = 200


def record_type(flow: str, schema: Schema) -> Any:
    """Return the named tuple class of a flow's records."""
    return record_class(flow, schema.names)


def author_record(flow: str, schema: Schema, row: Row) -> Any:
    """Return a record as the author's code gets it: a copy, since an author may change a list."""
    return record_type(flow, schema)(*own_row(row, schema))


class _Namespace:
    """Attributes of one kind; the error for an unknown name lists the known ones."""

    _kind: str
    _names: tuple[str, ...]

    def __init__(self, kind: str, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values, _kind=kind, _names=tuple(values))

    def __setattr__(self, name: str, value: object) -> None:
        """Let the author replace the iterator of a flow; refuse all other attributes."""
        if self._kind == "output":
            raise nothing_is_kept(name)
        if name in self._names:
            self.__dict__[name] = value
        else:
            self.__getattr__(name)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "run" and self._kind == "input":
            raise hidden()
        message = f"there is no {self._kind} {name!r}; use one of {', '.join(self._names)}"
        raise AttributeError(message)


class Emitter:
    """Collects the emissions of one call.

    Attributes:
        outputs: Output or loopback name to its records.
        states: State name to its records of the group's own key.
        remote: State name to records of other keys, each with its key.
        kept: Name of a kept state to the puts and deletions of the call, in order.
    """

    def __init__(self, spec: TranslatorSpec, key: Row | None = None) -> None:
        spec = authored(spec)
        self._spec, self._key = spec, key
        self.outputs: dict[str, list[Row]] = {output.name: [] for output in spec.emitted}
        self.states: dict[str, list[Row]] = {state.name: [] for state in spec.replaced}
        self.remote: dict[str, list[tuple[Row, Row]]] = {state.name: [] for state in spec.replaced}
        self.kept: dict[str, list[Row | Deletion]] = {state.name: [] for state in spec.kept}
        self.bindings: list[tuple[str | int, Row]] = []
        self._view_keys, self._output_keys = ViewKeys(spec), OutputKeys(spec)
        functions = {one.name: self._emit_output(one) for one in spec.emitted}
        functions |= {one.name: self._emit_state(one) for one in spec.replaced}
        functions |= {one.name: self._emit_kept(one) for one in spec.kept}
        if spec.multicasts:
            functions["associate"] = self._associate
        self.out: Any = _Namespace("output", functions)

    def group(self, flows: Mapping[str, Iterable[Row]], context: RunContext) -> Any:
        """Return the author's `group`; an input or state can be read once, a kept state often."""
        given = {
            name: rows if isinstance(rows, KeptRecords | LookedUp) else Once(rows, name)
            for name, rows in flows.items()
        }
        group = _Namespace("input", given)
        if self._spec.gives_run:
            group.__dict__["run"] = context
        group.__dict__.update(context.aggregates)
        return group

    def _emit_output(self, output: OutputSpec) -> Callable[..., None]:
        records = self.outputs[output.name]

        def take(row: Row) -> None:
            if self._key is not None:
                self._output_keys.take(output.name, row, (self._key,))
            records.append(row)

        return _emit(output.name, output.schema, take)

    def _emit_state(self, state: StateSpec) -> Callable[..., None]:
        key_of = self._keys_in(state)
        local, remote = self.states[state.name], self.remote[state.name]

        def take(row: Row) -> None:
            key = key_of(row)
            if self._key is None and state.changes:
                refuse_view_row(state.name)
            elif self._key is None:  # a record that is a group of its own has no state of its own
                remote.append((key, row))
            else:
                refuse_foreign(state.name, key, self._key)
                self._view_keys.take(state.name, row)
                local.append(row)

        def take_remote(row: Row) -> None:
            remote.append((key_of(row), row))

        emit: Any = _emit(state.name, state.schema, take)
        emit.remote = _emit(f"{state.name}.remote", state.schema, take_remote)
        if state.changes:
            emit.remote = partial(refuse_view_row, state.name)
        if state.expire_ms:
            emit.remote = partial(refuse_expiring_remote, state.name)
        return emit  # type: ignore[no-any-return]

    def _keys_in(self, state: StateSpec) -> Callable[[Row], Row]:
        """Return the function that finds the stage's key in a record of a state."""
        at = [state.schema.index(name) for name in self._spec.key_of(state).names]
        return lambda row: unify([row[i] for i in at])

    def _emit_kept(self, state: StateSpec) -> Callable[..., None]:
        key_of, shape, operations = self._keys_in(state), kept_shape(state), self.kept[state.name]

        def take(row: Row) -> None:
            refuse_foreign(state.name, key_of(row), self._key)
            operations.append(row)

        def delete(*args: Any, **named: Any) -> None:
            operations.append(Deletion(shape.given(args, named)))

        emit: Any = _emit(state.name, state.schema, take)
        emit.delete, emit.remote = delete, partial(refuse_remote, state.name)
        return emit  # type: ignore[no-any-return]

    def _associate(self, key: Any, address: str | int) -> None:
        assert self._spec.key is not None, "a stage with loopbacks has a key"
        self.bindings.append((checked_address(address), bound_key(key, self._spec.key)))


def _emit(flow: str, schema: Schema, take: Callable[[Row], None]) -> Callable[..., None]:
    names = tuple(map(attribute, schema.names))
    renamed = names != schema.names

    def emit(*args: Any, **kwargs: Any) -> None:
        if renamed:
            kwargs = by_attribute(flow, schema.names, kwargs)
        if args and not kwargs and len(args) == len(names):
            values = args
        elif not args and kwargs.keys() == set(names):
            values = tuple(kwargs[name] for name in names)
        else:
            values = _bound(flow, names, args, kwargs)
        take(emitted_row(values, schema, f"out.{flow}"))

    vars(emit)["many"] = emitting_many(flow, len(names), emit)
    return emit


def _bound(flow: str, names: Sequence[str], args: Row, kwargs: Mapping[str, Any]) -> Row:
    """Return the values of an emission in order; wrong arguments give Python's own error."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as exc:
        message = f"out.{flow}{signature}: {exc}"
        raise TypeError(message) from None
    return tuple(bound[name] for name in names)


class AuthorCall:
    """Context of a call of the author's code; turns exceptions into an `AuthorCodeError`.

    `place` is the `file.py:12` of the function, by default of `translate`. The message shows
    `inputs`, the group's records by flow.
    """

    def __init__(
        self,
        stage: str,
        spec: TranslatorSpec,
        *,
        function: str = "translate",
        place: str = "",
        key: Row | None = None,
        inputs: Mapping[str, Iterable[Row]],
    ) -> None:
        self._stage, self._function = stage, f"{spec.name}.{function}"
        self._place, self._key, self._inputs = place or spec.place, key, inputs
        self._spec, self._decimals = spec, author_decimals()

    def __enter__(self) -> None:
        self._decimals.__enter__()

    def __exit__(
        self, _: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the call; a crash or an interrupt of the process is raised unchanged."""
        self._decimals.__exit__(None, None, None)
        if exc is None or not is_authors(exc):
            return
        more = {} if self._key is None else {"key": _shown(self._key)}
        raise error_class(exc, self._function)(
            stage=self._stage,
            function=self._function,
            place=author_line(exc, self._place),
            cause=author_cause(exc, self._place, emitted_columns(self._spec)),
            inputs={
                name: [_shown(row) for row in list(rows)[:_RECORDS_SHOWN]]
                for name, rows in self._inputs.items()
            },
            **more,
        ) from exc


def _shown(row: Row) -> str:
    text = repr(tuple(row))
    return text if len(text) <= _CHARACTERS_SHOWN else text[:_CHARACTERS_SHOWN] + "..."


class ListedRecords:
    """The sorted records of a kept state of one group before its call; a `KeptReader`."""

    def __init__(self, spec: StateSpec, rows: Sequence[Row]) -> None:
        self._spec, shape = spec, kept_shape(spec)
        pairs = [(shape.order_of(shape.second_of(row)), row) for row in rows]
        pairs.sort(key=lambda pair: pair[0])
        self._orders, self._rows = [order for order, _ in pairs], [row for _, row in pairs]
        self._by_second = {shape.second_of(row): row for row in rows}

    def get(self, second: Row) -> Any | None:
        """Return the record with this second key; `None` if there is none."""
        row = self._by_second.get(second)
        return None if row is None else self._made(row)

    def between(self, low: Bound, high: Bound, *, reverse: bool = False) -> Iterator[Any]:
        """Yield the records from one place to another; see `KeptReader`."""
        rows = self._rows[self._place(low) : self._place(high)]
        return map(self._made, reversed(rows) if reverse else rows)

    def _place(self, bound: Bound) -> int:
        search = bisect_right if bound.behind else bisect_left
        return search(self._orders, bound.order, key=lambda order: order[: len(bound.order)])

    def _made(self, row: Row) -> Any:
        return author_record(self._spec.name, self._spec.schema, row)


def put_and_delete(
    table: dict[tuple[Any, ...], list[Row]],
    key: tuple[Any, ...],
    shape: KeptShape,
    changes: Mapping[Row, Row | None],
) -> None:
    """Apply the changes of a called group; a record is not replaced by an equal one."""
    rows = {shape.second_of(row): row for row in table.pop(key, ())}
    for second, row in changes.items():
        if row is None:
            rows.pop(second, None)
        elif second not in rows or identity(rows[second]) != identity(row):
            rows[second] = row
    if rows:
        table[key] = list(rows.values())
