"""Back-pressure: a stage is held while too much waits at its readers; this cannot deadlock.

A flow has a limit on how much can wait at each of its readers. A stage is *held* while every reader
of its outputs outside its own cycle has reached the limit. Readers inside the cycle do not count,
since a cycle must be able to drain itself.

That rule alone could stop a dataflow for good: a reader may need more than the limit before it runs
(a window of 100 increments, a limit of 10). So a *hungry* reader never counts as over its limit. A
reader is hungry if every input from outside its cycle holds something, it still cannot run, and no
other stage of its cycle runs or can run. Only more input helps it.

At a framed input, increments that wait to be framed count too: framing needs no run, so they drain
by themselves. The open frame does not count: only more input ends it.

Why this cannot deadlock: let P be held. Then some reader R of P is over its limit and not hungry.
Either R can start. Or R is itself held; then the same argument applies to R, and ends where the
graph of components ends. Or an input of R is empty. The stage that feeds this input is not held,
since R is not over the limit there. So it can start, or it waits for a stage upstream, and that
chain ends at the sources (tests/cbp/model/test_simulation.py).

Source: CBP (SoCC'10), section 4.2; limits and hunger are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cbp.errors.counts import format_count
from cbp.model.flow.connector import Connector


@dataclass(frozen=True, slots=True)
class FlowLimit:
    """How much of a flow can wait, unread or unframed, at one reader; `None` means any amount.

    Each limit is >= 1; the first that is reached counts.
    """

    increments: int | None = None
    records: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            if type(value) is not int or value < 1:
                message = f"{name} is {value!r}, but a limit must be a whole number of at least 1"
                raise ValueError(message)

    def to_json(self) -> dict[str, int]:
        """Return the limits that are set."""
        values = {"increments": self.increments, "records": self.records, "bytes": self.bytes}
        return {name: value for name, value in values.items() if value is not None}

    def reached(self, connector: Connector) -> str:
        """Return the queued amounts that reach a limit, in words; `""` if none does."""
        waiting = _waiting(connector)
        for name, limit in self.to_json().items():
            if waiting[name] >= limit:
                amount = format_count(waiting[name], name.removesuffix("s"), name)
                return f"{amount} (limit {limit:,})"
        return ""

    def share(self, connector: Connector) -> float:
        """Return the fill level of the queue: at 1 a limit is reached; always 0 without a limit."""
        waiting = _waiting(connector)
        return max((waiting[name] / limit for name, limit in self.to_json().items()), default=0.0)


def _waiting(connector: Connector) -> dict[str, int]:
    """Return the amounts that a limit counts: unread input, and input still to be framed."""
    increments = (*connector.unread, *connector.arrived)
    return {
        "increments": len(increments),
        "records": sum(increment.records for increment in increments),
        "bytes": sum(increment.bytes for increment in increments),
    }


DEFAULT_LIMIT = FlowLimit(increments=1000)
"""The limit of flows without one: high enough for batching, low enough to notice a backlog."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One input (`stage.input`) outside a stage's own cycle that reads one of its flows."""

    name: str
    flow: str
    connector: Connector
    hungry: bool = False


def held(readers: Iterable[Reader], limits: Mapping[str, FlowLimit]) -> str:
    """Return why a stage with these readers is held back, in words; `""` if it is not."""
    full = []
    for reader in readers:
        waiting = limits.get(reader.flow, DEFAULT_LIMIT).reached(reader.connector)
        if reader.hungry or not waiting:
            return ""
        full.append(f"`{reader.name}` has {waiting} in its queue")
    return "waits until readers of its outputs catch up: " + ", ".join(full) if full else ""
