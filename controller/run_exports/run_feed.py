"""Follows the events of runs that ended, and gives each run to the exporters, in a thread.

It begins at the newest event, so runs that ended before the service started, or while another
instance led, are not exported. An exporter that fails loses that run: the feed does not retry, and
never delays a run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import structlog

from cbp.errors import CbpError, OperatingError
from cbp.model.dataflow.dataflow import Dataflow
from controller.store.base import EventCursor, RunRecord, Store


class TelemetryPackagesMissingError(
    OperatingError, code="telemetry_packages_missing", retryable=False
):
    """A setting needs packages of the extra `cbp[telemetry]`."""

    def __init__(self, setting: str, package: str) -> None:
        super().__init__(
            f"{setting} needs the package {package}, which is not installed: run `pip install "
            f"'cbp[telemetry]'`, or remove {setting}",
            setting=setting,
            package=package,
        )


POLL_SECONDS = 1.0
_PAGE = 500

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended, with the folder of its tables, and its stages, the leader first."""

    run: RunRecord
    dataflow: Dataflow
    folder: str
    members: tuple[str, ...]


class RunExporter(Protocol):
    """Informs another system about runs; has a name for the log."""

    name: str

    def export(self, ended: EndedRun) -> None:
        """Report one run; may raise any exception."""
        ...

    def close(self) -> None:
        """Send waiting reports, for some seconds at most."""
        ...


class RunFeed:
    """See the module header.

    Args:
        describe: Returns the dataflow of a run and the stages that ran together, by name.
    """

    def __init__(
        self,
        store: Store,
        *,
        describe: Callable[[str, str], tuple[Dataflow, tuple[str, ...]]],
        leads: Callable[[], bool],
        exporters: Iterable[RunExporter],
    ) -> None:
        self._store, self._describe, self._leads = store, describe, leads
        self.exporters = tuple(exporters)
        self._cursor: EventCursor | None = None
        self._failing: set[str] = set()

    def follow(self, stopped: threading.Event) -> None:
        """Follow until the event is set; to be called in a separate thread."""
        while not stopped.wait(POLL_SECONDS):
            try:
                self.look()
            except Exception:  # last resort of the thread: the store may come back
                _log.exception("telemetry.failed")
        for exporter in self.exporters:
            try:
                exporter.close()
            except Exception:  # the service ends all the same
                _log.exception("telemetry.not_closed", exporter=exporter.name)

    def look(self) -> None:
        """Export the runs that ended since the last call."""
        if not self._leads():
            self._cursor = None
            return
        if self._cursor is None:
            self._cursor = self._store.newest_event().cursor
        while events := self._store.events_after(self._cursor, limit=_PAGE):
            for record in events:
                self._cursor = record.cursor  # before the export: an error repeats none
                if record.event.kind in ("run.ended", "run.failed"):
                    self._export(record.event.subject)
        if events is None:  # too far behind, or another database
            self._cursor = None

    def _export(self, run_id: str) -> None:
        try:
            run = self._store.run(run_id)
            dataflow, members = self._describe(run.dataflow, run.stage)
            folder = self._store.dataflow(run.dataflow).folder
        except CbpError as error:  # deleted meanwhile, or broken
            _log.debug("telemetry.run_gone", run=run_id, error=error.code)
            return
        for exporter in self.exporters:
            try:
                exporter.export(EndedRun(run, dataflow, folder, members))
            except Exception as error:  # whatever an exporter does, the others continue
                if exporter.name not in self._failing:  # once, not for every run
                    _log.warning("telemetry.not_sent", exporter=exporter.name, error=str(error))
                self._failing.add(exporter.name)
            else:
                self._failing.discard(exporter.name)
