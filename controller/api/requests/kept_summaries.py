"""Keeps the summaries of dataflows that answers were made of, for the next answer.

A summary is used again while everything that it was made from is the same: the revision of the
dataflow, and what only the memory of the service knows. What changes by itself, such as an age, is
not kept (tests/controller/api/figures/test_overview.py).
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime

from controller.api.answers.schemas import DataflowSummary

KEPT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class KeptSummary:
    """One summary.

    Attributes:
        made_from: All inputs of the summary; only compared.
        oldest_at: Arrival of the oldest waiting increment; `None` if none waits.
    """

    made_from: object
    summary: DataflowSummary
    oldest_at: datetime | None


class KeptSummaries:
    """Summaries by a key of the caller; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, KeptSummary] = {}

    def find(self, key: Hashable, made_from: object) -> KeptSummary | None:
        """Return the kept summary that was made from these inputs, if any."""
        with self._lock:
            kept = self._kept.get(key)
        return kept if kept is not None and kept.made_from == made_from else None

    def keep(self, key: Hashable, kept: KeptSummary) -> None:
        """Keep a summary instead of its predecessor; drop the oldest ones beyond a bound."""
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = kept
            while len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
