"""Undone inputs: the increments of sources whose effect a roll-back removes.

An increment is undone at an input that has read it since the roll-back point: it waits there again.
A framed input has read what it has framed. Increments that the roll-back drops or leaves out are
undone permanently, whether they were read or not. An increment that waits now and waited at the
point is not undone.

An operator can leave increments out, by the name of a file (`bad.jsonl`, or `urls/bad.jsonl` with
its source) or of the increment (`urls/3`). Everything else that was read after the roll-back point
is applied again. Only a complete increment can be left out: an increment of several files is given
by its own name, or by the names of all its files. Guaranteed: an increment is left out only if no
remaining run has read it, at any input
(tests/controller/loop/recovery/test_rollback_without.py).

Absent on purpose: names of files, which the store knows, and I/O (`superseded.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile

from cbp.errors import DefinitionError, Mistake
from cbp.errors.counts import format_count
from cbp.errors.message_limits import listed
from cbp.model.flow.connector import Connector
from cbp.model.flow.generation import Generation
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position

BySource = dict[str, tuple[int, ...]]
"""Source -> some of its increments."""


@dataclass(frozen=True, slots=True, order=True)
class UndoneInput:
    """One increment of a source.

    Attributes:
        again: Whether it is applied again; otherwise the roll-back drops it.
    """

    source: str
    index: int
    again: bool


def undone_inputs(
    generation: Generation, now: Mapping[str, Mapping[str, Connector]]
) -> tuple[UndoneInput, ...]:
    """Return the increments of sources that a roll-back undoes, by source and index."""
    ends = {one.flow: one.index + 1 for one in generation.position.newest}
    dropped = {
        (source, index)
        for source, count in generation.dropped.items()
        for index in range(ends[source] - count, ends[source])
    }
    dropped |= {(source, i) for source, indexes in generation.left_out.items() for i in indexes}
    again = set[tuple[str, int]]()
    for name, stage in generation.position.stages.items():
        for input_, connector in stage.connectors.items():
            there = now.get(name, {}).get(input_, Connector(input_))
            again |= set(_waiting(connector)) - set(_waiting(there))
    return tuple(
        UndoneInput(source, index, (source, index) not in dropped)
        for source, index in sorted(again | dropped)
    )


def _waiting(connector: Connector) -> Iterator[tuple[str, int]]:
    """Yield an input's queued increments of sources, whose names have no dot."""
    for increment in _unread(connector):
        if "." not in increment.flow:
            yield increment.flow, increment.index


@dataclass(frozen=True, slots=True)
class Unread:
    """The increments of one source that wait at a position.

    Attributes:
        somewhere: Indexes of increments that some input has not read.
        everywhere: Indexes of increments that no input has read.
    """

    somewhere: Set[int]
    everywhere: Set[int]

    def last_of(self, chosen: Collection[tuple[str, int]], source: str) -> tuple[int, ...]:
        """Return the last increments of the source that are chosen and that no input has read."""
        waiting = sorted(self.somewhere, reverse=True)
        return tuple(
            takewhile(lambda one: one in self.everywhere and (source, one) in chosen, waiting)
        )


def unread_of_sources(
    position: Position, wiring: Mapping[str, Mapping[str, str]], sources: Iterable[str]
) -> dict[str, Unread]:
    """Return queued increments at a position, by source; framed ones count as read."""
    unread = {}
    for source in sorted(sources):
        waiting = [
            {increment.index for increment in _unread(stage.connectors[input_])}
            for name, stage in position.stages.items()
            for input_, flow in wiring[name].items()
            if flow == source
        ]
        if waiting:
            unread[source] = Unread(set().union(*waiting), set.intersection(*waiting))
    return unread


def left_out(
    names: Sequence[str],
    files: Mapping[tuple[str, int], Sequence[str]],
    unread: Mapping[str, Unread],
    *,
    number: int,
) -> BySource:
    """Return source -> the increments that the given names select.

    Args:
        files: Maps each increment, by source and index, to the names of all its files. Contains
            increments that wait at the position, and those that the roll-back drops.

    Raises:
        DefinitionError: With code `rollback_file_invalid`: a name selects no increment,
            several, only a part of one, or one that a run before the position has read.
    """
    meant: dict[tuple[str, int], set[str]] = {}
    for name in names:
        found = [
            (source, index)
            for (source, index), own in files.items()
            if name == f"{source}/{index}" or any(name in (f, f"{source}/{f}") for f in own)
        ]
        if len(found) != 1:
            raise _refused(_not_one(name, found, number))
        source, index = found[0]
        own = {f for f in files[found[0]] if name in (f, f"{source}/{f}")}
        meant.setdefault(found[0], set()).update(own or files[found[0]])
    result: BySource = {}
    for (source, index), own in sorted(meant.items()):
        every = files[source, index]
        if own < set(every):
            message = (
                f"increment {source}/{index} holds {format_count(len(every), 'file')}, and only a "
                "whole increment can be left out. To leave out all of its files, give "
                f"{source}/{index}"
            )
            raise _refused(message)
        waits = unread.get(source)
        if waits is None or index not in waits.somewhere:
            continue  # dropped, with all that arrived later
        if index not in waits.everywhere:
            message = (
                f"a run before position {number} has already read increment {source}/{index}; "
                "choose an earlier position"
            )
            raise _refused(message)
        result[source] = (*result.get(source, ()), index)
    return result


def _unread(connector: Connector) -> Sequence[Increment]:
    return connector.unread if connector.framing is None else connector.arrived


def _not_one(name: str, found: Sequence[tuple[str, int]], number: int) -> str:
    if not found:
        return (
            f"{name!r} cannot be left out: no run after position {number} reads an increment of "
            "that name, or one with a file of that name. Choose an earlier position"
        )
    several = listed([f"{source}/{index}" for source, index in found])
    return f"several increments have a file {name!r}; give the increments instead: {several}"


def _refused(message: str) -> DefinitionError:
    return DefinitionError(Mistake("rollback_file_invalid", "without", message))
