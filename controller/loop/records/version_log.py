"""Version log: the descriptions of a dataflow, one immutable record per version, beside its tables.

    _description/00000000000000000001.json      as it was registered
    _description/00000000000000000002.json      as it was changed, and from where it continued
    _description/adopted/0000000....json        codes of a version of an earlier release

The newest description is the truth; the store is an index over it. Putting it is the one step by
which a new version takes over: before it, nothing of the new version is visible; after it,
everything else is redo (`controller.loop.operations.version_switch`).

Invariant: `Description.from_json(d.to_json()) == d`; a number is put once, and a second writer
learns that another controller leads (tests/controller/loop/operations/test_change_crashes.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Exists, Files
from cbp.errors import FileLostError, LogConflictError, NotFoundError, format_unknown
from cbp.model.flow.position import Position
from cbp.model.run.intention import TableChange
from cbp.model.version.code_drift import unfingerprinted, with_codes
from cbp.model.version.dataflow_shape import DataflowShape
from cbp.model.version.flow_life import Beginning, FlowLife, lives_of_flows
from controller.store.base import DataflowRecord

FOLDER = "_description"
ADOPTED = "_description/adopted"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Begin:
    """The redo record of a version change: where the version begins, and its changes.

    Attributes:
        at_ms: Milliseconds since 1970; later than every earlier record.
        fresh: Leading stages whose code, input or settings changed; their failures are forgotten.
        anew: All stages that changed, or that rebuild their state.
        emptied: The stages that begin with nothing, since they are added or rebuilt.
        swapped: The position of the previous version, if this version replaces all tables: by
            tables that were built beside, or by the tables from before such a swap.
        back: Whether it shows the tables from before a swap.
    """

    at_ms: int
    position: Position
    tables: Mapping[str, tuple[TableChange, ...]]
    fresh: tuple[str, ...]
    anew: tuple[str, ...]
    emptied: tuple[str, ...] = ()
    swapped: Position | None = None
    back: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "at_ms": self.at_ms,
            "position": self.position.to_json(),
            "tables": {n: [c.to_json() for c in changes] for n, changes in self.tables.items()},
            "fresh": list(self.fresh),
            "anew": list(self.anew),
            "emptied": list(self.emptied),
            **({} if self.swapped is None else {"swapped": self.swapped.to_json()}),
            **({"back": True} if self.back else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Begin:
        """Read the output of `to_json`."""
        position = Position.from_json(value["position"])
        tables = {
            n: tuple(map(TableChange.from_json, changes)) for n, changes in value["tables"].items()
        }
        # Old descriptions lack `emptied`; the tables of a rebuilt stage lose all their records.
        emptied = (
            n for n, changes in tables.items() if any(c.drops and not c.adds for c in changes)
        )
        return cls(
            value["at_ms"],
            position,
            tables,
            tuple(value["fresh"]),
            # Old descriptions lack `anew`: any stage may have started over.
            tuple(value.get("anew", position.stages)),
            tuple(value.get("emptied", emptied)),
            Position.from_json(value["swapped"]) if "swapped" in value else None,
            value.get("back", False),
        )


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A swap that was undone, for one leading stage.

    Attributes:
        epochs: The epochs that the stage ran between the swap and its undoing. No table has them;
            the epochs before and after them are adjacent.
        at_ms: Time of the swap, in milliseconds since 1970.
    """

    epochs: range
    at_ms: int


