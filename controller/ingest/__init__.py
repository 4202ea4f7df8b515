"""Drop folder intake: each dropped file becomes one increment exactly once, or goes to quarantine.

Names are imported on first use. A reader process (`reader.reader_process`) needs neither the store
nor the listings, and importing those costs more than reading most files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller.ingest.background_rounds import Rounds
    from controller.ingest.drop_folder import DropFolder
    from controller.ingest.errors import DropFolderError, IntakeStoppedError, UploadTooLargeError
    from controller.ingest.folder.scan_report import ScanReport
    from controller.ingest.limits import IngestLimits
    from controller.ingest.reader.reader_pool import ReaderPool
    from controller.ingest.rejection import FileRejectedError
    from controller.ingest.source_log import SourceEntry, SourceLog

__all__ = [
    "DropFolder",
    "DropFolderError",
    "FileRejectedError",
    "IngestLimits",
    "IntakeStoppedError",
    "ReaderPool",
    "Rounds",
    "ScanReport",
    "SourceEntry",
    "SourceLog",
    "UploadTooLargeError",
]

_HOMES = {
    "DropFolder": "drop_folder",
    "DropFolderError": "errors",
    "FileRejectedError": "rejection",
    "IngestLimits": "limits",
    "IntakeStoppedError": "errors",
    "ReaderPool": "reader.reader_pool",
    "Rounds": "background_rounds",
    "ScanReport": "folder.scan_report",
    "SourceEntry": "source_log",
    "SourceLog": "source_log",
    "UploadTooLargeError": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
