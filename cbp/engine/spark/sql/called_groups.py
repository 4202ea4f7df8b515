"""The called groups of a task, looked up once and kept in a scratch file for all readers.

    look-up -> calls -> scratch file -> state records, for the author's plan
                                    '-> groups, for the task that settles the plan's results

Attempts of a task on one machine share the file, whichever Spark job they belong to.

    per call:  (key columns, _hash, _called if state expires),
               then per state (its columns, _group, _file, _position)
    at end:    (figure, value)

Guaranteed: a reader that finds no file looks up again, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.kernel.arrow.groups import Groups
from cbp.engine.kernel.arrow.reader import Call
from cbp.engine.spark.sql.scratch_files import ScratchFile, read_scratch
from cbp.engine.state.bucket_state import RecordPositions

_BUCKETS = b"cbp.buckets"
_PLACES = ("_group", "_file", "_position")


@dataclass(frozen=True, slots=True)
class Called:
    """The called groups of a task: maps buckets that run together to their calls, by hash."""

    calls: Mapping[tuple[int, ...], Sequence[Call]]
    figures: Mapping[str, float]

    def hashes(self, buckets: tuple[int, ...]) -> Int64s:
        """Return the hashes of the called groups of some buckets, ascending."""
        empty = np.empty(0, np.int64)
        return np.concatenate([empty, *(call.hashes for call in self.calls.get(buckets, ()))])


class CallsFile:
    """Writes calls one by one, with these states; see `ScratchFile`."""

    def __init__(self, path: Path, states: Sequence[str]) -> None:
        self._file, self._states = ScratchFile(path), tuple(states)

    def write(self, buckets: tuple[int, ...], call: Call) -> None:
        """Append a call for groups of these buckets."""
        keys = call.groups.keys.append_column("_hash", pa.array(call.hashes))
        if call.called is not None:
            called = np.isin(np.arange(len(call.hashes)), call.called)
            keys = keys.append_column("_called", pa.array(called))
        self._file.append(keys.replace_schema_metadata({_BUCKETS: ",".join(map(str, buckets))}))
        for name in self._states:
            origin = call.origins[name]
            table = getattr(call.groups, name)
            places = (Groups.ids(call.groups, name), origin.file, origin.position)
            for column, values in zip(_PLACES, places, strict=True):
                table = table.append_column(column, pa.array(values))
            self._file.append(table)

    def finish(self, figures: Mapping[str, float]) -> None:
        """Write the figures, and make the file visible to readers."""
        names, values = list(figures), list(map(float, figures.values()))
        self._file.append(pa.table({"figure": pa.array(names, pa.string()), "value": values}))
        self._file.finish()

    def close(self) -> None:
        """Remove the file if it was not finished."""
        self._file.close()


def read_called(path: Path, states: Sequence[str]) -> Called | None:
    """Return the content of a finished file; `None` if there is none that can be mapped."""
    tables = read_scratch(path)
    if tables is None:
        return None
    calls: dict[tuple[int, ...], list[Call]] = {}
    while True:
        table = next(tables)
        buckets = (table.schema.metadata or {}).get(_BUCKETS)
        if buckets is None:
            figures = dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
            return Called(calls, figures)
        tables_by_state = {name: next(tables) for name in states}
        some = tuple(map(int, buckets.split(b",")))
        calls.setdefault(some, []).append(_call(table, tables_by_state))


def _call(table: pa.Table, tables_by_state: Mapping[str, pa.Table]) -> Call:
    hashes: Int64s = table.column("_hash").to_numpy()
    flows, origins = {}, {}
    for name, records in tables_by_state.items():
        ids, file, position = (records.column(column).to_numpy() for column in _PLACES)
        offsets = np.searchsorted(ids, np.arange(len(hashes) + 1)).astype(np.int64)
        flows[name] = records.drop_columns(list(_PLACES)), offsets
        origins[name] = RecordPositions(hashes[ids], file, position)
    called = None
    if "_called" in table.column_names:
        called = np.flatnonzero(table.column("_called").to_numpy())
        table = table.drop_columns("_called")
    keys = table.drop_columns("_hash").replace_schema_metadata()
    return Call(Groups(keys, flows), hashes, origins, called)
