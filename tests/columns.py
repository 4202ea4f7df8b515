"""One stage in three forms over a column of any name, for tests that hold every name usable."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cbp import Input, Output, State, Translate, TranslateArrow, TranslateSql, by
from cbp.sdk.translate import Declared

__all__ = ["EPOCHS", "NAMES", "form_of", "records_of"]

NAMES = ("from", "None", "class_", "count", "index", "key", "self", "emit", "Select", "cursor")
"""Keywords of Python and SQL, attributes of tuples, and names that our own code gives."""

EPOCHS = (["/a", "/b", "/a"], [None, "/a"], ["/b"])


def form_of(form: str, name: str) -> Declared:
    """Return a stage that counts the values of a column, as `groupwise`, `arrow`, `sql` or `by`."""
    column = f"{name} STRING, rest STRUCT<from: STRING, n: BIGINT>"
    attribute = {"from": "from_", "None": "None_"}.get(name, name)

    class Counts(Translate):
        """Give a column by its attribute, by its name and by its place."""

        links = Input(column, route_by=name, order_by=name)
        kept = State(f"{name} STRING, n BIGINT", order_by=name)
        totals = Output(f"{name} STRING, n BIGINT", key=name)
        seen = Output(column)

        def translate(self, key: Any, group: Any, out: Any) -> None:
            links, kept = list(group.links), list(group.kept)
            value = getattr(key, attribute)
            assert {getattr(row, attribute) for row in (*links, *kept)} == {value}
            assert {getattr(row, name) for row in (key, *links)} == {row[0] for row in links}
            n = len(links) + sum(row.n for row in kept)
            out.kept(**{attribute: value}, n=n)
            out.totals(**{name: value}, n=n)
            for row in links:
                out.seen(*row)

    class ByFunction(Counts):
        """Route, order and combine by functions of the record."""

        key = f"{name} STRING"
        links = Input(
            column,
            route_by=by(lambda row: getattr(row, attribute), "STRING"),
            order_by=by(lambda row: getattr(row, name), "STRING"),
        )

    class Arrow(TranslateArrow):
        links, kept, totals, seen = Counts.links, Counts.kept, Counts.totals, Counts.seen

        def translate(self, groups: Any, out: Any) -> None:
            both = groups.links.select([name]).append_column("n", pa.array([1] * len(groups.links)))
            both = pa.concat_tables([both, groups.kept.select([name, "n"])])
            actual = both.group_by(name).aggregate([("n", "sum")]).rename_columns([name, "n"])
            out.kept(actual)
            out.totals(actual)
            out.seen(groups.links)

    class Sql(TranslateSql):
        links, totals, seen = Counts.links, Counts.totals, Counts.seen
        links = Input(column, route_by=name)
        kept = State(f"{name} STRING, n BIGINT")
        queries = {  # noqa: RUF012
            "both": f"SELECT `{name}`, 1L AS n FROM links UNION ALL SELECT `{name}`, n FROM kept",
            "summed": f"SELECT `{name}`, sum(n) AS n FROM both GROUP BY `{name}`",
            "kept": "SELECT * FROM summed",
            "totals": "SELECT * FROM summed",
            "seen": "SELECT * FROM links",
        }

    forms: dict[str, type[Declared]] = {
        "groupwise": Counts,
        "by": ByFunction,
        "arrow": Arrow,
        "sql": Sql,
    }
    return forms[form]()


def records_of(name: str) -> list[list[dict[str, Any]]]:
    """Return the records of three epochs, by the names of their columns."""
    return [
        [{name: url, "rest": {"from": url, "n": at}} for at, url in enumerate(epoch)]
        for epoch in EPOCHS
    ]
