"""Finds files of a dataflow that are gone although others show that they were there.

Logs of records and of sources are numbered, so a gap shows. The newest record of a stage, of a
roll-back or a description leaves no gap; the tables tell of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cbp.engine.commit.table_entries import CHANGE, shown_epoch, shown_generation
from cbp.engine.delta.actions import CommitInfo
from cbp.engine.read.damages import Damage, ScrubbedFile
from cbp.engine.storage.files import Files
from cbp.errors import CbpError, FileLostError

NUMBERED = re.compile(r"(?P<folder>.*)/(?P<number>\d{20})\.json\Z")
"""A file of one record."""
SEALED = re.compile(r"(?P<folder>.*)/[^/]+/(?P<start>\d{20})-(?P<end>\d{20})\.jsonl\Z")
"""A file of several entries of a source's log."""
TABLE_LOG = "/_delta_log/"
_INCREMENT = re.compile(r"(?P<log>sources/[^/]+)/(?P<number>\d{12})-[^/]+\.parquet\Z")
_SOURCES = "sources/"
_GENERATIONS = "_intentions/_generations"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """An entry of a table's log that publishes a run, and the generation of the run."""

    info: CommitInfo
    generation: int


@dataclass(frozen=True, slots=True)
class Shown:
    """The evidence in a table's log: its transactions, and its entries of runs, ascending."""

    txns: Mapping[str, int]
    runs: Sequence[RunEntry]


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
            continue  # a file can hold several entries
        start = 1 if log == _GENERATIONS else min(numbers)
        for number in sorted(set(range(start, max(numbers))) - set(numbers)):
            path = f"{folder}/{log}/{number:020d}.json"
            yield _lost(path, "a later record of the same log exists")


def missing_entries(
    folder: str, there: Collection[str], needed: Collection[str], files: Files
) -> Iterator[ScrubbedFile]:
    """Find entries of source logs that are gone: gaps, and those of increments that wait."""
    waiting: dict[str, int] = {}
    for match in map(_INCREMENT.match, needed):
        if match is not None:
            waiting[match["log"]] = max(int(match["number"]), waiting.get(match["log"], 0))
    logs = {path.partition("/_log/")[0] for path in there if is_entry(path)}
    for source in sorted(logs | waiting.keys()):
        end = 0
        for start, stop in _entries_of(folder, f"{source}/_log", there, files):
            if start > end:
                why = f"entry {start} of the same log exists"
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
    """Return how many entries a file says that it holds; damage is reported elsewhere."""
    with suppress(CbpError, ValueError, IndexError, AttributeError):
        together = json.loads(files.read(full).splitlines()[0]).get("together", 1)
        return together if isinstance(together, int) else 1
    return 1


def missing_ends(
    folder: str, there: Collection[str], files: Files, tables: Mapping[str, Shown]
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
        if path := _shown_record(shown):
            records.setdefault(path, f"{table} shows its epoch")
    for version in sorted(versions):
        yield _lost(f"{folder}/_description/{version:020d}.json", "the tables are of its version")
    for path, why in sorted(records.items()):
        if path not in there and not files.exists(f"{folder}/{path}"):
            yield _lost(f"{folder}/{path}", why)


def _shown_record(shown: Shown) -> str:
    """Return the path of the record of the epoch that a table shows; `""` if none is named.

    After a roll-back that is the record of an earlier generation, until the next run.
    """
    newest = shown_epoch(shown.txns, shown_generation(shown.txns))
    for one in reversed(shown.runs):
        _, stage, epoch = (one.info.intention_id or "//").split("/")
        if not epoch.isdigit() or int(epoch) > newest:
            continue  # a roll-back undid it
        generation = f"/_generations/{one.generation:020d}" if one.generation else ""
        path = f"_intentions{generation}/{stage}/{int(epoch):020d}.json"
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
