r"""Makes one increment of many claimed files: read together, judged one by one, accepted together.

    claimed files -> one reader, one increment -> one log entry -> one transaction -> finished
                 \-> (rejected, or known) each as if it had arrived alone

A file that is rejected is in no part (`reader.file_reader`). A file that turns out to be known is
in the parts already, so the others are read once more without it. The increment's identity is its
log entry: before the entry nobody has seen the increment, and after it a replay gives the same
increment with the same files in the same order, even without the store.

The files of a manifest are taken in together or not at all: if one of them is rejected or missing,
all others that are not known are rejected with it.

Guaranteed: the records of an increment are in the order of the claims of its files. `take` settles
the first claims and returns their outcomes; there are none if the first file must be taken in alone
(`intake`). `take_whole` settles all claims or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.ingest.errors import NewColumnsError, device_errors
from controller.ingest.folder.folder_report import Outcome
from controller.ingest.folder.manifest import MANIFEST_NAME, Manifest, Promise, is_sealed
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.formats.file_bytes import never
from controller.ingest.intake import Claimed, Intake, Known, Pending, request_of, require_promised
from controller.ingest.ports import Ports
from controller.ingest.reader.file_reader import ReadRequest, ReadResult, SoundFile
from controller.ingest.rejection import FileRejectedError, manifest_refused
from controller.ingest.repeated_files import (
    is_correction,
    manifest_replaces,
    put_aside_reason,
    replaces,
)
from controller.store.base import ClaimRecord


@dataclass(slots=True)
class _Judged:
    """The outcome for the files of a batch; each list is in the order of the claims.

    Attributes:
        accepted: Files whose records are in the parts.
        known: Files that repeat another file, and that their source therefore does not accept.
        in_parts: Number of files whose records are in the parts.
        replacing: Position of the first file that takes the place of an earlier one.
    """

    accepted: list[tuple[ClaimRecord, SoundFile]] = field(default_factory=list)
    refused: list[tuple[ClaimRecord, FileRejectedError]] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)
    in_parts: int = 0
    replacing: int | None = None

    def refuse_others(self, missing: Sequence[str]) -> None:
        """Refuse all files that would be accepted, if one was refused or is missing."""
        if not self.refused and not missing:
            return
        if self.refused:
            refused, error = self.refused[0]
            reason = manifest_refused(refused.path, error)
        else:
            gone = FileRejectedError("file_gone", "the file was removed, or was already dealt with")
            reason = manifest_refused(missing[0], gone)
        rest = [claim for claim, _ in self.accepted]
        accepted = {claim.id for claim in rest}
        # A file that repeats one of these would be lost if it were settled as known.
        repeats = [one for one in self.known if (one.claim.same_as or {}).get("claim") in accepted]
        rest += [one.claim for one in repeats]
        self.known = [one for one in self.known if one not in repeats]
        self.refused += [(replace(c, index=None, same_as=None), reason) for c in rest]
        self.accepted = []


class Batches:
    """Takes in many files of a source at a time, one source at a time; see the module header."""

    def __init__(self, ports: Ports, intake: Intake) -> None:
        self._intake, self._store, self._limits = intake, ports.store, ports.limits

    def take(
        self,
        place: SourcePlace,
        claimed: Sequence[Claimed],
        stopping: Callable[[], bool],
        hurried: Callable[[], bool] = never,
    ) -> dict[str, Outcome]:
        """Take in the first files; return the outcomes by the claims' ids.

        Once `stopping` returns true, nothing more is read. Once `hurried` returns true, the batch
        ends after the file that is being read. Raises as `Intake.read` and `Intake.settle`.
        """
        claimed = _up_to_manifest(claimed)
        if not claimed:
            return {}
        batch = self._batch(place, claimed, stopping, seconds=self._limits.scan_seconds)
        read = batch.read(batch.request, hurried)
        judged = batch.judge(read, {})
        if judged.replacing is not None:  # a replacement is an increment of its own
            batch.discard(read)
            return self.take(place, claimed[: judged.replacing], stopping, hurried)
        return batch.carry_out(read, judged)

    def take_whole(
        self,
        place: SourcePlace,
        claimed: Sequence[Claimed],
        manifest: Manifest,
        missing: Sequence[str],
        stopping: Callable[[], bool],
    ) -> dict[str, Outcome]:
        """Take in the files of a manifest (at least one) as one increment, or refuse all of them.

        As `take`, but the outcomes are empty if something changed meanwhile. `missing` names the
        files of the manifest that no longer exist.
        """
        batch = self._batch(place, claimed, stopping, seconds=None)
        read = batch.read(batch.request)
        judged = batch.judge(read, manifest.promises)
        judged.refuse_others(missing)
        return batch.carry_out(read, judged)

    def _batch(
        self,
        place: SourcePlace,
        claimed: Sequence[Claimed],
        stopping: Callable[[], bool],
        *,
        seconds: float | None,
    ) -> _Batch:
        """Return files as a batch; without `seconds`, all are read or none (`request_of`)."""
        index = self._store.next_index(place.dataflow, place.name)
        request = request_of(place, claimed, index, self._limits, seconds=seconds)
        return _Batch(self._intake, place, claimed, request, stopping)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Files that become one increment, with the request to read all of them."""

    intake: Intake
    place: SourcePlace
    claimed: Sequence[Claimed]
    request: ReadRequest
    stopping: Callable[[], bool]

    def carry_out(self, read: ReadResult, judged: _Judged) -> dict[str, Outcome]:
        """Accept the files judged as accepted, and settle the others; return all outcomes."""
        intake, place = self.intake, self.place
        try:
            judged.refused = [
                (claim, intake.without_columns(place, claim, error))
                for claim, error in judged.refused
            ]
        except NewColumnsError:
            self.discard(read)
            raise
        if judged.in_parts > len(judged.accepted):  # the parts hold files that are not accepted
            self.discard(read)
            again = self._read_again(judged)
            if again is None:  # a file changed meanwhile, so the judgement no longer holds
                return {}
            read = again
        made = list[Pending]()
        if judged.accepted:
            names = intake.names(place, self.request.index, read.claim)
            made = [Pending(judged.accepted, names, read.parts, intake.clock())]
        outcomes = intake.settle(place, made, judged.known)
        paths = {claim.id: path for claim, path in self.claimed}
        for claim, error in judged.refused:
            intake.reject(place, claim, paths[claim.id], error)
            outcomes[claim.id] = "quarantined"
        return outcomes

    def read(self, request: ReadRequest, hurried: Callable[[], bool] = never) -> ReadResult:
        try:
            with device_errors(self.place.increments):
                return self.intake.reader(request, self.stopping, hurried)
        except Exception:
            for file in request.files:  # a reader that was killed could not say what it wrote
                self.intake.names(self.place, request.index, file.claim).discard()
            raise

    def _read_again(self, judged: _Judged) -> ReadResult | None:
        """Read the accepted files alone; `None` if they have changed."""
        if not judged.accepted:
            return ReadResult("", (), ())
        wanted = {claim.id: sound for claim, sound in judged.accepted}
        files = tuple(file for file in self.request.files if file.claim in wanted)
        read = self.read(replace(self.request, files=files))
        if read.outcomes == tuple(wanted.values()):
            return read
        self.discard(read)
        return None

    def judge(self, read: ReadResult, promises: Mapping[str, Promise]) -> _Judged:
        """Judge each file that was read, by accepted files and the earlier files of the batch."""
        made, sound = _Judged(), list[tuple[ClaimRecord, SoundFile]]()
        for (claim, _), outcome in zip(self.claimed, read.outcomes, strict=False):
            if not isinstance(outcome, SoundFile):
                made.refused.append((claim, outcome))
                continue
            made.in_parts += 1
            try:
                require_promised(claim, outcome.sha256, promises.get(claim.path))
            except FileRejectedError as error:
                made.refused.append((claim, error))
            else:
                claim = replace(claim, sha256=outcome.sha256, index=self.request.index)
                sound.append((claim, outcome))
        paths = {claim.id: path for claim, path in self.claimed}
        judge = self.intake.identities.judge(self.place, [claim for claim, _ in sound])
        for (claim, outcome), judged in zip(sound, judge, strict=True):
            claim = replace(claim, same_as=judged.same_as)
            if replaces(judged.same_as):
                if made.replacing is None:
                    made.replacing = list(paths).index(claim.id)
                made.refused.append((replace(claim, index=None), manifest_replaces(judged)))
            elif judged.outcome == "accepted":
                made.accepted.append((claim, outcome))
            elif judged.same_as is not None and judged.same_as["by"] == "name":
                # Refused, not settled as known: no increment has its records. The other files of
                # its manifest are then refused, too.
                made.refused.append((replace(claim, index=None), put_aside_reason(judged)))
            else:
                made.known.append(Known(replace(claim, index=None), paths[claim.id], judged))
        return made

    def discard(self, read: ReadResult) -> None:
        if read.claim:
            self.intake.names(self.place, self.request.index, read.claim).discard()


def _up_to_manifest(claimed: Sequence[Claimed]) -> Sequence[Claimed]:
    """Return the files before the first one that must be taken in alone.

    Such a file is a manifest, which is rejected, or comes with a request to replace or retract a
    file.
    """
    for number, (claim, _) in enumerate(claimed):
        if claim.path == MANIFEST_NAME or is_sealed(claim.path) or is_correction(claim.key):
            return claimed[:number]
    return claimed
