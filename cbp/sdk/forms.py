"""Vectorised translators: `TranslateArrow` for Arrow tables, `TranslateSql` for Spark SQL.

    class UrlCount(TranslateArrow):
        '''Count how often each URL was seen, many URLs at a time.'''
        urls   = Input("url STRING", route_by="url")
        counts = State("url STRING, n BIGINT")
        totals = Output("url STRING, n BIGINT", key="url")

        def translate(self, groups, out):
            n = groups.sizes("urls") + groups.sums("counts", "n")
            rows = groups.keys.append_column("n", pa.array(n))
            out.counts(rows)
            out.totals(rows)

    class UrlCount(TranslateSql):
        '''Count how often each URL was seen, in Spark SQL: nothing runs in Python.'''
        urls   = Input("url STRING", route_by="url")
        counts = State("url STRING, n BIGINT")
        totals = Output("url STRING, n BIGINT", key="url")
        queries = {
            "seen": "SELECT url, 1L AS n FROM urls UNION ALL SELECT url, n FROM counts",
            "counts": "SELECT url, sum(n) AS n FROM seen GROUP BY url",
            "totals": "SELECT url, sum(n) AS n FROM seen GROUP BY url",
        }

Declarations, wiring, state, routing and the contents of the tables are the same as in the groupwise
form (`cbp.sdk.translate`). So is the duty to be deterministic and free of side effects.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from cbp.model.dataflow.stage import Form
from cbp.sdk.translate import Declared

__all__ = ["TranslateArrow", "TranslateSql"]


class TranslateArrow(Declared):
    """A vectorised translator: called with Arrow tables of many whole groups at a time."""

    form: ClassVar[Form] = "arrow"
    taken: ClassVar[tuple[str, ...]] = ("ids", "keys", "offsets", "sizes", "sums")

    @abstractmethod
    def translate(self, groups: Any, out: Any) -> None:
        """Turn the records of some groups into output and state records.

        Called several times per epoch, each time with other groups. The engine chooses which
        groups share a call, so the result for one group must not depend on the others. A group
        is never split: one larger than the usual size of a call gets a call of its own.

        Args:
            groups: `groups.keys` is a table with one row per group. `groups.<input>` and
                `groups.<state>` are tables with the records of all these groups: group by
                group in the order of `keys`, and within a group in the order of the
                groupwise form. NumPy arrays say which records belong to which group:
                `groups.offsets(flow)` (group g has the rows `offsets[g]:offsets[g + 1]`),
                `groups.sizes(flow)` and `groups.ids(flow)` (the group of each record).
                `groups.sums(flow, column)` adds a column up per group, null as 0. Texts and
                bytes are `large_string` and `large_binary`.
            out: One function per output and state, by name. It takes a table with the
                declared columns: from pyarrow, pandas or Polars, or a dict of columns.
                Numbers are converted only if nothing is lost. State can be emitted for any
                group of the call, in any order, in several pieces.
        """


class TranslateSql(Declared):
    """A translator in Spark SQL or DataFrames: one plan per epoch, executed in the JVM.

    A class with `queries` is planned in its first epoch, and later epochs mostly reuse the plan. A
    class with its own `translate` has it called in every epoch.

    Needs Spark. Inputs are routed by columns. The order of records has no meaning, in inputs as in
    outputs.

    Attributes:
        queries: One SELECT per output and state, by its name. FROM can name inputs, states (the
            records that the called groups had before this epoch) and helper queries. A helper is
            a query with another name. It must come before the queries that read it.
    """

    form: ClassVar[Form] = "sql"
    taken: ClassVar[tuple[str, ...]] = ("define", "queries", "sql")
    queries: Mapping[str, str] = MappingProxyType({})

    def translate(self, frames: Any, out: Any) -> None:
        """Emit the records of every output and state; by default, those of `queries`.

        Args:
            frames: A Spark DataFrame per input and state, by name. `frames.sql(text)` runs a
                query that names them. `frames.define(name, frame)` adds a name for later
                queries.
            out: One function per output and state, by name. It takes a DataFrame with the
                declared columns and types. State must hold all records to keep of the called
                groups, and only of those. Called groups have a record in some input; with
                outer grouping, those with state are called too.
        """
        for name, text in self.queries.items():
            frame = frames.sql(text)
            emit = getattr(out, name, None)
            if emit is None:
                frames.define(name, frame)
            else:
                emit(frame)
