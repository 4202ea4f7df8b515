"""Scrub: read all files of a dataflow's folder, and report those that are damaged or missing.

    records      descriptions, intentions, positions, roll-backs, punctuations, notes, source logs:
                 digests; no number is missing, neither between two nor at the end
    table logs   digests of entries, checkpoints; the newest version can be read
    tables       every file of the newest version exists, is complete, and has as many rows as its
                 log says; so does the vector of its deleted rows
    other files  of older versions, of waiting increments, of sources: complete, if they exist;
                 files of runs only if a record or a log names them

A run that died before its record was put leaves files that no record names. A loss of power may
have cut them; garbage collection removes them, and they are not damage.

A scrub is lazy: the caller that iterates decides how fast it reads. While the service runs, files
come and go: a file that was removed before it was read is not damage, unless it is still needed.
Logs are numbered, so a missing record leaves a gap. If the newest record is missing, there is no
gap, but the tables name it.

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
from typing import Any

from cbp.engine.commit.table_entries import CHANGE, OPERATIONS, newest_epoch, shown_generation
from cbp.engine.delta.actions import Action, AddFile, CommitInfo, Txn
from cbp.engine.delta.checkpoint import read_checkpoint
from cbp.engine.delta.deletion_vectors import read_vector, vector_path
from cbp.engine.delta.log import DeltaLog, Snapshot
from cbp.engine.storage.checked_json import parsed
from cbp.engine.storage.checked_parquet import check_parquet
from cbp.engine.storage.files import Files
from cbp.errors import CbpError, FileDamagedError, FileLostError, NotFoundError, place_of
from cbp.errors.counts import format_count


@dataclass(frozen=True, slots=True)
class Damage:
    """One file whose content differs from what was written."""

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
        of = place.kind, place.dataflow, place.name, place.stage
        return cls(error.code, path, *of, why, place.next_step)


@dataclass(frozen=True, slots=True)
class ScrubbedFile:
    """The result for one file: its path, its bytes, and its damage, if any."""

    path: str
    bytes: int
    damage: Damage | None = None


NUMBERED = re.compile(r"(?P<folder>.*)/(?P<number>\d{20})\.json\Z")
"""A file of one record."""
SEALED = re.compile(r"(?P<folder>.*)/[^/]+/(?P<start>\d{20})-(?P<end>\d{20})\.jsonl\Z")
"""A file that holds several entries of a source's log."""
TABLE_LOG = "/_delta_log/"
_INCREMENT = re.compile(r"(?P<log>sources/[^/]+)/(?P<number>\d{12})-[^/]+\.parquet\Z")
_SOURCES = "sources/"
_GENERATIONS = "_intentions/_generations"


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a table's log says: transactions; the intention and the generation of each run."""

    txns: Mapping[str, int]
    runs: Sequence[tuple[str, int]]


def missing_numbers(folder: str, there: Collection[str]) -> Iterator[ScrubbedFile]:
    """Find gaps in the numbers of each log of records."""
    logs: dict[str, list[int]] = {}
    for path in there:
        match = NUMBERED.match(path)
        # Positions have gaps by design, and reading a snapshot checks a table log for gaps.
        if match is not None and not match["folder"].endswith(("_positions", "_delta_log")):
            logs.setdefault(match["folder"], []).append(int(match["number"]))
    for log, numbers in sorted(logs.items()):
        if log.startswith(_SOURCES):
            continue  # a file can have several entries
        start = 1 if log == _GENERATIONS else min(numbers)
        for number in sorted(set(range(start, max(numbers))) - set(numbers)):
            path = f"{folder}/{log}/{number:020d}.json"
            yield _lost(path, "a later record of the same log exists")


def missing_entries(
    folder: str, there: Collection[str], needed: Collection[str], files: Files
) -> Iterator[ScrubbedFile]:
    """Find missing entries of source logs: gaps, and entries of queued increments."""
    waiting: dict[str, int] = {}
    for match in map(_INCREMENT.match, needed):
        if match is not None:
            waiting[match["log"]] = max(int(match["number"]), waiting.get(match["log"], 0))
    logs = {path.partition("/_log/")[0] for path in there if is_entry(path)}
    for source in sorted(logs | waiting.keys()):
        end = 0
        for start, stop in _entries_of(folder, f"{source}/_log", there, files):
            if start > end:
                why = f"the later entry {start} of the same log exists"
                yield _lost(f"{folder}/{source}/_log/{end:020d}.json", why)
            end = max(end, stop)
        if waiting.get(source, -1) >= end:
            yield _lost(f"{folder}/{source}/_log/{end:020d}.json", "its increment is still queued")


