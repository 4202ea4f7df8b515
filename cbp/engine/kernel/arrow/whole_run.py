"""Calls a translator of whole runs: once, with all records that arrived, and all kept state.

tables of inputs -> author -> puts and deletions of any key -> `ReachedState.settle`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa

from cbp.engine.columnar.author_errors import author_error
from cbp.engine.kernel.arrow.emission import conformed_copy
from cbp.engine.kernel.arrow.groups import Outputs, first_rows
from cbp.engine.kernel.arrow.kept_tables import ReachedReader, ReachedTables, kept_key, keys_of
from cbp.engine.kernel.arrow.reached_state import ReachedOperation, Room
from cbp.errors import is_authors
from cbp.model.dataflow.call_rules import refuse_returned
from cbp.model.dataflow.run_context import RunContext, hidden
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec

Operations = dict[str, list[ReachedOperation]]

_WAY = re.compile(r"[a-z][a-z -]{0,39}")
"""What a call may return: its way, in a few words."""


class RunTables:
    """What the author is given: inputs, kept states and the run, by name."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: what is given belongs to the engine."""
        message = f"tables.{name} is given, and cannot be set; use a name of your own for it"
        raise AttributeError(message)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "run":
            raise hidden()
        message = f"there is no input or state {name!r}; use one of {', '.join(self.__dict__)}"
        raise AttributeError(message)


@dataclass(frozen=True)
class _Puts:
    """The function of `out` for one state; it has `delete`."""

    spec: TranslatorSpec
    state: StateSpec
    taken: list[ReachedOperation]
    room: Room

    def __call__(self, table: Any) -> None:
        """Put records, in place of those with their keys."""
        records = self.room.take(conformed_copy(self.state.name, table, self.state.schema))
        names = kept_key(self.spec, self.state).names
        self.taken.append(ReachedOperation(records.select(list(names)), records))

    def delete(self, keys: Any) -> None:
        """Delete the records with these keys; nothing happens for one that is not there."""
        key = kept_key(self.spec, self.state)
        given = keys_of(f"out.{self.state.name}.delete", keys, key)
        self.taken.append(ReachedOperation(conformed_copy(self.state.name, given, key)))


def reached_tables(
    spec: TranslatorSpec, readers: Mapping[str, ReachedReader]
) -> dict[str, ReachedTables]:
    """Return what an author is given of each kept state, by name."""
    make = partial(_reached, spec)
    return {state.name: make(state, readers[state.name]) for state in spec.kept}


def _reached(spec: TranslatorSpec, state: StateSpec, reader: ReachedReader) -> ReachedTables:
    return ReachedTables(state.name, kept_key(spec, state), len(spec.key_of(state)), reader)


def call_once(
    stage: str,
    spec: TranslatorSpec,
    inputs: Mapping[str, pa.Table],
    readers: Mapping[str, ReachedReader],
    context: RunContext,
    room: Room,
) -> tuple[Operations, str]:
    """Call the author; return what was put and deleted, by state, and the way that the call went.

    Raises:
        AuthorCodeError: The author's code failed.
        RunTooLargeError: There is no room for all records.
    """
    for table in inputs.values():
        room.take(table)
    taken: Operations = {state.name: [] for state in spec.kept}
    given: dict[str, Any] = {**inputs, **reached_tables(spec, readers)}
    if spec.gives_run:
        given["run"] = context
    out = Outputs({state.name: _Puts(spec, state, taken[state.name], room) for state in spec.kept})
    try:
        way = spec.translate(RunTables(given), out)
        if not (isinstance(way, str) and _WAY.fullmatch(way)):
            refuse_returned(way)
    except BaseException as exc:
        if not is_authors(exc):
            raise
        shown = {name: first_rows(table) for name, table in inputs.items()}
        raise author_error(exc, spec, stage=stage, inputs=shown) from exc
    return taken, str(way or "")
