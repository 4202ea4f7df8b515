"""Fixtures that the tests of a service have, too."""

from __future__ import annotations

from tests.controller.conftest import _silent_again, silent, without_syncs

__all__ = ["_silent_again", "silent", "without_syncs"]
