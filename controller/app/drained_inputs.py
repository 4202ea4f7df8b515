"""How long files have waited in the drop folders of drained dataflows, for alerts.

A drop folder can be on a file server that is down; reading it then never returns. So each read has
a thread of its own, and all reads in one round of alerts together are waited for a limited time.

Guaranteed: a drop folder that hangs delays the alerts of other dataflows by `ROUND_SECONDS` at most
once, and blocks one thread (tests/controller/app/test_drained_inputs.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from cbp.clock import MACHINE
from cbp.model.dataflow.dataflow import Dataflow
from controller.alerts.timed_inspections import INSPECTION_SECONDS, TimedInspections
from controller.store.base import DataflowRecord

ROUND_SECONDS = INSPECTION_SECONDS
"""How long a round waits, in all, for folders that do not answer."""

_LEAST_SECONDS = 0.01
"""How long a round waits for a folder at least, even if `ROUND_SECONDS` are over."""

WaitsSince = Callable[[DataflowRecord, Dataflow], datetime | None]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Drained:
    """A drained dataflow; one that was deleted and registered again is another one."""

    name: str
    created_at: datetime
    record: DataflowRecord = field(compare=False)
    dataflow: Dataflow = field(compare=False)


class DrainedInputs:
    """Reads the drop folders of drained dataflows; safe to use from several threads.

    A round waits `seconds` at most, although `waits_since` may hang.
    """

    def __init__(
        self,
        waits_since: WaitsSince,
        seconds: float = ROUND_SECONDS,
        monotonic: Callable[[], float] = MACHINE.seconds,
    ) -> None:
        self._seconds, self._monotonic = seconds, monotonic
        self._lock = threading.Lock()
        self._last: dict[_Drained, datetime | None] = {}
        self._inspections: TimedInspections[_Drained, datetime | None] = TimedInspections(
            lambda one: waits_since(one.record, one.dataflow)
        )

    def round(self, records: Iterable[DataflowRecord]) -> WaitsSince:
        """Return a function for one round of alerts; `records` are those of all dataflows.

        It returns since when a file waits; `None` if none does. If the folder does not answer in
        time or cannot be read, the last answer counts, so that an outage ends no alert. The answers
        of dataflows that were resumed or deleted are forgotten.
        """
        left = self._seconds
        drained = {(one.name, one.created_at) for one in records if not one.takes_in}
        with self._lock:
            self._last = {
                one: since
                for one, since in self._last.items()
                if (one.name, one.created_at) in drained
            }

        def waits_since(record: DataflowRecord, dataflow: Dataflow) -> datetime | None:
            nonlocal left
            begun = self._monotonic()
            one = _Drained(record.name, record.created_at, record, dataflow)
            try:
                since = self._inspections(one, max(left, _LEAST_SECONDS))
                with self._lock:
                    self._last[one] = since
            except TimeoutError:
                _log.warning("alerts.drop_folder_is_late", dataflow=record.name)
            except Exception:  # whatever it is: other alerts do not depend on this one
                _log.exception("alerts.drop_folder_not_read", dataflow=record.name)
            finally:
                left -= self._monotonic() - begun
            return self._last.get(one)

        return waits_since
