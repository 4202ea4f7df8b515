"""The drop folder: every file that appears is accepted once, or visibly quarantined.

Steps for a file; each step is durable before the next:

    (1) listed: renamed in, or settled  `incoming_watch`, `eligible_files`; `source_pass` does all
    (2) claim recorded in the store     status `claiming`: the intention
    (3) renamed to claimed/<id>         nobody else writes there; status `claimed`
    (4) read once, increment written    `intake`
    (5) source log entry put            the point of acceptance
    (6) store: accepted, enqueued       one transaction
    (7) renamed to finished/<id>-name

Files are read one by one; all other steps run for a group of small files at once, since each costs
one sync of the disk or more. If the source says so, small files become one increment (`batches`):
they are read together, and (5) and (6) are one entry and one increment for all of them.

After a crash at any point, the next pass compares the folders with the store and continues:
- A claim without its file in `claimed` is used again for the file that is still in `incoming`.
- A log entry without its store row is indexed.
- A settled file in `claimed` is moved on.
- The close of a sealed marker is requested again under the same key.

If the store was lost, a recovery also restores the claims of quarantined files.

Guaranteed:
- One pass per source at a time in this object.
- A failure of one file affects only that file, and a failure of one source affects only that
  source (`SourceTroubles`).
- On a full disk the file stays claimed and is tried again; later files wait behind it.

Not guaranteed: an order between files of different listings, other than the order of their claims;
anything about files outside `incoming`.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import Files
from cbp.errors import CbpError, LogConflictError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.retention import Expiry, FlowRetention
from controller.allowed_folders import AllowedFolders
from controller.ingest.errors import (
    DataflowDrainsError,
    IntakeStoppedError,
    NewColumnsError,
    device_errors,
)
from controller.ingest.folder.bucket_feed import BucketFeed, Buckets
from controller.ingest.folder.claims import Claims, PathLocks
from controller.ingest.folder.file_excerpt import open_kept
from controller.ingest.folder.folder_check import (
    FolderOwners,
    prepare_source,
    remove_temporaries,
    require_folders,
    require_real,
)
from controller.ingest.folder.folder_report import (
    ASKED_MAX,
    ScanReport,
    SourceTroubles,
    count_arriving,
    oldest_arrival,
    report_folder,
)
from controller.ingest.folder.incoming_watch import IncomingWatch
from controller.ingest.folder.late_writes import LateWrites, plan_finished, remove_finished
from controller.ingest.folder.source_place import SourcePlace, evidence
from controller.ingest.folder.table_feed import TableFeeds
from controller.ingest.formats.file_bytes import never
from controller.ingest.intake import Intake
from controller.ingest.limits import IngestLimits
from controller.ingest.ports import Ports, RequireFollowed, allow_all
from controller.ingest.quarantine_decisions import Decided, QuarantineDecisions, restore_quarantined
from controller.ingest.reader.file_reader import FileReader, StuckReader, read_files
from controller.ingest.rejection import FileRejectedError
from controller.ingest.repeated_files import NamedContent
from controller.ingest.source_log import SourceLog
from controller.ingest.source_pass import EARLY_SHARE, SourcePass, Tally
from controller.ingest.uploads import Author, ReplacementRequests, Uploads
from controller.store.base import ClaimRecord, DataflowRecord, Judged, Store, Uploaded

Answer = TypeVar("Answer")

SEVEN_DAYS = FlowRetention(7 * 86_400.0)
NO_TABLES = AllowedFolders("CBP_SOURCE_ROOTS")
NO_BUCKETS = Buckets()


@dataclass
class _Turns:
    """Gives the other sources of a dataflow a turn, after each `1 / EARLY_SHARE` of a pass."""

    clock: Callable[[], datetime]
    limits: IngestLimits
    next_at: datetime | None = None

    def is_next(self) -> bool:
        now = self.clock()
        if self.next_at is not None and now < self.next_at:
            return False
        self.next_at = now + timedelta(seconds=self.limits.scan_seconds / EARLY_SHARE)
        return True


class DropFolder:
    """The drop folders of all dataflows; methods can be called from several threads.

    Its parts `buckets`, `quarantine`, `replacements` and `troubles` are called directly.

    Args:
        on_close: Closes the open frames of a source, `(dataflow, source, key)`, once per key.
            The close is durable when it returns. If `None`, close markers are not processed.
        require_followed: Called before a file takes back records of an earlier one; if it refuses
            that, the file goes to quarantine.
        reader: Reads files; by default in the calling thread, without time limits.
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
        require_followed: RequireFollowed = allow_all,
        settle_seconds: float = 1.0,
        limits: IngestLimits | None = None,
        reader: FileReader = read_files,
        stuck_readers: Callable[[], Sequence[StuckReader]] = tuple,
        keep: FlowRetention = SEVEN_DAYS,
        tables: AllowedFolders = NO_TABLES,
        buckets: Buckets = NO_BUCKETS,
        faults: Faults = NO_FAULTS,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._store, self._files, self._clock, self._faults = store, files, clock, faults
        self._root, self._on_accept, self._keep = drop_root, on_accept, keep
        self._stuck_readers, self._limits = stuck_readers, limits or IngestLimits()
        own_id = new_id or self._timed_id
        ports = Ports(store, files, clock, faults, self._limits, own_id, require_followed)
        self._intake, self._claims = Intake(ports, reader), Claims(ports)
        self._finished, self._watch = LateWrites(ports), IncomingWatch()
        self._passing, self.troubles = PathLocks(), SourceTroubles(clock)
        self._owners = FolderOwners()
        self._pass = SourcePass(
            ports,
            intake=self._intake,
            claims=self._claims,
            finished=self._finished,
            watch=self._watch,
            on_accept=on_accept,
            on_close=on_close,
            settle_seconds=settle_seconds,
        )
        # Sources whose recovery failed: their next pass checks the end of the log, since the next
        # file could get the number of a lost increment.
        self._unrecovered: set[Path] = set()
        # By name, the creation time of each dataflow whose facts are remembered.
        self._lives: dict[str, datetime] = {}
        self._uploads = Uploads(ports, self._claims, self._intake)
        self.quarantine = QuarantineDecisions(ports, self._uploads)
        self.replacements = ReplacementRequests(
            ports, self._uploads, self._intake, self._require_open, self._called
        )
        self._feeds = TableFeeds(ports, self._uploads.receive, tables)
        self.buckets = BucketFeed(
            ports,
            claims=self._claims,
            receive=self._uploads.receive_as,
            buckets=buckets,
            drop_root=drop_root,
            on_claim=self._watch.call,
        )

    def prepare(self, record: DataflowRecord, dataflow: Dataflow) -> None:
        """Create the folders of a dataflow's sources; raises as `prepare_source`."""
        self._forget_former(record)
        for place in self._places(record, dataflow):
            self._prepare(place)

    def scan(
        self, record: DataflowRecord, dataflow: Dataflow, *, stopping: Callable[[], bool] = never
    ) -> ScanReport:
        """Make one pass over the sources: finish open claims, then claim eligible files.

        A dataflow that is drained makes no new claims: its files stay in `incoming`. Blocks while
        files are read: at most `claims_per_scan` of each source. Raises `LogConflictError`, or
        `IntakeStoppedError` once `stopping` returned true.
        """
        return self._pass_over(record, dataflow, stopping, reading=True)

    def recover(self, record: DataflowRecord, dataflow: Dataflow) -> ScanReport:
        """Repair the traces of a crash: log entries, open claims, quarantined files.

        Creates and checks the folders as `prepare` does; a problem of one source is recorded, and
        does not stop the others. Log entries are indexed in the store. Claimed files are moved to
        the folder from which the next `scan` takes them in. No file is read, so that a take-over
        does not wait for reading, and no file in `incoming` is claimed. Temporary files are
        removed, so no other process may use this drop folder meanwhile. Idempotent.
        """
        self._forget_former(record)
        return self._pass_over(record, dataflow, never, reading=False)

    def _forget_former(self, record: DataflowRecord) -> None:
        """Forget everything about a deleted dataflow of the same name."""
        if self._lives.setdefault(record.name, record.created_at) == record.created_at:
            return
        self._lives[record.name] = record.created_at
        folder = self._root / record.name
        for part in (self._pass, self._finished, self._claims.gone, self.buckets):
            part.forget(folder)
        self.troubles.keep(folder, ())

    def clean(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        *,
        dry_run: bool = False,
        stopping: Callable[[], bool] = never,
    ) -> dict[str, Expiry]:
        """Remove finished files that are old enough; return the removed files by source.

        First compares them with what was read (`late_writes`). Also seals old entries of the
        source logs. May be interrupted and repeated. A source that fails does not stop the others;
        its error is raised after them.
        """
        plans, failures = dict[str, Expiry](), list[Exception]()
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
            self._finished.look_at_all(place, stopping)
        opened = {one.id for one in self._store.open_claims(place.dataflow, place.name)}
        plan = plan_finished(place, open_claims=opened, retention=self._keep, now=self._clock())
        if not dry_run:
            remove_finished(place, self._files, plan)
            # Not the newest entries: a claim that is not settled may put them again.
            newest = self._store.next_index(place.dataflow, place.name)
            most = self._limits.sealed_entries
            SourceLog(place.folder, place.name, self._files).seal(newest - most, entries=most)
        return plan

    def place(self, record: DataflowRecord, dataflow: Dataflow, source: str) -> SourcePlace:
        """Return the place of a source, for the methods below; raises `NotFoundError`."""
        node = dataflow.sources.get(source)
        if node is None:
            raise NotFoundError(kind="source", name=f"{dataflow.name}.{source}")
        return SourcePlace.of(record, dataflow, node, self._root)

    def upload(self, place: SourcePlace, name: str, stream: BinaryIO, key: str = "") -> Uploaded:
        """Store a file from a stream and claim it; durable when it returns.

        The next `scan` takes the file in; its claim then has the outcome. A file whose content is
        already known is settled at once. Raises `DataflowDrainsError`, `UploadTooLargeError`,
        `DiskFullError`; nothing is kept then.
        """
        self._require_open(place)
        return self._called(place, self._uploads.receive(place, name, stream, key))

    def readmit(
        self,
        place: SourcePlace,
        claim: str,
        mended: BinaryIO | None,
        author: Author,
        *,
        rebuild: bool = False,
    ) -> Decided:
        """Admit a quarantined file once, or the `mended` one instead; durable when it returns.

        With `rebuild`, a replacement is admitted even if a stage cannot apply it; the caller has
        checked that a rebuild of the stage can. Raises `NotFoundError`, `FileDecidedError`,
        `ReadmitRefusedError`, or as `upload`.
        """
        self._require_open(place)
        decided = self.quarantine.readmit(place, claim, mended, author, rebuild=rebuild)
        return self._called(place, decided)

    def open_quarantined(self, place: SourcePlace, claim: ClaimRecord) -> BinaryIO:
        """Open the file of a claim that is, or was, in quarantine; raises `NotFoundError`."""
        try:
            return open_kept(place, claim)[1]
        except (OSError, FileRejectedError) as error:
            name = f"{place.dataflow}/{place.name}/{claim.id}"
            raise NotFoundError(kind="kept file", name=name) from error

    def foresee(self, place: SourcePlace, name: str, sha256: str) -> Judged:
        """Return the outcome that a file would have if it arrived now; changes nothing."""
        return self._intake.identities.foresee(place, NamedContent(evidence(name), sha256))[0]

    def refuse_columns(
        self, wanted: NewColumnsError, dataflow: str, error: CbpError, *, again: bool
    ) -> None:
        """Note why columns were not added; the file is then refused, unless it is tried `again`."""
        if again:
            self.troubles.failed(self._root / dataflow / wanted.source, wanted.source, error)
        else:
            self._intake.refuse_columns(wanted.claim, error.message)

    def _called(self, place: SourcePlace, answer: Answer) -> Answer:
        """Wake the dataflow's listing, so that it takes in the claimed file; return the answer."""
        self._watch.call(place.dataflow)
        return answer

    def _prepare(self, place: SourcePlace) -> None:
        prepare_source(place, self._files)
        self._owners.require(place)
        self._watch.follow(place.incoming, place.dataflow)

    def _require_open(self, place: SourcePlace) -> None:
        if not place.takes_in:
            raise DataflowDrainsError(place.dataflow)
        self._owners.require(place)

    def troubled(self, dataflow: str) -> list[str]:
        """Return sources that take in nothing, stuck readers and lost files, for an operator."""
        folder = self._root / dataflow
        troubles = self.buckets.troubles.below(folder) | self.troubles.below(folder)
        warnings = [f"source {name}: {trouble.words}" for name, trouble in troubles.items()]
        stuck = [one for one in self._stuck_readers() if Path(one.path).is_relative_to(folder)]
        warnings += [f"source {one.source}: {one.words}" for one in stuck]
        return warnings + self._claims.gone.lost_below(folder, self._clock())

    def arriving(self, record: DataflowRecord, dataflow: Dataflow) -> dict[str, int]:
        """Return, by source, how many files arrived and are not taken in yet; reads names only.

        Sources without such files are left out, and so are those with an unreadable folder, which
        `troubled` names.
        """
        arriving = {}
        for place in self._places(record, dataflow):
            bucket = self.buckets.report(place) or {"waiting": 0}
            if count := count_arriving(place) + bucket["waiting"]:
                arriving[place.name] = count
        return arriving

    def waits_since(self, record: DataflowRecord, dataflow: Dataflow) -> datetime | None:
        """Return when the oldest file in a drop folder began to wait; see `oldest_arrival`."""
        oldest = (oldest_arrival(place) for place in self._places(record, dataflow))
        return min((at for at in oldest if at is not None), default=None)

    def look(self, record: DataflowRecord, dataflow: Dataflow) -> list[Mapping[str, Any]]:
        """Return the current contents of each source's folder, as JSON values."""
        now, stuck = self._clock(), self._stuck_readers()
        return [
            report_folder(
                place,
                trouble=self.troubles.of(place.root) or self.buckets.troubles.of(place.root),
                bucket=self.buckets.report(place),
                gone=self._claims.gone.of(place.root, now),
                now=now,
                notes=[
                    *(one.words for one in stuck if Path(one.path).is_relative_to(place.root)),
                    self._watch.problem(place.incoming),
                ],
            )
            for place in self._places(record, dataflow)
        ]

    def watch(self, stop: threading.Event, wake: Callable[[frozenset[str]], None]) -> None:
        """Call `wake` with the dataflows whose `incoming` folders changed; blocks until `stop`.

        A hint only: changes on network file systems are not seen.
        """
        self._watch.run(stop, wake)

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
        report, places = ScanReport(), list(self._places(record, dataflow))
        self.troubles.keep(self._root / dataflow.name, dataflow.sources)
        for place in places:
            others = [other for other in places if other is not place]
            others_wait = partial(self._watch.has_renamed, [one.incoming for one in others])
            tally = Tally(place, stopping, record.takes_in, others_wait)
            if record.takes_in:
                turns = _Turns(self._clock, self._limits)
                tally.between = partial(self._let_pass, others, tally, turns)
            resting = self.troubles.resting(place.root) if reading else None
            if resting is not None:
                report += ScanReport(failures=(resting.error,), again_at=resting.retry_at)
                continue
            with self._passing.hold(place.root):
                self._attempt(tally, reading=reading)
            report += tally.report
            if reading:
                report += self._next_look(place)
        return report

    def _let_pass(self, others: Sequence[SourcePlace], tally: Tally, turns: _Turns) -> None:
        """Make passes over sources with renamed files while the folder of another source is listed.

        Only the outcomes of files are reported: the later passes of these sources report the rest.
        """
        for other in others if turns.is_next() else ():
            if self._watch.has_renamed([other.incoming]) and not self.troubles.resting(other.root):
                own = Tally(other, tally.stopping)
                with self._passing.attempt(other.root) as is_free:
                    if is_free:
                        self._attempt(own, reading=True)
                tally.report += own.report.taken_in

    def _next_look(self, place: SourcePlace) -> ScanReport:
        if (trouble := self.troubles.of(place.root)) is not None:
            return ScanReport(again_at=trouble.retry_at)
        source = place.source
        polled = bool(source.location) or source.format == "delta"
        polled = polled or not self._watch.sees(place.incoming)
        return ScanReport(again_at=self._finished.next_look(place), polled=polled)

    def _attempt(self, tally: Tally, *, reading: bool) -> None:
        place = tally.place
        try:
            with device_errors(str(place.root)):
                self._pass_source(tally, reading=reading)
                if not reading:  # after the pass, which finds the parts that claims name
                    self._claims.remove_unclaimed_uploads(place, self._uploads.active)
        except (LogConflictError, IntakeStoppedError):
            raise
        except NewColumnsError as wanted:
            tally.report += ScanReport(new_columns=(wanted,))
        except Exception as error:  # whatever failed: the source is tried again
            if not reading:
                self._unrecovered.add(place.root)
            wrapped = self.troubles.failed(place.root, place.name, error)
            tally.report += ScanReport(failures=(wrapped,))
        else:
            self._unrecovered.discard(place.root)
            self.troubles.works(place.root)

    def _pass_source(self, tally: Tally, *, reading: bool) -> None:
        place = tally.place
        checked = not reading or place.root in self._unrecovered
        if replayed := self._intake.replay(place, to_the_end=checked):
            tally.report += ScanReport(accepted=replayed)
            self._on_accept()
        # After the log was read: its entries are indexed even if a folder cannot be used.
        if reading:
            require_folders(place, self._files)
            self._owners.require(place)
            if place.source.format == "delta":
                tally.place = self._feeds.locate(place)
            self._take_in(tally)
        else:
            self.buckets.list_again(place.root)
            self._prepare(place)
            remove_temporaries(place, self._files)
            self._pass.bring_copies(place)
        if checked:
            restore_quarantined(place, self._store, self._faults)
            if self.quarantine.finish(place):
                restore_quarantined(place, self._store, self._faults)
            newest = self._store.claims(place.dataflow, place.name, limit=ASKED_MAX)
            self._claims.gone.restore(place.root, newest.items)

    def _take_in(self, tally: Tally) -> None:
        self._pass.take_in(tally)
        place = tally.place
        until = self._clock() + timedelta(seconds=self._limits.scan_seconds)
        while place.table and tally.claims and self._feeds.claim_next(place):
            if tally.stopping():
                raise IntakeStoppedError(place.table)
            if self._clock() >= until:
                tally.report += ScanReport(ready=1)
                return
            self._pass.take_in(tally)
