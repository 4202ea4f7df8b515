"""Interfaces of the rest of the service, as far as the API needs them.

The API constructs none of these; they are passed in. Every method may block, so methods are
called from worker threads, never from the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.explain import Plan
from cbp.model.flow.generation import Generation
from cbp.model.flow.punctuation import Punctuation
from cbp.model.flow.retention import Expiry, FlowRetention
from cbp.model.flow.snapshot import Snapshot
from cbp.model.run.account import Account
from cbp.model.run.correction import Correction
from cbp.model.schedule.lease import Role, Standing
from cbp.model.schedule.waiting import Wait
from cbp.model.verification import Request, Verification
from cbp.model.version.rollback import Moment
from cbp.model.version.version_change import NO_CHOICE, Choice
from controller.loop.housekeeping.collector import Garbage
from controller.loop.housekeeping.scrubs import Scrub
from controller.loop.operations.version_change import Changed
from controller.loop.reading.reader import AsOf
from controller.loop.records.correction_log import Corrected
from controller.loop.recovery.rollback import RollbackPlan
from controller.loop.runs.isolation import Trouble
from controller.loop.runs.lane_counts import LaneCount
from controller.store.base import DataflowRecord, Judged, Store, Uploaded

__all__ = [
    "Controller",
    "DropFolder",
    "Explaining",
    "Explanation",
    "Leading",
    "LeadsAlone",
    "Reading",
    "Registry",
    "Services",
    "Settings",
    "Snapshots",
    "TranslatorInfo",
    "Verifications",
]


class TranslatorInfo(Protocol):
    """Description of one translator that a document may name."""

    @property
    def name(self) -> str:
        """The name in a document."""
        ...

    @property
    def package(self) -> str:
        """The distribution that contains it."""
        ...

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        ...

    @property
    def parameters(self) -> Mapping[str, str]:
        """Parameter name to its declaration."""
        ...


class Registry(Protocol):
    """The allow-listed translators."""

    def names(self) -> tuple[str, ...]:
        """Return the names that a document may use, sorted."""
        ...

    def describe(self, name: str) -> TranslatorInfo:
        """Return the description of one; raises `DefinitionError` if it cannot be loaded."""
        ...

    def parse_document(
        self, text: str, content_type: str
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Parse a document; return it with the paths of keys that stood twice."""
        ...


class Explanation(Protocol):
    """A dataflow's physical plan, and drawings of its graph."""

    @property
    def plan(self) -> Plan:
        """The stages that run together, and the path of the records."""
        ...

    @property
    def picture(self) -> str:
        """The graph for a terminal."""
        ...

    @property
    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        ...

    @property
    def dot(self) -> str:
        """The graph in Graphviz' language."""
        ...


class Amendments(Protocol):
    """Roll-backs and corrections: what an operator changes about a dataflow's past."""

    def plan_roll_back(self, name: str, to: str, *, drop_later: bool = False) -> RollbackPlan:
        """Return what `roll_back` would do; changes nothing."""
        ...

    def roll_back(
        self,
        name: str,
        to: str,
        *,
        who: str,
        why: str,
        drop_later: bool = False,
        pause: bool = False,
        request: str = "",
    ) -> Generation:
        """Take a dataflow back to an earlier moment; durable when it returns."""
        ...

    def moments(self, name: str, *, limit: int) -> Sequence[Moment]:
        """Return the newest moments to which a dataflow can be rolled back."""
        ...

    def rollbacks(self, name: str) -> Sequence[Generation]:
        """Return the roll-backs of a dataflow, oldest first; raises `NotFoundError`."""
        ...

    def correct(
        self,
        name: str,
        stage: str,
        state: str,
        corrections: Sequence[Correction],
        *,
        who: str,
        why: str,
        request: str = "",
    ) -> Corrected:
        """Correct records of a state as an epoch of its own; published when it returns."""
        ...

    def corrections(self, name: str) -> Sequence[Corrected]:
        """Return the corrections of a dataflow, oldest first; raises `NotFoundError`."""
        ...


class Explaining(Protocol):
    """Explains what a dataflow does, and what its runs did."""

    def plan(self, name: str) -> Explanation:
        """Return the physical plan of a dataflow; raises `NotFoundError`."""
        ...

    def left(self, name: str) -> Mapping[str, str]:
        """Return stage -> the work that it still has if nothing else arrives."""
        ...

    def run(self, run_id: str) -> Account:
        """Explain why a run ran, on what, and what it produced; raises `NotFoundError`."""
        ...


