"""The names of tables in SQL."""

from __future__ import annotations

from controller.query.statement import sql_names


def test_each_table_has_one_name() -> None:
    """A view's changes have a name of their own, which takes none that exists."""
    tables = ["state/s.v", "flows/s.v", "flows/s.o", "state/t.x", "flows/t.x", "flows/t.x_changes"]
    assert sql_names(tables) == {
        "s.v": "state/s.v",
        "s.o": "flows/s.o",
        "s.v_changes": "flows/s.v",
        "t.x": "state/t.x",
        "t.x_changes": "flows/t.x_changes",
        "t.x_changes_": "flows/t.x",
    }
