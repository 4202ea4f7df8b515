"""Connectors and runnability: what waits at a stage, and whether it may run.

A *connector* is the ordered queue of a single input flow of a single stage; a
queued increment carries a read mark once it was read and not removed. A
*Runnable* looks at all connectors of a stage and says what to read and what to
remove. Both are plain values: nothing here does I/O.

Invariant: what a `Decision` names is queued; removing happens oldest first per
input only by choice of the Runnable, never by accident (tests/cbp/model/test_connector.py).

Source: CBP (SoCC'10), sections 2.2 and 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cbp.errors import InvariantError
from cbp.model.increment import Increment

__all__ = ["Connector", "Decision", "Queued", "Runnable", "runnable_all"]


@dataclass(frozen=True, slots=True)
class Queued:
    """An increment that waits at a connector."""

    increment: Increment
    read: bool = False


@dataclass(frozen=True, slots=True)
class Connector:
    """The queue of one input of one stage, oldest first."""

    input: str
    queue: tuple[Queued, ...] = ()

    @property
    def unread(self) -> tuple[Increment, ...]:
        """Increments without a read mark, oldest first."""
        return tuple(queued.increment for queued in self.queue if not queued.read)

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
        remove: The same, of increments to drop from the queue.
        memo: The Runnable's durable memory after this run; dropped when nothing is read.
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


Runnable = Callable[[Mapping[str, Connector], Any], Decision]


def runnable_all(connectors: Mapping[str, Connector], memo: Any) -> Decision:
    """Run when every input has an increment; read and remove the oldest of each.

    Source: CBP (SoCC'10), section 2.4, `RunnableAll`, the default.
    """
    missing = [name for name, connector in connectors.items() if not connector.unread]
    if missing or not connectors:
        return Decision(memo=memo, waits_for="waits for an increment on " + ", ".join(missing))
    oldest = {name: (connector.unread[0].index,) for name, connector in connectors.items()}
    return Decision(read=oldest, remove=oldest, memo=memo)
