"""One call of the author's code by the reference engine: what it gets, emits and gets wrong.

`Emitter.out` is what the author calls; each emission is checked at once, so that an
error names the very line. `AuthorCall` turns whatever the author's code raises into an
`AuthorCodeError` with stage, function, place, key and the first records.
"""

from __future__ import annotations

import inspect
import traceback
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, NoReturn

from cbp.engine.values import Row, typed_row, unify
from cbp.errors import AuthorCodeError
from cbp.model.schema import Schema
from cbp.model.stage import TranslatorSpec

__all__ = ["AuthorCall", "Emitter", "key_type", "record_type"]

_RECORDS_SHOWN = 3
_CHARACTERS_SHOWN = 200
_CAUSE_CHARACTERS = 1000


@lru_cache(maxsize=256)
def record_type(flow: str, schema: Schema) -> Any:
    """Return the named tuple class of a flow's records."""
    return namedtuple(flow, schema.names)


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
        emitted: Output or state name to its records.
    """

    def __init__(self, spec: TranslatorSpec, key: Row = ()) -> None:
        self._spec, self._key = spec, key
        self._states = {state.name for state in spec.states}
        schemas = {output.name: output.schema for output in spec.outputs}
        schemas.update((state.name, state.schema) for state in spec.states)
        self.emitted: dict[str, list[Row]] = {flow: [] for flow in schemas}
        functions = {flow: self._function(flow, schema) for flow, schema in schemas.items()}
        self.out: Any = _Namespace("output", functions)

    def group(self, flows: Mapping[str, Iterable[Row]]) -> Any:
        """Return the author's `group`: one iterator per input and state."""
        return _Namespace("input", {name: iter(records) for name, records in flows.items()})

    def _function(self, flow: str, schema: Schema) -> Any:
        names = schema.names

        def emit(*args: Any, **kwargs: Any) -> None:
            if args and not kwargs and len(args) == len(names):
                values = args
            elif not args and kwargs.keys() == set(names):
                values = tuple(kwargs[name] for name in names)
            else:
                values = _bound(flow, names, args, kwargs)
            row = typed_row(values, schema)
            if flow in self._states:
                self._check_key(flow, row, schema)
            self.emitted[flow].append(row)

        return emit

    def _check_key(self, state: str, row: Row, schema: Schema) -> None:
        assert self._spec.key is not None, "a stage with state has a key"
        key = unify([row[schema.index(name)] for name in self._spec.key.names])
        if key != self._key:
            message = f"state {state!r}: a record of key {key!r} was emitted by another group"
            raise ValueError(message)


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
            raise AuthorCodeError(
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
