"""How many records were rejected: by increment, file, source and dataflow.

The count of an increment (`rejected_rows` of its origin) is known once it is accepted. If an
increment was made from many files, or if the store no longer has it, the count of a file is looked
up in the source's log. A source's total is the size of its table of rejected records, which no
retention shortens; an increment is missing there until the pass that accepted it ends.

All of this is on disk, so a restart, or a rebuilt store, changes no figure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import structlog

from cbp.engine.delta.managed_table import open_table
from cbp.engine.storage.files import files_for, local_path
from cbp.engine.storage.table_names import rejects_table
from cbp.errors import CbpError, NotFoundError
from controller.ingest.source_log import SourceLog
from controller.store.base import ClaimRecord, DataflowRecord, IncrementRecord, Store

_log = structlog.get_logger(__name__)
_OUTCOMES = ("accepted", "withdrawn")
"""States of claims whose file was read completely, into an increment."""


def rejected_of_increment(record: IncrementRecord) -> int:
    """Return how many records of an increment's files were rejected; 0 for a stage's flow."""
    return _count_of(record.origin)


def rejected_by_source(record: DataflowRecord, sources: Iterable[str]) -> dict[str, int]:
    """Return how many records were rejected so far, by source; one without any is left out.

    A source whose table cannot be read is also left out, and logged; `cbp doctor` names it.
    """
    counts = {}
    for source in sources:
        path = f"{local_path(record.folder)}/{rejects_table(source)}"
        if not os.path.lexists(path):  # nothing was rejected; cheaper than opening the table
            continue
        try:
            live = open_table(path, files_for(path)).snapshot.live.values()
        except NotFoundError:
            continue
        except CbpError as error:
            _log.warning("rejects.unreadable", table=path, error=error.message)
            continue
        if count := sum(file.rows for file in live):
            counts[source] = count
    return counts


def rejected_by_claim(
    record: DataflowRecord, claims: Sequence[ClaimRecord], store: Store
) -> dict[str, int]:
    """Return how many records of files of one dataflow were rejected, by claim; 0 is left out."""
    read = [
        (one.id, (one.source, one.index))
        for one in claims
        if one.status in _OUTCOMES and one.index is not None
    ]
    keys = {key for _, key in read}
    origins = store.origins(record.name, keys) if keys else {}
    in_files = {key: _in_files(record, key, origins.get(key)) for key in keys}
    return {claim: count for claim, key in read if (count := in_files[key].get(claim, 0))}


def _in_files(
    record: DataflowRecord, key: tuple[str, int], origin: Mapping[str, object] | None
) -> Mapping[str, int]:
    (source, index), folder = key, local_path(record.folder)
    if origin is None:  # the store has removed the increment, so the table has its records by now
        some = Path(folder, rejects_table(source), f"{index:020d}.parquet").exists()
    else:
        some = _count_of(origin) > 0
        if "claim" in origin:
            return {str(origin["claim"]): _count_of(origin)}
    if not some:
        return {}
    try:
        entry = next(SourceLog(folder, source, files_for(folder)).since(index))
    except (CbpError, StopIteration) as error:
        _log.warning("rejects.unreadable", source=source, index=index, error=str(error))
        return {}
    return {file.claim: int(file.notes.get("rejected_rows", 0)) for file in entry.files}


def _count_of(origin: Mapping[str, object]) -> int:
    count = origin.get("rejected_rows", 0)
    assert isinstance(count, int)
    return count
