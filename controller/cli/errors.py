"""Errors of commands that do not come from the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cbp.errors import OperatingError
from cbp.errors.counts import format_count


class ChecksFailedError(OperatingError, code="checks_failed", retryable=False):
    """A check of `cbp doctor` failed."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(
            f"{format_count(len(names), 'check')} failed: {', '.join(names)}", checks=names
        )


class DamagesFoundError(OperatingError, code="damages_found", retryable=False):
    """`cbp scrub` found files that differ from what was written."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{format_count(count, 'damaged or missing file')} found; `cbp help damage` explains "
            "each error code, and how to repair the damage",
            damages=count,
        )


class FilesRefusedError(OperatingError, code="files_refused", retryable=False):
    """Dropped files went to quarantine.

    Args:
        files: Refused file -> reason.
        items: The result for each file, including accepted ones.
    """

    def __init__(
        self, dataflow: str, files: Mapping[str, str], items: Sequence[Mapping[str, Any]]
    ) -> None:
        reasons = "; ".join(
            why if why.startswith((f"{name}, ", f"{name}: ")) else f"{name}: {why}"
            for name, why in files.items()
        )
        super().__init__(
            f"{format_count(len(files), 'file is', 'files are')} in quarantine ({reasons}); see: "
            f"cbp claims {dataflow} --status quarantined",
            dataflow=dataflow,
            files=dict(files),
            items=list(items),
        )


class FolderUnwritableError(OperatingError, code="folder_unwritable", retryable=False):
    """A folder that a command makes cannot be written."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} cannot be written: {why}", path=str(path), cause=why)
