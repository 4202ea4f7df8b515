"""Which scope includes which."""

from __future__ import annotations

import pytest

from controller.access.scopes import Scope


@pytest.mark.parametrize(
    ("scope", "included"),
    [
        (Scope.VIEWER, {Scope.VIEWER}),
        (Scope.OPERATOR, {Scope.VIEWER, Scope.OPERATOR}),
        (Scope.ADMIN, {Scope.VIEWER, Scope.OPERATOR, Scope.ADMIN}),
    ],
)
def test_each_scope_includes_those_before_it(scope: Scope, included: set[Scope]) -> None:
    """Viewer < operator < admin, not by their names."""
    assert {one for one in Scope if scope.includes(one)} == included
