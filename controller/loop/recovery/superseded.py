"""Superseded increments: those that a roll-back must not bring back, since their files came again.

A roll-back that drops later arrivals allows the same files to come again, as new increments. A
later roll-back may queue again what the first one dropped; such a file would then count twice.

Guaranteed (tests/controller/test_claims_of_roll_backs.py): of several files with the same name and
content one counts: the accepted one, or if there is none, the oldest that comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cbp.errors import RollbackImpossibleError
from cbp.errors.counts import format_count
from cbp.errors.message_limits import listed
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

    Raises:
        RollbackImpossibleError: Only some files of an increment came again: with the increment
            they would count twice, and without it the others would not count.
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
        files = _files(store, position.dataflow, source, index)
        again = [
            name
            for name, sha256 in files
            if (source, name, sha256) in seen
            or store.same_claim(position.dataflow, source, sha256, path=name) is not None
        ]
        if again and len(again) == len(files):
            superseded[source] = (*superseded.get(source, ()), index)
        elif again:
            why = (
                f"increment {index} of source {source!r} holds {len(files)} files, of which "
                f"{format_count(len(again), 'file')} came again since it was dropped "
                f"({listed(again)}); drop what came later as well"
            )
            raise RollbackImpossibleError(position.dataflow, why, source=source, increment=index)
        seen |= {(source, name, sha256) for name, sha256 in files}
    return superseded


def _files(store: Store, dataflow: str, source: str, index: int) -> list[tuple[str, str]]:
    """Return name and SHA-256 of an increment's files, as far as they are known."""
    origin = store.increment(dataflow, source, index).origin
    if "file_count" in origin:
        claims = store.claims_of(dataflow, source, index)
        return [(claim.path, claim.sha256) for claim in claims]
    name, sha256 = str(next(iter(origin.get("files", ())), "")), str(origin.get("sha256", ""))
    return [(name, sha256)] if sha256 else []


def without_increments(position: Position, consumed: Mapping[str, Sequence[int]]) -> Position:
    """Return the position without these increments of sources."""
    if not consumed:
        return position
    stages = {
        name: replace(
            stage,
            connectors={i: _without(one, consumed) for i, one in stage.connectors.items()},
        )
        for name, stage in position.stages.items()
    }
    return replace(position, stages=stages)


def _held(connector: Connector) -> tuple[Increment, ...]:
    """Return the increments that wait as they arrived; frames have other numbers."""
    return connector.arrived if connector.framing is not None else connector.waiting


def _without(connector: Connector, consumed: Mapping[str, Sequence[int]]) -> Connector:
    def stays(one: Increment) -> bool:
        return one.index not in consumed.get(one.flow, ())

    if connector.framing is not None:
        return replace(connector, arrived=tuple(filter(stays, connector.arrived)))
    return replace(connector, queue=tuple(q for q in connector.queue if stays(q.increment)))
