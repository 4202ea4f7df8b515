"""Back-pressure: a stage waits while nobody behind it can take more; never a deadlock.

A flow has a limit on what may wait at each of its readers. A stage is *held* while every
reader of its outputs outside its own cycle is over the limit of what it reads. Readers
inside the cycle do not count: a cycle must be able to drain itself.

That alone could stop a dataflow for good: a reader may need more than the limit before
it runs (a window of 100 increments, a limit of 10). So a reader that is *hungry* is never
over its limit: it is not runnable though every input from outside its cycle holds
something, and nobody of its cycle runs or can run. Nothing but more input helps it.

Of a framed input counts what waits to be framed, too: framing needs no run, so it drains
that by itself. The open frame counts not: only more input ends it.

Why this cannot deadlock: let P be held. Some reader R of P is over its limit and not
hungry. R can start, or is itself held, and then the argument goes on behind R, where
the components end; or an input of R is empty, and whoever feeds it is not held, since R
is not over there: it can start, or waits in turn for someone before it, where the
components begin at the sources (tests/cbp/model/test_simulation.py).

Source: CBP (SoCC'10), section 4.2; limits and hunger are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cbp.model.connector import Connector

__all__ = ["DEFAULT_LIMIT", "FlowLimit", "Reader", "held"]


@dataclass(frozen=True, slots=True)
class FlowLimit:
    """How much of a flow may wait at one reader, unread or to be framed; `None`: any amount.

    Attributes:
        increments, records, bytes: Each >= 1; the first that is reached counts.
    """

    increments: int | None = None
    records: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            if type(value) is not int or value < 1:
                message = f"{name} is {value!r}; a limit is a number from 1 on"
                raise ValueError(message)

    def to_json(self) -> dict[str, int]:
        """Return the limits that are set."""
        values = (("increments", self.increments), ("records", self.records), ("bytes", self.bytes))
        return {name: value for name, value in values if value is not None}

    def reached(self, connector: Connector) -> str:
        """Say what waits, in words, when it reaches a limit; else `""`."""
        found = (*connector.unread, *connector.arrived)
        waiting = {
            "increments": len(found),
            "records": sum(increment.records for increment in found),
            "bytes": sum(increment.bytes for increment in found),
        }
        for name, limit in self.to_json().items():
            if waiting[name] >= limit:
                return f"{waiting[name]} {name} (limit {limit})"
        return ""


DEFAULT_LIMIT = FlowLimit(increments=1000)
"""Of a flow whose stage declares none: late enough to batch, early enough to be seen."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One input outside a stage's own cycle that reads one of its flows.

    Attributes:
        name: `stage.input`.
        hungry: Only more input can make its stage run; see the module header.
    """

    name: str
    flow: str
    connector: Connector
    hungry: bool = False


def held(readers: Iterable[Reader], limits: Mapping[str, FlowLimit]) -> str:
    """Say why a stage is held; `""` when it may run.

    Args:
        readers: Of all its outputs, outside its own cycle; without any, nothing holds it.
        limits: Flow to its limit.
    """
    full = []
    for reader in readers:
        waiting = limits.get(reader.flow, DEFAULT_LIMIT).reached(reader.connector)
        if reader.hungry or not waiting:
            return ""
        full.append(f"`{reader.name}` holds {waiting}")
    return "waits until its readers take more: " + ", ".join(full) if full else ""
