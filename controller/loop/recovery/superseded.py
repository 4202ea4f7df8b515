"""Superseded increments: those that a roll-back must not bring back, since their files came again.

A roll-back that drops later arrivals allows the same files to come again, as new increments. A
later roll-back may queue again what the first one dropped; such a file would then count twice.

Guaranteed (tests/controller/test_claims_of_roll_backs.py): of several files with the same name and
content one counts: the accepted one, or if there is none, the oldest that comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cbp.model.flow.connector import Connector
from cbp.model.flow.generation import Generation, increments_dropped
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from controller.store.base import Store

__all__ = ["superseded_in", "without_increments"]


def superseded_in(
    position: Position, generations: Sequence[Generation], store: Store
) -> dict[str, tuple[int, ...]]:
    """Return source -> the increments that a position holds and must not hold.

    Args:
        position: The position to which a roll-back would go.
        generations: The earlier generations of the dataflow.
        store: Only read.
    """
    dropped = increments_dropped(generations)
    back = {
        (one.flow, one.index)
        for stage in position.stages.values()
        for connector in stage.connectors.values()
        for one in _held(connector)
        if any(one.index in part for part in dropped.get(one.flow, ()))
    }
    superseded: dict[str, tuple[int, ...]] = {}
    seen: set[tuple[str, str, str]] = set()
    for source, index in sorted(back):
        origin = store.increment(position.dataflow, source, index).origin
        name, sha256 = str(next(iter(origin.get("files", ())), "")), str(origin.get("sha256", ""))
        if not sha256:
            continue
        again = store.same_claim(position.dataflow, source, sha256, path=name)
        if again is not None or (source, name, sha256) in seen:
            superseded[source] = (*superseded.get(source, ()), index)
        seen.add((source, name, sha256))
    return superseded


def without_increments(position: Position, taken: Mapping[str, Sequence[int]]) -> Position:
    """Return the position without these increments of sources."""
    if not taken:
        return position
    stages = {
        name: replace(
            stage,
            connectors={i: _without(one, taken) for i, one in stage.connectors.items()},
        )
        for name, stage in position.stages.items()
    }
    return replace(position, stages=stages)


def _held(connector: Connector) -> tuple[Increment, ...]:
    """Return the increments that wait as they arrived; frames have other numbers."""
    return connector.arrived if connector.framing is not None else connector.waiting


def _without(connector: Connector, taken: Mapping[str, Sequence[int]]) -> Connector:
    def stays(one: Increment) -> bool:
        return one.index not in taken.get(one.flow, ())

    if connector.framing is not None:
        return replace(connector, arrived=tuple(filter(stays, connector.arrived)))
    return replace(connector, queue=tuple(q for q in connector.queue if stays(q.increment)))
