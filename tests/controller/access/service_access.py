"""The access side over a store in memory, by a clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from controller.access.access import Access
from controller.settings import Settings
from controller.store.base import Store
from tests.controller.api.fake_access import FakeAccessStore

__all__ = ["NOON", "TOKEN", "AccessOfTest", "ClockedAccess"]

TOKEN = "the-token-of-the-tests"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


class ClockedAccess(Access):
    """An access side by a clock that is moved.

    Args:
        root: Folder of the settings.
        store: Keeps tokens and sessions.
        token: The content of the token file.
    """

    def __init__(self, root: Path, store: Store, *, token: str = TOKEN) -> None:
        self.time = NOON
        settings = Settings(root=root, token=token, session_hours=12, session_idle_minutes=60)
        super().__init__(settings, store, now=self._read_clock, monotonic=self._read_seconds)

    def move(self, **by: float) -> None:
        """Let time pass."""
        self.time += timedelta(**by)

    def _read_clock(self) -> datetime:
        return self.time

    def _read_seconds(self) -> float:
        return (self.time - NOON).total_seconds()


class AccessOfTest(ClockedAccess):
    """An access side with its store in memory.

    Args:
        root: Folder of the settings.
        store: A store that another one has used.
        token: The content of the token file.
    """

    def __init__(
        self, root: Path, store: FakeAccessStore | None = None, *, token: str = TOKEN
    ) -> None:
        self.kept = store or FakeAccessStore()
        super().__init__(root, cast(Store, self.kept), token=token)
