"""How far sinks are: the part of the store that has their positions, and what operators want.

The folders of the dataflows have the truth (`controller.sinks.notes`): a lost database is filled
again from there. Only pauses and choices of operators are lost with it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from controller.store.records import Desired, SinkRecord

__all__ = ["SinkLog"]


class SinkLog(Protocol):
    """Positions of sinks, by dataflow and name."""

    def sinks(self, dataflow: str | None = None) -> list[SinkRecord]:
        """Return the sinks of a dataflow, or of all, by dataflow and name."""
        ...

    def put_sink(self, record: SinkRecord) -> None:
        """Put a sink, in place of an earlier one of its name.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        ...

    def move_sink(self, record: SinkRecord, *, chosen: str | None = None) -> None:
        """Store generation, position and standing of a sink, not what operators want of it.

        Does nothing if the sink is gone or has another identity.

        Args:
            record: The sink.
            chosen: Choice that was carried out, and is taken back unless there is another by now.
        """
        ...

    def want_sink(
        self, dataflow: str, sink: str, *, desired: Desired | None = None, choice: str | None = None
    ) -> SinkRecord:
        """Store what an operator wants of a sink; return the sink.

        Its pause after a failure ends, so it is tried at once.

        Raises:
            NotFoundError: If there is no such sink.
        """
        ...

    def forget_sinks(self, dataflow: str, *, keep: Collection[str]) -> None:
        """Remove the sinks of a dataflow that have no name of `keep`."""
        ...