@dataclass(frozen=True, slots=True)
class Description:
    """One version of a dataflow.

    Attributes:
        leaders: The stages that lead others; `None`, in old descriptions, means that each leads
            itself.
        shape: The compiled dataflow; `None` in old descriptions.
        begin: Where it began; every version except the first has one.
    """

    version: int
    document: Mapping[str, Any]
    leaders: tuple[str, ...] | None = None
    shape: DataflowShape | None = None
    begin: Begin | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        value: dict[str, Any] = {
            "format": FORMAT,
            "version": self.version,
            "document": self.document,
            "leaders": None if self.leaders is None else list(self.leaders),
            "shape": None if self.shape is None else self.shape.to_json(),
            "begin": None if self.begin is None else self.begin.to_json(),
        }
        return {name: one for name, one in value.items() if one is not None}

    @classmethod
    def from_json(cls, value: Any) -> Description:
        """Read the output of `to_json`; raises `InvariantError`."""
        found = value.get("format") if isinstance(value, Mapping) else None
        if found != FORMAT:
            raise format_unknown("description", found, FORMAT)
        leaders, shape, begin = (value.get(name) for name in ("leaders", "shape", "begin"))
        return cls(
            value["version"],
            value["document"],
            None if leaders is None else tuple(leaders),
            None if shape is None else DataflowShape.from_json(shape),
            None if begin is None else Begin.from_json(begin),
        )

    @property
    def begins(self) -> Mapping[str, int]:
        """Stage -> its first epoch under this version; all earlier records are published."""
        stages = {} if self.begin is None else self.begin.position.stages
        return {name: stage.epoch for name, stage in stages.items()}


