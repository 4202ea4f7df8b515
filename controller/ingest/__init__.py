"""Drop folder intake: each dropped file becomes one increment exactly once, or goes to quarantine.

Names are imported on first use. A reader process (`reading.reader_process`) needs neither the store
nor the listings, and importing those costs more than reading most files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller.ingest.admission.source_log import SourceEntry, SourceLog
    from controller.ingest.background_rounds import Rounds
    from controller.ingest.drop_folder import DropFolder
    from controller.ingest.errors import DropFolderError, IntakeStoppedError, UploadTooLargeError
    from controller.ingest.limits import IngestLimits
    from controller.ingest.reading.reader_pool import ReaderPool
    from controller.ingest.rejection import FileRejectedError
    from controller.ingest.reports.scan_report import ScanReport

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
    "ReaderPool": "reading.reader_pool",
    "Rounds": "background_rounds",
    "ScanReport": "reports.scan_report",
    "SourceEntry": "admission.source_log",
    "SourceLog": "admission.source_log",
    "UploadTooLargeError": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
