"""The intention: the write-ahead record of one run, and its state machine.

    INTENDED ----job done, files synced, record put----> PREPARED ----> COMMITTED
       |                                                (commit point)
       '--job failed--> FAILED   (the read set stays queued; a new attempt may follow)

INTENDED exists in the SQL store only: a crash there leaves orphan files, and the epoch runs again
with the same read set. The record written at PREPARED is the truth; all later steps follow from it
and can be repeated. A record names no table version and does not depend on what its tables show
when it is put, since one publication can cover many records (`cbp.model.run.publication`).

Invariant: `Intention.from_json(i.to_json()) == i`; one record is put per (stage, epoch)
(tests/cbp/model/run/test_intention.py).

Source: CBP (SoCC'10), section 4.3, "Failure recovery".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cbp.model.flow.connector import Connector
from cbp.model.flow.framing import FrameNote
from cbp.model.flow.increment import Increment
from cbp.model.json_fields import ADDED, LEFT_OUT, JsonArray, JsonFields
from cbp.model.run.correction import CorrectionNote


class RunStatus(StrEnum):
    """The status of a run; see the diagram in the module header."""

    INTENDED = "INTENDED"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class TableChange(JsonFields):
    """The changes of one table by one run, whatever the table's contents are at that time.

    Paths are relative to the table. Later runs can delete rows of a run's file, or drop the file,
    before any reader of the table has seen it.

    Attributes:
        table: Folder relative to the dataflow's root.
        adds: New data files as `add` actions (JSON values), one per path, all rows live.
        deletes: Maps each data file to the rows of it that this run deleted, as the engine
            writes them (`cbp.engine.state.pending_deletes`); rows that were deleted before are
            left out.
        data_change: False if only the layout changes (compaction).
        below: For an output whose oldest records are removed permanently (by a retention, or
            because its stage starts over): the first epoch that is kept. 0 for every other
            change; negative if only records from before all increments are removed.
    """

    table: str
    adds: tuple[Mapping[str, Any], ...] = ()
    drops: tuple[str, ...] = ()
    deletes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    data_change: bool = True
    below: int = field(default=0, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True)
class LookupMoment(JsonArray):
    """The moment as of which a run looked up a table; `cbp.engine.run.table_cache` chooses it.

    Attributes:
        epoch: The newest epoch that was read; -1 if the table had shown none.
        version: The version of the table that was read. Epochs that it does not show yet were read
            from the records of their runs.
    """

    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Intention(JsonFields):
    """Record of one run: read and removed increments, outputs, and changes of its tables.

    Attributes:
        prepared_ms: Milliseconds since 1970 (UTC); rises from record to record of a dataflow.
        read, remove: Map input names to increment indexes, as decided.
        outputs: Maps output names to their new increments, empty ones included.
        changes: In order; the compaction of a table follows the change of its records.
        unpublished_from: First epoch of the stage that was not published when this was put.
        leader_epoch: Lease epoch of the controller that put this; 0 if it is older than leases.
        figures: Counts and seconds; for people, and so are `frames` and `codes`.
        generation: Generation of the dataflow in which its epoch counts.
        frames: Maps framed inputs to notes on the frames that it read or removed.
        codes: Maps each stage that ran to the fingerprint of its code.
        time_ms: The time that author's code read in the run (`cbp.model.dataflow.run_context`);
            0 in records of releases without it.
        due_ms: A time before which no timer of the stage is due after this run; `None` if none is
            pending.
        lookups: The moment as of which each table was looked up, by `stage.lookup`.
    """

    record = "intention", 2

    dataflow: str
    stage: str
    epoch: int
    run: str
    prepared_ms: int
    read: Mapping[str, tuple[int, ...]]
    remove: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, Increment]
    changes: tuple[TableChange, ...]
    dataflow_version: int = 1
    unpublished_from: int = 0
    leader_epoch: int = field(default=0, metadata=ADDED)
    memo: Any = None
    figures: Mapping[str, float] = field(default_factory=dict)
    generation: int = field(default=0, metadata=ADDED)
    correction: CorrectionNote | None = field(default=None, metadata=ADDED)
    frames: Mapping[str, tuple[FrameNote, ...]] = field(default_factory=dict, metadata=LEFT_OUT)
    codes: Mapping[str, str] = field(default_factory=dict, metadata=LEFT_OUT)
    time_ms: int = field(default=0, metadata=LEFT_OUT)
    due_ms: int | None = field(default=None, metadata=LEFT_OUT)
    lookups: Mapping[str, LookupMoment] = field(default_factory=dict, metadata=LEFT_OUT)

    @property
    def id(self) -> str:
        """`dataflow/stage/epoch`, which log entries name as their cause."""
        return f"{self.dataflow}/{self.stage}/{self.epoch}"

    def finds_what_it_read(self, connectors: Mapping[str, Connector]) -> bool:
        """Return whether all increments that it read and removed are still queued at the stage."""
        return all(
            set(indexes) <= {one.index for one in connectors.get(name, Connector(name)).waiting}
            for chosen in (self.read, self.remove)
            for name, indexes in chosen.items()
        )
