"""One pass over one source: finish open claims, then claim and take in eligible files.

    open claims    their copies brought to `claimed` after a crash or a stop, taken in first
    manifests      the files of each sealed manifest, as one increment
    close markers  those that were sealed but not settled
    recent files   compared once more with what was read (`late_writes`)
    eligible files claimed in groups, read one by one, settled and moved away in groups;
                   or read together, if the source says so (`batches`); a manifest that is
                   now complete comes before them

A pass ends early, between files, when its time is over or when the service stops; the next one
continues. Listing 200,000 names takes seconds, so a listing with files that are not taken in yet is
used again for some time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from cbp.errors import FlowUnframedError
from cbp.model.dataflow.nodes import ONE_FILE, FileBatch
from controller.ingest.batches import Batches
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.folder.claims import Claims, OpenClaims, groups
from controller.ingest.folder.eligible_files import (
    CLOSE_NAME,
    EligibleFiles,
    Listed,
    announced_claims,
    do_nothing,
    gather_files,
    sealed_close_name,
)
from controller.ingest.folder.folder_check import require_folders
from controller.ingest.folder.folder_report import Outcome, ScanReport, old_hint
from controller.ingest.folder.incoming_watch import Candidate, IncomingWatch
from controller.ingest.folder.late_writes import LateWrites, Stamp
from controller.ingest.folder.manifest import MANIFEST_NAME, Manifest, sealed_name
from controller.ingest.folder.quarantine_folder import move_to_quarantine
from controller.ingest.folder.source_place import SourcePlace, forget_below, kept_name, move
from controller.ingest.formats.file_bytes import never
from controller.ingest.intake import Claimed, Intake, Known, Pending
from controller.ingest.limits import IngestLimits
from controller.ingest.ports import Ports
from controller.ingest.rejects_table import RejectsTables
from controller.store.base import ClaimRecord

_log = structlog.get_logger(__name__)

LISTING_SHARE = 10
"""While a listing still has files to take in, it is used again, for this many times its duration.
So listings take a tenth of the time at most, and files that arrive meanwhile wait little longer."""

EARLY_SHARE = 4
"""A pass ends after `1 / EARLY_SHARE` of its time if files were renamed into other sources."""

_NEVER = datetime.max.replace(tzinfo=UTC)

SETTLE_WITHIN = timedelta(seconds=1)
"""Longest time that a file, once read, waits to be settled together with other files."""


@dataclass(slots=True)
class Tally:
    """One pass over one source while it runs.

    Attributes:
        claims: Whether files of `incoming` are claimed.
        opened, listed: The open claims and the listing, from `SourcePass.take_in` on.
        between: Called from time to time during a listing, so that other sources get a turn.
        early: After this time no file is begun while files wait in other sources of the dataflow.
        batch: How many files become one increment in this pass.
    """

    place: SourcePlace
    stopping: Callable[[], bool]
    claims: bool = True
    others_wait: Callable[[], bool] = never
    between: Callable[[], object] = do_nothing
    opened: OpenClaims = field(init=False)
    listed: Listed = field(init=False)
    report: ScanReport = field(default_factory=ScanReport)
    done: int = 0
    until: datetime = _NEVER
    early: datetime = _NEVER
    batch: FileBatch = ONE_FILE

    def begin(self, now: datetime, seconds: float) -> None:
        """Limit the pass to this many seconds from now on."""
        self.until = now + timedelta(seconds=seconds)
        self.early = now + timedelta(seconds=seconds / EARLY_SHARE)

    def is_over(self, now: datetime) -> bool:
        """Return whether to begin no more files; a pass takes in at least one."""
        return bool(self.done) and (now >= self.until or self.is_hurried(now))

    def is_hurried(self, now: datetime) -> bool:
        """Return whether files of other sources wait, and the pass has had its share of time."""
        return now >= self.early and self.others_wait()


@dataclass(frozen=True, slots=True)
class _Left:
    listed: Listed
    until: datetime
    markers: bool = True


@dataclass(slots=True)
class _Group:
    """Files of one source that were read one by one, and are settled together.

    `waiting` has each file's claim, its path, and its stamp from before it was read.
    """

    pending: list[Pending] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)
    waiting: list[tuple[ClaimRecord, Path, Stamp | None]] = field(default_factory=list)
    since: datetime | None = None


class SourcePass:
    """Makes passes over sources; the caller makes one pass at a time over each source.

    If `on_close` is `None`, sources cannot be closed.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        intake: Intake,
        claims: Claims,
        finished: LateWrites,
        watch: IncomingWatch,
        on_accept: Callable[[], None],
        on_close: Callable[[str, str, str], object] | None,
        settle_seconds: float,
    ) -> None:
        self._files, self._faults, self._limits = ports.files, ports.faults, ports.limits
        self._clock, self._new_id = ports.clock, ports.new_id
        self._intake, self._claims, self._finished = intake, claims, finished
        self._batches, self._rejects = Batches(ports, intake), RejectsTables(ports)
        self._watch, self._on_accept, self._on_close = watch, on_accept, on_close
        self._settle_seconds = settle_seconds
        self._listings: dict[Path, EligibleFiles] = {}
        self._left: dict[Path, _Left] = {}
        self._warned: dict[Path, str] = {}

    def forget(self, folder: Path) -> None:
        """Forget the listings and rejected records of a dataflow, by the dataflow's folder."""
        forget_below(folder, self._listings, self._left, self._warned, self._rejects.published)

    def bring_copies(self, place: SourcePlace) -> None:
        """Move the files of open claims to `claimed`, for the next pass; no file is read."""
        opened, listed = self._claims.open(place), self._look(place)
        for claim in opened.claims:
            self._claims.bring_copy(place, claim, opened, listed)

    def take_in(self, tally: Tally) -> None:
        """Take in the files of open claims, then claim and take in eligible files."""
        place, opened = tally.place, self._claims.open(tally.place)
        # Before the listing: a copy that goes back to `incoming` gets a new claim.
        if self._claims.settle_strays(place, opened):
            opened = self._claims.open(place)
        begun = self._clock()
        left = self._left.pop(place.root, None)
        # The folder is listed again if the copy of an open claim is not in `claimed`.
        copied = all(claim.id in opened.copies for claim in opened.claims)
        if left is None or not copied or begun >= left.until:
            listed = self._look(place, tally.between)
            now = self._clock()
            left = _Left(listed, now + LISTING_SHARE * (now - begun))
        listed = left.listed
        tally.opened, tally.listed = opened, listed
        tally.begin(self._clock(), self._limits.scan_seconds)
        tally.batch = place.source.batch_of(len(opened.claims) + len(listed.eligible))
        self._take_open(tally)
        for manifest in listed.sealed:
            if tally.claims or _announced([manifest], tally):
                self._take_manifest(manifest, tally)
        for identity in listed.closes if tally.claims else ():
            self._close(identity, tally)
        changed = self._finished.look_at_recent(place, tally.stopping)
        tally.report += ScanReport(quarantined=changed)
        if tally.claims:
            self._claim_listed(left, tally)
        else:
            tally.report += ScanReport(waiting=listed.waiting + len(listed.eligible))
        if place.source.on_bad_records.rejects_rows:
            self._rejects.publish(place)

    def _look(self, place: SourcePlace, between: Callable[[], object] = do_nothing) -> Listed:
        self._watch.follow(place.incoming, place.dataflow)  # it may have been created again
        below = list[Path]()

        def enter(folder: Path) -> None:
            below.append(folder)
            self._watch.follow(folder, place.dataflow, place.incoming)

        nested = enter if place.source.nested else None
        if (files := self._listings.get(place.root)) is None:
            files = EligibleFiles(place.incoming, self._clock, self._settle_seconds, self._watch)
            self._listings[place.root] = files
        listed = files.look(place.source.unfinished, nested, between)
        self._watch.keep_below(place.incoming, below)
        self._warn(place, listed)
        return listed

    def _take_open(self, tally: Tally) -> None:
        announced = _announced(tally.listed.sealed, tally).values()
        claims = [claim for claim in tally.opened.claims if claim not in announced]
        for group in groups(claims, self._group_limits(tally.batch)):
            if tally.is_over(self._clock()):
                tally.report += ScanReport(ready=len(group))
                continue
            brought = [(claim, self._bring_copy(claim, tally)) for claim in group]
            self._take_group([(claim, path) for claim, path in brought if path], tally)

    def _bring_copy(self, claim: ClaimRecord, tally: Tally) -> Path | None:
        return self._claims.bring_copy(tally.place, claim, tally.opened, tally.listed)

    def _take_manifest(self, manifest: Manifest, tally: Tally) -> None:
        """Take in the files of a sealed manifest as one increment, or refuse all of them."""
        if tally.is_over(self._clock()):
            tally.report += ScanReport(ready=1)
            return
        place, announced = tally.place, _announced([manifest], tally)
        brought = {name: self._bring_copy(claim, tally) for name, claim in announced.items()}
        copies = {name: path for name, path in brought.items() if path is not None}
        there = {name: announced[name] for name in copies}
        gathered = gather_files(manifest, there, tally.listed)
        if gathered is None:
            return
        if tally.stopping():
            raise IntakeStoppedError(str(manifest.path))
        claims, candidates, missing = gathered
        claimed = [(claim, copies[claim.path]) for claim in claims]
        if candidates:
            claimed += self._claim_all(candidates, tally)
        if len(claimed) < len(claims) + len(candidates):
            tally.report += ScanReport(waiting=len(claimed), ready=1)
            return  # one was written to since the listing
        if claimed:
            turns = {path: turn for turn, path in enumerate(manifest.promises)}
            claimed.sort(key=lambda one: turns[one[0].path])
            stamped = [(claim, path, Stamp.of(path)) for claim, path in claimed]
            outcomes = self._batches.take_whole(place, claimed, manifest, missing, tally.stopping)
            if not outcomes:
                tally.report += ScanReport(ready=1)
                return
            self._put_away(stamped, outcomes, tally)
            tally.done += len(outcomes)
        file_name = kept_name(self._new_id(), MANIFEST_NAME)
        move(manifest.path, place.finished / file_name, self._files, self._faults)

    def _group_limits(self, batch: FileBatch) -> IngestLimits:
        if batch.files == 1:
            return self._limits
        return replace(self._limits, group_files=batch.files, group_bytes=batch.bytes)

    def _take_group(self, claimed: Sequence[Claimed], tally: Tally) -> None:
        """Take in a group: each file as an increment, or all files as few increments."""
        together = tally.batch.files > 1
        while claimed:
            if tally.is_over(self._clock()):
                tally.report += ScanReport(ready=len(claimed))
                return
            outcomes = dict[str, Outcome]()
            if together and len(claimed) > 1:
                if tally.stopping():
                    raise IntakeStoppedError(str(claimed[0][1]))
                stamped = [(claim, path, Stamp.of(path)) for claim, path in claimed]
                outcomes = self._batches.take(
                    tally.place, claimed, tally.stopping, lambda: tally.is_hurried(self._clock())
                )
                self._put_away(stamped[: len(outcomes)], outcomes, tally)
                tally.done += len(outcomes)
            if not outcomes:
                alone = claimed[:1] if together else claimed
                self._take_all(alone, tally)
            claimed = claimed[len(outcomes) or len(alone) :]

    def _take_all(self, claimed: Sequence[Claimed], tally: Tally) -> None:
        """Read files one by one, settle them together, then move them away together.

        When the time of the pass is over, the rest stay claimed; the next pass begins with them.
        If an error ends the reading, the files that were read before are still settled.
        """
        place, group = tally.place, _Group()
        try:
            for number, (claim, path) in enumerate(claimed):
                if tally.stopping():
                    raise IntakeStoppedError(str(path))
                now = self._clock()
                if tally.is_over(now):
                    tally.report += ScanReport(ready=len(claimed) - number)
                    break
                if group.since and now - group.since >= SETTLE_WITHIN:
                    read, group = group, _Group()
                    self._settle(read, tally)
                tally.done += 1
                before = Stamp.of(path)
                one = self._intake.read(place, claim, path, tally.stopping, group.pending)
                if one is None:
                    self._claims.gone.came(place.root, claim.path)
                    tally.report += ScanReport(quarantined=1)
                    continue
                if isinstance(one, Pending):
                    group.pending.append(one)
                else:
                    group.known.append(one)
                group.waiting.append((claim, path, before))
                group.since = group.since or self._clock()
        except Exception:
            self._settle(group, tally)
            raise
        self._settle(group, tally)

    def _settle(self, group: _Group, tally: Tally) -> None:
        outcomes = self._intake.settle(tally.place, group.pending, group.known)
        self._put_away(group.waiting, outcomes, tally)

    def _put_away(
        self,
        waiting: Sequence[tuple[ClaimRecord, Path, Stamp | None]],
        outcomes: Mapping[str, Outcome],
        tally: Tally,
    ) -> None:
        place, counts = tally.place, Counter(outcomes[claim.id] for claim, _, _ in waiting)
        for claim, _, _ in waiting:
            self._claims.gone.came(place.root, claim.path)
        tally.report += ScanReport(
            accepted=counts["accepted"],
            quarantined=counts["quarantined"],
            duplicates=counts["duplicate"],
        )
        if "accepted" in outcomes.values():
            self._on_accept()
        left = [one for one in waiting if outcomes[one[0].id] != "quarantined"]
        self._intake.finish(place, [(claim, path) for claim, path, _ in left])
        for claim, _, before in left:
            if changed := self._finished.finished(place, claim, before, tally.stopping):
                tally.report += ScanReport(quarantined=changed)

    def _claim_listed(self, left: _Left, tally: Tally) -> None:
        place, listed = tally.place, tally.listed
        tally.report += ScanReport(
            waiting=listed.waiting, ignored=listed.ignored, settles_at=listed.settles_at
        )
        sealed = list(listed.sealed)
        if listed.to_seal is not None:
            target = place.incoming / sealed_name(self._new_id())
            move(listed.to_seal.path, target, self._files, self._faults)
            sealed.append(replace(listed.to_seal, path=target))
            self._take_manifest(sealed[-1], tally)
        announced = {path for one in sealed for path in one.promises}
        ready = listed.eligible
        if announced:
            ready = [one for one in ready if one.path not in announced]
        begun = 0
        for group in groups(ready[: self._limits.claims_per_scan], self._group_limits(tally.batch)):
            if tally.is_over(self._clock()):
                break
            if not sealed and begun + len(group) == len(ready):
                due = self._due(tally.batch, group, listed)
                if due is not None:
                    tally.report += ScanReport(waiting=len(group), settles_at=due)
                    return
            begun += len(group)
            if group[0].name == CLOSE_NAME:
                identity = self._new_id()
                target = place.incoming / sealed_close_name(identity)
                move(place.incoming / CLOSE_NAME, target, self._files, self._faults)
                self._close(identity, tally)
                continue
            if tally.stopping():
                raise IntakeStoppedError(str(place.incoming / group[0].name))
            self._take_group(self._claim_all(group, tally), tally)
        left_over = len(ready) - begun
        markers = left.markers and any(one.name == CLOSE_NAME for one in ready)
        if left_over and not sealed and not markers:
            rest = replace(listed, eligible=ready[begun:], closes=())
            self._left[place.root] = replace(left, listed=rest, markers=False)
        tally.report += ScanReport(waiting=left_over, ready=left_over)

    def _due(self, batch: FileBatch, group: Sequence[Candidate], listed: Listed) -> datetime | None:
        """Return when the last files of a listing are taken in; `None` means now."""
        full = len(group) == batch.files or sum(one.bytes for one in group) >= batch.bytes
        if full or not batch.seconds or group[0].name == CLOSE_NAME:
            return None
        now = self._clock()
        due = min(listed.seen.get(one.name, now) for one in group) + timedelta(
            seconds=batch.seconds
        )
        return due if now < due else None

    def _close(self, identity: str, tally: Tally) -> None:
        place = tally.place
        marker = place.incoming / sealed_close_name(identity)
        file_name = kept_name(identity, CLOSE_NAME)
        try:
            if self._on_close is None:
                raise FlowUnframedError(place.name, ())
            self._on_close(place.dataflow, place.name, identity)
        except FlowUnframedError as error:
            target = place.quarantine / file_name
            move_to_quarantine(marker, target, error.as_dict(), self._files, self._faults)
            tally.report += ScanReport(quarantined=1)
            return
        move(marker, place.finished / file_name, self._files, self._faults)
        tally.report += ScanReport(closed=1)

    def _claim_all(self, candidates: Sequence[Candidate], tally: Tally) -> list[Claimed]:
        """Claim files; skips files that are gone or were written to since they were listed."""
        place, reusable = tally.place, tally.opened.reusable
        require_folders(place, self._files)  # a folder may have been replaced during the pass
        wanted = list[tuple[Path, ClaimRecord, Candidate]]()
        incoming, folder = place.incoming, place.claimed
        for candidate in candidates:
            source = incoming / candidate.name
            if not candidate.is_at(source):  # gone, or changed since the listing
                continue
            earlier = reusable.get(candidate.path) or place.new_claim(
                self._new_id(), candidate.path, 0, "claiming", self._clock()
            )
            wanted.append((source, replace(earlier, bytes=candidate.bytes), candidate))
        claimed = self._claims.make_all(place, wanted, {one.id for one in reusable.values()})
        self._watch.forget(place.incoming, [one for _, _, one in wanted])
        return [(one, folder / place.claimed_name(one.id, one.path)) for one in claimed]

    def _warn(self, place: SourcePlace, listed: Listed) -> None:
        hint = old_hint(listed.unclaimed, self._clock())
        if hint != self._warned.get(place.root, ""):
            self._warned[place.root] = hint
            if hint:
                folder = str(place.incoming)
                _log.warning("incoming.unclaimed", dataflow=place.dataflow, folder=folder, why=hint)


def _announced(manifests: Sequence[Manifest], tally: Tally) -> dict[str, ClaimRecord]:
    opened = tally.opened
    return announced_claims(manifests, opened.claims, opened.copies, tally.listed.paths)