@dataclass(slots=True)
class Descriptions:
    """Reads and puts descriptions; caches the one in use of each dataflow.

    All parts of a controller share one instance. A version that another process puts is noticed,
    since it has another number.
    """

    files: Files
    _cache: dict[str, tuple[tuple[int, datetime], Description]] = field(default_factory=dict)

    def newest(self, folder: str) -> Description | None:
        """Return the newest description of a folder, or `None`; raises `InvariantError`."""
        names = [n for n in self.files.list_names(f"{folder}/{FOLDER}") if n.endswith(".json")]
        return self._read(f"{folder}/{FOLDER}/{names[-1]}") if names else None

    def of(self, record: DataflowRecord) -> Description:
        """Return the description of a record's version; raises `InvariantError`."""
        key = record.version, record.created_at
        cached = self._cache.get(record.folder)
        if cached is None or cached[0] != key:
            cached = key, self._with_adopted(record)
            self._cache[record.folder] = cached
        return cached[1]

    def forget(self, folder: str) -> None:
        """Forget a deleted dataflow; `folder` is where its tables were."""
        self._cache.pop(folder, None)

    def reread(self, record: DataflowRecord) -> Description:
        """Return the same as `of`, but read the file again: the next version is made from it.

        Damage is thus noticed before a version is written, however long ago the file was first
        read. The cached description stays: runs continue with it.
        """
        return self._with_adopted(record)

    def adopt(self, record: DataflowRecord, loaded: DataflowShape, *, staged: str = "") -> None:
        """Record the present codes for a version that an earlier release registered.

        A version is adopted once; later code is compared with the adopted codes.
        """
        shape = with_codes(self.of(record).shape or loaded, loaded)
        path = adopted_path(record.folder, record.version)
        text = json.dumps(shape.to_json(), allow_nan=False, sort_keys=True)
        data = digested(text.encode(), path)
        self.files.put_if_absent(path, data, what="description", staged=staged)
        self._cache.pop(record.folder, None)

    def _with_adopted(self, record: DataflowRecord) -> Description:
        description = self._read(path_of(record.folder, record.version))
        path = adopted_path(record.folder, record.version)
        known = description.shape is not None and not unfingerprinted(description.shape)
        if known or not self.files.exists(path):
            return description
        adopted = read_record(self.files, path, DataflowShape.from_json)
        return replace(description, shape=with_codes(description.shape or adopted, adopted))

    def at(self, record: DataflowRecord, ms: int) -> Description:
        """Return the description in force at a time, in milliseconds since 1970."""
        description = self.of(record)
        while (
            description.begin is not None
            and description.begin.at_ms > ms
            and description.version > 1
        ):
            description = self._with_adopted(replace(record, version=description.version - 1))
        return description

    def version(self, record: DataflowRecord, version: int) -> Description:
        """Return one version of a dataflow, up to the record's; raises as `of`."""
        return self._read(path_of(record.folder, version))

    def before(self, record: DataflowRecord) -> Iterator[Description]:
        """Yield the earlier versions of a dataflow, oldest first; raises as `of`."""
        for version in range(1, record.version):
            yield self._read(path_of(record.folder, version))

    def begins(self, record: DataflowRecord) -> tuple[Mapping[str, int], int]:
        """Return stage -> first epoch of the record's version, and when that version began."""
        if record.version == 1:
            return {}, 0
        description = self.of(record)
        return description.begins, description.begin.at_ms if description.begin else 0

    def begins_that_count(self, record: DataflowRecord) -> Iterator[Begin]:
        """Yield how the versions after the first began, newest first; raises as `of`.

        An undone swap is left out, and so is the version that undid it: together they change
        neither tables nor code.
        """
        version = record.version
        while version > 1:
            begin = self._read(path_of(record.folder, version)).begin
            if begin is not None and begin.back:
                version -= 1
            elif begin is not None:
                yield begin
            version -= 1

    def anew(self, record: DataflowRecord, *, every: bool = False) -> frozenset[str]:
        """Return the stages that later versions changed or started over.

        Args:
            every: Whether to include undone swaps.
        """
        versions = (one.begin for one in [*self.before(record), self.of(record)][1:])
        begins = versions if every else self.begins_that_count(record)
        return frozenset(name for begin in begins if begin is not None for name in begin.anew)

    def since_built(self, record: DataflowRecord) -> tuple[Begin, frozenset[str]] | None:
        """Return the last swap of tables, and the stages changed since then; or `None`.

        A swap shows the result of all input with the code of its version. Earlier changes no
        longer matter, unless the swap was undone.
        """
        changed: set[str] = set()
        for begin in self.begins_that_count(record):
            if begin.swapped is not None:
                return begin, frozenset(changed)
            changed |= set(begin.anew)
        return None

    def taken_back(self, record: DataflowRecord) -> dict[str, tuple[TakenBack, ...]]:
        """Return the undone swaps, oldest first, by leading stage; raises as `of`."""
        found: dict[str, tuple[TakenBack, ...]] = {}
        begins = [one.begin for one in [*self.before(record), self.of(record)]]
        for swap, back in pairwise(begins):
            if swap is None or swap.swapped is None or back is None or not back.back:
                continue
            for leader, stage in back.position.stages.items():
                epochs = range(swap.swapped.stages[leader].epoch, stage.epoch)
                found[leader] = (*found.get(leader, ()), TakenBack(epochs, swap.at_ms))
        return found

    def lives(self, record: DataflowRecord) -> dict[str, FlowLife]:
        """Return the life of each flow that did not begin with increment 0; raises as `of`."""
        versions = [*self.before(record), self.of(record)]
        return lives_of_flows(
            Beginning(
                one.shape,
                one.begins,
                one.begin.emptied if one.begin else (),
                built=one.begin is not None and one.begin.swapped is not None,
            )
            for one in versions
        )

    def put(self, folder: str, description: Description, *, staged: str = "") -> None:
        """Make a new version durable, which makes it current; raises `LogConflictError`."""
        path = path_of(folder, description.version)
        text = json.dumps(description.to_json(), allow_nan=False, sort_keys=True, indent=1)
        data = digested(text.encode(), path)
        result = self.files.put_if_absent(path, data, what="description", staged=staged)
        # No conflict: an earlier release wrote it without a digest, or without a name in it.
        same = data, text.encode(), digested(text.encode(), "")
        if isinstance(result, Exists) and result.data not in same:
            raise LogConflictError(path)

    def _read(self, path: str) -> Description:
        try:
            return read_record(self.files, path, Description.from_json)
        except NotFoundError as exc:
            raise FileLostError(path, "the database refers to this version") from exc


def adopted_path(folder: str, version: int) -> str:
    """Return the path of the codes that were adopted for a version of an earlier release."""
    return f"{folder}/{ADOPTED}/{version:020d}.json"


def path_of(folder: str, version: int) -> str:
    """Return the path of a version's description."""
    return f"{folder}/{FOLDER}/{version:020d}.json"
