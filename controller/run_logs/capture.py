"""From a log entry to the file of its run.

An entry belongs to a run if it has the fields `dataflow` and `run`: the loop binds them, with
`stage` and `epoch`, to everything that the thread of a run logs, author's code included.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import structlog

from controller.run_logs.files import RunLogFiles

Entry = MutableMapping[str, Any]


class RunLogCapture(logging.Handler):
    """Appends each entry of a run to the run's file; a disk that fails stops nothing.

    Args:
        before: Processors for entries that structlog did not make.
        processors: Make an entry a dictionary of JSON values.
    """

    def __init__(self, logs: RunLogFiles, before: list[Any], processors: list[Any]) -> None:
        super().__init__()
        self._logs = logs
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=before,
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *processors,
                    self._keep,
                ],
            )
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an entry if it is of a run."""
        try:
            self.format(record)
        except Exception:  # a log must not end what it describes
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say that a line was lost; logging would print it as it came, with its secrets."""
        with suppress(OSError, ValueError):
            kind = type(sys.exc_info()[1]).__name__
            sys.stderr.write(f"a line of a run's log was lost ({kind}), by {record.name}\n")

    def _keep(self, _logger: Any, _method: str, entry: Entry) -> str:
        if entry.get("dataflow") and entry.get("run"):
            self._logs.append(str(entry["dataflow"]), str(entry["run"]), entry)
        return ""
