"""The metadata store: `base` defines its interface, `open_store` opens the implementation."""

from __future__ import annotations

from controller.store.sql import SqlStore, open_scratch, open_store

__all__ = ["SqlStore", "open_scratch", "open_store"]
