"""The drop folder: every file that appears is accepted once, or visibly quarantined.

Order of what happens to a file, each step durable before the next:

    (1) listed twice, unchanged         `listing`
    (2) claim recorded in the store     status `claiming`: the intention
    (3) renamed to claimed/<id>         nobody else writes there; status `claimed`
    (4) read once, increment written    `intake`
    (5) source log entry put            the point of acceptance
    (6) store: accepted, enqueued       one transaction
    (7) renamed to finished/<id>-name

After a crash anywhere, the next pass looks in both places and goes on: a claim
without its file in `claimed` is used again for the file that still lies in
`incoming`; a log entry without its store row is indexed; a settled file that lies
in `claimed` is moved on; a sealed marker's close is asked for again under the same key.
A recovery also tells a store that was lost what lies in quarantine.
Identity is the content (SHA-256), never a name or a time.

Guaranteed: one pass per source at a time in this object; a failing source does not
stop others; on a full disk the file stays claimed and is tried again, and later
files wait behind it. Not guaranteed: order between files of different listings
other than that of their claims; anything about files outside `incoming`.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.files import Files
from cbp.errors import FlowUnframedError, LogConflictError, NotFoundError, OperatingError
from cbp.model.dataflow import Dataflow
from cbp.model.retention import Expiry, FlowRetention
from controller.ingest.claims import Claims, PathLocks, upload_name
from controller.ingest.content import never
from controller.ingest.errors import IntakeStoppedError, UploadTooLargeError, device_errors
from controller.ingest.finished import plan_finished, remove_finished
from controller.ingest.folders import SourcePlace, evidence, kept_name, move, reason_path
from controller.ingest.formats import check_options
from controller.ingest.intake import Intake, Outcome
from controller.ingest.limits import IngestLimits
from controller.ingest.listing import CLOSE_NAME, Candidate, Listed, Settler, sealed_close_name
from controller.ingest.manifest import Manifest, sealed_name
from controller.ingest.quarantine import restore_quarantined
from controller.ingest.source_log import SEALED_ENTRIES, SourceLog
from controller.store.base import ClaimRecord, DataflowRecord, Store

__all__ = ["DropFolder", "ScanReport"]

_UPLOAD_BYTES = 1 << 20

SEVEN_DAYS = FlowRetention(7 * 86_400.0)


@dataclass(frozen=True, slots=True)
class ScanReport:
    """What one pass did.

    Attributes:
        accepted, quarantined, duplicates: Files that were settled.
        waiting: Files that are not settled yet; look again after the settle time.
        ignored: Names in `incoming` that are no regular files.
        closed: Markers that closed the open frames of a source.
        failures: What stopped the pass of a source, which the next pass tries again.
    """

    accepted: int = 0
    quarantined: int = 0
    duplicates: int = 0
    waiting: int = 0
    ignored: int = 0
    closed: int = 0
    failures: tuple[OperatingError, ...] = ()

    def __add__(self, other: ScanReport) -> ScanReport:
        return ScanReport(
            self.accepted + other.accepted,
            self.quarantined + other.quarantined,
            self.duplicates + other.duplicates,
            self.waiting + other.waiting,
            self.ignored + other.ignored,
            self.closed + other.closed,
            self.failures + other.failures,
        )

    def count(self, outcome: Outcome) -> ScanReport:
        """Return the report with one more file of this outcome."""
        return self + ScanReport(
            accepted=outcome == "accepted",
            quarantined=outcome == "quarantined",
            duplicates=outcome == "duplicate",
        )


class DropFolder:
    """The drop folders of all dataflows; methods may be called from several threads.

    Args:
        clock: Returns an aware time in UTC.
        drop_root: Holds `<dataflow>/<source>/incoming` and so on.
        on_accept: Called after each increment that became visible to its consumers.
        on_close: Closes the open frames of a source, `(dataflow, source, key)`, once per key;
            durable when it returns. None: no marker is taken.
        settle_seconds: How long a file must be unchanged; see `listing`.
        keep: How long files stay that were taken in.
        new_id: Returns a unique `[a-z0-9]+` that sorts by time.
    """

    def __init__(
        self,
        *,
        store: Store,
        files: Files,
        clock: Callable[[], datetime],
        drop_root: Path,
        on_accept: Callable[[], None],
        on_close: Callable[[str, str, str], object] | None = None,
        settle_seconds: float = 1.0,
        limits: IngestLimits | None = None,
        keep: FlowRetention = SEVEN_DAYS,
        faults: Faults = NO_FAULTS,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._store, self._files, self._clock, self._faults = store, files, clock, faults
        self._root, self._on_accept, self._settle_seconds = drop_root, on_accept, settle_seconds
        self._limits = limits or IngestLimits()
        self._on_close, self._keep = on_close, keep
        self._new_id = new_id or self._timed_id
        self._intake = Intake(
            store=store, files=files, clock=clock, limits=self._limits, faults=faults
        )
        self._claims = Claims(
            store=store, files=files, clock=clock, limits=self._limits, faults=faults
        )
        self._passing = PathLocks()
        self._settlers: dict[Path, Settler] = {}
        self._uploading: set[str] = set()

    def prepare(self, record: DataflowRecord, dataflow: Dataflow) -> None:
        """Make the folders of a dataflow's sources and check that they can be used.

        Raises:
            DefinitionError: A source has an option that its format lacks.
            DropFolderError: The folders are on several devices, or cannot be written.
            DiskFullError: So here.
        """
        for place in self._places(record, dataflow):
            check_options(place.source)
            place.make(self._files)

    def scan(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        *,
        stopping: Callable[[], bool] = never,
    ) -> ScanReport:
        """Make one pass over the sources: finish open claims, then claim what is eligible.

        Blocks while files are read. Returns at the latest after `claims_per_scan` files
        of each source.

        Args:
            record: The dataflow as registered.
            dataflow: The same, checked.
            stopping: Asked between files, and often while one is read, whether to leave off.

        Raises:
            LogConflictError: Another controller takes in files: stop.
            IntakeStoppedError: `stopping` said so; the next pass goes on.
        """
        return self._pass_over(record, dataflow, stopping, reading=True)

    def recover(self, record: DataflowRecord, dataflow: Dataflow) -> ScanReport:
        """Find what a crash left: log entries, open claims, what lies in quarantine.

        Log entries are told the store, and claimed files brought where the next `scan` takes
        them in. None is read: a take-over does not wait for them. Also removes temporary files;
        no other process may work on this drop folder. Idempotent; claims nothing new.

        Raises:
            LogConflictError: As for `scan`.
        """
        for place in self._places(record, dataflow):
            self._files.remove_temporaries(place.increments)
            self._files.remove_temporaries(str(place.quarantine))
            self._files.remove_temporaries(f"{place.increments}/_log")
        report = self._pass_over(record, dataflow, never, reading=False)
        for place in self._places(record, dataflow):
            self._claims.remove_unclaimed_uploads(place, self._uploading)
        return report

    def clean(
        self, record: DataflowRecord, dataflow: Dataflow, *, dry_run: bool = False
    ) -> dict[str, Expiry]:
        """Remove files that were taken in long enough ago; return what goes of each source.

        Also puts old entries of the sources' logs together. May be interrupted and repeated.
        """
        plans: dict[str, Expiry] = {}
        for place in self._places(record, dataflow):
            opened = self._store.open_claims(place.dataflow, place.name)
            plans[place.name] = plan_finished(
                place,
                self._files,
                open_claims={claim.id for claim in opened},
                retention=self._keep,
                now=self._clock(),
            )
            if not dry_run:
                remove_finished(place, self._files, plans[place.name])
                # The last ones may still be put again, by a claim that is not settled.
                newest = self._store.next_index(place.dataflow, place.name)
                SourceLog(place.folder, place.name, self._files).seal(newest - SEALED_ENTRIES)
        return plans

    def upload(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        source: str,
        name: str,
        stream: BinaryIO,
    ) -> ClaimRecord:
        """Store a file from a stream and claim it; durable once it returns.

        The next `scan` takes it in; its claim then says what became of it.

        Args:
            record: The dataflow as registered.
            dataflow: The same, checked.
            source: Name of one of its sources.
            name: The client's name for the file, kept as evidence only.
            stream: Is read to its end.

        Raises:
            NotFoundError: The dataflow has no such source.
            UploadTooLargeError: Nothing is kept.
            DiskFullError: Nothing is kept.
        """
        node = dataflow.sources.get(source)
        if node is None:
            kind = "source"
            raise NotFoundError(kind, f"{dataflow.name}.{source}")
        place = SourcePlace.of(record, dataflow, node, self._root)
        identity = self._new_id()
        part = place.incoming / upload_name(identity)
        self._uploading.add(identity)
        try:
            with device_errors(str(part)):
                size = self._receive(place, part, stream)
                return self._claims.make(
                    place, part, identity=identity, path=evidence(name), size=size
                )
        except Exception:
            part.unlink(missing_ok=True)
            raise
        finally:
            self._uploading.discard(identity)

    def watch(self, stop: threading.Event, wake: Callable[[], None]) -> None:
        """Call `wake` when something changes below the drop root, until `stop` is set.

        A hint only: nothing is seen on network file systems. Blocks; run it in a thread.
        """
        from watchfiles import watch  # costs 50 ms, and only a service watches

        self._files.make_dirs(str(self._root))
        for changes in watch(
            self._root, watch_filter=None, stop_event=stop, debounce=100, step=20, rust_timeout=500
        ):
            if any(f"{os.sep}incoming{os.sep}" in path for _, path in changes):
                wake()

    def _places(self, record: DataflowRecord, dataflow: Dataflow) -> Iterator[SourcePlace]:
        for source in dataflow.sources.values():
            yield SourcePlace.of(record, dataflow, source, self._root)

    def _timed_id(self) -> str:
        return f"{int(self._clock().timestamp() * 1000):012x}{secrets.token_hex(5)}"

    def _pass_over(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        stopping: Callable[[], bool],
        *,
        reading: bool,
    ) -> ScanReport:
        report = ScanReport()
        for place in self._places(record, dataflow):
            tally = _Tally(stopping)
            with self._passing.hold(place.root):
                try:
                    with device_errors(str(place.root)):
                        self._pass_source(place, tally, reading=reading)
                except (LogConflictError, IntakeStoppedError):
                    raise
                except OperatingError as error:
                    tally.report += ScanReport(failures=(error,))
            report += tally.report
        return report

    def _pass_source(self, place: SourcePlace, tally: _Tally, *, reading: bool) -> None:
        for _ in range(self._intake.replay(place)):
            self._settled(tally, "accepted")
        opened = self._claims.open(place)
        if reading:  # before it is listed: what goes back to `incoming` is claimed anew
            for identity, name in opened.strays().items():
                self._claims.return_stray(place, identity, place.claimed / name, tally.stopping)
        listed = self._settler(place).look()
        promised = _promised(listed.sealed)
        for claim in opened.claims:
            path = self._claims.locate(place, claim, opened, listed)
            if path is not None and reading:
                self._take(place, claim, path, promised, tally)
        if reading:
            for identity in listed.closes:
                self._close(place, identity, tally)
            self._claim_listed(place, listed, opened.reusable, tally)
        else:
            restore_quarantined(place, self._store, self._faults)

    def _take(
        self,
        place: SourcePlace,
        claim: ClaimRecord,
        path: Path,
        promised: Mapping[str, str],
        tally: _Tally,
    ) -> None:
        sha256 = promised.get(claim.path, "")
        outcome = self._intake.take(place, claim, path, sha256, tally.stopping)
        self._settled(tally, outcome)

    def _settled(self, tally: _Tally, outcome: Outcome) -> None:
        tally.report = tally.report.count(outcome)
        if outcome == "accepted":
            self._on_accept()

    def _claim_listed(
        self,
        place: SourcePlace,
        listed: Listed,
        reusable: dict[str, ClaimRecord],
        tally: _Tally,
    ) -> None:
        eligible = listed.eligible[: self._limits.claims_per_scan]
        waiting = listed.waiting + len(listed.eligible) - len(eligible)
        tally.report += ScanReport(waiting=waiting, ignored=len(listed.ignored))
        sealed = list(listed.sealed)
        if listed.to_seal is not None:
            target = place.incoming / sealed_name(self._new_id())
            move(listed.to_seal.path, target, self._files, self._faults)
            sealed.append(replace(listed.to_seal, path=target))
        promised = _promised(sealed)
        for candidate in eligible:
            if candidate.name == CLOSE_NAME:
                identity = self._new_id()
                target = place.incoming / sealed_close_name(identity)
                move(place.incoming / CLOSE_NAME, target, self._files, self._faults)
                self._close(place, identity, tally)
                continue
            if tally.stopping():
                raise IntakeStoppedError(str(place.incoming / candidate.name))
            taken = self._claim(place, candidate, reusable.get(candidate.path))
            if taken is not None:
                path = place.claimed / place.claimed_name(taken.id)
                self._take(place, taken, path, promised, tally)
        for manifest in sealed:
            if not any(os.path.lexists(place.incoming / file.name) for file in manifest.files):
                kept = kept_name(self._new_id(), "_MANIFEST.json")
                move(manifest.path, place.finished / kept, self._files, self._faults)

    def _close(self, place: SourcePlace, identity: str, tally: _Tally) -> None:
        """Record the close that a sealed marker asks for, then move the marker away."""
        marker = place.incoming / sealed_close_name(identity)
        kept = kept_name(identity, CLOSE_NAME)
        try:
            if self._on_close is None:
                raise FlowUnframedError(place.name, ())
            self._on_close(place.dataflow, place.name, identity)
        except FlowUnframedError as error:
            target = place.quarantine / kept
            data = json.dumps(error.as_dict(), ensure_ascii=True, indent=2).encode()
            self._files.write_durable(str(reason_path(target)), data)
            move(marker, target, self._files, self._faults)
            tally.report += ScanReport(quarantined=1)
            return
        move(marker, place.finished / kept, self._files, self._faults)
        tally.report += ScanReport(closed=1)

    def _claim(
        self, place: SourcePlace, candidate: Candidate, earlier: ClaimRecord | None
    ) -> ClaimRecord | None:
        """Claim a file; `None` when its producer took it away first."""
        source = place.incoming / candidate.name
        if not os.path.lexists(source):
            return None
        try:
            if earlier is not None:
                return self._claims.reuse(place, earlier, candidate)
            return self._claims.make(
                place,
                source,
                identity=self._new_id(),
                path=candidate.path,
                size=candidate.bytes,
            )
        except FileNotFoundError:
            return None

    def _receive(self, place: SourcePlace, part: Path, stream: BinaryIO) -> int:
        size = 0
        with open(part, "xb") as file:
            while chunk := stream.read(_UPLOAD_BYTES):
                size += len(chunk)
                if size > self._limits.file_bytes_max:
                    raise UploadTooLargeError(place.name, self._limits.file_bytes_max)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        self._files.sync_dir(str(place.incoming))
        return size

    def _settler(self, place: SourcePlace) -> Settler:
        if place.root not in self._settlers:
            self._settlers[place.root] = Settler(
                place.incoming, clock=self._clock, settle_seconds=self._settle_seconds
            )
        return self._settlers[place.root]


class _Tally:
    """The report of one source while its pass runs."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self.report, self.stopping = ScanReport(), stopping


def _promised(manifests: Iterable[Manifest]) -> dict[str, str]:
    """Return the SHA-256 that manifests promise, by the evidence of the file's name."""
    return {evidence(file.name): file.sha256 for m in manifests for file in m.files}
