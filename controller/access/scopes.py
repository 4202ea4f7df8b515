"""What a caller may do: three scopes; each includes those before it.

Routes are checked by `controller.api.routing.scope_check`.
"""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """How much a caller may do: `viewer` < `operator` < `admin`."""

    VIEWER = "viewer"
    """Reads."""
    OPERATOR = "operator"
    """Also keeps dataflows running: no action of this scope changes their results."""
    ADMIN = "admin"
    """Everything."""

    def includes(self, needed: Scope) -> bool:
        """Return whether this scope includes the rights of `needed`."""
        return _ORDER[self] >= _ORDER[needed]


_ORDER = {scope: place for place, scope in enumerate(Scope)}
