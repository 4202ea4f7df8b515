"""Undone inputs: the increments of sources whose effect a roll-back takes away.

An increment is undone at an input that has read it since the roll-back point: it waits there again.
A framed input has read what it has framed. Increments that the roll-back drops or leaves out are
undone for good, read or not. An increment that waits now and waited at the point is not undone.

Absent on purpose: names of files, which the store knows, and I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cbp.model.flow.connector import Connector
from cbp.model.flow.generation import Generation


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
    """Return the increments of sources that a roll-back undoes, by source and index.

    Args:
        generation: The generation that the roll-back would begin.
        now: Stage -> input -> its present connector.
    """
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
    """Yield queued increments of an input that came from sources, whose names have no dot."""
    framed = connector.framing is not None
    for increment in connector.arrived if framed else connector.unread:
        if "." not in increment.flow:
            yield increment.flow, increment.index
