"""Calls a translator of whole runs: once, with all records that arrived, and all kept state.

tables of inputs -> author -> puts and deletions of any key -> `ReachedState.settle`

Its author can store notes of the progress (`out.note`), which the next try of the run can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

import pyarrow as pa

from cbp.engine.columnar.author_errors import author_error
from cbp.engine.kernel.arrow.emission import conformed_copy
from cbp.engine.kernel.arrow.groups import Outputs, as_table, first_rows
from cbp.engine.kernel.arrow.kept_tables import ReachedReader, ReachedTables, kept_key
from cbp.engine.kernel.arrow.reached_state import ReachedOperation
from cbp.engine.kernel.arrow.remembered import NOTHING
from cbp.engine.storage.held_records import HeldRecords, Room
from cbp.errors import is_authors
from cbp.model.dataflow.call_rules import refuse_returned
from cbp.model.dataflow.run_context import RunContext, hidden
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec

Operations = dict[str, list[ReachedOperation]]

_WAY = re.compile(r"[a-z][a-z -]{0,39}")
"""A call may return its way: the name of the algorithm that it chose, in a few words."""


class RunTables:
    """The author's `tables`: inputs, kept states and the run, by name."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse the assignment: these attributes belong to the engine."""
        message = f"tables.{name} cannot be assigned; keep the value in a variable"
        raise AttributeError(message)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "run":
            raise hidden()
        message = f"there is no input or state {name!r}; use one of {', '.join(self.__dict__)}"
        raise AttributeError(message)


@dataclass
class Called:
    """The results of one call of an author; `way` is the algorithm that the call chose.

    `remembered` is the value to keep, and its size; `NOTHING` if there is none. `recalled`
    says whether the call got the value of the previous run.
    """

    operations: Operations
    way: str = ""
    remembered: tuple[Any, int] = NOTHING
    recalled: bool = False

    def remember(self, value: Any, size: int) -> None:
        """Keep a value of about `size` bytes for `tables.recall` of the next run; it may be lost.

        It must depend on nothing but the records of all states, as this run leaves them.
        """
        self.remembered = value, size


@dataclass(frozen=True)
class Notes:
    """The progress of a call: `noted`, the tables of notes that an earlier attempt stored, by name.

    `take` gets a function that returns such tables, and calls it only if it stores them.
    """

    noted: Mapping[str, pa.Table] = field(default_factory=lambda: MappingProxyType({}))
    take: Callable[[Callable[[], Mapping[str, pa.Table]]], None] = lambda make: None

    def note(self, make: Any) -> None:
        """Store the result of `make` as a note, if it is time for one."""
        if not callable(make):
            message = "out.note needs a function that returns a mapping of names to tables"
            raise TypeError(message)
        self.take(lambda: {name: as_table(table) for name, table in make().items()})


NO_NOTES = Notes()


class _Puts:
    """The function of `out` for one state; collects puts: many small ones go to one file."""

    def __init__(self, spec: TranslatorSpec, state: StateSpec, room: Room) -> None:
        self._spec, self._state, self._room = spec, state, room
        self._taken: list[ReachedOperation] = []
        self._puts = HeldRecords(room)

    def __call__(self, table: Any) -> None:
        """Put records, in place of those with their keys."""
        self._puts.add(conformed_copy(f"out.{self._state.name}", table, self._state.schema))

    def delete(self, keys: Any) -> None:
        """Delete the records with these keys; a key without a record is ignored."""
        self._end_puts()
        key = kept_key(self._spec, self._state)
        given = conformed_copy(f"out.{self._state.name}.delete", keys, key)
        self._taken.append(ReachedOperation(given))

    def operations(self) -> list[ReachedOperation]:
        """Return the puts and deletions, in order; called once, at the end."""
        self._end_puts()
        return self._taken

    def _end_puts(self) -> None:
        """Make operations of the puts since the last deletion, in order."""
        names = list(kept_key(self._spec, self._state).names)
        for records in self._puts.tables:
            self._taken.append(ReachedOperation(records.select(names), records))
        self._room.holders.remove(self._puts)
        self._puts = HeldRecords(self._room)


def call_once(
    stage: str,
    spec: TranslatorSpec,
    inputs: Mapping[str, pa.Table],
    readers: Mapping[str, ReachedReader],
    context: RunContext,
    room: Room,
    notes: Notes = NO_NOTES,
    recall: Callable[[], tuple[Any, int]] = lambda: NOTHING,
) -> Called:
    """Call the author; return the puts, the deletions and the remembered values.

    `room` already includes the inputs. `recall` returns the value that the previous run remembered,
    and its size, if the states are unchanged since. Raises `RunTooLargeError` if there is no room
    for all records.
    """
    called = Called({})

    def recalled() -> Any:
        """Return the value that `out.remember` keeps for the present states, or `None`."""
        value, size = recall()
        room.hold(size)
        called.recalled = value is not None
        return value

    # An input or a state hides the attribute that has its name: one of these, or `run`.
    given: dict[str, Any] = {"recall": recalled, "noted": notes.noted, **inputs}
    given |= {one.name: ReachedTables(spec, one, readers[one.name]) for one in spec.kept}
    if spec.gives_run:
        given["run"] = context
    puts = {one.name: _Puts(spec, one, room) for one in spec.kept}
    out = Outputs({"remember": called.remember, "note": notes.note, **puts})
    try:
        way = spec.translate(RunTables(given), out)
        if not (isinstance(way, str) and _WAY.fullmatch(way)):
            refuse_returned(way)
    except BaseException as exc:
        if not is_authors(exc):
            raise
        shown = {name: first_rows(table) for name, table in inputs.items()}
        raise author_error(exc, spec, stage=stage, inputs=shown) from exc
    called.operations = {name: its.operations() for name, its in puts.items()}
    called.way = str(way or "")
    return called
