"""The folders of one source and how files move between them.

    <drop root>/<dataflow>/<source>/incoming     producers write here
                                    claimed      being taken in, under the claim's id
                                    quarantine   rejected, each with its .reason.json
                                    finished     accepted, or a duplicate of an accepted file

All four are on one device, so that every move is one atomic rename; it is durable when it returns.
Producers' names are kept as evidence and never become part of a path unchanged: the service builds
names from ids and an escaped or sanitised form of the producer's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from cbp.engine.columnar.key_index import GroupKey, indexed_keys
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files, local_path
from cbp.engine.storage.table_names import source_folder
from cbp.model.dataflow.dataflow import Dataflow, SourceNode
from cbp.model.dataflow.replacement_obstacles import is_signed
from cbp.model.source.options import ADDS_COLUMNS
from controller.ingest.errors import DropFolderError
from controller.store.base import ClaimRecord, ClaimStatus, DataflowRecord

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NO_TEXT = re.compile(r"[\udc80-\udcff]")
_LOOKS_ESCAPED = re.compile(r"\\x[89a-f][0-9a-f]")
_KEPT_CHARACTERS = 100
_TIME_DIGITS = 12
_NAME_BYTES_MAX = 255
_ID_CHARACTERS_MAX = 32
_CLAIMED = re.compile(r"([a-z0-9]+)-(.+)", re.DOTALL)


def evidence(name: str) -> str:
    r"""Return a file's name as text for any store and screen; distinct names stay distinct.

    A byte that is not text becomes `\xff`. If a backslash of the name could be taken for the
    beginning of such an escape, all backslashes of the name are doubled.
    """
    if name.isascii() and "\\" not in name and "\0" not in name:  # nearly every name
        return name
    # A name that no file can have, such as one in a manifest, may hold any surrogate.
    data = name.encode("utf-8", "surrogateescape" if _is_encodable(name) else "backslashreplace")
    text = data.decode("utf-8", "surrogateescape")
    if _LOOKS_ESCAPED.search(text) or ("\\" in text and _NO_TEXT.search(text)):
        text = text.replace("\\", "\\\\")
    escaped = _NO_TEXT.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
    return escaped.replace("\0", "\\0")


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def kept_name(claim: str, original: str) -> str:
    """Return a safe name for a kept file: the claim's id and part of the original name."""
    return f"{claim}-{_UNSAFE.sub('_', original)[:_KEPT_CHARACTERS]}"


def name_fits_copy(path: str) -> bool:
    """Return whether the name of a claimed copy can contain the original name."""
    return len(quote(path, safe="")) < _NAME_BYTES_MAX - _ID_CHARACTERS_MAX


def claimed_of(name: str) -> tuple[str, str]:
    """Return the claim's id and the original name of a claimed copy; `""` if it has none."""
    match = _CLAIMED.match(name)
    if match is None:  # an earlier version called them `<id>.<format>`
        return name.partition(".")[0], ""
    return match[1], unquote(match[2])


