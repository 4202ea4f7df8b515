"""One call of the author's code by the reference engine: what it gets, emits and gets wrong.

`Emitter.out` is what the author calls; each emission is checked at once, so that an
error names the very line. `AuthorCall` turns whatever the author's code raises into an
`AuthorCodeError` with stage, function, place, key and the first records.
"""

from __future__ import annotations

import inspect
import traceback
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, NoReturn

from cbp.engine.values import Row, bound_key, typed_row, unify
from cbp.errors import AuthorCodeError
from cbp.model.routing import checked_address, misrouting
from cbp.model.schema import Schema
from cbp.model.stage import StateSpec, TranslatorSpec

__all__ = ["AuthorCall", "Emitter", "key_type", "record_type"]

_RECORDS_SHOWN = 3
_CHARACTERS_SHOWN = 200
_CAUSE_CHARACTERS = 1000


def record_type(flow: str, schema: Schema) -> Any:
    """Return the named tuple class of a flow's records."""
    return _named_tuple(flow, schema.names)


@lru_cache(maxsize=256)
def _named_tuple(flow: str, columns: tuple[str, ...]) -> Any:
    return namedtuple(flow, columns)


def key_type(spec: TranslatorSpec) -> Any:
    """Return the named tuple class of a groupwise translator's keys."""
    assert spec.key is not None, "a record-wise translator has no key"
    return record_type("key", spec.key)


class _Namespace:
    """Named things of one kind; asking for another name says which there are."""

    def __init__(self, kind: str, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)
        self._kind, self._names = kind, tuple(values)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"there is no {self._kind} {name!r}; there is {', '.join(self._names)}"
        raise AttributeError(message)


class Emitter:
    """Takes what one call emits.

    Attributes:
        out: The object that the author calls.
        outputs: Output or loopback name to its records.
        states: State name to its records, each with the key that it belongs to.
        bindings: (address, key) pairs of `associate`.
    """

    def __init__(self, spec: TranslatorSpec) -> None:
        self._spec = spec
        self.outputs: dict[str, list[Row]] = {output.name: [] for output in spec.outputs}
        self.states: dict[str, list[tuple[Row, Row]]] = {state.name: [] for state in spec.states}
        self.bindings: list[tuple[str | int, Row]] = []
        functions = {
            o.name: _emit(o.name, o.schema, self.outputs[o.name].append) for o in spec.outputs
        }
        for state in spec.states:
            functions[state.name] = _emit(state.name, state.schema, self._writer(state))
        if spec.multicasts:
            functions["associate"] = self._associate
        self.out: Any = _Namespace("output", functions)

    def group(self, flows: Mapping[str, Iterable[Row]]) -> Any:
        """Return the author's `group`: one iterator per input and state."""
        return _Namespace("input", {name: iter(records) for name, records in flows.items()})

    def _writer(self, state: StateSpec) -> Callable[[Row], None]:
        at = [state.schema.index(name) for name in self._spec.key_of(state).names]
        written = self.states[state.name]
        return lambda row: written.append((unify([row[i] for i in at]), row))

    def _associate(self, key: Any, address: str | int) -> None:
        assert self._spec.key is not None, "a stage with loopbacks has a key"
        self.bindings.append((checked_address(address), bound_key(key, self._spec.key)))


def _emit(flow: str, schema: Schema, take: Callable[[Row], None]) -> Callable[..., None]:
    """Return the function that an author calls to emit one record."""
    names = schema.names

    def emit(*args: Any, **kwargs: Any) -> None:
        if args and not kwargs and len(args) == len(names):
            values = args
        elif not args and kwargs.keys() == set(names):
            values = tuple(kwargs[name] for name in names)
        else:
            values = _bound(flow, names, args, kwargs)
        take(typed_row(values, schema))

    return emit


def _bound(flow: str, names: Sequence[str], args: Row, kwargs: Mapping[str, Any]) -> Row:
    """Return the values of an emission in order; Python's own rules say what is wrong."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as exc:
        message = f"out.{flow}{signature}: {exc}"
        raise TypeError(message) from None
    return tuple(bound[name] for name in names)


class AuthorCall:
    """Context of a call of the author's code; what is raised inside becomes an `AuthorCodeError`.

    Args:
        stage: Name of the stage.
        spec: Whose code it is.
        function: What is called, such as `translate` or `urls.route_by`.
        place: `file.py:12` of the function; `spec.place` by default.
        key: The group's key, if there is a group.
        inputs: The group's records per flow, for the message.
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

    def __enter__(self) -> None:
        """Begin the call."""

    def __exit__(
        self, _: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the call; a crash or an interrupt of the process goes through as it is."""
        if isinstance(exc, Exception):
            more = {} if self._key is None else {"key": _shown(self._key)}
            routes = self._function.endswith(".route_by")
            class_ = misrouting(exc) if routes else AuthorCodeError
            raise class_(
                stage=self._stage,
                function=self._function,
                place=self._innermost(trace),
                cause=f"{type(exc).__name__}: {exc}"[:_CAUSE_CHARACTERS],
                inputs={
                    name: [_shown(row) for row in list(rows)[:_RECORDS_SHOWN]]
                    for name, rows in self._inputs.items()
                },
                **more,
            ) from exc

    def _innermost(self, trace: TracebackType | None) -> str:
        """Return the innermost line inside the author's file; else where the function stands."""
        file = self._place.rpartition(":")[0]
        lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == file]
        return f"{file}:{lines[-1]}" if lines else self._place


def _shown(row: Row) -> str:
    text = repr(tuple(row))
    return text if len(text) <= _CHARACTERS_SHOWN else text[:_CHARACTERS_SHOWN] + "..."
