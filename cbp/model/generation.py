"""Generations: the lives of a dataflow between roll-backs. Pure.

A roll-back takes a dataflow to where it once stood; epochs then count on from there, so
that increments are numbered, aligned and named as if what was undone had never been.

    generation 0   0 -- 1 -- 2 -- 3 -- 4 -- 5         3, 4 and 5 are undone
    generation 1              '--- 3 -- 4 -- 5 -- 6   rolled back to behind epoch 2

What counts by epochs is therefore counted per generation: the records of runs, and the
transactions of tables. The record of a roll-back is the generation that it begins: it
holds the whole position, so that everything else follows from it, however often it is
repeated.

Invariant: an epoch of a stage has one home, the newest generation that began at or
before it (tests/cbp/model/test_generation.py).

Source: ours; timelines of PostgreSQL's recovery are the same idea.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cbp.errors import InvariantError
from cbp.model.position import Position

__all__ = ["Generation", "closes_dropped", "home_of", "kept_positions"]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Generation:
    """A roll-back, and the generation that it began.

    Attributes:
        number: From 1, without gaps.
        position: Where the dataflow stood, and stands again.
        undone: Stage to the epoch behind its last one that was undone.
        prepared_ms: Time of the roll-back; later than that of every record before it.
        who, why: Who asked for it, and the reason given.
        dropped: Source to its increments that arrived later and are not queued again.
        closes_dropped: Numbers of the closes made later that close nothing any more.
        request: Names the request for it, so that it is done once; `""`: unnamed.
    """

    number: int
    position: Position
    undone: Mapping[str, int]
    prepared_ms: int
    who: str = ""
    why: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)
    request: str = ""
    closes_dropped: tuple[int, ...] = ()

    def start(self, stage: str) -> int:
        """Return the first epoch of a stage in this generation; 0 for one that came later."""
        found = self.position.stages.get(stage)
        return 0 if found is None else found.epoch

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "format": FORMAT,
            "number": self.number,
            "position": self.position.to_json(),
            "undone": dict(self.undone),
            "prepared_ms": self.prepared_ms,
            "who": self.who,
            "why": self.why,
            "dropped": dict(self.dropped),
            "request": self.request,
            "closes_dropped": list(self.closes_dropped),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Generation:
        """Read what `to_json` wrote.

        Raises:
            InvariantError: If it has a format that this version does not know.
        """
        if value.get("format") != FORMAT:
            msg = f"generation has format {value.get('format')}, expected {FORMAT}"
            raise InvariantError(msg)
        return cls(
            value["number"],
            Position.from_json(value["position"]),
            value["undone"],
            value["prepared_ms"],
            value["who"],
            value["why"],
            value["dropped"],
            value["request"],
            tuple(value.get("closes_dropped", ())),
        )


def home_of(generations: Sequence[Generation], stage: str, epoch: int) -> int:
    """Return the number of the generation that an epoch of a stage belongs to.

    Args:
        generations: All of the dataflow, ascending; generation 0 has no record.
        stage: That leads.
        epoch: Of the stage; one that has not run yet belongs to the newest generation.
    """
    homes = (one.number for one in reversed(generations) if one.start(stage) <= epoch)
    return next(homes, 0)


def closes_dropped(generations: Sequence[Generation]) -> frozenset[int]:
    """Return the numbers of the closes that close nothing any more.

    Args:
        generations: All of the dataflow, ascending; one that went back behind another has
            undone what that one dropped.
    """
    return frozenset(
        number
        for one in generations
        if kept_positions(generations, one.number, [one.position])
        for number in one.closes_dropped
    )


def kept_positions(
    generations: Sequence[Generation], number: int, positions: Sequence[Position]
) -> list[Position]:
    """Return those positions of a generation that no later roll-back has undone, ascending.

    Args:
        generations: All of the dataflow, ascending.
        number: Of the generation that put these positions.
        positions: Ascending.
    """
    later = [one for one in generations if one.number > number]
    return [
        position
        for position in positions
        if all(
            stage.epoch <= one.start(name)
            for one in later
            for name, stage in position.stages.items()
        )
    ]
