"""Repeated files: whether a file is new, repeats an earlier one, or is another version of it.

    name and content of an accepted file       a retry: skipped
    content of one, but another name           data, unless the source says otherwise
    name of one, but other content             quarantined, unless the source says
                                               `same_name: add` or `replace`
    neither                                    data

A corrected file that is sent again has the name of the earlier one, and would count twice. So a
person decides whether it is an addition (`quarantine_decisions`) or replaces the earlier file
(`replacement`). After a replacement, files are compared with the newest one of their name only:
replaced content can come again, under any name.

Times, inodes and sizes are not compared. A file in quarantine was never accepted, and a file whose
increment was dropped by a roll-back is no longer accepted: both can come again as new. The known
files are kept in the source's log, and in the store, its index; so none is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from controller.ingest.folder.claims import CORRECTIONS
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord, Judged, Store

NEW = Judged("accepted")

REPLACED, RETRACTED = "replaced", "retracted"


def replaces(same_as: Mapping[str, Any] | None) -> bool:
    """Return whether a claim replaces, or will replace, an earlier one."""
    return (same_as or {}).get("by") in (REPLACED, RETRACTED)


NOTHING_TO_REPLACE = "nothing_to_replace"
"""The rule of a request to replace or retract a file, if its source has no file of that name."""
REPLACE_REFUSED = "replace_refused"
"""The rule of a file that would replace another one, if a stage cannot apply that."""

_ADDITION = "addition:"
_REPLACEMENT, _RETRACTION = CORRECTIONS["r"], CORRECTIONS["t"]


def replacement_key(number: str) -> str:
    """Return the key of an upload that replaces the file of its name."""
    return f"{_REPLACEMENT}{number}"


def retraction_key(number: str) -> str:
    """Return the key of an empty upload that retracts the file of its name."""
    return f"{_RETRACTION}{number}"


def client_key(key: str) -> str:
    """Return the key of an ordinary upload by a client; it differs from all keys above."""
    ours = key.startswith((_ADDITION, _REPLACEMENT, _RETRACTION))
    return f"client:{key}" if ours else key


def is_retraction(claim: ClaimRecord) -> bool:
    """Return whether a claim retracts the file of its name."""
    return claim.key.startswith(_RETRACTION)


def is_correction(key: str) -> bool:
    """Return whether a key belongs to a request to replace or retract the file of its name."""
    return key.startswith((_REPLACEMENT, _RETRACTION))


def addition_key(claim: str, number: str) -> str:
    """Return the key of an upload that an operator admits as additional data."""
    return f"{_ADDITION}{claim}:{number}"


def readmitted_key(claim: ClaimRecord, number: str, *, mended: bool, asks: bool = False) -> str:
    """Return the key of an upload that admits a quarantined file, not as an addition.

    A request to replace or retract a file stays one, unless the source has no file of this name:
    then the file is data. A retraction that an operator readmits with a file becomes a replacement.
    A dropped file that was refused because a stage cannot apply it (`REPLACE_REFUSED`) becomes a
    request if the operator `asks`.
    """
    code = (claim.reason or {}).get("code")
    if asks and code == REPLACE_REFUSED:
        return replacement_key(number)
    if code != NOTHING_TO_REPLACE:
        if is_retraction(claim) and not mended:
            return retraction_key(number)
        if is_correction(claim.key):
            return replacement_key(number)
    return f"readmit:{claim.id}:{number}"


def put_aside_reason(judged: Judged) -> FileRejectedError:
    """Return why a file with the content or name of an earlier one goes to quarantine."""
    earlier = judged.same_as or {}
    file, index = earlier.get("file"), earlier.get("index")
    if earlier.get("by") == "nothing":
        message = (
            "the source has no current file of this name, so there is nothing to replace or retract"
        )
        return FileRejectedError(NOTHING_TO_REPLACE, message)
    if earlier.get("by") != "name":
        message = (
            f"the content is the same as that of {file!r} (increment {index}), and the source "
            "declares `duplicates: quarantine`"
        )
        return FileRejectedError("content_known", message)
    message = (
        f"a file of this name, with other content, was already taken in as increment {index}. "
        "This file was not taken in, since its records might count twice. If the file brings "
        "additional records, readmit it with `cbp quarantine readmit`. If every file of the "
        "source is new data, whatever its name, declare `same_name: add` at the source. If this "
        "file corrects the earlier one, use `cbp replace`, or declare `same_name: replace` at the "
        "source"
    )
    return FileRejectedError("same_name", message)


def manifest_replaces(judged: Judged) -> FileRejectedError:
    """Return why a manifest's file that would replace an earlier one goes to quarantine."""
    message = (
        f"a file of this name was already taken in as increment {(judged.same_as or {})['index']}, "
        "and a file in a manifest cannot replace it: all files of a manifest form one increment, "
        "but a replacement needs a separate one. Readmit the files of the manifest with `cbp "
        "quarantine readmit`, or drop them again without a manifest: each then becomes an increment"
    )
    return FileRejectedError("manifest_replaces", message)


