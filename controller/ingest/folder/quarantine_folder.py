"""The `quarantine` folder of a source: a refused file is moved there, beside its reason.

    quarantine/<claim>-<name>                    the file, as its producer wrote it
               <claim>-<name>.reason.json        why it was refused
               <claim>-<name>.decision.json      an operator's decision, until it is carried out

A file is refused by `controller.ingest.intake` (`reject`; the reasons:
`controller.ingest.rejection`), and by `late_writes` if it changed after it was taken in. An
operator then decides about it (`controller.ingest.quarantine_decisions`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from controller.ingest.errors import device_errors
from controller.ingest.folder.source_place import move, names_in

REASON_SUFFIX = ".reason.json"
DECISION_SUFFIX = ".decision.json"


def move_to_quarantine(
    path: Path, target: Path, reason: Mapping[str, Any], files: Files, faults: Faults
) -> None:
    """Make the reason of a rejection durable, then move the file to quarantine."""
    data = json.dumps(reason, ensure_ascii=True, indent=2).encode()
    files.write_durable(str(reason_path(target)), data)
    with device_errors(str(path)):
        move(path, target, files, faults)


def kept_files(folder: Path) -> dict[str, Path]:
    """Return the kept files of a folder, by the claim's id."""
    return {
        name.partition("-")[0]: folder / name
        for name in names_in(folder)
        if "-" in name and not name.endswith((REASON_SUFFIX, DECISION_SUFFIX))
    }


def reason_path(path: Path) -> Path:
    """Return the path of the reason of a quarantined file."""
    return path.with_name(path.name + REASON_SUFFIX)


def decision_path(path: Path) -> Path:
    """Return the path of the note about a decision; see `quarantine_decisions`."""
    return path.with_name(path.name + DECISION_SUFFIX)
