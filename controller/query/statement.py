"""Decides whether a query may run, from the syntax tree of DuckDB's own parser. Pure.

Guaranteed: a query that passes is one SELECT without parameters. It reads only the tables of one
dataflow and its own intermediate results: no file, no setting, no catalog. It names no table
function other than `TABLE_FUNCTIONS`. The database behind it has no files and no network either
(`controller.query.database`); either check would be enough.

`sql_names` gives the names that tables of a snapshot have in SQL.

    state/count.counts     count.counts
    flows/count.totals     count.totals
    flows/count.counts     count.counts_changes     the changes of the view count.counts

The schema is the stage. The full name in quotes, `"count.counts"`, is a name of the table too: a
stage may have a name that SQL takes for something else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from controller.query.errors import QueryInvalidError, QueryRefusedError

CHANGES = "_changes"
"""Suffix of the name under which the changes of a view can be read."""


def sql_names(tables: Collection[str]) -> dict[str, str]:
    """Return SQL name, as `stage.table` -> folder of a table, relative to the dataflow's."""
    states = {name.removeprefix("state/") for name in tables if name.startswith("state/")}
    flows = sorted(name.removeprefix("flows/") for name in tables if is_flow(name))
    names = {name: f"state/{name}" for name in sorted(states)}
    names |= {name: f"flows/{name}" for name in flows if name not in states}
    for name in flows:
        if name in states:
            changes = f"{name}{CHANGES}"
            while changes in names:
                changes += "_"
            names[changes] = f"flows/{name}"
    return names


def is_flow(table: str) -> bool:
    """Return whether a table of a snapshot belongs to a flow."""
    return table.startswith("flows/")


TABLE_FUNCTIONS = frozenset({"generate_series", "range", "repeat", "unnest"})
"""Functions that may be named in place of a table; all others read internals of the engine."""

_FUNCTIONS_REFUSED = frozenset(
    {
        "current_setting", "getenv", "getvariable", "nextval", "currval", "pg_sleep", "query",
        "query_table", "sleep_ms", "which_secret", "write_log",
    }
)  # fmt: skip


def tables_of(parsed: Mapping[str, Any], known: Collection[str]) -> list[str]:
    """Return the tables that a query reads, each once.

    Args:
        parsed: The output of `json_serialize_sql` for the query.

    Raises `QueryRefusedError`, `QueryInvalidError`.
    """
    if parsed.get("error"):
        message = str(parsed.get("error_message", ""))
        if parsed.get("error_type") == "not implemented":
            why = "the query is not a SELECT"
            raise QueryRefusedError(why)
        why = f"the query is not valid SQL: {message}"
        raise QueryInvalidError(why)
    statements = parsed.get("statements") or []
    if len(statements) != 1:
        why = f"the query has {len(statements)} statements"
        raise QueryRefusedError(why)
    if statements[0].get("named_param_map"):
        why = "the query has parameters; write their values into the query"
        raise QueryRefusedError(why)
    nodes = list(_nodes(statements[0]))
    with_names = {name for node in nodes for name in _with_names(node)}
    tables = []
    for node in nodes:
        _require_allowed(node)
        if node.get("type") == "BASE_TABLE":
            tables.append(_table(node, known, with_names))
    return list(dict.fromkeys(name for name in tables if name is not None))


def _nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a tree; without recursion, however deep it is."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            yield one
            left += one.values()
        elif isinstance(one, list):
            left += one


def _with_names(node: Mapping[str, Any]) -> Iterator[str]:
    entries = node.get("cte_map")
    for entry in (entries.get("map") or []) if isinstance(entries, Mapping) else []:
        yield str(entry.get("key", "")).lower()


def _require_allowed(node: Mapping[str, Any]) -> None:
    kind = node.get("type")
    if kind == "SHOW_REF":
        why = (
            "the query describes tables; to list the tables, call `cbp sql DATAFLOW` without a "
            "query"
        )
        raise QueryRefusedError(why)
    if kind == "TABLE_FUNCTION":
        function = node.get("function")
        name = function.get("function_name", "") if isinstance(function, Mapping) else ""
        if str(name).lower() not in TABLE_FUNCTIONS:
            allowed = ", ".join(sorted(TABLE_FUNCTIONS))
            why = f"the query uses the table function {name!r}; allowed are {allowed}"
            raise QueryRefusedError(why)
    name = node.get("function_name")
    if isinstance(name, str) and name.lower() in _FUNCTIONS_REFUSED:
        why = f"the query calls {name!r}, which is not allowed"
        raise QueryRefusedError(why)


def _table(
    node: Mapping[str, Any], known: Collection[str], with_names: Collection[str]
) -> str | None:
    """Return the known table that a reference means; `None` if it means a part of the query."""
    path = [
        str(node[part]).lower()
        for part in ("catalog_name", "schema_name", "table_name")
        if node.get(part)
    ]
    name = ".".join(path)
    if len(path) == 1 and name in with_names:
        return None
    if len(path) <= 2 and name in known:
        return name
    shown = ", ".join(sorted(known)) or "none"
    why = f"there is no table {name!r}; the tables are: {shown}"
    raise QueryRefusedError(why)
