"""The options of the demo, and the folder in which it works."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cbp.errors import OperatingError


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of one call.

    Attributes:
        keep: Leave the service running, and keep its folder.
        root: Folder in which this call creates a new one that stays; `None` means a temporary one.
        as_json: Print one JSON document at the end and nothing else.
        increments: Number of increments before the last one.
        engine: `local` runs the same files and tables without Spark.
        limit: Maximum number of modules to read, spread evenly; `None` means all.
        stdlib: Read the standard library too, as further sites.
        port: Port of the service, if it is free; else another one.
    """

    keep: bool = False
    root: Path | None = None
    as_json: bool = False
    increments: int = 5
    engine: Literal["spark", "local"] = "spark"
    limit: int | None = None
    stdlib: bool = False
    port: int = 8420


class FolderUnusableError(OperatingError):
    """The demo's folder cannot be created."""

    code = "demo_folder_unusable"
    retryable = False

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"cannot create a folder in {path}: {why}; choose another with --root, or set TMPDIR",
            path=path,
            cause=why,
        )


def new_folder(root: Path | None) -> Path:
    """Create a new folder for one call, in `root` or in the system's temporary folder.

    Raises:
        FolderUnusableError: If it cannot be created.
    """
    try:
        if root is not None:
            root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="cbp-demo-", dir=root)).resolve()
    except OSError as error:
        where = str(root or tempfile.gettempdir())
        raise FolderUnusableError(where, error.strerror or str(error)) from error
