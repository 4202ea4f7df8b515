"""Failpoints: named points around every durable effect, where tests crash the engine.

A *fault* is a callable that gets the name of the point just passed. In production it is
`NO_FAULTS`, or the fence of an instance that leads. A test passes one that raises at a chosen
point.

Guaranteed: `POINTS` names every point of the product, `<effect>.before` and `<effect>.after`
(tests/test_failpoints.py).
"""

from __future__ import annotations

from typing import Protocol

EFFECTS: tuple[str, ...] = (
    "data_file",
    "data_sync",
    "change_file",
    "vectors_file",
    "log_entry",
    "checkpoint",
    "clean_up",
    "dead_file",
    "dead_entry",
    "dead_record",
    "snapshot",
    "intention",
    "term",
    "description",
    "generation",
    "correction",
    "given_back",
    "set_aside",
    "claim",
    "decision",
    "rename",
    "increment_file",
    "source_log",
    "feed_position",
    "punctuation",
    "priority",
    "build_order",
    "sink_note",
    "sink_file",
    "sink_table",
    "sink_request",
    "sql_commit",
    "job",
    "superstep",
    "superstep_log",
)
POINTS: tuple[str, ...] = tuple(
    f"{effect}.{side}" for effect in EFFECTS for side in ("before", "after")
)


class Faults(Protocol):
    """Called at each point; picklable, since tasks in other processes pass points too."""

    def __call__(self, point: str) -> None:
        """Pass `point`, one of `POINTS`; a fault raises here."""


def _no_faults(point: str) -> None:
    """Pass every point."""


NO_FAULTS: Faults = _no_faults
