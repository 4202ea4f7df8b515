"""The limits of a controller's loop: how long it waits, how much it keeps, when it warns.

A controller is assembled with one `LoopLimits`, which hands each limit to the part that needs it.
They are not settings: nobody has to choose them. Tests make them small, so that they are reached.
"""

from __future__ import annotations

from dataclasses import dataclass

from cbp.engine.commit.intention_log import POSITIONS_KEPT, RECORDS_KEPT
from cbp.model.schedule.scheduler import TURNS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """The limits of one loop; plain numbers, compared by value.

    Attributes:
        records_kept: Records of a stage that are kept for people, although a position replaces
            them.
        positions_kept: Maximum number of positions that are kept, so that a dataflow can be rolled
            back to epochs after them.
        cancel_seconds: How long a deletion or an amendment waits for runs that it cancelled.
        change_seconds: How long a change waits for the runs under way.
        reference_records_max: Records of input up to which the reference engine verifies a
            dataflow: it holds all of them in memory.
        settle_seconds: How long a verification, or a build beside, waits before it looks again
            whether the dataflow has come to rest.
        checkpoint_seconds: How long a build beside may go on until it keeps how far it has come.
        turns_max: Epochs without new input after which a cycle is reported as not draining.
    """

    records_kept: int = RECORDS_KEPT
    positions_kept: int = POSITIONS_KEPT
    cancel_seconds: float = 60.0
    change_seconds: float = 60.0
    reference_records_max: int = 200_000
    settle_seconds: float = 0.2
    checkpoint_seconds: float = 10.0
    turns_max: int = TURNS_MAX


DEFAULT_LOOP_LIMITS = LoopLimits()
"""The limits of a loop that is assembled without any."""
