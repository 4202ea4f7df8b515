"""How long files have waited in the drop folders of drained dataflows, for alerts.

A drop folder can be on a file server that is down; reading it then never returns. So each read has
a thread of its own, and all reads in one round of alerts together are waited for a limited time.

Guaranteed: a drop folder that hangs delays the alerts of other dataflows by `ROUND_SECONDS` at most
once, and blocks one thread (tests/controller/app/test_drained_inputs.py).
"""

from __future__ import annotations

from collections.abc import Callable
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


class DrainedInputs:
    """Reads the drop folders of drained dataflows; used by one thread, which makes the rounds.

    A round waits `seconds` at most, although `waits_since` may hang.
    """

    def __init__(
        self,
        waits_since: WaitsSince,
        seconds: float = ROUND_SECONDS,
        monotonic: Callable[[], float] = MACHINE.seconds,
    ) -> None:
        self._seconds, self._monotonic = seconds, monotonic
        self._last: dict[str, datetime | None] = {}
        self._drained: dict[str, tuple[DataflowRecord, Dataflow]] = {}
        self._asked = set[str]()
        self._inspections: TimedInspections[str, datetime | None] = TimedInspections(
            lambda name: waits_since(*self._drained[name])
        )

    def round(self) -> WaitsSince:
        """Return a function for one round of alerts.

        It returns since when a file waits; `None` if none does. If the folder does not answer in
        time or cannot be read, the last answer counts, so that an outage ends no alert. An answer
        is forgotten if the next round does not ask for it: the dataflow was resumed or deleted.
        """
        left = self._seconds
        for name in self._drained.keys() - self._asked:
            del self._drained[name]
            self._last.pop(name, None)
        self._asked.clear()

        def waits_since(record: DataflowRecord, dataflow: Dataflow) -> datetime | None:
            nonlocal left
            begun = self._monotonic()
            try:
                self._asked.add(record.name)
                self._drained[record.name] = record, dataflow
                self._last[record.name] = self._inspections(record.name, max(left, _LEAST_SECONDS))
            except TimeoutError:
                _log.warning("alerts.drop_folder_is_late", dataflow=record.name)
            except Exception:  # whatever it is: other alerts do not depend on this one
                _log.exception("alerts.drop_folder_not_read", dataflow=record.name)
            finally:
                left -= self._monotonic() - begun
            return self._last.get(record.name)

        return waits_since