def is_entry(path: str) -> bool:
    """Return whether a path, relative to its dataflow's folder, is a file of a source's log."""
    return path.startswith(_SOURCES) and "/_log/" in path


def _entries_of(
    folder: str, log: str, there: Collection[str], files: Files
) -> list[tuple[int, int]]:
    """Return the first entry and the end of each file of a source's log, ascending."""
    spans = []
    for path in (path for path in there if path.startswith(f"{log}/")):
        if (sealed := SEALED.match(path)) is not None:
            spans.append((int(sealed["start"]), int(sealed["end"])))
        elif (single := NUMBERED.match(path)) is not None:
            start = int(single["number"])
            spans.append((start, start + count_entries(f"{folder}/{path}", files)))
    return sorted(spans)


def count_entries(full: str, files: Files) -> int:
    """Return the number of entries that a file declares; damage is reported elsewhere."""
    with suppress(CbpError, ValueError, IndexError, AttributeError):
        together = json.loads(files.read(full).splitlines()[0]).get("together", 1)
        return together if isinstance(together, int) else 1
    return 1


def missing_ends(
    folder: str, there: Collection[str], files: Files, tables: Mapping[str, _Shown]
) -> Iterator[ScrubbedFile]:
    """Find out whether the newest record of a stage or of a roll-back, or a description, is lost.

    Gaps in the numbers cannot show that, but the tables can.
    """
    rolled_back = _newest_of(there, _GENERATIONS) or 0
    shown_last = max((shown_generation(one.txns) for one in tables.values()), default=0)
    if shown_last > rolled_back:
        path = f"{folder}/{_GENERATIONS}/{rolled_back + 1:020d}.json"
        yield _lost(path, f"the tables are at generation {shown_last}")
    newest = _newest_of(there, "_description")
    versions = {1} if newest is None else set()
    records: dict[str, str] = {}
    for table, shown in tables.items():
        versions.update(one for one in _changed_by(shown.txns) if one > (newest or 0))
        if path := _shown_record(shown):
            records.setdefault(path, f"the table {table} contains the results of its epoch")
    for version in sorted(versions):
        path = f"{folder}/_description/{version:020d}.json"
        yield _lost(path, "tables were written by this version of the dataflow")
    for path, why in sorted(records.items()):
        if path not in there and not files.exists(f"{folder}/{path}"):
            yield _lost(f"{folder}/{path}", why)


def _shown_record(shown: _Shown) -> str:
    """Return the path of the record of the epoch that a table shows; `""` if none is named.

    After a roll-back that is the record of an earlier generation, until the next run.
    """
    newest = newest_epoch(shown.txns)
    for intention, generation in reversed(shown.runs):
        _, stage, epoch = intention.split("/")
        if not epoch.isdigit() or int(epoch) > newest:
            continue  # a roll-back undid it
        below = f"/_generations/{generation:020d}" if generation else ""
        path = f"_intentions{below}/{stage}/{int(epoch):020d}.json"
        return path if int(epoch) == newest else ""
    return ""


def _newest_of(there: Collection[str], folder: str) -> int | None:
    matches = (NUMBERED.match(path) for path in there)
    return max((int(m["number"]) for m in matches if m and m["folder"] == folder), default=None)


def _changed_by(txns: Mapping[str, int]) -> list[int]:
    """Return the versions of the dataflow that changed a table."""
    kinds = (name.rpartition("/")[2].partition("@")[0] for name in txns)
    ends = (kind.removeprefix(CHANGE) for kind in kinds if kind.startswith(CHANGE))
    return [int(end) for end in ends if end.isdigit()]


def _lost(path: str, why: str) -> ScrubbedFile:
    return ScrubbedFile(path, 0, Damage.of(FileLostError(path, why), path))


_DATA_FILE = re.compile(r"[\w.=-]+\.parquet\b")
_CHECKPOINT = ".checkpoint.parquet"


