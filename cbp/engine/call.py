"""Calling the author's function: what it is given, what it emits, how it fails.

`Out` collects what is emitted, one list per output and state. An emission is checked
for its column names at once, by Python's own call; for its types when the window is
encoded, on whole columns. Only when that fails are the groups of the window called
again with `checked=True`, so that the error names the author's line: translators are
deterministic, hence the same record fails again.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from cbp.engine.rows import Row, check_row, emit_function
from cbp.engine.values import bound_key
from cbp.errors import AuthorCodeError, CbpError
from cbp.model.routing import checked_address, misrouting
from cbp.model.schema import Schema
from cbp.model.stage import TranslatorSpec

__all__ = ["Binding", "Emitted", "author_error", "calling_loop", "group_type"]

Binding = tuple[str | int, Row]
"""An address, and a key that is bound to it."""

_SHOWN_RECORDS = 3
_SHOWN_CHARACTERS = 200


class _Namespace:
    """An object whose attributes are set by name."""


@lru_cache(maxsize=1024)
def group_type(flows: tuple[str, ...]) -> type:
    """Return the class of the `group` that a translator is given; one slot per flow."""
    return type("Group", (), {"__slots__": flows})


@lru_cache(maxsize=1024)
def calling_loop(flows: tuple[str, ...], states: tuple[str, ...]) -> Callable[..., None]:
    """Return `loop(keys, flows, done, translate, group, out, buffers, ends)`: one call per group.

    It is compiled for the names of the flows, like `emit_function`: the loop around the
    author's code then costs a fraction of the code. Flow names are checked identifiers.

    The loop's arguments:
        flows: Per flow, one iterable of records per group.
        done: A counter, stepped before every group, which tells where a failure was.
        ends: Per state, filled with the number of emissions after every group.
    """
    groups = [f"g{i}" for i in range(len(flows))]
    marks = [f"m{i}" for i in range(len(states))]
    lines = [
        "def loop(keys, flows, done, translate, group, out, buffers, ends):",
        *(f"    {mark}, b{i} = ends[{i}].append, buffers[{i}]" for i, mark in enumerate(marks)),
        f"    for key, _, {', '.join(groups)} in zip(keys, done, *flows):",
        *(f"        group.{name} = iter({g})" for name, g in zip(flows, groups, strict=True)),
        "        translate(key, group, out)",
        *(f"        {mark}(len(b{i}))" for i, mark in enumerate(marks)),
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    found: Callable[..., None] = scope["loop"]
    return found


class Emitted:
    """What the author's calls emitted since the last `clear`.

    Attributes:
        out: The object that the author calls.
        buffers: Emitted records by output or state name.
        schemas: Their declared schemas.
        bindings: Addresses, each with a key that was bound to it.
    """

    def __init__(self, spec: TranslatorSpec, *, checked: bool = False) -> None:
        self.schemas: Mapping[str, Schema] = {
            **{output.name: output.schema for output in spec.outputs},
            **{state.name: state.schema for state in spec.states},
        }
        self.buffers: Mapping[str, list[Row]] = {name: [] for name in self.schemas}
        self.bindings: list[Binding] = []
        self._key = spec.key if spec.multicasts else None
        self.out: Any = self._namespace()
        for name, schema in self.schemas.items():
            take = self._checked(name) if checked else self.buffers[name].append
            setattr(self.out, name, emit_function(name, schema.names, take))

    def flushing(self, rows: int, flush: Callable[[], None]) -> Any:
        """Return an object like `out` that calls `flush` when so many records of one flow wait."""
        out = self._namespace()
        for name, schema in self.schemas.items():
            take = _flushing(self.buffers[name], rows, flush)
            setattr(out, name, emit_function(name, schema.names, take))
        return out

    def _namespace(self) -> Any:
        out: Any = _Namespace()
        if self._key is not None:
            out.associate = self.associate
        return out

    def associate(self, key: Any, address: str | int) -> None:
        """Bind a key to an address; checked at once, so that an error names the line.

        Raises:
            TypeError: It is no key of the stage, or no address.
        """
        assert self._key is not None, "only given to authors of stages with addresses"
        self.bindings.append((checked_address(address), bound_key(key, self._key)))

    def _checked(self, name: str) -> Callable[[Row], None]:
        schema = self.schemas[name]
        return lambda row: check_row(row, schema)


def _flushing(buffer: list[Row], rows: int, flush: Callable[[], None]) -> Callable[[Row], None]:
    def take(row: Row) -> None:
        buffer.append(row)
        if len(buffer) >= rows:
            flush()

    return take


def author_error(
    exc: Exception,
    spec: TranslatorSpec,
    *,
    stage: str,
    key: object = None,
    inputs: Mapping[str, Iterable[Row]] | None = None,
    function: str = "translate",
) -> CbpError:
    """Describe an exception that came out of the author's code.

    The place is the innermost frame inside the author's own file; failing that, the
    function's first line.
    """
    if isinstance(exc, CbpError):
        return exc
    file = spec.place.rpartition(":")[0]
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if f.filename == file]
    place = f"{file}:{frames[-1].lineno}" if frames else spec.place
    more: dict[str, Any] = {}
    if key is not None:
        more["key"] = _shown(key)
    if inputs is not None:
        more["inputs"] = {name: _first(rows) for name, rows in inputs.items()}
    cause = f"{type(exc).__name__}: {exc}"
    name = f"{spec.name}.{function}"
    class_ = misrouting(exc) if function.endswith(".route_by") else AuthorCodeError
    return class_(stage=stage, function=name, place=place, cause=cause[:1000], **more)


def _first(rows: Iterable[Row]) -> list[str]:
    return [_shown(row) for row, _ in zip(rows, range(_SHOWN_RECORDS), strict=False)]


def _shown(value: object) -> str:
    text = repr(tuple(value) if isinstance(value, tuple) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
