"""The log of a loop within a run: its progress, from which another attempt continues.

    _supersteps/<stage>/<epoch>-<digest>.log      size of the head | head | tables
    _supersteps/<stage>/<epoch>-<digest>-<tasks>.<task>.<superstep>.log      of a loop in several

The file is a snapshot: each one replaces the one before, so a try finds one or none, and a found
one is complete. If a loop has several tasks, each has its own snapshots, at the same supersteps,
and keeps the one before until all others have theirs too (`keep_only`). A try continues from the
last superstep of which every task has a snapshot. There always is one, even if a task is killed
while it writes. A try with another number of tasks starts over. `digest` covers everything that the
supersteps depend on (`cbp.engine.run.task_planner`): a try that reads anything else has a log of
another name, and begins with its input. So a run leaves the same results, whether and wherever it
was interrupted. The file is removed once its epoch is published.

A snapshot is put once `EngineLimits.superstep_log_ms` have passed since the last one, and also
twenty times as long as a snapshot takes. The clock decides nothing else.

Guaranteed: a damaged or half-written file is never used, and is no error; the run starts over.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import xxhash

from cbp.clock import MACHINE
from cbp.engine.storage.checked_json import digested, parsed
from cbp.engine.storage.files import Files, LocalFiles
from cbp.engine.storage.table_names import superstep_folder
from cbp.engine.task.task_plan import TaskPlan
from cbp.errors import FileDamagedError, NotFoundError

COST_SHARE = 20
"""Snapshots take at most one part in this many of a loop's time."""

BYTES_A_SECOND = 200e6
"""How fast the first snapshot is expected to be written; later ones as fast as the one before."""

_SIZE = 8
_EPOCH = re.compile(r"(\d{12})-[0-9a-f]+(?:-\d+\.\d+\.\d+)?\.log")
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """A loop after some supersteps: all tables that it needs, and other facts as JSON values."""

    supersteps: int
    facts: Mapping[str, Any]
    tables: Mapping[str, pa.Table]


@dataclass
class SuperstepLog:
    """The log of one run of a loop, or of task `part` of it; `spent`: seconds spent on them."""

    plan: TaskPlan
    seconds: Callable[[], float] = MACHINE.seconds
    part: int = 0
    spent: float = field(init=False, default=0.0)
    _files: Files = field(init=False)
    _since: float = field(init=False)
    _pace: float = field(init=False, default=BYTES_A_SECOND)

    def __post_init__(self) -> None:
        self._files = LocalFiles(self.plan.faults)
        self._since = self.seconds()

    @property
    def is_kept(self) -> bool:
        """Whether the plan identifies the run among all runs; only then is a log kept."""
        return bool(self.plan.depends_on)

    @property
    def path(self) -> str:
        """The file of all tries of this run, if the run has one task."""
        return f"{self._folder}/{self._name}.log"

    @property
    def _folder(self) -> str:
        return f"{self.plan.folder}/{superstep_folder(self.plan.stage)}"

    @property
    def _name(self) -> str:
        return f"{self.plan.epoch:012d}-{self.plan.depends_on}"

    @property
    def _name_of_part(self) -> str:
        return f"{self._name}-{self.plan.tasks}.{self.part}."

    def _path_of(self, supersteps: int) -> str:
        if self.plan.tasks == 1:
            return self.path
        return f"{self._folder}/{self._name_of_part}{supersteps}.log"

    def is_due(self, bytes_: Callable[[], int]) -> bool:
        """Return whether to put a snapshot of about this size now."""
        least = self.plan.limits.superstep_log_ms
        if not self.is_kept or not least:
            return self.is_kept
        passed = self.seconds() - self._since
        return passed * 1000 >= least and passed >= COST_SHARE * bytes_() / self._pace

    def put(self, make: Callable[[], Snapshot]) -> None:
        """Make a snapshot, and put it in place of the previous one; the cost includes both."""
        began, snapshot = self.seconds(), make()
        parts = {name: _packed(table) for name, table in snapshot.tables.items()}
        head = {
            "supersteps": snapshot.supersteps,
            "facts": dict(snapshot.facts),
            "parts": [[name, len(part), _digest(part)] for name, part in parts.items()],
        }
        path = self._path_of(snapshot.supersteps)
        text = digested(json.dumps(head).encode(), path)
        data = b"".join([len(text).to_bytes(_SIZE, "little"), text, *parts.values()])
        self._files.write_durable(path, data, what="superstep_log")
        self._since = self.seconds()
        took = self._since - began
        self.spent += took
        size = sum(table.nbytes for table in snapshot.tables.values())
        self._pace = min(BYTES_A_SECOND, size / took) if took and size else BYTES_A_SECOND

    def newest(self) -> Snapshot | None:
        """Return the snapshot that another try of this run put; `None` if there is none."""
        return self._snapshot(self.path) if self.is_kept else None

    def numbers(self) -> list[int]:
        """Return after how many supersteps other tries put snapshots of this task."""
        if not self.is_kept:
            return []
        begin, end = self._name_of_part, ".log"
        names = self._files.list_names(self._folder)
        ours = (name for name in names if name.startswith(begin) and name.endswith(end))
        return [int(name.removeprefix(begin).removesuffix(end)) for name in ours]

    def after(self, supersteps: int) -> Snapshot | None:
        """Return this task's snapshot after that many supersteps; `None` without a complete one."""
        return self._snapshot(self._path_of(supersteps))

    def keep_only(self, supersteps: int) -> None:
        """Remove this task's snapshots except the one after that many supersteps (0: all)."""
        for number in self.numbers():
            if number != supersteps:
                self._files.remove(self._path_of(number))

    def _snapshot(self, path: str) -> Snapshot | None:
        try:
            return _read(self._files.read(path), path)
        except NotFoundError:
            return None
        except FileDamagedError as error:
            _log.warning("%s. The loop starts again from its first superstep", error.message)
            return None


def remove_logs(files: Files, folder: str, stage: str, *, up_to: int | None = None) -> None:
    """Remove logs of attempts whose epochs are published or rolled back; `None`: all epochs."""
    place = f"{folder}/{superstep_folder(stage)}"
    for file in files.list_files(place):
        epoch = _EPOCH.search(file.path)
        if epoch is not None and (up_to is None or int(epoch[1]) <= up_to):
            files.remove(f"{place}/{file.path}")


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_PACKED) as writer:
        writer.write_table(table.combine_chunks())
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _digest(part: bytes | memoryview) -> str:
    return xxhash.xxh3_64_hexdigest(part)


def _read(data: bytes, path: str) -> Snapshot:
    """Read a snapshot; `FileDamagedError` if it is not as it was put."""
    start = _SIZE + int.from_bytes(data[:_SIZE], "little")
    head = parsed(data[_SIZE:start], path, dict)
    tables = {}
    for name, size, digest in head["parts"]:
        part = memoryview(data)[start : start + size]
        if _digest(part) != digest:
            raise FileDamagedError(path, f"the checksum of {name} is wrong")
        tables[name] = pa.ipc.open_stream(pa.py_buffer(part)).read_all()
        start += size
    return Snapshot(head["supersteps"], head["facts"], tables)
