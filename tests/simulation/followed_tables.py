"""A Delta table of another system, which a source of a simulation follows.

Steps: ("version", kind). A producer commits the next version of the table:

    append     a file comes
    change     rows of a file are updated and deleted; a file of changes says so
    replace    a file goes, and another one comes or none; no file of changes
    rewrite    files are merged, as by OPTIMIZE: no row changes

The table is outside of the disk of the service, so it survives whatever happens to that. Log and
files are written by hand, so that a seed determines them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from controller.ingest.source_log import ArrivedFile, SourceEntry
from tests.simulation.model import Broken, Record
from tests.simulation.operations import Step
from tests.simulation.weaving import weave

__all__ = ["FOLLOWER", "SOURCE", "FollowedTable", "with_followed_table", "with_versions"]

SOURCE, FOLLOWER = "followed", "follower"
"""The source, and a stage that reads its signed rows."""

KINDS = ("append", "append", "change", "change", "change", "replace", "rewrite")
EFFECTS = (
    "feed_position",
    "feed_position",
    "feed_position",
    "claim",
    "rename",
    "increment_file",
    "source_log",
    "sql_commit",
)
"""What taking a version in does: where a fault is aimed that is to strike in it."""

STALLS = ("feed_position.before", "feed_position.after", "claim.after", "source_log.before")
ROUND = (("scan",), ("tick",), ("work", 0), ("scan",), ("tick",), ("work", 0))
BATCHES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"batch": {"files": 2}},
    {"batch": {"files": 3}},
    {"batch": {}},
)
READ_SHARE = 0.5

_FIELDS = ("k", "n", "times")
_GROUP = re.compile(r"(snapshot|versions-(?P<first>\d{20}))-(?P<last>\d{20})\.json")
_SIGNS = {"update_preimage": -1, "update_postimage": 1, "delete": -1}


def with_followed_table(
    rng: random.Random, document: Mapping[str, Any], stage: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    """Return a dataflow that follows a table: by a stage of its own, and perhaps by another one.

    Args:
        rng: Random numbers of this alone: the other parts stay what the seed made of them.
        document: The dataflow.
        stage: Returns a stage, from its translator and its inputs.
    """
    source = {
        "format": "delta",
        "schema": "k BIGINT, n BIGINT, times BIGINT, sign INT",
        "options": {"table": SOURCE},
        **rng.choice(BATCHES),
    }
    stages = dict(document["stages"])
    reading = [
        (name, input_)
        for name, one in stages.items()
        for input_, flow in one["inputs"].items()
        if flow in document["sources"]
    ]
    if rng.random() < READ_SHARE:
        name, input_ = rng.choice(reading)
        inputs = {**stages[name]["inputs"], input_: SOURCE}
        stages[name] = {**stages[name], "inputs": inputs}
    stages[FOLLOWER] = stage("balance", moved=SOURCE)
    return {**document, "sources": {**document["sources"], SOURCE: source}, "stages": stages}


def with_versions(
    rng: random.Random,
    steps: Sequence[Step],
    deaths: Sequence[str],
    fault: Callable[[Sequence[str]], Step],
    *,
    leased: bool,
) -> list[Step]:
    """Weave versions of the table into a plan, and what goes wrong while they are taken in.

    Args:
        rng: As for `with_followed_table`.
        steps: What happens anyway.
        deaths: Verbs of deaths.
        fault: Returns a fault that strikes at one of these effects.
        leased: Whether instances take turns, so that one may stand still.
    """
    parcels: list[list[Step]] = []
    for _ in range(rng.choice((3, 4, 5))):
        parcel: list[Step] = [
            ("version", rng.choice(KINDS)) for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        if rng.random() < 0.7:
            parcel.append(fault(EFFECTS))
        stands = leased and rng.random() < 0.5
        if stands:
            kind = rng.choice(("stall", "suspend"))
            parcel.append((kind, rng.choice(STALLS), rng.choice((1, 1, 2))))
        parcel += [one for one in ROUND if rng.random() < 0.8]
        if stands:
            parcel.append(("continue",))
        if rng.random() < 0.25:
            parcel.append((rng.choice(deaths),))
        parcels.append(parcel)
    return weave(rng, steps, parcels)


class FollowedTable:
    """The table, and what its source must have made of it.

    Args:
        folder: The folder of the table.
        seed: Determines all versions.
        versions_most: How many versions become one increment at most.

    Attributes:
        changes: The signed rows of each version.
        followed: How many versions came as changes.
    """

    def __init__(self, folder: Path, seed: int, versions_most: int) -> None:
        self._folder, self._rng = folder, random.Random(f"table {seed}")
        self._most, self.followed = versions_most, 0
        self.changes: list[list[Record]] = []
        self._shown: list[list[Record]] = []
        self._live: dict[str, list[Record]] = {}
        (folder / "_delta_log").mkdir(parents=True)
        (folder / "_change_data").mkdir()
        self.commit("append")

    # its producer

    def commit(self, kind: str) -> None:
        """Commit the next version."""
        actions, changes = getattr(self, f"_{kind if self._live else 'append'}")()
        version = len(self.changes)
        head = {"commitInfo": {"timestamp": version, "operation": kind}}
        lines = [head, *(_settings() if version == 0 else ()), *actions]
        entry = self._folder / "_delta_log" / f"{version:020d}.json"
        entry.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.changes.append(changes)
        self._shown.append([row for rows in self._live.values() for row in rows])

    def _append(self) -> tuple[list[Any], list[Record]]:
        rows = self._new_rows(self._rng.choice((1, 2, 4)))
        return [self._add(rows)], [{**row, "sign": 1} for row in rows]

    def _change(self) -> tuple[list[Any], list[Record]]:
        path = self._rng.choice(list(self._live))
        left: list[Record] = []
        changes: list[Record] = []
        for number, row in enumerate(self._live[path]):
            what = self._rng.choice(("update", "delete", "keep")) if number else "update"
            after = {**row, "times": row["times"] + 1}
            if what == "update":
                left.append(after)
                changes.append({**row, "_change_type": "update_preimage"})
                changes.append({**after, "_change_type": "update_postimage"})
            elif what == "delete":
                changes.append({**row, "_change_type": "delete"})
            else:
                left.append(row)
        size = self._write(file := f"_change_data/{len(self.changes)}.parquet", changes)
        body = {"path": file, "partitionValues": {}, "size": size, "dataChange": False}
        actions = [self._remove(path), self._add(left), {"cdc": body}]
        return actions, [_signed(row) for row in changes]

    def _replace(self) -> tuple[list[Any], list[Record]]:
        path = self._rng.choice(list(self._live))
        changes = [{**row, "sign": -1} for row in self._live[path]]
        actions = [self._remove(path)]
        if rows := self._new_rows(self._rng.choice((0, 2))):
            actions.append(self._add(rows))
        return actions, changes + [{**row, "sign": 1} for row in rows]

    def _rewrite(self) -> tuple[list[Any], list[Record]]:
        rows = [row for rows in self._live.values() for row in rows]
        removes = [self._remove(path, data_change=False) for path in list(self._live)]
        return [*removes, self._add(rows, data_change=False)], []

    def _new_rows(self, many: int) -> list[Record]:
        first = 10 * len(self.changes)
        return [
            {"k": self._rng.randrange(5), "n": first + number, "times": self._rng.randrange(4)}
            for number in range(many)
        ]

    def _add(self, rows: list[Record], *, data_change: bool = True) -> dict[str, Any]:
        path = f"{len(self.changes)}.parquet"
        self._live[path] = rows
        body = {"modificationTime": len(self.changes), "dataChange": data_change}
        size = self._write(path, rows)
        return {"add": {"path": path, "partitionValues": {}, "size": size, **body}}

    def _remove(self, path: str, *, data_change: bool = True) -> dict[str, Any]:
        del self._live[path]
        body = {"deletionTimestamp": len(self.changes), "dataChange": data_change}
        return {"remove": {"path": path, **body}}

    def _write(self, path: str, rows: list[Record]) -> int:
        fields = [*_FIELDS, *(["_change_type"] if "_change_type" in rows[0] else [])]
        types = [pa.string() if name == "_change_type" else pa.int64() for name in fields]
        schema = pa.schema(zip(fields, types, strict=True))
        pq.write_table(pa.Table.from_pylist(rows, schema), self._folder / path)
        return (self._folder / path).stat().st_size

    # what its source must have made of it

    def rows(self, file: ArrivedFile) -> list[Record]:
        """Return the signed rows of an accepted group of versions."""
        first, last = self._versions(file.path)
        if first is None:
            return [{**row, "sign": 1} for row in self._shown[last]]
        return [row for version in self.changes[first : last + 1] for row in version]

    def check(self, entries: Sequence[SourceEntry], *, settled: bool = False) -> None:
        """Check that each version is in one increment, in order.

        Args:
            entries: The log of the source.
            settled: Whether nothing is left to be taken in.
        """
        behind = self.followed = 0
        for entry in entries:
            names = [file.path for file in entry.files]
            _require(len(names) == 1, f"several groups became one increment: {names}")
            first, last = self._versions(names[0])
            _require((first is None) == (behind == 0), f"{names} came behind {behind} versions")
            if first is not None:
                self._require_next(first, behind, names[0])
                _require(last - first < self._most, f"{names} has more than {self._most}")
                self.followed += last + 1 - first
            behind = last + 1
        if settled:
            self._require_next(len(self.changes), behind, "the end")

    def _require_next(self, first: int, behind: int, name: str) -> None:
        """Check that what is between two groups changed no row."""
        _require(first >= behind, f"{name} came, and versions before {behind} had come")
        left = [at for at in range(behind, first) if self.changes[at]]
        _require(not left, f"{name} came, and versions {left} did not")

    def _versions(self, name: str) -> tuple[int | None, int]:
        """Return the first and the last version of a group; the first is `None` for all rows."""
        match = _GROUP.fullmatch(name)
        first, last = (None, -1) if match is None else (match["first"], int(match["last"]))
        known = match is not None and last < len(self.changes)
        _require(known, f"{name} came, and nobody committed it")
        return None if first is None else int(first), last


def _settings() -> list[dict[str, Any]]:
    fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in _FIELDS]
    metadata = {
        "id": "the followed table",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"delta.enableChangeDataFeed": "true"},
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, {"metaData": metadata}]


def _signed(change: Record) -> Record:
    """Return what a row of a file of changes means."""
    sign = _SIGNS[change["_change_type"]]
    return {**{name: change[name] for name in _FIELDS}, "sign": sign}


def _require(holds: bool, message: str) -> None:
    if not holds:
        message = f"P1: of the followed table, {message}"
        raise Broken(message)
