"""Kept dataflows: what a tick has loaded, and how long each dataflow rests, for the next tick.

    its revision changed, or its turn came    loaded again, and examined
    it does not rest, or its rest is over     examined, as it was loaded
    otherwise                                 left out: the waits of its stages stay valid

So a dataflow in which nothing happens costs a tick one row of one statement
(tests/controller/loop/tick/test_idle.py). The revision is the store's: another instance that writes
changes it as well. It is read before the data, so data is never older than its revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from cbp.model.schedule.idle_until import next_in_turn
from cbp.model.schedule.waiting import Wait
from controller.loop.runs.in_flight import StageId
from controller.loop.runs.isolation import Isolation
from controller.loop.tick.stage_views import LoadedDataflow
from controller.store.base import DataflowRecord, Store

TURN_SECONDS = 1.0
"""Time between two turns, however many ticks there are."""

AWAKE = datetime.min.replace(tzinfo=UTC)

READ = "read from the database"


@dataclass(slots=True)
class _Kept:
    """One dataflow.

    Attributes:
        loaded: `None` if it cannot be loaded: loading is tried again at each tick.
        rests_until: When it is examined again, if its revision does not change.
    """

    revision: int
    record: DataflowRecord
    loaded: LoadedDataflow | None = None
    epochs: int = 0
    rests_until: datetime = AWAKE

    def hold(self, loaded: LoadedDataflow | None) -> None:
        self.loaded = loaded
        self.epochs = sum(one.epoch for one in loaded.stages) if loaded else 0


class EveryWait(Mapping[StageId, Wait]):
    """The waits of all dataflows; other threads may iterate over them during a tick."""

    def __init__(self, waits: Mapping[str, Mapping[StageId, Wait]]) -> None:
        self._waits = waits

    def of(self, dataflow: str) -> Mapping[StageId, Wait]:
        """Return the waits of one dataflow."""
        return self._waits.get(dataflow, {})

    def __getitem__(self, key: StageId) -> Wait:
        """Return the wait of a stage."""
        return self._waits[key[0]][key]

    def __iter__(self) -> Iterator[StageId]:
        """Iterate over the stages that wait."""
        return (key for waits in list(self._waits.values()) for key in waits)

    def __len__(self) -> int:
        """Return how many stages wait."""
        return sum(map(len, list(self._waits.values())))


class KeptDataflows:
    """The dataflows between ticks; used only by the thread that ticks, except `waits`."""

    def __init__(self, store: Store, clock: Callable[[], datetime], isolation: Isolation) -> None:
        self._store, self._clock, self._isolation = store, clock, isolation
        self._kept: dict[str, _Kept] = {}
        self._waits: dict[str, Mapping[StageId, Wait]] = {}
        self.waits = EveryWait(self._waits)
        self._turn, self._turned_at, self._looked_at = "", AWAKE, AWAKE

    def forget(self) -> None:
        """Forget everything, so that the next tick examines all dataflows."""
        self._kept.clear()
        self._waits.clear()

    def refresh(self) -> set[str]:
        """Load new, changed and due dataflows; return the names of loaded and removed ones."""
        revisions = self._store.revisions()
        gone = self._kept.keys() - revisions.keys()
        for name in gone:
            del self._kept[name]
            self._waits.pop(name, None)
        turn = self._in_turn(revisions)
        changed = {
            name
            for name, revision in revisions.items()
            if (kept := self._kept.get(name)) is None or kept.revision != revision
        }
        changed.update(turn)
        together = changed.difference(turn)
        records = {one.name: one for one in self._store.dataflows()} if together else {}
        for name in turn:  # from the database: what is kept here and in the store may be outdated
            read = partial(self._store.dataflow, name)
            if (record := self._isolation.attempt(name, READ, read)) is not None:
                records[name] = record
        for name in sorted(changed & records.keys()):
            self._kept[name] = _Kept(revisions[name], records[name])
            self._kept[name].hold(self.load(records[name]))
        return gone | changed

    def load(self, record: DataflowRecord) -> LoadedDataflow | None:
        """Load a dataflow from the store; `None` if it cannot be loaded."""
        load = partial(LoadedDataflow.of, record, self._store)
        return self._isolation.attempt(record.name, "loaded", load)

    def records(self, names: Iterable[str]) -> list[DataflowRecord]:
        """Return the records of the dataflows that exist, by name."""
        return [self._kept[name].record for name in sorted(names) if name in self._kept]

    def names(self) -> list[str]:
        """Return the names of all dataflows."""
        return sorted(self._kept)

    def awake(self, names: Iterable[str]) -> list[str]:
        """Return, by name, the dataflows to examine: these, and those that do not rest.

        Args:
            names: Dataflows with work, trouble, or a hold.
        """
        now = self._clock()
        if now < self._looked_at:  # the clock was set back: no kept time is valid
            for kept in self._kept.values():
                kept.rests_until = AWAKE
        self._looked_at = now
        due = (name for name, kept in self._kept.items() if kept.rests_until <= now)
        return sorted({*due, *names} & self._kept.keys())

    def loaded(self, names: Iterable[str]) -> list[LoadedDataflow]:
        """Return the data of dataflows; dataflows that cannot be loaded are retried."""
        chosen = [self._kept[name] for name in sorted(names) if name in self._kept]
        for kept in chosen:
            if kept.loaded is None:
                kept.hold(self.load(kept.record))
        return [kept.loaded for kept in chosen if kept.loaded is not None]

    def note(self, name: str, waits: Mapping[StageId, Wait], rests_until: datetime | None) -> None:
        """Note a tick's result for a dataflow, and how long it is valid; `None` means until now."""
        self._waits[name] = waits
        self._kept[name].rests_until = AWAKE if rests_until is None else rests_until

    def epochs(self) -> dict[str, int]:
        """Return dataflow -> how many epochs it has committed, over all its stages."""
        return {name: kept.epochs for name, kept in self._kept.items()}

    def _in_turn(self, revisions: Mapping[str, int]) -> list[str]:
        now = self._clock()
        if 0 <= (now - self._turned_at).total_seconds() < TURN_SECONDS:
            return []
        self._turned_at = now
        chosen = list(next_in_turn(list(revisions), self._turn))
        self._turn = chosen[-1] if chosen else ""
        return chosen
