"""Generations: each roll-back of a dataflow begins a new one. Pure.

A roll-back returns a dataflow to an earlier position. Epochs continue from there, so that
increments are numbered, aligned and named as if the undone epochs had never run.

    generation 0   0 -- 1 -- 2 -- 3 -- 4 -- 5         3, 4 and 5 are undone
    generation 1              '--- 3 -- 4 -- 5 -- 6   rolled back to the end of epoch 2

Records of runs and transactions of tables are numbered by epoch, so the numbers of undone epochs
are used again, and the generation distinguishes them. The record of a roll-back is the `Generation`
that it begins; all other steps of the roll-back follow from it and can be repeated.

Invariant: an epoch of a stage belongs to exactly one generation, the newest one that began at or
before it (tests/cbp/model/flow/test_generation.py).

Source: ours; timelines of PostgreSQL's recovery are the same idea.

A `SinkPosition` holds how far a sink has published its flow. A roll-back can undo increments that
were published:

    generation 0   0 -- 1 -- 2 -- 3 -- 4            published up to 4: (generation 0, next 5)
    generation 1              '--- 3 -- 4 -- 5      3 and 4 are published, and no longer true

After a roll-back, the numbers of undone increments are used again. So a sink position names the
newest generation whose roll-back it takes into account.

Invariant: an increment counts as undone exactly if it was published, and a later roll-back went to
a point before it (tests/cbp/model/flow/test_sink_position.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cbp.model.flow.position import Position
from cbp.model.json_fields import ADDED, LEFT_OUT, JsonFields


@dataclass(frozen=True, slots=True)
class Generation(JsonFields):
    """A roll-back, and the generation that it began.

    Attributes:
        undone: Maps each stage to the epoch after its last undone one.
        prepared_ms: Time of the roll-back, later than every record before it.
        dropped: Maps each source to the number of its increments that arrived after the
            position and are not queued again.
        superseded: Maps each source to increments that an earlier roll-back dropped and whose files
            have arrived again since. They are not queued again: their records would count twice.
        closes_dropped: Numbers of the closes (punctuations) that were made after the position; they
            no longer close any frame.
        left_out: Maps each source to increments that the operator named, not to be queued again.
        request: Id of the request, if any, so that it is done only once.
    """

    record = "generation", 1

    number: int
    position: Position
    undone: Mapping[str, int]
    prepared_ms: int
    who: str = ""
    why: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)
    request: str = ""
    closes_dropped: tuple[int, ...] = field(default=(), metadata=ADDED)
    superseded: Mapping[str, tuple[int, ...]] = field(default_factory=dict, metadata=LEFT_OUT)
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict, metadata=LEFT_OUT)

    def retracted(self) -> Iterator[tuple[str, range]]:
        """Yield, by source, the increments that this roll-back removed from the queues."""
        newest = {one.flow: one.index + 1 for one in self.position.newest}
        for source, count in self.dropped.items():
            yield source, range(newest[source] - count, newest[source])
        for one_by_one in (self.superseded, self.left_out):
            for source, indexes in one_by_one.items():
                yield from ((source, range(index, index + 1)) for index in indexes)

    def start(self, stage: str) -> int:
        """Return the first epoch of a stage in this generation; 0 for a later stage."""
        known = self.position.stages.get(stage)
        return 0 if known is None else known.epoch


def home_of(generations: Sequence[Generation], stage: str, epoch: int) -> int:
    """Return the number of the generation that an epoch of a stage belongs to.

    An epoch that has not run yet belongs to the newest one. Generation 0 has no record; in this
    module, `generations` are all later generations of the dataflow, ascending.
    """
    homes = (one.number for one in reversed(generations) if one.start(stage) <= epoch)
    return next(homes, 0)


def closes_dropped(generations: Sequence[Generation]) -> frozenset[int]:
    """Return the numbers of the closes (punctuations) that no longer close any frame.

    A roll-back to a point before another roll-back restores the closes that the other dropped.
    """
    return frozenset(
        number
        for one in generations
        if kept_positions(generations, one.number, [one.position])
        for number in one.closes_dropped
    )


def increments_dropped(generations: Sequence[Generation]) -> dict[str, list[range]]:
    """Return, by source, the increments that roll-backs removed from the queues permanently."""
    ranges: dict[str, list[range]] = {}
    for one in generations:
        if kept_positions(generations, one.number, [one.position]):
            for source, part in one.retracted():
                ranges.setdefault(source, []).append(part)
    return ranges


def kept_positions(
    generations: Sequence[Generation], number: int, positions: Sequence[Position]
) -> list[Position]:
    """Return those positions of a generation that no later roll-back has undone, ascending.

    A roll-back stays within one version: it does not undo positions of an earlier version, which
    may have other stages.
    """
    later = [one for one in generations if one.number > number]
    return [
        position
        for position in positions
        if all(
            stage.epoch <= one.start(name)
            for one in later
            if one.position.version == position.version
            for name, stage in position.stages.items()
        )
    ]


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The increment that a sink publishes next, given the roll-backs up to a generation."""

    generation: int
    next: int

    def rolled_back_to(self, flow: str, generations: Sequence[Generation]) -> int | None:
        """Return the first increment of a stage's flow that later roll-backs undid, if any.

        It was published if it is below `next`.
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
