"""Connectors (the input queues of a stage) and decisions (what a run reads and removes).

A queued increment gets a read mark when it was read but not removed. A *Runnable*
(`cbp.model.dataflow.runnable`) looks at all connectors of a stage and returns a `Decision`.

Invariant: all increments that a `Decision` names are queued. They can be removed in any order; the
Runnable chooses (tests/cbp/model/flow/test_connector.py).

Source: CBP (SoCC'10), sections 2.2 and 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cbp.errors import InvariantError
from cbp.model.flow.framing import FrameNote, Framing
from cbp.model.flow.increment import FramingKey, Increment


@dataclass(frozen=True, slots=True)
class Queued:
    """An increment that waits at a connector."""

    increment: Increment
    read: bool = False


@dataclass(frozen=True, slots=True)
class Connector:
    """The queue of one input of one stage, oldest first.

    Attributes:
        queue: The increments that a run can read; for a framed input, its eligible frames.
        framing: For a framed input: the state of its framing (`cbp.model.flow.framing`).
        arrived: For a framed input: output increments that are not framed yet.
        closes: For a framed input: punctuations that are not applied yet, ascending. Each is
            the index of the first output increment after it (`cbp.model.flow.punctuation`).
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
        """All increments, including those with a read mark, oldest first."""
        return tuple(queued.increment for queued in self.queue)

    @property
    def is_closed(self) -> bool:
        """Whether the last arrival was a close that is already applied."""
        return self.framing is not None and self.framing.closed and not self.arrived

    @property
    def held(self) -> tuple[Increment, ...]:
        """All increments whose files are still needed: queued, arrived, or in the open frame."""
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
        """Return whether a close comes before the next output increment to frame.

        Read the index of the flow's next output increment before you read the connector, so that
        all earlier increments have arrived here. That index is greater than the index of a waiting
        close, except while a store is being refilled.
        """
        first = self.arrived[0].index if self.arrived else next_index
        return bool(self.closes) and self.closes[0] <= first

    def append(self, increment: Increment) -> Connector:
        """Return the connector with one more increment at its end."""
        return replace(self, queue=(*self.queue, Queued(increment)))

    def find(self, index: int) -> Increment:
        """Return the queued increment with this index; `InvariantError` if it is not queued."""
        for queued in self.queue:
            if queued.increment.index == index:
                return queued.increment
        msg = f"increment {index} is not queued at input {self.input!r}"
        raise InvariantError(msg)

    def after(self, read: tuple[int, ...], remove: tuple[int, ...]) -> Connector:
        """Return the connector after the commit of a run that read and removed these indexes."""
        for index in (*read, *remove):
            self.find(index)
        remaining = (queued for queued in self.queue if queued.increment.index not in remove)
        return replace(
            self,
            queue=tuple(replace(q, read=q.read or q.increment.index in read) for q in remaining),
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of a Runnable: increments to read, increments to remove, and its new memo.

    Attributes:
        read: Maps input names to increment indexes, in order. Empty: the stage does not run.
            For the groups, inputs that are not named are empty.
        remove: Maps input names to the indexes of increments to remove from the queue. An
            increment that is not read and has no read mark is dropped unread; such drops are
            counted and shown.
        memo: The Runnable's durable memory after this run, as JSON values. Ignored if nothing
            is read.
        waits_for: If nothing is read: what is missing, in words.
        late: Code and message, if the run reads a frame that arrived too late, so that its
            records are set aside (`DataFile.refused`).
    """

    read: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    remove: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    memo: Any = None
    waits_for: str = ""
    late: tuple[str, str] | None = None

    def increments(self, connector: Connector) -> tuple[Increment, ...]:
        """Return the increments that are read from an input, in order."""
        found = tuple(connector.find(index) for index in self.read.get(connector.input, ()))
        if self.late is None:
            return found
        return tuple(
            replace(one, files=tuple(replace(file, refused=self.late) for file in one.files))
            for one in found
        )

    @property
    def runnable(self) -> bool:
        """Whether there is anything to read."""
        return any(self.read.values())

    def as_before(
        self, read: Mapping[str, Sequence[int]], remove: Mapping[str, Sequence[int]]
    ) -> Decision:
        """Return the decision of an earlier attempt of the same run, if this one only reads more.

        The additional increments arrived after that attempt, and are left for a later run.
        """
        pairs = ((self.read, read), (self.remove, remove))
        less = all(
            tuple(now.get(name, ())[: len(before)]) == tuple(before)
            for now, earlier in pairs
            for name, before in earlier.items()
        )
        if self.late is not None or not less or not any(read.values()):
            return self
        reads, removes = ({n: tuple(some) for n, some in each.items()} for each in (read, remove))
        return replace(self, read=reads, remove=removes)

    def dropped(self, connectors: Mapping[str, Connector]) -> tuple[Increment, ...]:
        """Return the increments that would be removed without ever being read."""
        return tuple(
            queued.increment
            for name, connector in connectors.items()
            for queued in connector.queue
            if not queued.read
            and queued.increment.index in self.remove.get(name, ())
            and queued.increment.index not in self.read.get(name, ())
        )

    def frames(self, connectors: Mapping[str, Connector]) -> dict[str, tuple[FrameNote, ...]]:
        """Return a note on each frame that is read or removed, by framed input."""
        notes = {}
        for name, connector in connectors.items():
            taken = {*self.read.get(name, ()), *self.remove.get(name, ())}
            if connector.framing is not None:
                notes[name] = tuple(FrameNote.of(i) for i in connector.waiting if i.index in taken)
        return {name: some for name, some in notes.items() if some}


Runnable = Callable[[Mapping[str, Connector], Any], Decision]
"""`(connectors by input name, memo) -> decision`; deterministic, free of side effects."""
