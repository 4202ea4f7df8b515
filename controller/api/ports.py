"""What the API needs from the rest of the service, and nothing more.

The API constructs none of these: it is handed them. Every method may block, so
they are called from worker threads, never from the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from cbp.model.account import Account
from cbp.model.change import NO_CHOICE, Choice
from cbp.model.correction import Correction
from cbp.model.dataflow import Dataflow
from cbp.model.explain import Plan
from cbp.model.generation import Generation
from cbp.model.lease import Role, Standing
from cbp.model.punctuation import Punctuation
from cbp.model.retention import Expiry, FlowRetention
from cbp.model.snapshot import Snapshot
from cbp.model.verification import Request, Verification
from cbp.model.waiting import Wait
from controller.loop.change import Changed
from controller.loop.housekeeping import Garbage
from controller.loop.notes import Corrected
from controller.loop.reading import AsOf
from controller.loop.rollback import RollbackPlan
from controller.store.base import ClaimRecord, DataflowRecord, Store

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
    """What is known of one translator that a document may name."""

    @property
    def name(self) -> str:
        """The name in a document."""
        ...

    @property
    def package(self) -> str:
        """The distribution that brings it."""
        ...

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        ...

    @property
    def parameters(self) -> Mapping[str, str]:
        """Parameter name to how it is declared."""
        ...


class Registry(Protocol):
    """The allow-listed translators."""

    def names(self) -> tuple[str, ...]:
        """Return the names that a document may use, sorted."""
        ...

    def describe(self, name: str) -> TranslatorInfo:
        """Return what is known of one; raises `DefinitionError` when it cannot be loaded."""
        ...

    def parse_document(
        self, text: str, content_type: str
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Return a document and the paths of pairs that stood twice."""
        ...


class Explanation(Protocol):
    """A dataflow's physical plan and its graph, drawn."""

    @property
    def plan(self) -> Plan:
        """What runs together, and which way records take."""
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
    """What an operator changes about the past of a dataflow."""

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
        """Take a dataflow back to where it stood; durable once it returns."""
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
        """Correct records of a state as an epoch of its own; published once it returns."""
        ...

    def corrections(self, name: str) -> Sequence[Corrected]:
        """Return the corrections of a dataflow, oldest first; raises `NotFoundError`."""
        ...


class Explaining(Protocol):
    """Tells what a dataflow does, and what its runs did."""

    def plan(self, name: str) -> Explanation:
        """Return the physical plan of a dataflow; raises `NotFoundError`."""
        ...

    def left(self, name: str) -> Mapping[str, str]:
        """Return stage -> what it has left to do until something arrives."""
        ...

    def run(self, run_id: str) -> Account:
        """Tell why a run ran, on what, and what it produced; raises `NotFoundError`."""
        ...


class Snapshots(Protocol):
    """Finds versions that belong together."""

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
    """Reads what is published; see `controller.loop.reading.Reading`."""

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
    """Recomputes dataflows and compares their tables."""

    def start(self, name: str, request: Request) -> Verification:
        """Begin one; returns at once; raises `NotFoundError`, `VerificationBusyError`."""
        ...

    def show(self, id_: str) -> Verification:
        """Return one; raises `NotFoundError`."""
        ...

    def all(self, name: str) -> list[Verification]:
        """Return those of a dataflow, newest first; raises `NotFoundError`."""
        ...

    def cancel(self, id_: str) -> Verification:
        """Ask one to end; returns at once; raises `NotFoundError`."""
        ...


