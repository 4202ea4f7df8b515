"""Superseded increments: those that a roll-back must not bring back.

What an earlier roll-back took away stays away, unless a later one goes to a point before that
roll-back. Even then an increment does not come back if its files have meanwhile arrived again as
new increments: they would count twice.

Guaranteed (tests/controller/loop/recovery/test_claims_of_roll_backs.py): of several files with the
same name and content one counts: the accepted one, or if there is none, the oldest that comes back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from cbp.errors import RollbackImpossibleError
from cbp.errors.counts import format_count
from cbp.errors.message_limits import listed
from cbp.model.flow.connector import Connector
from cbp.model.flow.generation import Generation, increments_dropped
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from controller.store.base import Store


def stay_dropped(
    position: Position, generations: Sequence[Generation]
) -> dict[str, tuple[int, ...]]:
    """Return source -> the increments of a position that an earlier roll-back removed.

    Args:
        position: The position to which a roll-back would go.
        generations: The earlier generations of the dataflow.
    """
    begun = Generation(len(generations) + 1, position, {}, 0)
    return _by_source(_held_of(position, increments_dropped([*generations, begun])))


def coming_back(
    position: Position, generations: Sequence[Generation]
) -> dict[str, tuple[int, ...]]:
    """Return source -> the increments that earlier roll-backs removed and that are applied again.

    Args:
        position: The position to which a roll-back would go, without what it leaves out.
        generations: The earlier generations of the dataflow.
    """
    return _by_source(_held_of(position, increments_dropped(generations)))


def file_names(
    store: Store, dataflow: str, increments: Collection[tuple[str, int]]
) -> dict[tuple[str, int], list[str]]:
    """Return the known names of all files of increments."""
    origins = store.origins(dataflow, increments)
    names = {}
    for one in sorted(increments):
        origin = origins.get(one, {})
        names[one] = [str(name) for name in origin.get("files", ())]
        if int(origin.get("file_count", 0)) > len(names[one]):
            names[one] = [claim.path for claim in store.claims_of(dataflow, *one)]
    return names


def superseded_in(
    position: Position, generations: Sequence[Generation], store: Store
) -> dict[str, tuple[int, ...]]:
    """Return source -> the increments of a position that would count twice.

    Args:
        position: The position to which a roll-back would go.
        generations: The earlier generations of the dataflow.
        store: Only read.

    Raises:
        RollbackImpossibleError: Only some files of an increment arrived again: with the
            increment they would count twice, and without it the other files would not count.
    """
    dropped = increments_dropped(generations)
    back = _held_of(position, dropped)
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
                f"increment {index} of source {source!r} holds {len(files)} files, and "
                f"{format_count(len(again), 'file')} of them arrived again later "
                f"({listed(again)}); drop the later increments, too"
            )
            raise RollbackImpossibleError(position.dataflow, why, source=source, increment=index)
        seen |= {(source, name, sha256) for name, sha256 in files}
    return superseded


def require_chains(position: Position, gone: Mapping[str, Sequence[range]], store: Store) -> None:
    """Refuse a position at which replacements do not fit the rest of the replaced files.

    Args:
        position: The position to which a roll-back would go, without what it leaves out.
        gone: Source -> increments that this roll-back or an earlier one removed.
        store: Only read.

    Raises:
        RollbackImpossibleError: A replacement stays, but the replaced increment does not; or
            two replacements of the same file stay.
    """
    waiting = {
        (one.flow, one.index)
        for stage in position.stages.values()
        for connector in stage.connectors.values()
        for one in connector.waiting
        if "." not in one.flow
    }
    by_earlier: dict[tuple[str, int], int] = {}
    for (source, index), origin in sorted(store.origins(position.dataflow, waiting).items()):
        same = origin.get("same_as") or {}
        if same.get("by") not in ("replaced", "retracted"):
            continue
        earlier = int(same["index"])
        why = ""
        if any(earlier in part for part in gone.get(source, ())):
            why = f"would be left out: leave out {source}/{index}, too"
        elif (source, earlier) in by_earlier:
            other = by_earlier[source, earlier]
            why = f"is also replaced by {source}/{other}: leave out one of the two"
        by_earlier[source, earlier] = index
        if why:
            file = same.get("file")
            why = f"increment {source}/{index} replaces {file!r} of {source}/{earlier}, which {why}"
            raise RollbackImpossibleError(position.dataflow, why, source=source, increment=index)


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


def _held_of(position: Position, parts: Mapping[str, Sequence[range]]) -> set[tuple[str, int]]:
    """Return the increments of sources that wait at some input at a position."""
    return {
        (one.flow, one.index)
        for stage in position.stages.values()
        for connector in stage.connectors.values()
        for one in _held(connector)
        if any(one.index in part for part in parts.get(one.flow, ()))
    }


def _by_source(increments: Collection[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for source, index in sorted(increments):
        found[source] = (*found.get(source, ()), index)
    return found


def _held(connector: Connector) -> tuple[Increment, ...]:
    """Return the increments that wait as they arrived; frames have other numbers."""
    return connector.arrived if connector.framing is not None else connector.waiting


def _without(connector: Connector, consumed: Mapping[str, Sequence[int]]) -> Connector:
    def stays(one: Increment) -> bool:
        return one.index not in consumed.get(one.flow, ())

    if connector.framing is not None:
        return replace(connector, arrived=tuple(filter(stays, connector.arrived)))
    return replace(connector, queue=tuple(q for q in connector.queue if stays(q.increment)))