class Snapshots(Protocol):
    """Finds table versions that belong together."""

    def take(
        self,
        name: str,
        *,
        epoch: int | None = None,
        stage: str | None = None,
        at_ms: int | None = None,
    ) -> Snapshot:
        """Return versions of all tables of a dataflow; raises `NotFoundError`."""
        ...


class Reading(Protocol):
    """Reads published records; see `controller.loop.reading.reader.Reading`."""

    def look_up(
        self,
        dataflow: str,
        stage: str,
        state: str,
        key: Mapping[str, Any],
        as_of: AsOf | None = None,
    ) -> list[dict[str, Any]]:
        """Return the published state records of one key."""
        ...

    def page_state(
        self,
        dataflow: str,
        stage: str,
        state: str,
        cursor: str | None,
        limit: int,
        as_of: AsOf | None = None,
    ) -> tuple[Sequence[Mapping[str, Any]], str | None]:
        """Return at most `limit` records of a state and the cursor of the next page."""
        ...

    def read_flow(
        self, dataflow: str, flow: str, cursor: str | None, limit: int, as_of: AsOf | None = None
    ) -> tuple[Sequence[Mapping[str, Any]], str | None]:
        """Return at most `limit` records of a flow and the cursor of the next page."""
        ...


class Verifications(Protocol):
    """Recomputes dataflows and compares the results with their tables."""

    def start(self, name: str, request: Request) -> Verification:
        """Start one; returns at once; raises `NotFoundError`, `VerificationBusyError`."""
        ...

    def show(self, id_: str) -> Verification:
        """Return one verification; raises `NotFoundError`."""
        ...

    def all(self, name: str) -> list[Verification]:
        """Return the verifications of a dataflow, newest first; raises `NotFoundError`."""
        ...

    def cancel(self, id_: str) -> Verification:
        """Ask a verification to end; returns at once; raises `NotFoundError`."""
        ...


class Scrubs(Protocol):
    """Reads all files of a dataflow and finds damaged ones."""

    def start(self, name: str) -> Scrub:
        """Start a scrub; returns at once; raises `NotFoundError`."""
        ...

    def show(self, name: str) -> Scrub:
        """Return the progress or the result of the last scrub; raises `NotFoundError`."""
        ...

    def last(self, name: str) -> Scrub:
        """Return the same as `show`, for a dataflow that is known to exist."""
        ...


class Controller(Protocol):
    """The service's loop, as far as a client can steer it."""

    @property
    def explaining(self) -> Explaining:
        """Its plans and accounts."""
        ...

    @property
    def reading(self) -> Reading:
        """Records of its dataflows' flows and states."""
        ...

    @property
    def snapshots(self) -> Snapshots:
        """Versions of its dataflows' tables."""
        ...

    @property
    def verifications(self) -> Verifications:
        """Verifications of its dataflows."""
        ...

    @property
    def scrubs(self) -> Scrubs:
        """Scrubs of its dataflows."""
        ...

    @property
    def registry(self) -> Registry:
        """The translators that a document may name."""
        ...

    @property
    def amendments(self) -> Amendments:
        """What a client can change about the past."""
        ...

    @property
    def housekeeping(self) -> Housekeeping:
        """The garbage collection."""
        ...

    @property
    def lane_counts(self) -> Sequence[LaneCount]:
        """Committed runs since the controller's start, by dataflow and lane."""
        ...

    @property
    def problem(self) -> str:
        """Why the controller starts no more runs; empty while it leads."""
        ...

    def register(
        self, document: Mapping[str, Any], duplicates: Iterable[str] = ()
    ) -> DataflowRecord:
        """Register a dataflow; durable when it returns."""
        ...

    def change(
        self,
        document: Mapping[str, Any],
        duplicates: Iterable[str] = (),
        *,
        choice: Choice = NO_CHOICE,
        expected_version: int | None = None,
        dry_run: bool = False,
    ) -> Changed:
        """Replace a dataflow by a new version; durable when it returns."""
        ...

    def validate(self, document: Mapping[str, Any], duplicates: Iterable[str] = ()) -> Dataflow:
        """Check a document as `register` does; changes nothing."""
        ...

    def dataflow(self, name: str) -> Dataflow:
        """Return a registered dataflow, compiled; raises `NotFoundError`."""
        ...

    def pause(self, name: str) -> None:
        """Start no more runs of a dataflow; persistent and idempotent."""
        ...

    def resume(self, name: str) -> None:
        """Start runs of a dataflow again and clear the failures of its stages; idempotent."""
        ...

    def pause_stage(self, dataflow: str, stage: str) -> None:
        """Start no more runs of one stage; idempotent; raises `NotFoundError`."""
        ...

    def retry(self, dataflow: str, stage: str) -> None:
        """Give a stage that paused itself one more try; raises `NotFoundError`."""
        ...

    def delete(self, name: str, purge: bool = False) -> None:
        """Delete a dataflow; with `purge`, remove its folder too."""
        ...

    def members(self, name: str) -> Mapping[str, tuple[str, ...]]:
        """Return the stages that run together: the leader -> all of them, itself first.

        Raises `NotFoundError`, or `DataflowInvalidError` if a package is no longer installed.
        """
        ...

    def waiting(self, name: str) -> Mapping[str, str]:
        """Return leading stage -> why it did not start at the last decision, in words."""
        ...

    def troubles(self, name: str | None = None) -> Sequence[Trouble]:
        """Return unexpected failures of one dataflow or of all; the work is tried again."""
        ...

    def waits(self, name: str) -> Mapping[str, Wait]:
        """Return leading stage -> why it did not start at the last decision."""
        ...

    def cancel(self, run: str) -> None:
        """Ask a run to stop; returns at once."""
        ...

    def close(self, dataflow: str, flow: str, *, key: str | None = None) -> Punctuation:
        """Close the open frames of a flow; durable when it returns."""
        ...

    def framed_inputs(self, dataflow: str, flow: str) -> list[str]:
        """Return the inputs that frame a flow, as `stage.input`."""
        ...