class Controller(Protocol):
    """The service's loop, as far as a client may steer it."""

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
        """Those of its dataflows."""
        ...

    @property
    def registry(self) -> Registry:
        """The translators that a document may name."""
        ...

    @property
    def amendments(self) -> Amendments:
        """What a client may change about the past."""
        ...

    @property
    def housekeeping(self) -> Housekeeping:
        """What removes what nobody needs."""
        ...

    @property
    def problem(self) -> str:
        """Why it starts nothing any more; empty while it leads."""
        ...

    def register(
        self, document: Mapping[str, Any], duplicates: Iterable[str] = ()
    ) -> DataflowRecord:
        """Register a dataflow; durable once it returns."""
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
        """Let a new version of a dataflow take over; durable once it returns."""
        ...

    def validate(self, document: Mapping[str, Any], duplicates: Iterable[str] = ()) -> Dataflow:
        """Check a document as `register` does, and change nothing."""
        ...

    def dataflow(self, name: str) -> Dataflow:
        """Return a registered dataflow, compiled; raises `NotFoundError`."""
        ...

    def pause(self, name: str) -> None:
        """Start no more runs of a dataflow; persistent and idempotent."""
        ...

    def resume(self, name: str) -> None:
        """Run a dataflow again and clear the failures of its stages; idempotent."""
        ...

    def pause_stage(self, dataflow: str, stage: str) -> None:
        """Start no more runs of one stage; idempotent; raises `NotFoundError`."""
        ...

    def retry(self, dataflow: str, stage: str) -> None:
        """Give a stage that paused itself one more try; raises `NotFoundError`."""
        ...

    def delete(self, name: str, purge: bool = False) -> None:
        """Forget a dataflow; with `purge`, remove its folder too."""
        ...

    def members(self, name: str) -> Mapping[str, tuple[str, ...]]:
        """Return the stages that run together: the leader -> all of them, itself first.

        Raises `NotFoundError`, or `DataflowInvalidError` for what is no longer installed.
        """
        ...

    def waiting(self, name: str) -> Mapping[str, str]:
        """Return leading stage -> why it did not start at the last decision, in words."""
        ...

    def waits(self, name: str) -> Mapping[str, Wait]:
        """Return leading stage -> why it did not start at the last decision."""
        ...

    def cancel(self, run: str) -> None:
        """Ask a run to stop; returns at once."""
        ...

    def close(self, dataflow: str, flow: str, *, key: str | None = None) -> Punctuation:
        """Close the open frames of a flow; durable once it returns."""
        ...

    def framed_inputs(self, dataflow: str, flow: str) -> list[str]:
        """Return the inputs that frame a flow, as `stage.input`."""
        ...


class DropFolder(Protocol):
    """Where files arrive."""

    def clean(
        self, record: DataflowRecord, dataflow: Dataflow, *, dry_run: bool = False
    ) -> dict[str, Expiry]:
        """Remove files that were taken in long enough ago; return what goes of each source."""
        ...

    def upload(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        source: str,
        name: str,
        stream: BinaryIO,
    ) -> ClaimRecord:
        """Take a file from a stream; durable once it returns."""
        ...


class Housekeeping(Protocol):
    """What removes what nobody needs."""

    def look(self, name: str) -> Garbage:
        """Return what of a dataflow would go now; raises `NotFoundError`."""
        ...

    def collect(self, name: str) -> Garbage:
        """Collect a dataflow now; return what went; raises `NotFoundError`."""
        ...


class Leading(Protocol):
    """Who leads."""

    def standing(self) -> Standing:
        """Return how this instance stands; answers at once."""
        ...


class LeadsAlone:
    """There is one instance, and it leads."""

    def standing(self) -> Standing:
        """Return that it leads."""
        return Standing(Role.LEADS, 0, "")


class Settings(Protocol):
    """The settings that the API reads."""

    @property
    def host(self) -> str:
        """The address it listens on."""
        ...

    @property
    def body_bytes_max(self) -> int:
        """Largest body of a request but an upload, in bytes."""
        ...

    @property
    def upload_bytes_max(self) -> int:
        """Largest upload, in bytes."""
        ...

    @property
    def uploads_max(self) -> int:
        """Uploads that are received at a time."""
        ...

    @property
    def client_idle_seconds(self) -> float:
        """For how long a client may send nothing in the middle of a body."""
        ...

    @property
    def input_retention(self) -> FlowRetention:
        """How long inputs stay of sources whose dataflow says nothing."""
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
        """Return the bearer token; makes it at first start."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that the routes reach, in one value."""

    controller: Controller
    store: Store
    drop_folder: DropFolder
    settings: Settings
    leading: Leading
