"""The interface between a service and an engine: one part for each role.

A caller gets only the part that it uses; each part's module describes its calls. An engine has no
durable data of its own: everything it needs is in the arguments, the tables and the intentions.

The layout of a dataflow's folder is in ARCHITECTURE.md; records hold paths relative to it.
"""

from __future__ import annotations

from typing import Protocol

from cbp.engine.interface.garbage_collector import GarbageCollector
from cbp.engine.interface.readers import (
    IncrementReader,
    RecordReader,
    TableHistory,
    VerificationReader,
)
from cbp.engine.interface.runs import RunControl, RunPreparer
from cbp.engine.interface.tables import TableAdministration, TablePublisher


class Engine(Protocol):
    """The parts of an engine; all work on the same tables.

    Attributes:
        preparer: Prepares runs.
        control: Refuses stages; stops and watches runs that other threads prepare.
        publisher: Moves what tables show, forward and back.
        tables: Creates, changes and forgets tables.
        increments: Reads increments of flows.
        records: Reads records of states and outputs.
        history: Finds versions of tables.
        garbage: Removes files that are no longer needed.
        verification: Copies and compares whole tables for a verification.
    """

    @property
    def preparer(self) -> RunPreparer: ...  # noqa: D102 - see above

    @property
    def control(self) -> RunControl: ...  # noqa: D102 - see above

    @property
    def publisher(self) -> TablePublisher: ...  # noqa: D102 - see above

    @property
    def tables(self) -> TableAdministration: ...  # noqa: D102 - see above

    @property
    def increments(self) -> IncrementReader: ...  # noqa: D102 - see above

    @property
    def records(self) -> RecordReader: ...  # noqa: D102 - see above

    @property
    def history(self) -> TableHistory: ...  # noqa: D102 - see above

    @property
    def garbage(self) -> GarbageCollector: ...  # noqa: D102 - see above

    @property
    def verification(self) -> VerificationReader: ...  # noqa: D102 - see above

    def beside(self) -> Engine:
        """Return an engine for recomputations on the same executor; the caller does not close it.

        It shares no cached data with this engine, and its index copies of files never evict this
        engine's.
        """

    def close(self) -> None:
        """Release the engine's resources; no run may be under way."""
