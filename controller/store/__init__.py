"""The metadata store: `base` is its interface, `open_store` gives the implementation."""

from __future__ import annotations

from controller.store.sql import SqlStore, open_store

__all__ = ["SqlStore", "open_store"]
