"""Scrub: read all files of a dataflow's folder, and report those that are damaged or missing.

    records      descriptions, intentions, positions, roll-backs, punctuations, notes, source logs:
                 their digests, and that no number is missing between two, nor the newest
    table logs   digests of entries, checkpoints; the newest version can be read
    tables       every file of the newest version exists, is whole, and has the rows that its log
                 says; so does the vector of its deleted rows
    other files  of older versions, of waiting increments, of sources: whole, if they exist
                 and, of files of runs, if a record or a log names them

A run that died before its record was put leaves files that no record names. A loss of power may
have cut them; garbage collection removes them, and they are no damage.

A scrub is lazy: the caller that iterates decides how fast it reads. While the service runs, files
come and go: a file that is gone when it is to be read is no damage, unless it is still needed.

Guaranteed: nothing is changed, and one damage hides no other.
Not guaranteed: that a file without checksums, of an earlier version, is what was written; it is
only known to be decodable. Index copies are not read here: each look-up checks them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cbp.engine.commit.table_entries import CHANGE, OPERATIONS, shown_generation
from cbp.engine.delta.actions import Action, AddFile, CommitInfo
from cbp.engine.delta.checkpoint import read_checkpoint
from cbp.engine.delta.deletion_vectors import read_vector, vector_path
from cbp.engine.delta.log import DeltaLog, Snapshot
from cbp.engine.storage.checked_json import parsed
from cbp.engine.storage.checked_parquet import check_parquet
from cbp.engine.storage.files import Files
from cbp.errors import (
    CbpError,
    FileDamagedError,
    FileLostError,
    NotFoundError,
    place_of,
)

__all__ = ["Damage", "ScrubbedFile", "scrub"]

_NUMBERED = re.compile(r"(?P<folder>.*)/(?P<number>\d{20})\.json\Z")
_SEALED = re.compile(r"(?P<folder>.*)/[^/]+/(?P<start>\d{20})-(?P<end>\d{20})\.jsonl\Z")
_INCREMENT = re.compile(r"(?P<log>sources/[^/]+)/(?P<number>\d{12})-[^/]+\.parquet\Z")
_SOURCES = "sources/"
_GENERATIONS = "_intentions/_generations"
_DATA_FILE = re.compile(r"[\w.=-]+\.parquet\b")
_TABLE_LOG = "/_delta_log/"
_CHECKPOINT = ".checkpoint.parquet"


@dataclass(frozen=True, slots=True)
class Damage:
    """One file that is not as it was written.

    Attributes:
        code: Code of the error that a reader of the file gets.
        path: Full path.
        why: What is wrong.
        next_step: How to repair it.
    """

    code: str
    path: str
    kind: str
    dataflow: str
    table: str
    stage: str
    why: str
    next_step: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def of(cls, error: CbpError, path: str) -> Damage:
        """Return the damage that an error reports about a file."""
        path = str(error.details.get("path", path))
        place, why = place_of(path), str(error.details.get("why", error.message))
        return cls(
            error.code,
            path,
            place.kind,
            place.dataflow,
            place.name,
            place.stage,
            why,
            place.next_step,
        )


@dataclass(frozen=True, slots=True)
class ScrubbedFile:
    """The result for one file: its path, its bytes, and its damage, if any."""

    path: str
    bytes: int
    damage: Damage | None = None


def scrub(
    folder: str, files: Files, *, needed: Collection[str] = (), after: str = ""
) -> Iterator[ScrubbedFile]:
    """Check every file of a dataflow's folder, in the order of their names.

    Args:
        folder: The dataflow's folder; a local path.
        files: Access to the folder.
        needed: Data files of waiting increments, relative to the folder; they must exist.
        after: Begin after this path, where an earlier scrub ended.
    """
    there = {file.path: file.bytes for file in files.list_files(folder) if not file.temporary}
    yield from _missing_numbers(folder, there)
    yield from _missing_entries(folder, there, needed, files)
    live: dict[str, AddFile] = {}
    shown: dict[str, _Shown] = {}
    named: Collection[str] | None = None  # asked for if anything is wrong
    for table in _tables(there):
        infos: list[CommitInfo] = []
        snapshot, damage = _snapshot(f"{folder}/{table}", files, infos)
        if damage is not None:
            yield ScrubbedFile(damage.path, 0, damage)
        elif snapshot is not None:
            adds = {f"{table}/{path}": add for path, add in snapshot.live.items()}
            live |= adds
            shown[table] = _Shown(snapshot.txns, infos[-1] if infos else None)
            yield from _needed_files(folder, table, adds, there, files)
    yield from _missing_ends(folder, there, files, shown)
    for path in sorted(set(needed) - there.keys() - live.keys()):
        full = f"{folder}/{path}"
        if (error := _unreadable(full, "an increment that waits holds it", files)) is not None:
            yield ScrubbedFile(full, 0, Damage.of(error, full))
    for path in sorted(there):
        if f"{folder}/{path}" > after:
            looked = _look(folder, path, there[path], live.get(path), files)
            if looked.damage and _is_of_a_run(path) and path not in live and path not in needed:
                named = _named_files(folder, files) if named is None else named
                if path.rpartition("/")[2] not in named:
                    looked = replace(looked, damage=None)
            yield looked


def _look(folder: str, path: str, size: int, live: AddFile | None, files: Files) -> ScrubbedFile:
    """Check one file that was listed a moment ago."""
    full = f"{folder}/{path}"
    try:
        _check(full, path, live, files)
    except (NotFoundError, FileLostError):
        pass  # collected meanwhile; files that are needed were checked before
    except CbpError as error:
        return ScrubbedFile(full, size, Damage.of(error, full))
    return ScrubbedFile(full, size)


def _is_of_a_run(path: str) -> bool:
    return path.endswith(".parquet") and "/_runs/" in path


def _named_files(folder: str, files: Files) -> Collection[str]:
    """Return the names of all files of runs that a record or a log of a dataflow names."""
    names: set[str] = set()
    for file in files.list_files(folder):
        if file.path.endswith((".json", ".jsonl")):
            with suppress(CbpError):  # said elsewhere
                names.update(
                    _DATA_FILE.findall(
                        files.read(f"{folder}/{file.path}").decode("utf-8", "replace")
                    )
                )
    return names


def _check(full: str, path: str, live: AddFile | None, files: Files) -> None:
    if path.endswith(_CHECKPOINT):
        list(read_checkpoint(files.read(full), full))
    elif path.endswith(".parquet"):
        rows = check_parquet(full)
        if live is not None and rows != live.rows:
            raise FileDamagedError(full, f"it has {rows} rows, its log says {live.rows}")
    elif _TABLE_LOG in f"/{path}":
        if (match := _NUMBERED.match(path)) is not None:
            log = DeltaLog(full.partition(_TABLE_LOG)[0], files)
            log.entry(int(match["number"]))
    elif path.endswith(".jsonl") or _is_entry(path):
        _check_entries(full, files)
    elif path.endswith(".json"):
        record = parsed(files.read(full), full, _record)
        of, own = record.get("dataflow"), full.removesuffix(f"/{path}").rpartition("/")[2]
        if isinstance(of, str) and of != own:
            raise FileDamagedError(full, f"it is a record of dataflow {of!r}")


def _check_entries(full: str, files: Files) -> None:
    """Check the entries of a source's log that lie together in one file."""
    lines = files.read(full).splitlines()
    sealed, single = _SEALED.match(full), _NUMBERED.match(full)
    folder, first, promised = "", 0, len(lines)
    if sealed is not None:
        folder, first = sealed["folder"], int(sealed["start"])
        promised = int(sealed["end"]) - first
    elif single is not None:
        folder, first = single["folder"], int(single["number"])
        promised = _count_entries(full, files)
    for at, line in enumerate(lines, first):
        parsed(line, full, _record, written_to=f"{folder}/{at:020d}.json" if folder else full)
    if len(lines) != promised:
        raise FileDamagedError(full, f"it holds {len(lines)} of {promised} entries")


