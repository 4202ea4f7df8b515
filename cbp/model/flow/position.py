"""Position: the complete logical state of a dataflow at one moment, as one plain value.

Other systems call it a checkpoint of the metadata; `cbp.engine.commit.intention_log` puts it.

For every stage it holds the next epoch, the Runnable's memo, and the increments that wait at its
inputs; for every flow, the last increment. A position and the records after it carry the same
information as all records since the first one, so older records can be deleted.

Invariant: a position is a consistent cut: it was true at one moment, between two commits.
`Position.from_json(p.to_json()) == p` (tests/cbp/model/flow/test_position.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cbp.errors import format_unknown
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import Increment

FORMAT = 1


@dataclass(frozen=True, slots=True)
class StagePosition:
    """The position of one stage.

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


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a dataflow; see the module header.

    Attributes:
        stages: Positions by stage. If stages run together, only their leader has a position.
        newest: The last increment of each flow that has one.
        punctuations: Number of the next punctuation; earlier ones are in the connectors.
        version: The version of the dataflow. The position is valid for this version only.
    """

    dataflow: str
    stages: Mapping[str, StagePosition]
    newest: tuple[Increment, ...]
    punctuations: int = 0
    version: int = 1

    @property
    def number(self) -> int:
        """The number of the position, which rises with every commit of the dataflow."""
        return sum(stage.epoch for stage in self.stages.values())

    def framed_less(self, other: Position) -> bool:
        """Return whether some input is framed further in `other` than here.

        Files of the increments in between may be removed, since `other` already has their frames.
        """
        return any(
            there.framing is not None and _framed_to(self, name, input_) < there.framing.last
            for name, stage in other.stages.items()
            for input_, there in stage.connectors.items()
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "format": FORMAT,
            "dataflow": self.dataflow,
            "version": self.version,
            "stages": {
                name: {
                    "epoch": stage.epoch,
                    "memo": stage.memo,
                    "turns": stage.turns,
                    **({} if stage.due_ms is None else {"due_ms": stage.due_ms}),
                    "connectors": {
                        input_: [[q.increment.to_json(), q.read] for q in connector.queue]
                        for input_, connector in stage.connectors.items()
                    },
                    "framed": {
                        input_: _framed_to_json(connector)
                        for input_, connector in stage.connectors.items()
                        if connector.framing is not None
                    },
                }
                for name, stage in self.stages.items()
            },
            "newest": [increment.to_json() for increment in self.newest],
            "punctuations": self.punctuations,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Position:
        """Read the output of `to_json`."""
        if value.get("format") != FORMAT:
            raise format_unknown("position", value.get("format"), FORMAT)
        stages = {
            name: StagePosition(
                stage["epoch"],
                stage["memo"],
                {
                    input_: _connector(input_, queue, stage.get("framed", {}).get(input_))
                    for input_, queue in stage["connectors"].items()
                },
                stage["turns"],
                stage.get("due_ms"),
            )
            for name, stage in value["stages"].items()
        }
        newest = tuple(Increment.from_json(increment) for increment in value["newest"])
        return cls(
            value["dataflow"], stages, newest, value.get("punctuations", 0), value.get("version", 1)
        )


def _framed_to(position: Position, stage: str, input_: str) -> int:
    """Return the index of the last increment framed at an input; -1 if there is none."""
    stage_position = position.stages.get(stage)
    connector = None if stage_position is None else stage_position.connectors.get(input_)
    framing = None if connector is None else connector.framing
    return -1 if framing is None else framing.last


def _framed_to_json(connector: Connector) -> dict[str, Any]:
    assert connector.framing is not None
    return {
        "framing": connector.framing.to_json(),
        "arrived": [increment.to_json() for increment in connector.arrived],
        "closes": list(connector.closes),
    }


def _connector(name: str, queue: Any, framed: Mapping[str, Any] | None) -> Connector:
    connector = Connector(name, tuple(Queued(Increment.from_json(i), read) for i, read in queue))
    if framed is None:
        return connector
    return replace(
        connector,
        framing=Framing.from_json(framed["framing"]),
        arrived=tuple(map(Increment.from_json, framed["arrived"])),
        closes=tuple(framed["closes"]),
    )
