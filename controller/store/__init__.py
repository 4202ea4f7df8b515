"""The metadata store: `Store`, which `open_store` opens."""

from __future__ import annotations

from controller.store.base import Store, open_scratch, open_store

__all__ = ["Store", "open_scratch", "open_store"]
