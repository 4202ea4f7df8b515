"""The drop folder: every file that appears is accepted once, or visibly quarantined.

Steps for a file; each step is durable before the next:

    (1) listed twice, unchanged         `listing`
    (2) claim recorded in the store     status `claiming`: the intention
    (3) renamed to claimed/<id>         nobody else writes there; status `claimed`
    (4) read once, increment written    `intake`
    (5) source log entry put            the point of acceptance
    (6) store: accepted, enqueued       one transaction
    (7) renamed to finished/<id>-name

Files are read one by one. All other steps run for a group of small files at once, since each
costs one sync of the disk or more.

After a crash at any point, the next pass compares the folders with the store and continues:
- A claim without its file in `claimed` is used again for the file that still lies in `incoming`.
- A log entry without its store row is indexed.
- A settled file that lies in `claimed` is moved on.
- The close of a sealed marker is requested again under the same key.

If the store was lost, a recovery also restores the claims of quarantined files.
`identity` decides whether a file is new or a repetition.

Guaranteed:
- One pass per source at a time in this object.
- A failure of one file affects only that file, and a failure of one source affects only that
  source (`troubles`).
- On a full disk the file stays claimed and is tried again; later files wait behind it.

Not guaranteed: order between files of different listings, other than that of their claims;
anything about files outside `incoming`.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import structlog

from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Files
from cbp.errors import FlowUnframedError, LogConflictError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.retention import Expiry, FlowRetention
from controller.ingest.claims import Claims, PathLocks
from controller.ingest.content import never
from controller.ingest.errors import IntakeStoppedError, device_errors
from controller.ingest.finished import plan_finished, remove_finished
from controller.ingest.folder_check import (
    prepare_source,
    remove_temporaries,
    require_folders,
    require_real,
)
from controller.ingest.folder_report import old_hint, report_folder
from controller.ingest.folders import SourcePlace, evidence, kept_name, move, reason_path
from controller.ingest.groups import groups
from controller.ingest.growth import Growth, Stamp
from controller.ingest.identity import Identities
from controller.ingest.intake import Group, Intake, Outcome
from controller.ingest.limits import IngestLimits
from controller.ingest.listing import CLOSE_NAME, Candidate, Listed, Settler, sealed_close_name
from controller.ingest.manifest import promised_digests, sealed_name
from controller.ingest.quarantine_restore import restore_quarantined
from controller.ingest.reading import FileReader, read_file
from controller.ingest.scan_report import ScanReport
from controller.ingest.source_log import SourceLog
from controller.ingest.troubles import SourceTroubles
from controller.ingest.uploads import Uploads
from controller.ingest.vanished_files import ASKED_MAX
from controller.store.base import ClaimRecord, DataflowRecord, Judged, Store, Uploaded

__all__ = ["DropFolder"]

_log = structlog.get_logger(__name__)

SEVEN_DAYS = FlowRetention(7 * 86_400.0)

SETTLE_WITHIN = timedelta(seconds=1)
"""No file that was read waits longer for those that are settled with it."""


class DropFolder:
    """The drop folders of all dataflows; methods may be called from several threads.

    Args:
        clock: Returns an aware time in UTC.
        drop_root: Holds `<dataflow>/<source>/incoming` and so on.
        on_accept: Called after increments became visible to their consumers.
        on_close: Closes the open frames of a source, `(dataflow, source, key)`, once per key. The
            close is durable when it returns. None: close markers are not processed.
        settle_seconds: How long a file must be unchanged; see `listing`.
        reader: Reads one file; by default in the calling thread, without time limits.
        keep: How long finished files stay.
        new_id: Returns a unique `[a-z0-9]+` that sorts by time.

    Attributes:
        troubles: Sources that currently take in nothing, by their folder.
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
        reader: FileReader = read_file,
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
            store=store,
            files=files,
            clock=clock,
            limits=self._limits,
            faults=faults,
            reader=reader,
        )
        self._claims = Claims(store=store, files=files, clock=clock, faults=faults)
        self._growth = Growth(store=store, files=files, clock=clock, faults=faults)
        self._passing, self.troubles = PathLocks(), SourceTroubles(clock)
        self._settlers: dict[Path, Settler] = {}
        self._warned: dict[Path, str] = {}
        # Sources whose recovery failed: a file of theirs could take a lost increment's number.
        self._unrecovered: set[Path] = set()
        self._identities = Identities(store)
        self._uploads = Uploads(
            store=store,
            files=files,
            claims=self._claims,
            intake=self._intake,
            identities=self._identities,
            limits=self._limits,
            clock=clock,
            new_id=self._new_id,
        )

    def prepare(self, record: DataflowRecord, dataflow: Dataflow) -> None:
        """Create the folders of a dataflow's sources and check that they can be used.

        Raises:
            DefinitionError: A source has an option that its format lacks.
            DropFolderError: The folders are on several devices, or cannot be written.
            DiskFullError: The disk of the folders is full.
        """
        for place in self._places(record, dataflow):
            prepare_source(place, self._files)

    def scan(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        *,
        stopping: Callable[[], bool] = never,
    ) -> ScanReport:
        """Make one pass over the sources: finish open claims, then claim eligible files.

        Blocks while files are read. Returns at the latest after `claims_per_scan` files
        of each source.

        Args:
            record: The dataflow as registered.
            dataflow: The same dataflow, checked.
            stopping: Called between files, and often during a read; returns whether to stop.

        Raises:
            LogConflictError: Another controller takes in files: this one must stop.
            IntakeStoppedError: `stopping` returned true; the next pass continues.
        """
        return self._pass_over(record, dataflow, stopping, reading=True)

    def recover(self, record: DataflowRecord, dataflow: Dataflow) -> ScanReport:
        """Repair what a crash left behind: log entries, open claims, quarantined files.

        Creates and checks the folders as `prepare` does; what is wrong with those of one source is
        shown at this source, and the others go on.

        Log entries are indexed in the store. Claimed files are moved to where the next `scan` takes
        them in. No file is read, so that a take-over does not wait for reading. Temporary files are
        removed; no other process may use this drop folder meanwhile. Idempotent; makes no new claim
        for files in `incoming`.

        Raises:
            LogConflictError: As for `scan`.
        """
        return self._pass_over(record, dataflow, never, reading=False)

    def clean(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        *,
        dry_run: bool = False,
        stopping: Callable[[], bool] = never,
    ) -> dict[str, Expiry]:
        """Remove finished files that are old enough; return, per source, what is removed.

        First compares the finished files with what was read (`growth`); `stopping` is called while
        a file is read again. Also seals old entries of the source logs. May be interrupted and
        repeated. A source that fails does not stop the others; its error is raised after them.
        """
        plans: dict[str, Expiry] = {}
        failures: list[Exception] = []
        for place in self._places(record, dataflow):
            try:
                plans[place.name] = self._clean_source(place, stopping, dry_run=dry_run)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return plans

    def _clean_source(
        self, place: SourcePlace, stopping: Callable[[], bool], *, dry_run: bool
    ) -> Expiry:
        require_real(place)
        if not dry_run:  # compared before anything is removed
            self._growth.look_at_all(place, stopping)
        opened = self._store.open_claims(place.dataflow, place.name)
        plan = plan_finished(
            place,
            open_claims={claim.id for claim in opened},
            retention=self._keep,
            now=self._clock(),
        )
        if not dry_run:
            remove_finished(place, self._files, plan)
            # The newest entries may be put again by a claim that is not settled.
            newest = self._store.next_index(place.dataflow, place.name)
            most = self._limits.sealed_entries
            SourceLog(place.folder, place.name, self._files).seal(newest - most, entries=most)
        return plan

    def upload(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        source: str,
        name: str,
        stream: BinaryIO,
        key: str = "",
    ) -> Uploaded:
        """Store a file from a stream and claim it; durable when it returns.

        The next `scan` takes the file in; its claim then has the outcome. A file whose content is
        already known is settled at once.

        Args:
            record: The dataflow as registered.
            dataflow: The same dataflow, checked.
            source: Name of one of its sources.
            name: The client's name for the file, kept as evidence only.
            stream: Is read to its end.
            key: Identifies the request; a request that was carried out is not repeated. `""`: no
                key.

        Raises:
            NotFoundError: The dataflow has no such source.
            UploadTooLargeError: Nothing is kept.
            DiskFullError: Nothing is kept.
        """
        return self._uploads.receive(self._place(record, dataflow, source), name, stream, key)

    def foresee(
        self, record: DataflowRecord, dataflow: Dataflow, source: str, name: str, sha256: str
    ) -> Judged:
        """Return what the outcome of a file would be if it came now; changes nothing.

        Raises:
            NotFoundError: The dataflow has no such source.
        """
        place = self._place(record, dataflow, source)
        return self._identities.foresee(place, evidence(name), sha256)[0]

    def _place(self, record: DataflowRecord, dataflow: Dataflow, source: str) -> SourcePlace:
        node = dataflow.sources.get(source)
        if node is None:
            raise NotFoundError(kind="source", name=f"{dataflow.name}.{source}")
        return SourcePlace.of(record, dataflow, node, self._root)

    def troubled(self, dataflow: str) -> list[str]:
        """Return, for an operator, what is wrong with sources of a dataflow now.

        Covers why a source takes in nothing, and acknowledged files that went away (`gone`).
        """
        folder = self._root / dataflow
        troubles = self.troubles.below(folder)
        warnings = [f"source {name}: {trouble.words}" for name, trouble in troubles.items()]
        return warnings + self._claims.gone.lost_below(folder, self._clock())

    def look(self, record: DataflowRecord, dataflow: Dataflow) -> list[Mapping[str, Any]]:
        """Return the current contents of each source's folder, as JSON values."""
        now = self._clock()
        return [
            report_folder(
                place,
                trouble=self.troubles.of(place.root),
                gone=self._claims.gone.of(place.root, now),
                now=now,
            ).to_json()
            for place in self._places(record, dataflow)
        ]

    def watch(self, stop: threading.Event, wake: Callable[[], None]) -> None:
        """Call `wake` when something changes below the drop root, until `stop` is set.

        A hint only: changes on network file systems are not seen. Blocks; run it in a thread.
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
            resting = self.troubles.resting(place.root) if reading else None
            if resting is not None:
                report += ScanReport(failures=(resting.error,))
                continue
            with self._passing.hold(place.root):
                self._attempt(place, tally, reading=reading)
            report += tally.report
        return report

    def _attempt(self, place: SourcePlace, tally: _Tally, *, reading: bool) -> None:
        """Make a pass over one source; a failure is recorded and does not affect other sources."""
        try:
            with device_errors(str(place.root)):
                self._pass_source(place, tally, reading=reading)
                if not reading:  # after the pass, which finds the parts that claims name
                    self._claims.remove_unclaimed_uploads(place, self._uploads.active)
        except (LogConflictError, IntakeStoppedError):
            raise
        except Exception as error:  # whatever failed: the source is tried again
            if not reading:
                self._unrecovered.add(place.root)
            wrapped = self.troubles.failed(place.root, place.name, error)
            tally.report += ScanReport(failures=(wrapped,))
        else:
            self._unrecovered.discard(place.root)
            self.troubles.works(place.root)

    def _pass_source(self, place: SourcePlace, tally: _Tally, *, reading: bool) -> None:
        checked = not reading or place.root in self._unrecovered
        if replayed := self._intake.replay(place, to_the_end=checked):
            tally.report += ScanReport(accepted=replayed)
            self._on_accept()
        # After the log was read: its entries are indexed also while a folder cannot be used.
        if reading:
            require_folders(place, self._files)
        else:
            prepare_source(place, self._files)
            remove_temporaries(place, self._files)
        opened = self._claims.open(place)
        # Before the listing: a copy that goes back to `incoming` gets a new claim.
        if reading and self._claims.settle_strays(place, opened):
            opened = self._claims.open(place)
        listed = self._settler(place).look()
        self._warn(place, listed)
        promised = promised_digests(listed.sealed)
        tally.until = self._clock() + timedelta(seconds=self._limits.scan_seconds)
        for group in groups(opened.claims, self._limits):
            if reading and tally.done and self._clock() >= tally.until:
                tally.report += ScanReport(ready=len(group))
                continue
            located = [(one, self._claims.locate(place, one, opened, listed)) for one in group]
            if reading:
                located_claims = [(claim, path) for claim, path in located if path is not None]
                self._take_all(place, located_claims, promised, tally)
        if reading:
            for identity in listed.closes:
                self._close(place, identity, tally)
            changed = self._growth.look_at_recent(place, tally.stopping)
            tally.report += ScanReport(quarantined=changed)
            self._claim_listed(place, listed, opened.reusable, tally)
        if checked:
            restore_quarantined(place, self._store, self._faults)
            newest = self._store.claims(place.dataflow, place.name, limit=ASKED_MAX)
            self._claims.gone.restore(place.root, newest.items)

    def _take_all(
        self,
        place: SourcePlace,
        claimed: Sequence[tuple[ClaimRecord, Path]],
        promised: Mapping[str, str],
        tally: _Tally,
    ) -> None:
        """Read files one by one, settle them together, then move them away together.

        When the time of the pass is over, the rest stay claimed; the next pass begins with them.
        Whatever fails: the files that were read before are settled.
        """
        taking = _Taking(self._intake.begin(place))
        try:
            for number, (claim, path) in enumerate(claimed):
                if tally.stopping():
                    raise IntakeStoppedError(str(path))
                now = self._clock()
                if tally.done and now >= tally.until:
                    tally.report += ScanReport(ready=len(claimed) - number)
                    break
                if taking.group.since and now - taking.group.since >= SETTLE_WITHIN:
                    self._settle(place, taking, tally)
                tally.done += 1
                sha256, before = promised.get(claim.path, ""), Stamp.of(path)
                if taking.group.take(claim, path, sha256, tally.stopping):
                    taking.waiting.append((claim, path, before))
                else:
                    self._settled(place, claim, "quarantined", tally)
        except Exception:
            self._settle(place, taking, tally)
            raise
        self._settle(place, taking, tally)

    def _settle(self, place: SourcePlace, taking: _Taking, tally: _Tally) -> None:
        """Settle the files that were read, and move them away."""
        waiting, taking.waiting = taking.waiting, []
        outcomes = taking.group.settle()
        for claim, _, _ in waiting:
            self._settled(place, claim, outcomes[claim.id], tally)
        if "accepted" in outcomes.values():
            self._on_accept()
        left = [one for one in waiting if outcomes[one[0].id] != "quarantined"]
        self._intake.finish(place, [(claim, path) for claim, path, _ in left])
        for claim, _, before in left:
            changed = self._growth.finished(place, claim, before, tally.stopping)
            tally.report += ScanReport(quarantined=changed)

    def _settled(
        self, place: SourcePlace, claim: ClaimRecord, outcome: Outcome, tally: _Tally
    ) -> None:
        self._claims.gone.came(place.root, claim.path)
        tally.report = tally.report.count(outcome)

    def _claim_listed(
        self,
        place: SourcePlace,
        listed: Listed,
        reusable: dict[str, ClaimRecord],
        tally: _Tally,
    ) -> None:
        eligible = listed.eligible[: self._limits.claims_per_scan]
        tally.report += ScanReport(waiting=listed.waiting, ignored=listed.ignored)
        sealed = list(listed.sealed)
        if listed.to_seal is not None:
            target = place.incoming / sealed_name(self._new_id())
            move(listed.to_seal.path, target, self._files, self._faults)
            sealed.append(replace(listed.to_seal, path=target))
        promised = promised_digests(sealed)
        begun = 0
        for group in groups(eligible, self._limits):
            if tally.done and self._clock() >= tally.until:
                break
            begun += len(group)
            if group[0].name == CLOSE_NAME:
                identity = self._new_id()
                target = place.incoming / sealed_close_name(identity)
                move(place.incoming / CLOSE_NAME, target, self._files, self._faults)
                self._close(place, identity, tally)
                continue
            if tally.stopping():
                raise IntakeStoppedError(str(place.incoming / group[0].name))
            claimed = self._claim_all(place, group, reusable)
            self._take_all(place, claimed, promised, tally)
        ready = len(listed.eligible) - begun
        tally.report += ScanReport(waiting=ready, ready=ready)
        for manifest in sealed:
            if not any(os.path.lexists(place.incoming / file.name) for file in manifest.files):
                kept = kept_name(self._new_id(), "_MANIFEST.json")
                move(manifest.path, place.finished / kept, self._files, self._faults)

    def _close(self, place: SourcePlace, identity: str, tally: _Tally) -> None:
        """Record the close that a sealed marker requests, then move the marker away."""
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

    def _claim_all(
        self,
        place: SourcePlace,
        candidates: Sequence[Candidate],
        reusable: Mapping[str, ClaimRecord],
    ) -> list[tuple[ClaimRecord, Path]]:
        """Claim files; skips files that are gone or were written to since they were listed."""
        require_folders(place, self._files)  # a pass is long: a folder may be another by now
        wanted = list[tuple[Path, ClaimRecord, Candidate]]()
        for candidate in candidates:
            source = place.incoming / candidate.name
            if not candidate.is_at(source):  # gone, or changed since the listing
                continue
            earlier = reusable.get(candidate.path) or ClaimRecord(
                id=self._new_id(),
                dataflow=place.dataflow,
                source=place.name,
                sequence=0,
                path=candidate.path,
                bytes=0,
                status="claiming",
                created_at=self._clock(),
            )
            wanted.append((source, replace(earlier, bytes=candidate.bytes), candidate))
        claimed = self._claims.make_all(place, wanted, {one.id for one in reusable.values()})
        return [(one, place.claimed / place.claimed_name(one.id, one.path)) for one in claimed]

    def _warn(self, place: SourcePlace, listed: Listed) -> None:
        """Log a warning about names that have stayed unclaimed for long, once per change."""
        hint = old_hint(listed.unclaimed, self._clock())
        if hint != self._warned.get(place.root, ""):
            self._warned[place.root] = hint
            if hint:
                folder = str(place.incoming)
                _log.warning("incoming.unclaimed", dataflow=place.dataflow, folder=folder, why=hint)

    def _settler(self, place: SourcePlace) -> Settler:
        if place.root not in self._settlers:
            self._settlers[place.root] = Settler(
                place.incoming, clock=self._clock, settle_seconds=self._settle_seconds
            )
        return self._settlers[place.root]


@dataclass(slots=True)
class _Taking:
    """Files of one source that were read, and are settled together.

    Attributes:
        group: Makes the increments of the files durable at once.
        waiting: Each file's claim, its path, and its stamp from before it was read.
    """

    group: Group
    waiting: list[tuple[ClaimRecord, Path, Stamp | None]] = field(default_factory=list)


class _Tally:
    """The report of one source while its pass runs.

    Attributes:
        done: Number of files that were begun.
        until: After this time no other file is begun.
    """

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self.report, self.stopping = ScanReport(), stopping
        self.done, self.until = 0, datetime.max.replace(tzinfo=UTC)
