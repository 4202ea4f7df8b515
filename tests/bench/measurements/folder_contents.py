"""Counts the contents of a dataflow's folder by kind, to show what grows.

Inputs are left out: an increment is kept as long as its owner wants it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cbp.engine.delta.managed_table import open_table
from cbp.engine.storage.files import LocalFiles

__all__ = ["Remains", "remains"]

_INPUTS = "sources"


@dataclass(frozen=True, slots=True)
class Remains:
    """Counts at one moment.

    Attributes:
        epoch: Number of epochs that ran before.
        state_files: Live data files of all state tables.
        output_files: Live data files of all output tables.
        log_entries: Entries and checkpoints in the logs of all tables.
        records: Records of runs and of positions.
        files: Files of all kinds.
        bytes: Bytes of all files.
    """

    epoch: int
    state_files: int
    output_files: int
    log_entries: int
    records: int
    files: int
    bytes: int


def remains(folder: Path, epoch: int) -> Remains:
    """Count the contents of a dataflow's folder."""
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] != _INPUTS
    ]
    return Remains(
        epoch,
        _live(folder, "state"),
        _live(folder, "flows"),
        sum(path.parent.name == "_delta_log" for path in files),
        sum("_intentions" in path.parts for path in files),
        len(files),
        sum(path.stat().st_size for path in files),
    )


def _live(folder: Path, kind: str) -> int:
    tables = folder.glob(f"{kind}/*")
    return sum(len(open_table(str(table), LocalFiles()).snapshot.live) for table in tables)
