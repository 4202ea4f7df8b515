"""Vectorised translators: on Arrow tables (`TranslateArrow`, `TranslateRun`), and in Spark SQL.

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

Everything else, including the tables, is the same as in the groupwise form (`cbp.sdk.translate`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from cbp.model.dataflow.stage import Form
from cbp.sdk.translate import Declared


class TranslateArrow(Declared):
    """A vectorised translator: called with Arrow tables of many whole groups at a time."""

    form: ClassVar[Form] = "arrow"
    reserved: ClassVar[tuple[str, ...]] = ("ids", "keys", "offsets", "sizes", "sums")

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
                `groups.sums(flow, column)` adds a column up per group, null as 0. A look-up is
                such a flow, too; one with `by=()` is a table of all records, without offsets.
                For a kept state (`keep=True`), `groups.<state>.get(keys)` takes a table of keys
                (the columns of the stage's key and of the second key) and returns a table of the
                existing records, in the order of the keys; `groups.<state>.all()` returns all
                records, group by group, in order. `groups.run` is the run, as in the groupwise
                form. Texts and bytes are `large_string` and `large_binary`.
            out: One function per output and state, by name. It takes a table with the
                declared columns: from pyarrow, pandas or Polars, or a dict of columns.
                Numbers are converted only if nothing is lost. State can be emitted for any
                group of the call, in any order, in several pieces. For kept state the function
                puts records, `out.<state>.delete(keys)` deletes some, and the last one of a key
                counts; all other records stay.
        """


class TranslateRun(Declared):
    """A vectorised translator that is called once for a whole run, and reaches records of any key.

    For loops: an algorithm on arrays follows records in one call, reads the records of its
    state that it needs, and puts its results. States and views are kept (`keep=True`), since there
    are no groups whose records could be replaced. A run has one task.

        class Ages(TranslateRun):
            people = Input("name STRING, age BIGINT", route_by="name")
            ages = View("name STRING, age BIGINT", key="name", keep=True)

            def translate(self, tables, out):
                known = tables.ages.of(tables.people.select(["name"]))
                ...

    Attributes:
        ways: The algorithms that a run can choose, and how: a sentence for `cbp explain`.
    """

    form: ClassVar[Form] = "run"
    ways: ClassVar[str] = ""

    @abstractmethod
    def translate(self, tables: Any, out: Any) -> str | None:
        """Turn all records of a run into changes of states and views.

        The results must not depend on the order of records.

        Args:
            tables: `tables.<input>` is a table of all records of the input: records of one key
                are in the order of the groupwise form, perhaps with other records in between.
                `tables.<state>` reads a state or view as it was before the run, in any order.
                `find(keys)` takes a table of keys (the columns of the stage's key and of the second
                key), and returns the rows of the keys whose records exist, as an array, and a table
                of these records. `of(keys)` takes the columns of the stage's key alone, each
                key once, and returns all records with these keys. `all()` returns all records;
                `size` is their number. `tables.run` is the run, as in the groupwise form.
                `tables.recall()` returns the value that `out.remember(value, size)` of
                the previous run kept in memory, if all states are unchanged since that run.
                Otherwise, for example after a restart or a roll-back, or in another process, it
                returns `None`. You may change the value, and keep it again.
            out: One function per state and view, by name, as in `TranslateArrow`: it puts
                records of any key, `out.<state>.delete(keys)` deletes some, and the last one of a
                key counts. `out.remember(value, size)` keeps any value of about `size` bytes
                that follows from the records of the states as this run leaves them.
                `out.note(make)` records the progress of a long loop: if it is time, `make()` is
                called, and the tables that it returns by name are kept until the run ends. If
                the run is interrupted, the next attempt gets them as `tables.noted`, which is
                empty otherwise. It must repeat everything except the work that led to the tables.

        Returns:
            The algorithm that this run chose, in a few lower-case words, such as `anew`, for
            the explanation of the run. `None` means that there is nothing to explain.
        """


class TranslateSql(Declared):
    """A translator in Spark SQL or DataFrames: one plan per epoch, executed in the JVM.

    A class with `queries` is planned in its first epoch, and later epochs mostly reuse the plan. A
    class with its own `translate` has it called in every epoch. Needs Spark. Inputs are routed by
    columns. The order of records has no meaning, in inputs as in outputs.

    Attributes:
        queries: One SELECT per output and state, by its name. FROM can name inputs, states (the
            records that the called groups had before this epoch) and helper queries, which have
            other names, and come before the queries that read them.

            FROM can also name the table `run`, which has one record: `epoch BIGINT`,
            `time TIMESTAMP`, and `frames MAP<STRING, ARRAY<STRING>>` with the labels of the frames
            that are read, by input. A query uses `run.time` instead of a clock. Clocks such as
            `now()` and random numbers such as `rand()` are refused, since they would give
            another result when the run is repeated. Functions that depend on the order of
            records, such as `first`, are not refused.

            Timers are a state: their query gives all timers that the called groups keep.
            Pending timers are `FROM wake CROSS JOIN run WHERE at > time`; the others are due.

            The query of a kept state (`keep=True`) gives the records that are put. Another
            query, such as `"orders.delete"`, gives keys: the columns of the stage's key and of
            the second key. Their records are deleted, unless the same epoch puts them. All
            others stay. A query that names the state in FROM reads all records of the called
            groups; without such a query, only records that are put or deleted are read.
            `<state>_of_<input>`, such as `items_of_orders`, names only the records with the key and
            the second key of some record of the input, which are found by the index; the input has
            the columns of the second key, with the same types.
    """

    form: ClassVar[Form] = "sql"
    reserved: ClassVar[tuple[str, ...]] = ("define", "queries", "sql")
    queries: Mapping[str, str] = MappingProxyType({})

    def translate(self, frames: Any, out: Any) -> None:
        """Emit the records of every output and state; by default, those of `queries`.

        Args:
            frames: A Spark DataFrame per input and state, by name. `frames.sql(text)` runs a
                query that names them. `frames.define(name, frame)` adds a name for later
                queries.
            out: One function per output and state, by name. It takes a DataFrame with the
                declared columns and types. A state function takes all records that the called
                groups keep, and none of other groups. The function of a kept state takes
                records that are put, and has `delete`, which takes keys. A group is called if
                some input has a record of it, or a timer of it is due; with outer grouping,
                also if it has state.
        """
        for name, text in self.queries.items():
            frame, (flow, _, verb) = frames.sql(text), name.partition(".")
            emit = getattr(out, flow, None)
            if emit is None:
                frames.define(name, frame)
            elif verb:
                emit.delete(frame)
            else:
                emit(frame)
