"""The files of one version of a table, and which of their rows are dead.

For readers that open data files themselves, such as a query engine. The files stay as long as the
version is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.delta.deletion_vectors import read_vector, rows_of
from cbp.engine.delta.log import DeltaLog
from cbp.engine.outputs.output_compaction import in_order
from cbp.engine.storage.files import Files
from cbp.errors import FileLostError, NotFoundError, VersionGoneError


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One file of a version; `dead` has the numbers of its dead rows, ascending."""

    path: str
    dead: Int64s


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of one version of a table: of a flow in its order, of a state in any fixed order.

    `columns` has the name and type of each column of the files, the type as Delta's log has it.
    """

    columns: tuple[tuple[str, Any], ...]
    files: tuple[LiveFile, ...]


def read_version_files(path: str, version: int, *, is_flow: bool, files: Files) -> VersionFiles:
    """Return a version's files; `VersionGoneError` if they or dead rows were collected."""
    try:
        snapshot = DeltaLog(path, files).snapshot(version)
        shown = snapshot.live.values()
        live = tuple(
            LiveFile(
                f"{path}/{one.path}",
                rows_of(read_vector(path, one.deletion_vector))
                if one.deletion_vector is not None
                else np.empty(0, np.int64),
            )
            for one in (in_order(shown) if is_flow else sorted(shown, key=lambda one: one.path))
        )
    except (NotFoundError, FileLostError) as error:
        raise VersionGoneError(path, version) from error
    fields = json.loads(snapshot.metadata.schema)["fields"]
    in_path = snapshot.metadata.partition_columns
    columns = tuple((one["name"], one["type"]) for one in fields if one["name"] not in in_path)
    return VersionFiles(columns, live)
