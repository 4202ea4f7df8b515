"""Connectors and decisions: what waits at a stage, and what a run of it takes.

A *connector* is the ordered queue of a single input flow of a single stage; a
queued increment carries a read mark once it was read and not removed. A
*Runnable* (`cbp.model.runnable`) looks at all connectors of a stage and answers
with a `Decision`: what to read and what to remove. All are plain values.

Invariant: what a `Decision` names is queued; removing happens oldest first per
input only by choice of the Runnable, never by accident (tests/cbp/model/test_connector.py).

Source: CBP (SoCC'10), sections 2.2 and 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cbp.errors import InvariantError
from cbp.model.framing import FrameNote, Framing
from cbp.model.increment import FramingKey, Increment

__all__ = ["Connector", "Decision", "Queued", "Runnable"]


@dataclass(frozen=True, slots=True)
class Queued:
    """An increment that waits at a connector."""

    increment: Increment
    read: bool = False


@dataclass(frozen=True, slots=True)
class Connector:
    """The queue of one input of one stage, oldest first.

    Attributes:
        queue: What a run may read; of a framed input, its eligible frames.
        framing: Of a framed input: where its framing stands (`cbp.model.framing`).
        arrived: Of a framed input: output increments that are not framed yet.
        closes: Of a framed input: punctuations that are not applied yet, each the index of
            the first output increment behind it, ascending (`cbp.model.punctuation`).
    """

    input: str
    queue: tuple[Queued, ...] = ()
    framing: Framing | None = None
    arrived: tuple[Increment, ...] = ()
    closes: tuple[int, ...] = ()

    @property
    def unread(self) -> tuple[Increment, ...]:
        """Increments without a read mark, oldest first."""
        return tuple(queued.increment for queued in self.queue if not queued.read)

    @property
    def waiting(self) -> tuple[Increment, ...]:
        """All increments, those with a read mark included, oldest first."""
        return tuple(queued.increment for queued in self.queue)

    @property
    def held(self) -> tuple[Increment, ...]:
        """Everything whose files are still to be read: queued, arrived, in the open frame."""
        open_ = None if self.framing is None else self.framing.open
        return (*self.waiting, *self.arrived, *(() if open_ is None else (open_,)))

    @property
    def framing_keys(self) -> tuple[FramingKey, ...]:
        """Framing keys of the unread increments, oldest first."""
        return tuple(increment.framing_key for increment in self.unread)

    @property
    def records(self) -> int:
        """Records of the unread increments."""
        return sum(increment.records for increment in self.unread)

    @property
    def bytes(self) -> int:
        """Size of the unread increments in bytes."""
        return sum(increment.bytes for increment in self.unread)

    def close_is_due(self, next_index: int) -> bool:
        """Tell whether a close comes before whatever is to be framed next.

        Args:
            next_index: Index of the flow's next output increment; asked before the
                connector was, so that all before it have arrived here. It is behind a close
                that waits, but in a store that is being filled again.
        """
        first = self.arrived[0].index if self.arrived else next_index
        return bool(self.closes) and self.closes[0] <= first

    def append(self, increment: Increment) -> Connector:
        """Return the connector with one more increment at its end."""
        return replace(self, queue=(*self.queue, Queued(increment)))

    def find(self, index: int) -> Increment:
        """Return the queued increment of this index.

        Raises:
            InvariantError: If it is not queued.
        """
        for queued in self.queue:
            if queued.increment.index == index:
                return queued.increment
        msg = f"input {self.input!r} does not hold increment {index}"
        raise InvariantError(msg)

    def after(self, read: tuple[int, ...], remove: tuple[int, ...]) -> Connector:
        """Return the connector once a run that read and removed these is committed."""
        for index in (*read, *remove):
            self.find(index)
        kept = (queued for queued in self.queue if queued.increment.index not in remove)
        return replace(
            self,
            queue=tuple(replace(q, read=q.read or q.increment.index in read) for q in kept),
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """What a Runnable wants: increments to read, to remove, and its new memo.

    Attributes:
        read: Input name to increment indexes, in order; empty: the stage may not run.
            Inputs that are not named look empty to the groups.
        remove: The same, of increments to drop from the queue; one that is not read and
            carries no read mark is dropped unseen, which is counted and shown.
        memo: The Runnable's durable memory after this run, JSON values; forgotten when
            nothing is read.
        waits_for: In words, what is missing when nothing is to be read.
    """

    read: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    remove: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    memo: Any = None
    waits_for: str = ""

    @property
    def runnable(self) -> bool:
        """Whether there is anything to read."""
        return any(self.read.values())

    def dropped(self, connectors: Mapping[str, Connector]) -> tuple[Increment, ...]:
        """Return what would be removed although nobody ever read it."""
        return tuple(
            queued.increment
            for name, connector in connectors.items()
            for queued in connector.queue
            if not queued.read
            and queued.increment.index in self.remove.get(name, ())
            and queued.increment.index not in self.read.get(name, ())
        )

    def frames(self, connectors: Mapping[str, Connector]) -> dict[str, tuple[FrameNote, ...]]:
        """Return what is told of the frames that are taken, by framed input."""
        taken = {n: {*self.read.get(n, ()), *self.remove.get(n, ())} for n in connectors}
        notes = {
            name: tuple(
                FrameNote.of(frame) for frame in connector.waiting if frame.index in taken[name]
            )
            for name, connector in connectors.items()
            if connector.framing is not None
        }
        return {name: found for name, found in notes.items() if found}


Runnable = Callable[[Mapping[str, Connector], Any], Decision]
"""`(input name to connector, memo) -> decision`; deterministic, free of side effects."""
