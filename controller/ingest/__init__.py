"""Files that producers drop become increments, each once, or go to quarantine."""

from __future__ import annotations

from controller.ingest.drop_folder import DropFolder, ScanReport
from controller.ingest.errors import DropFolderError, IntakeStoppedError, UploadTooLargeError
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.ingest.rounds import Rounds
from controller.ingest.source_log import SourceEntry, SourceLog

__all__ = [
    "DropFolder",
    "DropFolderError",
    "FileRejectedError",
    "IngestLimits",
    "IntakeStoppedError",
    "Rounds",
    "ScanReport",
    "SourceEntry",
    "SourceLog",
    "UploadTooLargeError",
]
