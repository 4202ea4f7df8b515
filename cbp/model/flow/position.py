"""Position: the complete logical state of a dataflow at one moment, as one plain value.

Other systems call it a checkpoint of the metadata; `cbp.engine.commit.intention_log` stores it.

A position and the records after it carry the same information as all records since the first one,
so older records can be deleted.

Invariant: a position is a consistent cut: it was true at one moment, between two commits.
`Position.from_json(p.to_json()) == p` (tests/cbp/model/flow/test_position.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment
from cbp.model.json_fields import ADDED, JsonFields


@dataclass(frozen=True, slots=True)
class StagePosition:
    """The next epoch of one stage, its Runnable's memo, and the queues of its inputs.

    Attributes:
        turns: Epochs in a row that read nothing from outside its cycle.
        due_ms: A time before which no timer of the stage is due, in milliseconds since 1970; 0
            if unknown, `None` if no timer is pending.
    """

    epoch: int
    memo: Any
    connectors: Mapping[str, Connector]
    turns: int = 0
    due_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "epoch": self.epoch,
            "memo": self.memo,
            "turns": self.turns,
            **({} if self.due_ms is None else {"due_ms": self.due_ms}),
            "connectors": {
                name: [[q.increment.to_json(), q.read] for q in connector.queue]
                for name, connector in self.connectors.items()
            },
            "framed": {
                name: {
                    "framing": connector.framing.to_json(),
                    "arrived": [increment.to_json() for increment in connector.arrived],
                    "closes": list(connector.closes),
                }
                for name, connector in self.connectors.items()
                if connector.framing is not None
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StagePosition:
        """Read the output of `to_json`."""
        framed = value.get("framed", {})
        connectors = {
            name: _connector(name, queue, framed.get(name))
            for name, queue in value["connectors"].items()
        }
        return cls(value["epoch"], value["memo"], connectors, value["turns"], value.get("due_ms"))


@dataclass(frozen=True, slots=True)
class Position(JsonFields):
    """The position of a dataflow; see the module header.

    Attributes:
        stages: Positions by stage. If stages run together, only their leader has a position.
        newest: The last increment of each flow that has one.
        punctuations: Number of the next punctuation; earlier ones are in the connectors.
        version: The version of the dataflow. The position is valid for this version only.
    """

    record = "position", 1

    dataflow: str
    stages: Mapping[str, StagePosition]
    newest: tuple[Increment, ...]
    punctuations: int = field(default=0, metadata=ADDED)
    version: int = field(default=1, metadata=ADDED)

    @property
    def number(self) -> int:
        """The number of the position, which rises with every commit of the dataflow."""
        return sum(stage.epoch for stage in self.stages.values())

    def framed_less(self, other: Position) -> bool:
        """Return whether `other` has framed more increments of some input than this position.

        The files of these increments may be removed already, since `other` needs only its frames.
        """
        return any(
            there.framing is not None and _framed_to(self, name, input_) < there.framing.last
            for name, stage in other.stages.items()
            for input_, there in stage.connectors.items()
        )


def _framed_to(position: Position, stage: str, input_: str) -> int:
    known = position.stages.get(stage)
    connector = known.connectors.get(input_) if known else None
    return connector.framing.last if connector and connector.framing else -1


def _connector(name: str, queue: Any, framed: Mapping[str, Any] | None) -> Connector:
    queued = tuple(Queued(Increment.from_json(increment), read) for increment, read in queue)
    if framed is None:
        return Connector(name, queued)
    arrived, closes = tuple(map(Increment.from_json, framed["arrived"])), tuple(framed["closes"])
    return Connector(name, queued, Framing.from_json(framed["framing"]), arrived, closes)
