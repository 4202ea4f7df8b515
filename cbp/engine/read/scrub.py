"""Scrub: read all files of a dataflow's folder, and report those that are damaged or missing.

    records      descriptions, intentions, positions, roll-backs, punctuations, notes, source logs:
                 their digests, and that no number is missing between two, nor the newest
    table logs   digests of entries, checkpoints; the newest version can be read
    tables       every file of the newest version exists, is whole, and has the rows that its log
                 says; so does the vector of its deleted rows
    other files  of older versions, of waiting increments, of sources: whole, if they exist
                 and, of files of runs, if a record or a log names them

A run that died before its record was put leaves files that no record names. A loss of power may
have cut them; garbage collection removes them, and they are not damage.

A scrub is lazy: the caller that iterates decides how fast it reads. While the service runs, files
come and go: a file that is gone when it is to be read is not damage, unless it is still needed.

Guaranteed: nothing is changed, and one damage hides no other.
Not guaranteed: that a file without checksums, of an earlier version, is what was written; it is
only known to be decodable. Index copies are not read here: each look-up checks them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from cbp.engine.commit.table_entries import OPERATIONS, shown_generation
from cbp.engine.delta.actions import Action, AddFile, CommitInfo, Txn
from cbp.engine.delta.checkpoint import read_checkpoint
from cbp.engine.delta.deletion_vectors import read_vector, vector_path
from cbp.engine.delta.log import DeltaLog, Snapshot
from cbp.engine.read.damages import Damage, ScrubbedFile
from cbp.engine.read.missing_files import (
    NUMBERED,
    SEALED,
    TABLE_LOG,
    RunEntry,
    Shown,
    count_entries,
    is_entry,
    missing_ends,
    missing_entries,
    missing_numbers,
)
from cbp.engine.storage.checked_json import parsed
from cbp.engine.storage.checked_parquet import check_parquet
from cbp.engine.storage.files import Files
from cbp.errors import CbpError, FileDamagedError, FileLostError, NotFoundError
from cbp.errors.counts import format_count

_DATA_FILE = re.compile(r"[\w.=-]+\.parquet\b")
_CHECKPOINT = ".checkpoint.parquet"


def scrub(
    folder: str, files: Files, *, needed: Collection[str] = (), after: str = ""
) -> Iterator[ScrubbedFile]:
    """Check every file of a dataflow's folder, in the order of their names.

    Args:
        needed: Data files of waiting increments, relative to the folder; they must exist.
        after: Begin after this path, where an earlier scrub ended.
    """
    there = {file.path: file.bytes for file in files.list_files(folder) if not file.temporary}
    yield from missing_numbers(folder, there)
    yield from missing_entries(folder, there, needed, files)
    live: dict[str, AddFile] = {}
    shown: dict[str, Shown] = {}
    named: Collection[str] | None = None  # asked for if anything is wrong
    for table in _tables(there):
        runs: list[RunEntry] = []
        snapshot, damage = _snapshot(f"{folder}/{table}", files, runs)
        if damage is not None:
            yield ScrubbedFile(damage.path, 0, damage)
        elif snapshot is not None:
            adds = {f"{table}/{path}": add for path, add in snapshot.live.items()}
            live |= adds
            shown[table] = Shown(snapshot.txns, runs)
            yield from _needed_files(folder, table, adds, there, files)
    yield from missing_ends(folder, there, files, shown)
    for path in sorted(set(needed) - there.keys() - live.keys()):
        full = f"{folder}/{path}"
        if (error := _unreadable(full, "a queued increment has it", files)) is not None:
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
            raise FileDamagedError(
                full, f"it has {format_count(rows, 'row')}, its log says {live.rows}"
            )
    elif TABLE_LOG in f"/{path}":
        if (match := NUMBERED.match(path)) is not None:
            log = DeltaLog(full.partition(TABLE_LOG)[0], files)
            log.entry(int(match["number"]))
    elif path.endswith(".jsonl") or is_entry(path):
        _check_entries(full, files)
    elif path.endswith(".json"):
        record = parsed(files.read(full), full, _record)
        of, own = record.get("dataflow"), full.removesuffix(f"/{path}").rpartition("/")[2]
        if isinstance(of, str) and of != own:
            raise FileDamagedError(full, f"it is a record of dataflow {of!r}")


def _check_entries(full: str, files: Files) -> None:
    """Check the entries of a source's log that lie together in one file."""
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
        raise FileDamagedError(full, f"it holds {len(lines)} of {promised} entries")


def _record(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        message = f"it is a {type(value).__name__}, not an object"
        raise TypeError(message)
    return value


def _tables(there: Collection[str]) -> list[str]:
    return sorted({path.partition(TABLE_LOG)[0] for path in there if TABLE_LOG in f"/{path}"})


def _snapshot(
    table: str, files: Files, runs: list[RunEntry]
) -> tuple[Snapshot | None, Damage | None]:
    """Return the newest version of a table, or the damage that makes it unreadable."""
    try:
        return DeltaLog(table, files).snapshot(visit=partial(_note, runs)), None
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
    """Return the error for a file that is gone, or whose place something else has taken."""
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


def _note(runs: list[RunEntry], _version: int, actions: Sequence[Action]) -> None:
    """Collect an entry that publishes a run."""
    txns = {action.app_id: action.version for action in actions if isinstance(action, Txn)}
    runs += [
        RunEntry(action, shown_generation(txns))
        for action in actions
        if isinstance(action, CommitInfo) and action.operation in OPERATIONS
    ]
