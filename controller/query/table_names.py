"""The names that tables of a snapshot have in SQL. Pure.

    state/count.counts     count.counts
    flows/count.totals     count.totals
    flows/count.counts     count.counts_changes     the changes of the view count.counts

The schema is the stage. The full name in quotes, `"count.counts"`, is a name of the table too: a
stage may have a name that SQL takes for something else.
"""

from __future__ import annotations

from collections.abc import Iterable

CHANGES = "_changes"
"""Ends the name of the changes of a view."""


def sql_names(tables: Iterable[str]) -> dict[str, str]:
    """Return the name in SQL, as `stage.table`, of each table of a snapshot.

    Args:
        tables: Folders of tables in a snapshot, relative to the dataflow's.
    """
    every = list(tables)
    states = {name for kind, name in map(_parts, every) if kind == "state"}
    flows = [name for kind, name in map(_parts, every) if kind == "flows"]
    names = {name: f"state/{name}" for name in sorted(states)}
    names |= {name: f"flows/{name}" for name in sorted(flows) if name not in states}
    for name in sorted(flows):
        if name in states:
            changes = f"{name}{CHANGES}"
            while changes in names:
                changes += "_"
            names[changes] = f"flows/{name}"
    return names


def is_flow(table: str) -> bool:
    """Return whether a table of a snapshot belongs to a flow."""
    return table.startswith("flows/")


def _parts(table: str) -> tuple[str, str]:
    kind, _, name = table.partition("/")
    return kind, name
