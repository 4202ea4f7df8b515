"""What must be true, in plain Python: files that were delivered, and the epochs that follow.

`Deliveries` knows what producers brought and what must become of it. `Replay` is the
reference engine, told what each recorded run read: it holds what every flow, state and
queue has to be after those runs, and the past of every state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from cbp.engine.reference import ReferenceEngine
from cbp.model.connector import Connector, Decision
from cbp.model.dataflow import Dataflow
from cbp.model.fusion import PhysicalStage
from cbp.model.intention import Intention

__all__ = ["Broken", "Deliveries", "Replay", "multiset"]

Record = dict[str, Any]


class Broken(AssertionError):
    """A promise does not hold; the message names it."""


def multiset(records: Any) -> list[str]:
    """Return records so that two lists are equal if they hold the same ones."""
    return sorted(map(repr, records))


class Deliveries:
    """Files by their content, per source.

    Attributes:
        certain: Those that producers were told are there.
        possible: The same, and those whose upload failed or was never answered.
    """

    def __init__(self, files: list[bytes], rows: list[list[dict[str, int]] | None]) -> None:
        self._names = [hashlib.sha256(data).hexdigest() for data in files]
        self._rows = dict(zip(self._names, rows, strict=True))
        self.certain: dict[str, set[str]] = {}
        self.possible: dict[str, set[str]] = {}

    def bring(self, source: str, file: int, *, certain: bool) -> None:
        """Note that a file was brought."""
        self.possible.setdefault(source, set()).add(self._names[file])
        if certain:
            self.certain.setdefault(source, set()).add(self._names[file])

    def bad(self, data: bytes) -> bool:
        """Tell whether a file is one that must be refused."""
        return self._rows[hashlib.sha256(data).hexdigest()] is None

    def rows(self, source: str, sha256: str) -> list[dict[str, int]]:
        """Return the records of an accepted file; raises `Broken` if it must not be accepted."""
        if sha256 not in self.possible.get(source, ()):
            message = f"P1: {source} accepted what nobody brought: {sha256}"
            raise Broken(message)
        rows = self._rows[sha256]
        if rows is None:
            message = f"P1: {source} accepted a bad file"
            raise Broken(message)
        return rows

    def missing(self, source: str, accepted: set[str]) -> set[str]:
        """Return the good files that were certainly brought and are not accepted."""
        certain = self.certain.get(source, set())
        return {name for name in certain if self._rows[name] is not None} - accepted


class Replay(ReferenceEngine):
    """The reference engine, deciding nothing itself.

    Attributes:
        past: `stage.state` to its records after 0, 1, 2 ... epochs.
        applied: Leader to the number of its epochs that were applied.
    """

    def __init__(self, dataflow: Dataflow, units: Mapping[str, PhysicalStage]) -> None:
        super().__init__(dataflow)
        self.dataflow, self.units = dataflow, units
        self.applied = dict.fromkeys(units, 0)
        self.fed = dict.fromkeys(dataflow.sources, 0)
        self.past: dict[str, list[list[str]]] = {
            f"{node.name}.{state.name}": [[]]
            for node in dataflow.stages.values()
            for state in node.translator.states
        }

    def feed(self, source: str, records: Any) -> None:
        """Add one increment to a source; see `ReferenceEngine.feed`."""
        super().feed(source, records)
        self.fed[source] += 1

    def apply(self, log: Mapping[str, list[Intention]]) -> None:
        """Apply every recorded run that is not applied yet, each behind those that it read from."""
        moved = True
        while moved:
            moved = False
            for leader, records in log.items():
                while self.applied[leader] < len(records):
                    intention = records[self.applied[leader]]
                    if not self._holds(leader, intention.read):
                        break
                    self._epoch(leader, intention)
                    moved = True
        for leader, records in log.items():
            if self.applied[leader] < len(records):
                intention = records[self.applied[leader]]
                message = (
                    f"P1: {intention.id} read what never was there, or twice: {intention.read}"
                )
                raise Broken(message)

    def queue(self, stage: str) -> Mapping[str, Connector]:
        """Return the connectors of a stage."""
        return self._connectors[stage]

    def _holds(self, leader: str, read: Mapping[str, tuple[int, ...]]) -> bool:
        connectors = self._connectors[leader]
        return all(
            set(indexes) <= {increment.index for increment in connectors[name].waiting}
            for name, indexes in read.items()
        )

    def _epoch(self, leader: str, intention: Intention) -> None:
        self._apply(leader, Decision(intention.read, intention.remove, intention.memo))
        self.applied[leader] += 1
        for node in self.units[leader].members[1:]:
            if not self._run(node.name):
                message = f"P1: {node.name} has nothing to read in {intention.id}"
                raise Broken(message)
        for node in self.units[leader].members:
            for state in node.translator.states:
                name = f"{node.name}.{state.name}"
                self.past[name].append(multiset(self.state(node.name, state.name)))
        self._compare_sizes(leader, intention)

    def _compare_sizes(self, leader: str, intention: Intention) -> None:
        for name, increment in intention.outputs.items():
            flow = name if "." in name else f"{leader}.{name}"
            expected = len(self._contents[flow][intention.epoch])
            if increment.records != expected or increment.index != intention.epoch:
                message = f"P2: {increment.name} has {increment.records} records, not {expected}"
                raise Broken(message)
