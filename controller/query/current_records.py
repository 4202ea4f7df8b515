"""The current record per key, of a state, a view, or a flow, as a query. Pure.

A state has only current records. In a flow, the current record of a key is the last one in the
flow's order, or the greatest by `latest_by` if its output declares that. The key is the one that
the output declares, or else the key of its stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbp.errors import DefinitionError, Mistake, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.schema import Schema
from controller.query.sql_types import column_types, quoted

ORDER = "_order"
"""Column by which the records of a flow are sorted as the flow is read."""


@dataclass(frozen=True, slots=True)
class CurrentTable:
    """A table with one current record per key.

    Attributes:
        name: Its name in SQL, as `stage.table`.
        key: The key's columns; empty if every record is current.
        is_flow: Whether it also has earlier records of a key.
        latest_by: Columns by which the greatest record of a key is the current one.
    """

    name: str
    schema: Schema
    key: tuple[str, ...]
    is_flow: bool
    latest_by: tuple[str, ...] = ()

    def query(
        self, where: Mapping[str, Any], *, limit: int, offset: int
    ) -> tuple[str, tuple[Any, ...]]:
        """Return the query for the current records with these values, and its parameters."""
        types = column_types(self.schema)
        tests = [
            f"{quoted(column)} IS NOT DISTINCT FROM {_value(types[column])}" for column in where
        ]
        columns = ", ".join(quoted(column) for column in types)
        stage, _, own = self.name.partition(".")
        sql = f"SELECT {columns} FROM {quoted(stage)}.{quoted(own)}"
        sql += f" WHERE {' AND '.join(tests)}" if tests else ""
        if self.is_flow:
            by = ", ".join(quoted(column) for column in self.key)
            newest = ", ".join(self._newest_first())
            sql += f" QUALIFY row_number() OVER (PARTITION BY {by} ORDER BY {newest}) = 1"
        order = self.key or tuple(
            column for column, type_ in types.items() if not type_.startswith("MAP")
        )
        sql += f" ORDER BY {', '.join(quoted(column) for column in order)}"
        return f"{sql} LIMIT {limit:d} OFFSET {offset:d}", tuple(where.values())

    def _newest_first(self) -> Iterator[str]:
        """Yield the SQL terms that order the records of a key, the current one first."""
        if self.latest_by:
            others = (f.name for f in self.schema.fields if not f.type.arguments)
            rest = [name for name in others if name not in self.latest_by]
            yield from (f"{quoted(name)} DESC NULLS LAST" for name in self.latest_by)
            yield f"{quoted('_epoch')} DESC"
            yield from (f"{quoted(name)} DESC NULLS LAST" for name in rest)
        yield f"{ORDER} DESC"


def current_table(dataflow: Dataflow, name: str, by: Sequence[str] = ()) -> CurrentTable:
    """Return the table of this name: `stage.state`, `stage.view` or `stage.output`.

    `by` replaces the key of a flow. Raises `NotFoundError` if there is no such state, flow or
    column; `DefinitionError`, rule `key_unknown`, if the key of a flow is unknown.
    """
    stage, _, own = name.partition(".")
    node = dataflow.stages.get(stage)
    hint = "name a state, a view or an output as `stage.name`"
    if node is None:
        raise NotFoundError(kind="state or flow", name=f"{dataflow.name}/{name}", hint=hint)
    spec = node.translator
    for state in spec.states:
        if state.name == own:
            key = (*spec.key_of(state).names, *state.second_key)
            return CurrentTable(name, state.schema, key, is_flow=False)
    for output in spec.outputs:
        if output.name == own:
            default = output.key or (() if spec.key is None else spec.key.names)
            key = tuple(by) or tuple(default)
            _require_key(dataflow.name, name, key, output.schema)
            latest_by = () if by else output.latest_by
            return CurrentTable(name, output.schema, key, is_flow=True, latest_by=latest_by)
    raise NotFoundError(kind="state or flow", name=f"{dataflow.name}/{name}", hint=hint)


def _require_key(dataflow: str, name: str, key: Sequence[str], schema: Schema) -> None:
    missing = [column for column in key if column not in schema]
    if missing or not key:
        what = f"column {', '.join(missing)}" if missing else "key"
        message = (
            f"the flow has no {what}; name the columns ({schema}) by which "
            "a later record replaces an earlier one: --by COLUMN (REST: _by=COLUMN)"
        )
        raise DefinitionError(Mistake("key_unknown", f"{dataflow}.{name}", message))


def _value(type_: str) -> str:
    return "from_base64(?)" if type_ == "BLOB" else f"CAST(? AS {type_})"
