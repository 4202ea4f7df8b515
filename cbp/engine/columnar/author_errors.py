"""Turns exceptions of authors' code into errors with stage, function, file and line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

from cbp.engine.columnar.values import Row
from cbp.errors import CbpError, InvariantError, author_cause, author_line
from cbp.model.dataflow.call_rules import emitted_columns, error_class
from cbp.model.dataflow.stage import TranslatorSpec

_SHOWN_RECORDS = 3
_SHOWN_CHARACTERS = 200


def author_error(
    exc: BaseException,
    spec: TranslatorSpec,
    *,
    stage: str,
    key: object = None,
    inputs: Mapping[str, Iterable[Row]] | None = None,
    function: str = "translate",
    places: Mapping[str, int] = MappingProxyType({}),
) -> CbpError:
    """Return the error that describes an exception raised by the author's code.

    `places` maps each input to the place of the call's first record, as the shuffle numbers it. The
    error's place is the innermost frame inside the author's own file, or the first line of the
    function if there is no such frame.
    """
    if isinstance(exc, CbpError):
        return exc
    more: dict[str, Any] = {}
    if key is not None:
        more["key"] = _shown(key)
    if inputs is not None:
        firsts = {name: islice(rows, _SHOWN_RECORDS) for name, rows in inputs.items()}
        more["inputs"] = {name: list(map(_shown, rows)) for name, rows in firsts.items()}
    error = error_class(exc, function)(
        stage=stage,
        function=f"{spec.name}.{function}",
        place=author_line(exc, spec.place),
        cause=author_cause(exc, spec.place, emitted_columns(spec)),
        **more,
    )
    error.group = tuple(key) if isinstance(key, tuple) else None
    error.places = places
    return error


def not_deterministic(stage: str, spec: TranslatorSpec, exc: Exception) -> InvariantError:
    """Return the error for a wrong record (`exc`) that a second, checked call did not emit."""
    return InvariantError(
        f"stage {stage!r}: {spec.name} is not deterministic: one call emitted a record that does "
        f"not fit its declaration ({exc}), but a second call with the same input did not emit that "
        "record"
    )


def _shown(value: object) -> str:
    text = repr(tuple(value) if isinstance(value, tuple) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
