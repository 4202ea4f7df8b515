"""Holds: which dataflows start no runs for now, and the lock that keeps a tick out.

A tick holds the lock while it starts runs. So no run starts while another caller holds the lock.
"""

from __future__ import annotations

import threading

from cbp.errors import DataflowBusyError


class Holds:
    """The dataflows that start no runs, and the lock of the tick.

    Attributes:
        lock: Held during a tick; no run starts while it is held.
        deleting: Dataflows that are being deleted and start no more runs.
        held: Dataflows that start no runs at present, with the reason.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.deleting: set[str] = set()
        self.held: dict[str, str] = {}

    def because(self, dataflow: str) -> str:
        """Return why a dataflow starts no runs; `""` if nothing holds it."""
        if dataflow in self.deleting:
            return "the dataflow is being deleted"
        return self.held.get(dataflow, "")

    def all(self) -> set[str]:
        """Return the dataflows that start no runs."""
        return self.deleting | set(self.held)

    def hold(self, dataflow: str, because: str) -> None:
        """Start no runs of a dataflow until it is released; raises `DataflowBusyError`."""
        with self.lock:
            self.require_free(dataflow)
            self.held[dataflow] = because

    def require_free(self, dataflow: str) -> None:
        """Raise `DataflowBusyError` for a dataflow that is held, or is being deleted."""
        if because := self.because(dataflow):
            raise DataflowBusyError(dataflow, because)

    def release(self, dataflow: str) -> None:
        """Let a dataflow run again; first waits for a tick under way, which saw its old state.

        Does nothing if its deletion has ended the hold.
        """
        with self.lock:
            self.held.pop(dataflow, None)
