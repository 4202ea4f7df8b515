"""What a caller may do, as three scopes of which each includes the ones before it."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """How much a caller may do: `viewer` < `operator` < `admin`."""

    VIEWER = "viewer"
    """Reads."""
    OPERATOR = "operator"
    """Also keeps dataflows running: nothing that it does changes what they compute."""
    ADMIN = "admin"
    """Everything."""

    def includes(self, needed: Scope) -> bool:
        """Return whether this scope may do what `needed` may do."""
        return _ORDER[self] >= _ORDER[needed]


_ORDER = {scope: place for place, scope in enumerate(Scope)}