def _record(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        message = f"it is a {type(value).__name__}, no object"
        raise TypeError(message)
    return value


def _tables(there: Collection[str]) -> list[str]:
    return sorted({path.partition(_TABLE_LOG)[0] for path in there if _TABLE_LOG in f"/{path}"})


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a table's log tells of others: its transactions, and its newest entry of a run."""

    txns: Mapping[str, int]
    info: CommitInfo | None


def _snapshot(
    table: str, files: Files, infos: list[CommitInfo]
) -> tuple[Snapshot | None, Damage | None]:
    """Return the newest version of a table, or the damage that makes it unreadable.

    Args:
        infos: Gets the `CommitInfo` of entries that publish runs.
    """
    try:
        return DeltaLog(table, files).snapshot(visit=partial(_note, infos)), None
    except NotFoundError as error:
        if not files.exists(f"{table}/_delta_log"):
            return None, None
        lost = FileLostError(f"{table}/_delta_log/", error.message)
        return None, Damage.of(lost, table)
    except CbpError as error:
        return None, Damage.of(error, f"{table}/_delta_log/")


def _needed_files(
    folder: str, table: str, adds: Mapping[str, AddFile], there: Collection[str], files: Files
) -> Iterator[ScrubbedFile]:
    """Find files that a table's newest version lacks, and vectors that are damaged or lost."""
    for path, add in adds.items():
        full = f"{folder}/{path}"
        if path not in there:  # perhaps written since it was listed
            error = _unreadable(full, "the newest version of its table shows it", files)
            if error is not None and _is_live(folder, table, add, files):
                yield ScrubbedFile(full, 0, Damage.of(error, full))
        if add.deletion_vector is None or vector_path(add.deletion_vector) is None:
            continue
        vector = f"{folder}/{table}/{vector_path(add.deletion_vector)}"
        try:
            read_vector(f"{folder}/{table}", add.deletion_vector, files=files)
        except CbpError as error:
            if _is_live(folder, table, add, files):
                yield ScrubbedFile(vector, 0, Damage.of(error, vector))


def _unreadable(full: str, why: str, files: Files) -> CbpError | None:
    """Return the error for a file that is gone, or in whose place something else lies."""
    try:
        files.read_range(full, 0, 1)
    except NotFoundError:
        return FileLostError(full, why)
    except CbpError as error:
        return error
    return None


def _is_live(folder: str, table: str, add: AddFile, files: Files) -> bool:
    """Tell whether a table still shows a file unchanged; it may have been replaced meanwhile."""
    with suppress(CbpError):
        return DeltaLog(f"{folder}/{table}", files).snapshot().live.get(add.path) == add
    return True


def _missing_numbers(folder: str, there: Collection[str]) -> Iterator[ScrubbedFile]:
    """Find gaps in the numbers of each log of records."""
    logs: dict[str, list[int]] = {}
    for path in there:
        match = _NUMBERED.match(path)
        # Positions have gaps by design, and reading a snapshot checks a table log for gaps.
        if match is not None and not match["folder"].endswith(("_positions", "_delta_log")):
            logs.setdefault(match["folder"], []).append(int(match["number"]))
    for log, numbers in sorted(logs.items()):
        if log.startswith(_SOURCES):
            continue  # a file can hold several entries
        start = 1 if log == _GENERATIONS else min(numbers)
        for number in sorted(set(range(start, max(numbers))) - set(numbers)):
            path = f"{folder}/{log}/{number:020d}.json"
            yield _lost(path, "a later record of the same log is there")


def _missing_entries(
    folder: str, there: Collection[str], needed: Collection[str], files: Files
) -> Iterator[ScrubbedFile]:
    """Find entries of source logs that are gone: gaps, and those of increments that wait."""
    waiting: dict[str, int] = {}
    for match in map(_INCREMENT.match, needed):
        if match is not None:
            waiting[match["log"]] = max(int(match["number"]), waiting.get(match["log"], 0))
    logs = {path.partition("/_log/")[0] for path in there if _is_entry(path)}
    for source in sorted(logs | waiting.keys()):
        end = 0
        for start, stop in _entries_of(folder, f"{source}/_log", there, files):
            if start > end:
                why = f"entry {start} of the same log is there"
                yield _lost(f"{folder}/{source}/_log/{end:020d}.json", why)
            end = max(end, stop)
        if waiting.get(source, -1) >= end:
            yield _lost(f"{folder}/{source}/_log/{end:020d}.json", "its increment waits to be read")


def _is_entry(path: str) -> bool:
    return path.startswith(_SOURCES) and "/_log/" in path


def _entries_of(
    folder: str, log: str, there: Collection[str], files: Files
) -> list[tuple[int, int]]:
    """Return the first entry and the end of each file of a source's log, ascending."""
    spans = []
    for path in (path for path in there if path.startswith(f"{log}/")):
        if (sealed := _SEALED.match(path)) is not None:
            spans.append((int(sealed["start"]), int(sealed["end"])))
        elif (single := _NUMBERED.match(path)) is not None:
            start = int(single["number"])
            spans.append((start, start + _count_entries(f"{folder}/{path}", files)))
    return sorted(spans)


def _count_entries(full: str, files: Files) -> int:
    """Return how many entries a file says that it holds; what is damaged is told elsewhere."""
    with suppress(CbpError, ValueError, IndexError, AttributeError):
        together = json.loads(files.read(full).splitlines()[0]).get("together", 1)
        return together if isinstance(together, int) else 1
    return 1


def _missing_ends(
    folder: str, there: Collection[str], files: Files, tables: Mapping[str, _Shown]
) -> Iterator[ScrubbedFile]:
    """Find out whether the newest record of a stage or of a roll-back, or a description, is lost.

    No gap in the numbers shows that; the tables do.
    """
    rolled_back = _newest_of(there, _GENERATIONS) or 0
    shown_last = max((shown_generation(one.txns) for one in tables.values()), default=0)
    if shown_last > rolled_back:
        path = f"{folder}/{_GENERATIONS}/{rolled_back + 1:020d}.json"
        yield _lost(path, f"the tables are of generation {shown_last}")
    newest = _newest_of(there, "_description")
    versions = {1} if newest is None else set()
    records: dict[str, str] = {}
    for table, shown in tables.items():
        versions.update(one for one in _changed_by(shown.txns) if one > (newest or 0))
        if shown.info and (path := _record_of(shown.info, shown_generation(shown.txns))):
            records.setdefault(path, f"{table} shows its epoch")
    for version in sorted(versions):
        yield _lost(f"{folder}/_description/{version:020d}.json", "the tables are of its version")
    for path, why in sorted(records.items()):
        if path not in there and not files.exists(f"{folder}/{path}"):
            yield _lost(f"{folder}/{path}", why)


def _note(infos: list[CommitInfo], _version: int, actions: Sequence[Action]) -> None:
    """Collect the `CommitInfo` of entries that publish runs."""
    commit_infos = (action for action in actions if isinstance(action, CommitInfo))
    infos += [info for info in commit_infos if info.operation in OPERATIONS]


def _record_of(info: CommitInfo, generation: int) -> str:
    """Return the path of the record that an entry names as its cause; `""` if it names none."""
    _, stage, epoch = (info.intention_id or "//").split("/")
    base = f"_intentions/_generations/{generation:020d}" if generation else "_intentions"
    return f"{base}/{stage}/{int(epoch):020d}.json" if stage and epoch.isdigit() else ""


def _newest_of(there: Collection[str], folder: str) -> int | None:
    matches = (_NUMBERED.match(path) for path in there)
    return max((int(m["number"]) for m in matches if m and m["folder"] == folder), default=None)


def _changed_by(txns: Mapping[str, int]) -> list[int]:
    """Return the versions of the dataflow that changed a table."""
    kinds = (name.rpartition("/")[2].partition("@")[0] for name in txns)
    ends = (kind.removeprefix(CHANGE) for kind in kinds if kind.startswith(CHANGE))
    return [int(end) for end in ends if end.isdigit()]


def _lost(path: str, why: str) -> ScrubbedFile:
    return ScrubbedFile(path, 0, Damage.of(FileLostError(path, why), path))
