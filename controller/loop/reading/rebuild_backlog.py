"""Rebuilds under way: how much of its input a stage still has to read again.

A version that rebuilds a stage queues its retained input, and empties its tables. Until that input
is read, the tables are incomplete. The description of the version says what was queued, and the
store what is left of it. Nothing else is recorded, so the result is the same after a restart or a
roll-back, and in another instance.

Limits: an increment counts as read once it is framed. A stage that reads another rebuilt stage has
no count of its own; it is listed as long as that stage has increments left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from cbp.errors import CbpError
from cbp.model.flow.connector import Connector
from controller.loop.reading.snapshots import Snapshots
from controller.loop.records.compiled_dataflows import Units
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.records.version_log import Begin
from controller.store.base import DataflowRecord

Queues = Mapping[str, Mapping[str, Connector]]
"""Stage -> input -> its queue."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A rebuild of a stage that is under way.

    Attributes:
        since_ms: When its version became current, in milliseconds since 1970.
        queued: Number of increments that the version queued again for it; 0 if it reads another
            rebuilt stage.
        left: Number of these increments that it has not read.
        behind: Stages that it reads and whose rebuild is not complete.
        as_it_was_ms: The time of a snapshot with the earlier tables; `None` if no such snapshot is
            readable.
    """

    since_ms: int
    queued: int
    left: int
    behind: tuple[str, ...] = ()
    as_it_was_ms: int | None = None

    @property
    def percent(self) -> int:
        """Share of the queued increments that are read, from 0 to 99."""
        return 100 * (self.queued - self.left) // self.queued if self.queued else 0


@dataclass(frozen=True, slots=True)
class _Begun:
    """The last version that let a stage begin with nothing; `queued` has names of increments."""

    version: int
    at_ms: int
    queued: frozenset[str]


@dataclass(kw_only=True, eq=False)
class Rebuilding(DataflowPart):
    """Finds rebuilds under way; safe to use from several threads."""

    snapshots: Snapshots

    def __post_init__(self) -> None:
        self._begun: dict[str, tuple[tuple[int, datetime], Mapping[str, _Begun]]] = {}

    def of(self, record: DataflowRecord, connectors: Queues) -> dict[str, Rebuild]:
        """Return the rebuilds of a dataflow that are under way; raises `FileLostError`."""
        rebuilds = self._under_way(record, connectors)
        return {name: self._with_past(record, one) for name, one in rebuilds.items()}

    def since_ms(self, record: DataflowRecord, connectors: Queues) -> int | None:
        """Return when the oldest rebuild under way began, if there is one; raises as `of`."""
        rebuilds = self._under_way(record, connectors).values()
        return min((one.since_ms for one in rebuilds), default=None)

    def forget(self, folder: str) -> None:
        """Forget a deleted dataflow; `folder` is where its tables were."""
        self._begun.pop(folder, None)

    def swapped_ms(self, record: DataflowRecord) -> int | None:
        """Return when the present version was swapped in; `None` if it was not."""
        begin = self.descriptions.of(record).begin
        return None if begin is None or begin.swapped is None else begin.at_ms

    def _under_way(self, record: DataflowRecord, connectors: Queues) -> dict[str, Rebuild]:
        if record.version == 1:
            return {}
        units = self.catalog.units(record)
        begun, rebuilds = self._last_begun(record, units), dict[str, Rebuild]()
        for leader, unit in units.items():
            for name in unit.names:
                left = _left(begun[name], connectors.get(leader, {})) if name in begun else 0
                if left:
                    rebuilds[name] = Rebuild(begun[name].at_ms, len(begun[name].queued), left)
        self._add_behind(record, begun, rebuilds)
        return rebuilds

    def _add_behind(
        self, record: DataflowRecord, begun: Mapping[str, _Begun], rebuilds: dict[str, Rebuild]
    ) -> None:
        """Add stages that read a rebuilt stage, if the same version emptied both."""
        nodes = self.catalog.compiled(record).stages
        found = True
        while found:
            found = False
            for name in begun.keys() & nodes.keys():
                writers = {flow.partition(".")[0] for flow in nodes[name].wiring.values()}
                behind = tuple(
                    one
                    for one in sorted((writers & rebuilds.keys()) - {name})
                    if begun[one].version == begun[name].version
                )
                known = rebuilds.get(name)
                if behind and (known is None or known.behind != behind):
                    at_ms, queued = begun[name].at_ms, len(begun[name].queued)
                    left = 0 if known is None else known.left
                    rebuilds[name], found = Rebuild(at_ms, queued, left, behind), True

    def _with_past(self, record: DataflowRecord, rebuild: Rebuild) -> Rebuild:
        at_ms = rebuild.since_ms - 1
        try:
            self.snapshots.take(record.name, at_ms=at_ms)
        except CbpError:  # collected, or a table is new: there is no complete snapshot
            return rebuild
        return replace(rebuild, as_it_was_ms=at_ms)

    def _last_begun(self, record: DataflowRecord, units: Units) -> Mapping[str, _Begun]:
        """Return, by stage, the last version that let it begin with nothing."""
        key = record.version, record.created_at
        cached = self._begun.get(record.folder)
        if cached is not None and cached[0] == key:
            return cached[1]
        leaders = {name: leader for leader, unit in units.items() for name in unit.names}
        begun: dict[str, _Begun] = {}
        for version in range(2, record.version + 1):
            begin = self.descriptions.version(record, version).begin
            for name in () if begin is None else begin.emptied:
                assert begin is not None
                if begin.swapped is not None:  # its tables are complete
                    begun.pop(name, None)
                    continue
                queued = _queued(begin, leaders.get(name, name))
                begun[name] = _Begun(version, begin.at_ms, queued)
        self._begun[record.folder] = key, begun
        return begun


def _queued(begin: Begin, leader: str) -> frozenset[str]:
    stage = begin.position.stages.get(leader)
    connectors = {} if stage is None else stage.connectors
    return frozenset(_key(i, one.name) for i, c in connectors.items() for one in c.held)


def _left(begun: _Begun, connectors: Mapping[str, Connector]) -> int:
    """Return how many increments that a version queued are neither read nor framed."""
    unread = {
        _key(input_, one.name)
        for input_, connector in connectors.items()
        for one in (connector.unread if connector.framing is None else connector.arrived)
    }
    return len(begun.queued & unread)


def _key(input_: str, increment: str) -> str:
    return f"{input_}={increment}"