class DropFolder(Protocol):
    """The drop folders, where files arrive."""

    def troubled(self, dataflow: str) -> Sequence[str]:
        """Return, for an operator, what is wrong with some sources of a dataflow now."""
        ...

    def look(self, record: DataflowRecord, dataflow: Dataflow) -> Sequence[Mapping[str, Any]]:
        """Return the current contents of each source's folder, as in `SourceFolderOut`."""
        ...

    def clean(
        self, record: DataflowRecord, dataflow: Dataflow, *, dry_run: bool = False
    ) -> dict[str, Expiry]:
        """Remove finished files that are old enough; return, per source, what is removed."""
        ...

    def upload(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        source: str,
        name: str,
        stream: BinaryIO,
        key: str = "",
    ) -> Uploaded:
        """Store a file from a stream; durable when it returns."""
        ...

    def foresee(
        self, record: DataflowRecord, dataflow: Dataflow, source: str, name: str, sha256: str
    ) -> Judged:
        """Return what the outcome of a file would be if it came now; raises `NotFoundError`."""
        ...


class Housekeeping(Protocol):
    """Garbage collection."""

    def look(self, name: str) -> Garbage:
        """Return what a collection would remove from a dataflow now; raises `NotFoundError`."""
        ...

    def collect(self, name: str) -> Garbage:
        """Collect a dataflow now; return what was removed; raises `NotFoundError`."""
        ...


class Leading(Protocol):
    """Tells which instance leads."""

    def standing(self) -> Standing:
        """Return the role of this instance; answers at once."""
        ...


class LeadsAlone:
    """A `Leading` for a single instance, which always leads."""

    def standing(self) -> Standing:
        """Return that it leads."""
        return Standing(Role.LEADS, 0, "")


class Settings(Protocol):
    """The settings that the API reads."""

    @property
    def host(self) -> str:
        """The address that the service listens on."""
        ...

    @property
    def body_bytes_max(self) -> int:
        """Largest body of a request other than an upload, in bytes."""
        ...

    @property
    def upload_bytes_max(self) -> int:
        """Largest upload, in bytes."""
        ...

    @property
    def uploads_max(self) -> int:
        """Most uploads that are received at a time."""
        ...

    @property
    def client_idle_seconds(self) -> float:
        """How long a client may send nothing in the middle of a body."""
        ...

    @property
    def input_retention(self) -> FlowRetention:
        """How long inputs stay for sources whose dataflow does not say."""
        ...

    @property
    def page_size_default(self) -> int:
        """Items of a page when the client does not say."""
        ...

    @property
    def page_size_max(self) -> int:
        """Most items of a page that a client may ask for."""
        ...

    def effective(self) -> dict[str, Any]:
        """Return every setting as a JSON value, with secrets masked."""
        ...

    def ensure_token(self) -> str:
        """Return the bearer token; creates it at first start."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that the routes use, in one value."""

    controller: Controller
    store: Store
    drop_folder: DropFolder
    settings: Settings
    leading: Leading