def claimed_at(name: str) -> datetime | None:
    """Return when a kept file was claimed, from its name; `None` if the service did not name it."""
    try:
        return datetime.fromtimestamp(int(name[:_TIME_DIGITS], 16) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """One source of one dataflow: where its files and its increments are.

    Attributes:
        root: The source's part of the drop folder.
        table: For a `delta` source: the folder of its table, once it is known to be allowed.
        signed: Whether its readers add up signs (`cbp.model.dataflow.replacement_obstacles`).
        takes_in: Whether its dataflow takes in files; a drained one does not.
    """

    dataflow: str
    source: SourceNode
    folder: str
    root: Path
    table: str = ""
    signed: bool = False
    takes_in: bool = True
    graph: Dataflow | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, record: DataflowRecord, dataflow: Dataflow, source: SourceNode, drop_root: Path
    ) -> SourcePlace:
        """Return the place of a source; names were checked when it was registered."""
        root = drop_root / dataflow.name / source.name
        return cls(
            dataflow.name,
            source,
            local_path(record.folder),
            root,
            signed=is_signed(source, dataflow.stages),
            takes_in=record.takes_in,
            graph=dataflow,
        )

    @property
    def keys(self) -> tuple[GroupKey, ...]:
        """The keys by which the written parts are indexed; computed when a file is read."""
        return () if self.graph is None else indexed_keys(self.source, self.graph)

    @property
    def adds_columns(self) -> bool:
        """Whether new columns of its files are added to the schema automatically."""
        return self.source.options.get("unknown", "").lower() == ADDS_COLUMNS

    @property
    def name(self) -> str:
        """The source's name, which is also its flow's."""
        return self.source.name

    @property
    def as_read(self) -> SourceNode:
        """The source, with its table's folder among the options; can be sent to a process."""
        table = {"table": self.table} if self.table else {}
        return replace(self.source, options={**self.source.options, **table})

    @property
    def incoming(self) -> Path:
        """Where producers write."""
        return self.root / "incoming"

    @property
    def claimed(self) -> Path:
        """Folder of files that are being taken in."""
        return self.root / "claimed"

    @property
    def quarantine(self) -> Path:
        """Folder of rejected files."""
        return self.root / "quarantine"

    @property
    def finished(self) -> Path:
        """Folder of settled files."""
        return self.root / "finished"

    @property
    def folders(self) -> tuple[Path, ...]:
        """The four folders between which files move."""
        return self.incoming, self.claimed, self.quarantine, self.finished

    @property
    def increments(self) -> str:
        """Folder of the accepted increments."""
        return f"{self.folder}/{source_folder(self.name)}"

    def new_claim(
        self, identity: str, path: str, size: int, status: ClaimStatus, at: datetime, **more: Any
    ) -> ClaimRecord:
        """Return a claim that is not recorded yet; `more` has its other attributes."""
        return ClaimRecord(identity, self.dataflow, self.name, 0, path, size, status, at, **more)

    def claimed_name(self, claim: str, path: str) -> str:
        """Return the name of a claimed copy.

        It holds the original name, unless that is too long. Without the original name, a retry of
        the file is not recognised if the store is lost before the file is accepted.
        """
        name = f"{claim}-{quote(path, safe='')}"
        return name if len(name) <= _NAME_BYTES_MAX else claim


def forget_below(folder: Path, *facts: dict[Path, Any]) -> None:
    """Remove all entries of a dataflow's sources, given the folder of the dataflow."""
    for known in facts:
        for root in list(known):  # at one instant: other threads may add sources
            if root.parent == folder:
                known.pop(root, None)


def move(path: Path, target: Path, files: Files, faults: Faults) -> None:
    """Move a file durably; both folders are on one device.

    Raises `DropFolderError` if the target's folder is missing, or `OSError`; the file was not moved
    then.
    """
    faults("rename.before")
    try:
        os.rename(path, target)
    except FileNotFoundError as exc:
        _require_folder(target.parent, exc)
        raise
    files.sync_dir(str(target.parent))
    files.sync_dir(str(path.parent))
    faults("rename.after")


def move_all(moves: Iterable[tuple[Path, Path]], files: Files, faults: Faults) -> set[Path]:
    """Move files durably into one folder, with one sync of each folder; return the new paths.

    Missing files are left out. Raises as `move`; the file in question and later ones were not moved
    then. `faults` is called with `rename.before` for each file, and with `rename.after` once at the
    end.
    """
    moved = list[tuple[Path, Path]]()
    for path, target in moves:
        faults("rename.before")
        try:
            os.rename(path, target)
        except FileNotFoundError as exc:  # the file is gone, or the folder that it moves to
            _require_folder(target.parent, exc)
        else:
            moved.append((path, target))
    if moved:
        files.sync_dir(str(moved[0][1].parent))
        for folder in dict.fromkeys(path.parent for path, _ in moved):
            files.sync_dir(str(folder))
        faults("rename.after")
    return {target for _, target in moved}


def _require_folder(folder: Path, cause: OSError) -> None:
    if not os.path.lexists(folder):
        raise DropFolderError(str(folder), "is missing; the next pass creates it again") from cause


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder that are not hidden, sorted; [] if it is absent."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return []
