"""Other forms of a translator: the same declarations, another way to be called.

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

Wiring, state, routing and what the tables hold in the end are those of the groupwise form
(`cbp.sdk.translate`); so is the duty to be deterministic and free of side effects.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from cbp.model.stage import Form
from cbp.sdk.translate import Declared

__all__ = ["TranslateArrow", "TranslateSql"]


class TranslateArrow(Declared):
    """A vectorised translator: called with Arrow tables of many whole groups at a time."""

    form: ClassVar[Form] = "arrow"
    taken: ClassVar[tuple[str, ...]] = ("ids", "keys", "offsets", "sizes", "sums")

    @abstractmethod
    def translate(self, groups: Any, out: Any) -> None:
        """Turn the records of some groups into output and state records.

        Called several times per epoch, each time with other groups. Which groups come
        together is the engine's choice, so what becomes of one must not depend on others.
        A group is never cut: one larger than a call's usual size comes alone.

        Args:
            groups: `groups.keys` is a table with a row per group, in the order of the
                groups; `groups.<input>` and `groups.<state>` are tables of the records of
                all these groups, one group behind the other, within a group as the
                groupwise form gets them. NumPy arrays tell them apart:
                `groups.offsets(flow)` (group g has the rows `offsets[g]:offsets[g + 1]`),
                `groups.sizes(flow)`, `groups.ids(flow)` (the group of each record), and
                `groups.sums(flow, column)` (per group, null as 0). Texts and bytes are
                `large_string` and `large_binary`.
            out: One function per output and state, by name. It takes a table with the
                declared columns: of pyarrow, pandas or Polars, or a dict of columns.
                Numbers are converted only where nothing is lost. State may be emitted
                for any of the groups of the call, in any order, in several pieces.
        """


class TranslateSql(Declared):
    """A translator in Spark SQL or DataFrames: one plan per epoch, executed in the JVM.

    The plan of `queries` alone is made in the first epoch and mostly used in all; a function
    `translate` is called in every epoch.

    Needs Spark. Inputs are routed by columns; the order of records has no meaning, neither
    of inputs nor of outputs.

    Attributes:
        queries: For every output and state one SELECT that gives its records; in FROM stand
            inputs, states (the records of the called groups before this epoch) and helpers.
            A helper is a query of another name; it stands before those that read it.
    """

    form: ClassVar[Form] = "sql"
    taken: ClassVar[tuple[str, ...]] = ("define", "queries", "sql")
    queries: Mapping[str, str] = MappingProxyType({})

    def translate(self, frames: Any, out: Any) -> None:
        """Give every output and state its records; by default, those of `queries`.

        Args:
            frames: A Spark DataFrame per input and state, by name; `frames.sql(text)` gives
                the one of a query that names them; `frames.define(name, frame)` adds a
                name that later queries may use.
            out: One function per output and state, by name. It takes a DataFrame with the
                declared columns and types. State may be given for called groups only,
                those that an input has a record for (and, grouped outer, that have state);
                of these, all records that shall be kept.
        """
        for name, text in self.queries.items():
            frame = frames.sql(text)
            emit = getattr(out, name, None)
            if emit is None:
                frames.define(name, frame)
            else:
                emit(frame)
