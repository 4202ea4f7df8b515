"""Who decides about quarantined files in a simulation, and what must have become of them.

What was asked for may have happened, what was answered must have. In a file's place is one
good file at most, and none while the file is in quarantine:

    quarantine    the file, its reason; the store lists it
    finished      the file, its reason, the note of the decision
    anything else is a broken promise
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cbp.errors import NotFoundError
from controller.ingest.errors import FileDecidedError
from controller.ingest.folder.quarantine_folder import decision_path, reason_path
from controller.ingest.folder.source_place import kept_name
from controller.store.base import ClaimRecord
from tests.simulation.model import Broken
from tests.simulation.world import NAME, World

__all__ = ["Decider", "File"]

QUARANTINED = "quarantined"
OUTCOMES = {
    "readmit": "readmitted",
    "mend": "mended",
    "discard": "discarded",
    "restore": QUARANTINED,
}
_COUNTS = ("claiming", "claimed", "accepted")


@dataclass
class File:
    """A file that something was decided about.

    Attributes:
        path: Its name, as its producer gave it.
        possible: What may have become of it; one entry: what was answered last.
        mended: The files that were sent to be admitted in its place, by their SHA-256.
    """

    source: str
    claim: str
    path: str
    possible: set[str] = field(default_factory=lambda: {QUARANTINED})
    mended: dict[str, int] = field(default_factory=dict)


class Decider:
    """The operator who decides in one world.

    Attributes:
        files: By the id of their claim.
        answered: How many decisions were answered.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.files: dict[str, File] = {}
        self.answered = 0
        self._targets: dict[int, File] = {}

    def do(self, verb: str, number: int, which: int, mended: int | None = None) -> None:
        """Do one of the steps of `decisions`; a number that was asked before means the same."""
        file = self._targets.get(number) or self._choose(verb, which)
        if file is None:
            return
        self._targets[number] = self.files[file.claim] = file
        before = set(file.possible)
        file.possible.add(OUTCOMES[verb])
        if mended is not None:
            file.mended[self.world.deliveries.sha256(mended)] = mended
            self.world.deliveries.bring(file.source, file.path, mended, certain=False)
        try:
            actual = self.world.decide(verb, file.source, file.claim, mended)
        except (FileDecidedError, NotFoundError) as error:
            if not self._may_be_refused(verb, file, error):
                raise
            file.possible = before
            return
        status = "readmitted" if verb == "mend" else OUTCOMES[verb]
        if (actual.claim.id, actual.claim.status) != (file.claim, status):
            message = f"P5: {actual} is told of {verb} {file}"
            raise Broken(message)
        self.answered += 1
        file.possible = {OUTCOMES[verb]}
        if mended is not None:
            self.world.deliveries.bring(file.source, file.path, mended, certain=True)

    def _choose(self, verb: str, which: int) -> File | None:
        """Return one of the files that this can be asked about now."""
        wanted = (QUARANTINED,) if verb != "restore" else ("readmitted", "discarded")
        able = [
            one
            for source in sorted(self.world.plan.document["sources"])
            for one in self.world.store.claims(NAME, source, limit=500).items
            if one.status in wanted and (one.reason or {}).get("code") != "file_gone"
        ]
        if not able:
            return None
        claim = sorted(able, key=lambda one: one.id)[which % len(able)]
        return self.files.get(claim.id) or File(claim.source, claim.id, claim.path)

    def _may_be_refused(self, verb: str, file: File, error: Exception) -> bool:
        """Tell whether a refusal is documented, and its reason holds."""
        claim = self._claim(file.claim)
        if isinstance(error, NotFoundError):
            return claim is None and self.world.losses > 0
        if claim is None:
            return False
        if verb != "restore":
            return claim.status != QUARANTINED
        decision: Mapping[str, Any] = (claim.reason or {}).get("decision") or {}
        other = self._claim(str(decision.get("readmitted_as", "")))
        return other is not None and other.status in _COUNTS

    def _claim(self, identity: str) -> ClaimRecord | None:
        return self.world.store.find_claims([identity]).get(identity)

    # what became of it

    def kept(self, source: str, name: str) -> bool:
        """Tell whether a file may lie in `finished` since something was decided about it."""
        file = self.files.get(name.partition("-")[0])
        return file is not None and file.source == source and file.possible != {QUARANTINED}

    def check(self, counted: Mapping[str, set[tuple[str, str]]]) -> None:
        """Check every file that something was decided about; after a recovery.

        Args:
            counted: Source to name and SHA-256 of the accepted files that no roll-back dropped.
        """
        for file in self.files.values():
            outcome, note = self._outcome(file)
            if outcome not in file.possible:
                message = f"P5: {file} is {outcome}"
                raise Broken(message)
            counts = {
                sha256 for sha256 in file.mended if (file.path, sha256) in counted[file.source]
            }
            if not counts <= {note.get("sha256")} or (counts and outcome != "mended"):
                message = f"P1: {file} is {outcome}, and {counts} count in its place"
                raise Broken(message)
            file.possible = {outcome}
            if outcome == "mended":  # so it must be accepted in the end, answered or not
                mended = file.mended[note["sha256"]]
                self.world.deliveries.bring(file.source, file.path, mended, certain=True)

    def _outcome(self, file: File) -> tuple[str, Mapping[str, Any]]:
        """Return where a file is and by which note; raises `Broken` for anything third."""
        name = kept_name(file.claim, file.path)
        quarantined = self.world.place(file.source, "quarantine") / name
        finished = self.world.place(file.source, "finished") / name
        lies = [_lies(one) for one in (quarantined, finished)]
        if lies == [(True, True, False), (False, False, False)]:
            return QUARANTINED, {}
        if lies != [(False, False, False), (True, True, True)]:
            message = f"P1: {file} is neither in quarantine nor decided: {lies}"
            raise Broken(message)
        note = json.loads(decision_path(finished).read_bytes() or b"null")
        if not isinstance(note, dict) or note.get("claim") != file.claim:
            message = f"P5: {file} is finished by {note}"
            raise Broken(message)
        if note["action"] == "discard":
            return "discarded", note
        return ("mended" if note["mended"] else "readmitted"), note


def _lies(path: Path) -> tuple[bool, bool, bool]:
    """Return whether a file is there, its reason, and the note of a decision."""
    return path.exists(), reason_path(path).exists(), decision_path(path).exists()