@dataclass(frozen=True, slots=True)
class NamedContent:
    """The compared facts of a file that has no claim yet."""

    path: str
    sha256: str
    id: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class RepeatedFiles:
    """Compares files with earlier ones; only reads the store."""

    store: Store

    def judge(
        self, place: SourcePlace, files: Sequence[ClaimRecord], pending: Sequence[ClaimRecord] = ()
    ) -> list[Judged]:
        """Return whether each of some files is new, given all accepted files.

        The files have digests, and are in the order of their records: each accepted file counts as
        an earlier file for the next ones. So do `pending` files, which are accepted together with
        these. Another instance that has become leader may have accepted a claim.
        """
        stored, newest = self._stored(place, files)
        named: dict[tuple[str, str], ClaimRecord] = {}
        first: dict[str, ClaimRecord] = {}

        def accept(claim: ClaimRecord) -> None:
            named.setdefault((claim.sha256, claim.path), claim)
            newest[claim.path] = claim
            earlier = first.get(claim.sha256)
            if earlier is None or claim.path < earlier.path:
                first[claim.sha256] = claim

        for claim in pending:
            accept(claim)
        made = list[Judged]()
        for claim in files:
            key = (claim.sha256, claim.path)
            equal = [stored.get(key), named.get(key), first.get(claim.sha256)]
            same = self._counting(place, claim, equal, newest)
            made.append(_judged(place, claim, same, newest.get(claim.path)))
            if made[-1].outcome == "accepted":
                accept(claim)
        return made

    def foresee(self, place: SourcePlace, file: ClaimRecord | NamedContent) -> tuple[Judged, bool]:
        """Return the result of `judge` as if waiting files were accepted, and whether it is final.

        A waiting file may still be rejected, so the result for an equal file is not final.
        """
        stored, newest = self._stored(place, [file])
        same = self._counting(place, file, [stored.get((file.sha256, file.path))], newest)
        judged = _judged(place, file, same, newest.get(file.path))
        if judged.outcome != "accepted":
            return judged, True
        waiting = self._first(place, file, waiting=True)
        if waiting is None or (judged.same_as is not None and waiting.path != file.path):
            return judged, True
        return _of_content(place.source.duplicates, file.path, waiting), False

    def _stored(
        self, place: SourcePlace, files: Sequence[ClaimRecord | NamedContent]
    ) -> tuple[Mapping[tuple[str, str], ClaimRecord], dict[str, ClaimRecord]]:
        """Return the accepted claims of the same content, and the newest of each name.

        The former are keyed by digest and name: the claim with both, or else one with this digest.
        """
        paths = {file.path for file in files}
        named = self.store.named_claims(place.dataflow, place.name, paths)
        if len(files) == 1:  # the usual case, which needs a single query
            same = self._first(place, files[0], waiting=False)
            return {} if same is None else {(files[0].sha256, files[0].path): same}, dict(named)
        contents = sorted({(file.sha256, file.path) for file in files})
        return self.store.same_claims(place.dataflow, place.name, contents), dict(named)

    def _counting(
        self,
        place: SourcePlace,
        file: ClaimRecord | NamedContent,
        equal: Sequence[ClaimRecord | None],
        newest: dict[str, ClaimRecord],
    ) -> list[ClaimRecord]:
        """Return claims of a file's content that count, or that have its name.

        Instead of a claim that was replaced or retracted, another one with this content is
        returned, if one counts.
        """
        made = list[ClaimRecord]()
        for one in equal:
            if one is None:
                continue
            if (
                place.source.duplicates == "accept"
                or one.path == file.path
                or self._counts(place, one, newest)
            ):
                made.append(one)
                continue
            others = self.store.claims_of_content(place.dataflow, place.name, file.sha256)
            made += [other for other in others if self._counts(place, other, newest)][:1]
        return made

    def _counts(
        self, place: SourcePlace, claim: ClaimRecord, newest: dict[str, ClaimRecord]
    ) -> bool:
        """Return whether no later file took the place of an accepted one; adds to `newest`."""
        if claim.path not in newest:
            newest |= self.store.named_claims(place.dataflow, place.name, [claim.path])
        last = newest.get(claim.path, claim)
        if last.id == claim.id:
            return (claim.same_as or {}).get("by") != RETRACTED
        return not replaces(last.same_as)

    def _first(
        self, place: SourcePlace, file: ClaimRecord | NamedContent, *, waiting: bool
    ) -> ClaimRecord | None:
        """Return the claim with this name and content, or otherwise one with this content."""
        ask = partial(
            self.store.same_claim, place.dataflow, place.name, file.sha256, waiting=waiting
        )
        same = ask()
        return same if same is None or same.path == file.path else ask(path=file.path) or same


