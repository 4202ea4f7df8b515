"""Copy of a state's files, as of a version, into the tables of a recomputation.

A recomputation that begins after an epoch needs the state of that time. Its tables are created
empty, and one change adds what the version holds: the same data files and deletion vectors. They
are copied, since garbage collection of the version knows nothing about recomputations.

Guaranteed: the original table is only read; the copies are removed with the folder.
"""

from __future__ import annotations

from collections.abc import Sequence

from cbp.engine.commit.table_entries import live_at
from cbp.engine.delta.deletion_vectors import vector_path
from cbp.engine.delta.log import Snapshot
from cbp.engine.storage.files import Files
from cbp.errors import NotFoundError
from cbp.model.run.intention import Intention, TableChange


def copy_state(
    snapshot: Snapshot,
    table: str,
    records: Sequence[Intention],
    *,
    folder: str,
    into: str,
    files: Files,
) -> TableChange:
    """Copy the files of one version of a table; return the change that adds them.

    Args:
        snapshot: The version.
        table: Folder of the table, relative to both dataflows' folders.
        records: Records of the table's stage after the version that count too, oldest first.
        into: The folder of the recomputation.
        files: Access to both folders.

    Raises:
        NotFoundError: If a file of the version was collected.
    """
    live, vectors = dict(snapshot.live), None
    if records:
        live, vectors = live_at(folder, table, snapshot, records, files=files)
    if vectors is not None:
        vectors.write(f"{into}/{table}", files)
    named = set(live)
    marked = (add.deletion_vector for add in live.values())
    named |= {path for one in marked if one is not None and (path := vector_path(one))}
    for name in sorted(named):
        source, target = f"{folder}/{table}/{name}", f"{into}/{table}/{name}"
        if files.exists(target):
            continue  # the vectors that were just written
        if not files.exists(source):
            raise NotFoundError(kind="file", name=source)
        files.write_durable(target, files.read(source))
    return TableChange(table, adds=tuple(add.to_json() for add in live.values()))
