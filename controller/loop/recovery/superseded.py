"""Superseded increments: those that a roll-back must not bring back.

What an earlier roll-back removed stays removed, unless a later one goes to a point before that
roll-back. Even then an increment does not come back if its files have meanwhile arrived again as
new increments: they would count twice.

Guaranteed (tests/controller/loop/recovery/test_claims_of_roll_backs.py): only one of several files
with the same name and content counts: the accepted one, or if there is none, the oldest that comes
back. Two files that replaced others are the same only if the replaced files were the same, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cbp.errors import RollbackImpossibleError
from cbp.errors.message_limits import listed
from cbp.model.flow.connector import Connector
from cbp.model.flow.generation import Generation, increments_dropped
from cbp.model.flow.increment import Increment
from cbp.model.flow.position import Position
from controller.loop.recovery.undone_inputs import BySource
from controller.store.base import Store

_BY = ("replaced", "retracted")
"""The values of `same_as.by` in a claim that replaces or retracts an earlier one."""

_EQUAL_MAX = 100_000


def stay_dropped(position: Position, generations: Sequence[Generation]) -> BySource:
    """Return source -> the increments of a position that an earlier roll-back removed."""
    begun = Generation(len(generations) + 1, position, {}, 0)
    return _by_source(_held_of(position, increments_dropped([*generations, begun])))


def coming_back(position: Position, generations: Sequence[Generation]) -> BySource:
    """Return source -> the increments that earlier roll-backs removed and this one brings back."""
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


def superseded_in(position: Position, generations: Sequence[Generation], store: Store) -> BySource:
    """Return source -> the increments of a position that would count twice.

    Raises:
        RollbackImpossibleError: If only some files of an increment arrived again. With the
            increment these would count twice; without it the others would not count.
    """
    dropped = increments_dropped(generations)
    back = _held_of(position, dropped)
    superseded: BySource = {}
    seen: set[tuple[str, _File]] = set()
    for source, index in sorted(back):
        files = _files(store, position.dataflow, source, index)
        again = [
            one.name
            for one in files
            if (source, one) in seen or one.counts(store, position.dataflow, source)
        ]
        if again and len(again) == len(files):
            superseded[source] = (*superseded.get(source, ()), index)
        elif again:
            why = (
                f"{len(again)} of the {len(files)} files of increment {index} of source {source!r} "
                f"arrived again later ({listed(again)}). Repeat the command with --drop-later, "
                "which also drops the later increments"
            )
            raise RollbackImpossibleError(position.dataflow, why, source=source, increment=index)
        seen |= {(source, one) for one in files}
    return superseded


def require_chains(position: Position, gone: Mapping[str, Sequence[range]], store: Store) -> None:
    """Refuse a position if a replacement does not fit the increments that stay.

    Args:
        gone: Source -> increments that this roll-back or an earlier one removed.

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
    by_earlier: dict[str, int] = {}
    for (source, index), origin in sorted(store.origins(position.dataflow, waiting).items()):
        same = origin.get("same_as") or {}
        if same.get("by") not in _BY:
            continue
        earlier, claim = int(same["index"]), str(same["claim"])
        why = ""
        if any(earlier in part for part in gone.get(source, ())):
            why = f"would be left out: leave out {source}/{index}, too"
        elif claim in by_earlier:
            other = by_earlier[claim]
            why = f"is also replaced by {source}/{other}: leave out one of the two"
        by_earlier[claim] = index
        if why:
            file = same.get("file")
            why = f"increment {source}/{index} replaces {file!r} of {source}/{earlier}, which {why}"
            raise RollbackImpossibleError(position.dataflow, why, source=source, increment=index)


@dataclass(frozen=True, slots=True)
class _File:
    """A file of an increment.

    Attributes:
        before: Contents (SHA-256) of the files that it replaced in turn, newest first.
    """

    name: str
    sha256: str
    before: tuple[str, ...] = ()

    def counts(self, store: Store, dataflow: str, source: str) -> bool:
        """Return whether an accepted claim has the same file."""
        if not self.before:
            return store.same_claim(dataflow, source, self.sha256, path=self.name) is not None
        equal = store.claims_of_content(dataflow, source, self.sha256, limit=_EQUAL_MAX)
        return any(
            one.path == self.name and _before(store, one.same_as) == self.before for one in equal
        )


def _files(store: Store, dataflow: str, source: str, index: int) -> list[_File]:
    origin = store.increment(dataflow, source, index).origin
    if "file_count" in origin:
        claims = store.claims_of(dataflow, source, index)
        return [_File(claim.path, claim.sha256) for claim in claims]
    name, sha256 = str(next(iter(origin.get("files", ())), "")), str(origin.get("sha256", ""))
    return [_File(name, sha256, _before(store, origin.get("same_as")))] if sha256 else []


def _before(store: Store, same_as: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the contents (SHA-256) of the files that a file replaced in turn, newest first."""
    contents = list[str]()
    while same_as is not None and same_as.get("by") in _BY:
        earlier = str(same_as["claim"])
        claim = store.find_claims([earlier]).get(earlier)
        if claim is None:
            break
        contents.append(claim.sha256)
        same_as = claim.same_as
    return tuple(contents)


def without_increments(position: Position, consumed: Mapping[str, Sequence[int]]) -> Position:
    """Return the position without these increments of sources."""
    if not consumed:
        return position
    return with_connectors(position, lambda name, one: _without(one, consumed))


def with_connectors(position: Position, change: Callable[[str, Connector], Connector]) -> Position:
    """Return the position with the connectors that `change` returns for a stage and its input."""
    stages = {
        name: replace(
            stage, connectors={i: change(name, one) for i, one in stage.connectors.items()}
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


def _by_source(increments: Collection[tuple[str, int]]) -> BySource:
    found: BySource = {}
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