def _is_added(place: SourcePlace, file: ClaimRecord | NamedContent) -> bool:
    """Return whether a file is data although its name is known."""
    if is_correction(file.key):
        return False
    return place.source.same_name == "add" or _is_admitted(file)


def _is_admitted(file: ClaimRecord | NamedContent) -> bool:
    return file.key.startswith(_ADDITION)


def _judged(
    place: SourcePlace,
    file: ClaimRecord | NamedContent,
    known: Sequence[ClaimRecord],
    same_name: ClaimRecord | None,
) -> Judged:
    """Compare a file with the earlier ones of its content, then with the newest of its name."""
    if any(one.id == file.id for one in known):
        return NEW
    replaced = _replaced(place, file, same_name)
    if replaced is not None:
        return replaced
    if same_name is not None and replaces(same_name.same_as) and not _is_added(place, file):
        # A file that it replaced no longer counts, so a new file is not compared with it.
        known = [one for one in known if one.path != file.path or one.id == same_name.id]
    # As the store does: the claim of this name, or else the first by name.
    same = min(known, key=lambda one: (one.path != file.path, one.path), default=None)
    duplicates = "accept" if _is_admitted(file) else place.source.duplicates
    judged = NEW if same is None else _of_content(duplicates, file.path, same)
    if judged.outcome != "accepted" or same_name is None or _is_added(place, file):
        return judged
    return Judged("quarantined", _earlier("name", same_name))


def _replaced(
    place: SourcePlace, file: ClaimRecord | NamedContent, same_name: ClaimRecord | None
) -> Judged | None:
    """Judge a file that may take the place of the newest one of its name; `None` if it does not."""
    asked = is_correction(file.key)
    retracted = same_name is not None and (same_name.same_as or {}).get("by") == RETRACTED
    if asked and same_name is None:
        return Judged("quarantined", {"by": "nothing", "file": file.path})
    if same_name is None or same_name.id == file.id:
        return None
    overwrites = place.source.same_name == "replace" and not _is_admitted(file)
    if not (asked or retracted or overwrites):
        return None
    if file.key.startswith(_RETRACTION):
        if retracted:
            return Judged("duplicate", _earlier("name_and_content", same_name))
        return Judged("accepted", _earlier(RETRACTED, same_name))
    if same_name.sha256 == file.sha256 and not retracted:
        return Judged("duplicate", _earlier("name_and_content", same_name))
    return Judged("accepted", _earlier(REPLACED, same_name))


def _of_content(duplicates: str, path: str, same: ClaimRecord) -> Judged:
    retry = same.path == path
    earlier = _earlier("name_and_content" if retry else "content", same)
    if retry or duplicates == "skip":
        return Judged("duplicate", earlier)
    return Judged("quarantined" if duplicates == "quarantine" else "accepted", earlier)


def _earlier(by: str, claim: ClaimRecord) -> Mapping[str, Any]:
    earlier: dict[str, Any] = {"by": by, "claim": claim.id, "file": claim.path}
    return earlier if claim.index is None else earlier | {"index": claim.index}
