"""Position of a sink: how far it has published its flow, and what a roll-back undid of it. Pure.

    generation 0   0 -- 1 -- 2 -- 3 -- 4            published up to 4: (generation 0, next 5)
    generation 1              '--- 3 -- 4 -- 5      3 and 4 are published, and no longer true

Increments are numbered anew from where a roll-back went. So a position names the generation up to
which it takes roll-backs into account.

Invariant: an increment counts as undone exactly if a roll-back went behind it after it was
published (tests/cbp/model/flow/test_sink_position.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cbp.model.flow.generation import Generation


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """How far a sink is.

    Attributes:
        generation: Roll-backs up to this generation are taken into account.
        next: The increment that is published next.
    """

    generation: int
    next: int

    def rolled_back_to(self, flow: str, generations: Sequence[Generation]) -> int | None:
        """Return the first increment that later roll-backs undid; it is published if below `next`.

        Args:
            flow: A flow of a stage; increments of sources are never undone.
            generations: All generations of the dataflow, ascending.

        Returns:
            `None` if there was no roll-back since.
        """
        starts = (first_of(one, flow) for one in generations if one.number > self.generation)
        return min(starts, default=None)

    def needed(self, flow: str, generations: Sequence[Generation]) -> int:
        """Return the first increment of the flow that the sink may still read."""
        first = self.rolled_back_to(flow, generations)
        return self.next if first is None else min(self.next, first)


def first_of(generation: Generation, flow: str) -> int:
    """Return the first increment of a stage's flow in a generation."""
    newest = (one.index + 1 for one in generation.position.newest if one.flow == flow)
    return next(newest, 0)


def home_of_increment(generations: Sequence[Generation], flow: str, index: int) -> int:
    """Return the number of the generation that an increment of a stage's flow belongs to."""
    homes = (one.number for one in reversed(generations) if first_of(one, flow) <= index)
    return next(homes, 0)
