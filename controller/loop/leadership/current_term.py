"""The current term: whether this controller may start anything, and under which epoch of the lease.

The controller begins a term when it takes the lease, and ends it when it learns that another
controller leads. Code that starts work asks `deposed` first.

Guaranteed: after `depose` nothing is started until the next `begin`
(tests/controller/loop/runs/test_failures.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from cbp.errors import LogConflictError

_log = structlog.get_logger(__name__)


class CurrentTerm:
    """Whether this controller leads; safe to use from several threads.

    Attributes:
        deposed: Why this controller starts nothing; empty while it leads.
        leader_epoch: The epoch of the lease; every record of this term carries it.
    """

    def __init__(self) -> None:
        self.deposed, self.leader_epoch = "", 0

    def begin(self, leader_epoch: int) -> None:
        """Begin a term as leader, under this epoch of the lease."""
        self.deposed, self.leader_epoch = "", leader_epoch

    def depose(self, reason: str) -> None:
        """Start nothing from now on: another controller leads."""
        self.deposed = reason
        _log.error("controller.deposed", reason=reason)

    def follow(self, reason: str) -> None:
        """Start nothing: another controller leads, and that is not an error."""
        self.deposed = reason

    @contextmanager
    def deposing(self) -> Iterator[None]:
        """Stop starting runs if the block finds a record of another controller.

        Raises:
            LogConflictError: Any such conflict in the block is raised again.
        """
        try:
            yield
        except LogConflictError as error:
            self.depose(error.message)
            raise