def scrub(folder: str, files: Files, *, needed: Collection[str] = ()) -> Iterator[ScrubbedFile]:
    """Check every file of a dataflow's folder, in the order of their names.

    `needed` are the data files of waiting increments, relative to the folder; they must exist.
    """
    there = {file.path: file.bytes for file in files.list_files(folder) if not file.temporary}
    yield from missing_numbers(folder, there)
    yield from missing_entries(folder, there, needed, files)
    live: dict[str, AddFile] = {}
    shown: dict[str, _Shown] = {}
    named: Collection[str] | None = None  # read only if anything is wrong
    logs = (path for path in there if TABLE_LOG in f"/{path}")
    for table in sorted({path.partition(TABLE_LOG)[0] for path in logs}):
        runs: list[tuple[str, int]] = []
        snapshot, damage = _snapshot(f"{folder}/{table}", files, runs)
        if damage is not None:
            yield ScrubbedFile(damage.path, 0, damage)
        elif snapshot is not None:
            adds = {f"{table}/{path}": add for path, add in snapshot.live.items()}
            live |= adds
            shown[table] = _Shown(snapshot.txns, runs)
            yield from _needed_files(folder, table, adds, there, files)
    yield from missing_ends(folder, there, files, shown)
    for path in sorted(set(needed) - there.keys() - live.keys()):
        full = f"{folder}/{path}"
        if (error := _unreadable(full, "a queued increment refers to it", files)) is not None:
            yield ScrubbedFile(full, 0, Damage.of(error, full))
    for path in sorted(there):
        looked = _look(folder, path, there[path], live.get(path), files)
        of_a_run = path.endswith(".parquet") and "/_runs/" in path
        if looked.damage and of_a_run and path not in live and path not in needed:
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


def _named_files(folder: str, files: Files) -> Collection[str]:
    """Return the names of all files of runs that a record or a log of a dataflow names."""
    names: set[str] = set()
    for file in files.list_files(folder):
        if file.path.endswith((".json", ".jsonl")):
            with suppress(CbpError):  # reported elsewhere
                text = files.read(f"{folder}/{file.path}").decode("utf-8", "replace")
                names.update(_DATA_FILE.findall(text))
    return names


def _check(full: str, path: str, live: AddFile | None, files: Files) -> None:
    if path.endswith(_CHECKPOINT):
        list(read_checkpoint(files.read(full), full))
    elif path.endswith(".parquet"):
        rows = check_parquet(full)
        if live is not None and rows != live.rows:
            has = format_count(rows, "row")
            raise FileDamagedError(full, f"it has {has}, but {live.rows} in the log of its table")
    elif TABLE_LOG in f"/{path}":
        if (match := NUMBERED.match(path)) is not None:
            DeltaLog(full.partition(TABLE_LOG)[0], files).entry(int(match["number"]))
    elif path.endswith(".jsonl") or is_entry(path):
        _check_entries(full, files)
    elif path.endswith(".json"):
        record = parsed(files.read(full), full, _record)
        of, own = record.get("dataflow"), full.removesuffix(f"/{path}").rpartition("/")[2]
        if isinstance(of, str) and of != own:
            raise FileDamagedError(full, f"it is a record of another dataflow, {of!r}")


def _check_entries(full: str, files: Files) -> None:
    """Check the entries of a source's log that share one file."""
    lines = files.read(full).splitlines()
    sealed, single = SEALED.match(full), NUMBERED.match(full)
    folder, first, promised = "", 0, len(lines)
    if sealed is not None:
        folder, first = sealed["folder"], int(sealed["start"])
        promised = int(sealed["end"]) - first
    elif single is not None:
        folder, first = single["folder"], int(single["number"])
        promised = count_entries(full, files)
    for at, line in enumerate(lines, first):
        parsed(line, full, _record, written_to=f"{folder}/{at:020d}.json" if folder else full)
    if len(lines) != promised:
        raise FileDamagedError(full, f"it has {len(lines)} entries instead of {promised}")


def _record(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        message = f"it is a {type(value).__name__}, not an object"
        raise TypeError(message)
    return value


def _snapshot(
    table: str, files: Files, runs: list[tuple[str, int]]
) -> tuple[Snapshot | None, Damage | None]:
    """Return the newest version of a table, or the damage that makes it unreadable."""

    def note(_version: int, actions: Sequence[Action]) -> None:
        txns = {action.app_id: action.version for action in actions if isinstance(action, Txn)}
        generation = shown_generation(txns)
        infos = (action for action in actions if isinstance(action, CommitInfo))
        runs.extend(
            (one.intention_id or "//", generation) for one in infos if one.operation in OPERATIONS
        )

    try:
        return DeltaLog(table, files).snapshot(visit=note), None
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
            error = _unreadable(full, "the newest version of its table contains it", files)
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
    """Return the error for a missing file, or for a path that is not a file."""
    try:
        files.read_range(full, 0, 1)
    except NotFoundError:
        return FileLostError(full, why)
    except CbpError as error:
        return error
    return None


def _is_live(folder: str, table: str, add: AddFile, files: Files) -> bool:
    """Return whether a table still shows a file unchanged; it may have been replaced meanwhile."""
    with suppress(CbpError):
        return DeltaLog(f"{folder}/{table}", files).snapshot().live.get(add.path) == add
    return True
