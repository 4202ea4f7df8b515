"""Every ready stage on views, in both forms, with the same columns; and random changes for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cbp import DataflowBuilder
from cbp.model.dataflow.dataflow import Dataflow
from cbp.sdk.translate import Declared
from stages.translators.as_of_join import AsOfJoin
from stages.translators.as_of_join_arrow import AsOfJoinArrow
from stages.translators.dimension_join import DimensionJoin
from stages.translators.dimension_join_arrow import DimensionJoinArrow
from stages.translators.distinct import Distinct
from stages.translators.distinct_arrow import DistinctArrow
from stages.translators.first_within import FirstWithin
from stages.translators.first_within_arrow import FirstWithinArrow
from stages.translators.join import Join
from stages.translators.join_arrow import JoinArrow
from stages.translators.latest import Latest
from stages.translators.latest_arrow import LatestArrow
from stages.translators.sessions import Sessions
from stages.translators.sessions_arrow import SessionsArrow
from stages.translators.top_k import TopK
from stages.translators.top_k_arrow import TopKArrow
from stages.translators.windows import Windows
from stages.translators.windows_arrow import WindowsArrow

Rename = Callable[[str], str]
Day = dict[str, list[dict[str, Any]]]

LEFT = {"id": "INT", "pair": "STRING", "at": "TIMESTAMP", "cents": "BIGINT", "part": "DOUBLE"}
RIGHT = {"pair": "STRING", "since": "TIMESTAMP", "part": "DOUBLE", "rate": "INT"}
TABLE = {"pair": "STRING", "label": "STRING"}
BEGIN = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(seconds=7)
"""Times before and after 1970."""

FORMS: Mapping[type[Declared], type[Declared]] = {
    AsOfJoin: AsOfJoinArrow,
    DimensionJoin: DimensionJoinArrow,
    Distinct: DistinctArrow,
    FirstWithin: FirstWithinArrow,
    Join: JoinArrow,
    Latest: LatestArrow,
    Sessions: SessionsArrow,
    TopK: TopKArrow,
    Windows: WindowsArrow,
}
"""The form on columns of each groupwise class."""


def ddl(columns: Mapping[str, str], rename: Rename = str, *names: str) -> str:
    """Return the DDL of some columns, by default all."""
    return ", ".join(f"{rename(name)} {columns[name]}" for name in names or columns)


def stages(rename: Rename = str) -> dict[str, tuple[type[Declared], dict[str, Any]]]:
    """Return class and parameters of stages by name; those of two inputs have `left` in them.

    Args:
        rename: Gives each column the name that it has.
    """
    left, right = ddl(LEFT, rename), ddl(RIGHT, rename, "pair", "since", "rate")
    id_, pair, at, since, cents, part = map(rename, ("id", "pair", "at", "since", "cents", "part"))
    keys = {"left_key": id_, "right_key": f"{pair}, {since}"}
    lefts, rights = ddl(LEFT, rename, "pair", "part"), ddl(RIGHT, rename, "pair", "rate")
    both = {"left": left, "right": right, "on": pair}
    bags = {"left": lefts, "right": rights, "on": pair}
    timed = {"at": at, "since": since}
    table = {"dimension": ddl(TABLE, rename), "on": pair}
    of_left = {"schema": left}
    return {
        **{f"join_{how}": (Join, {**both, "how": how, **keys}) for how in _KINDS},
        **{f"bags_{how}": (Join, {**bags, "how": how}) for how in _KINDS},
        "half_bag": (Join, {**bags, "left": left, "how": "left", "left_key": id_}),
        "two_columns": (Join, {**both, "right": ddl(RIGHT, rename), "on": f"{part}, {pair}"}),
        "as_of": (AsOfJoin, {**both, **timed, **keys}),
        "as_of_bags": (AsOfJoin, {**both, **timed, "left": ddl(LEFT, rename, "pair", "at")}),
        "dimension": (DimensionJoin, {**table, "rows": left, "key": id_}),
        "dimension_bag": (DimensionJoin, {**table, "rows": lefts, "how": "inner"}),
        "best": (TopK, {**of_left, "group": pair, "key": id_, "by": cents, "k": 2}),
        "best_parts": (TopK, {**of_left, "group": pair, "key": f"{id_}, {at}", "by": part}),
        "best_of_parts": (TopK, {**of_left, "group": pair, "key": f"{part}, {id_}", "by": cents}),
        "distinct": (Distinct, {"schema": lefts}),
        "windows": (
            Windows,
            {**of_left, "by": pair, "at": at, "seconds": 10, "every": 5, "add": cents},
        ),
        "sessions": (Sessions, {**of_left, "by": pair, "at": at, "gap_seconds": 3}),
        "firsts": (FirstWithin, {**of_left, "by": pair, "at": at, "seconds": 4}),
        "latest": (Latest, {**of_left, "key": pair, "gone": part}),
        "newest": (Latest, {**of_left, "key": f"{pair}, {cents}"}),
    }


_KINDS = ("inner", "left", "semi", "anti")


def every_stage(rename: Rename = str) -> Dataflow:
    """Return a dataflow in which each ready stage, in both forms, reads the changes of a view.

    The form on columns of the stage `best` is `best_arrow`.
    """
    flow = DataflowBuilder("every_stage")
    views = {}
    sides = (
        ("left", LEFT, "id", "cents"),
        ("right", RIGHT, "pair, since", "rate"),
        ("table", TABLE, "pair", "label"),
    )
    for name, columns, key, gone in sides:
        schema = ddl(columns, rename)
        key = ", ".join(rename(column) for column in key.split(", "))
        last = Latest(schema, key, gone=rename(gone))
        views[name] = flow.stage(f"{name}s", last, rows=flow.source(name, schema)).latest
    for name, (groupwise, parameters) in stages(rename).items():
        for form, suffix in ((groupwise, ""), (FORMS[groupwise], "_arrow")):
            stage = form(**parameters)
            if groupwise is Latest:  # it reads no changes
                wired: dict[str, Any] = {"rows": "left"}
            elif isinstance(stage, DimensionJoin):
                wired = {"rows": views["left"], "dimension": views["table"]}
            elif groupwise in (Join, AsOfJoin):
                wired = {"left": views["left"], "right": views["right"]}
            else:
                wired = {"rows": views["left"]}
            flow.stage(f"{name}{suffix}", stage, **wired)
    return flow.build()


def random_days(dice: random.Random, days: int = 4, most: int = 12) -> list[Day]:
    """Return records of some days, by source and column; null in the last column: it is gone."""

    def at() -> datetime | None:
        second = dice.randrange(21)
        return BEGIN + timedelta(seconds=second) if second < 20 else None

    def pair() -> str | None:
        return dice.choice(["a", "a", "b", "c", None])

    def part() -> float | None:
        return dice.choice([0.0, -0.0, 1.0, -2.5, float("nan"), None])

    def left() -> Sequence[Any]:
        return dice.randrange(12), pair(), at(), dice.choice([None, 1, 2, 2]), part()

    def right() -> Sequence[Any]:
        return pair(), at(), part(), dice.choice([None, 1, 2])

    def table() -> Sequence[Any]:
        return pair(), dice.choice([None, "x", "y", "z", "z", "z"])

    sources = (
        ("left", LEFT, left, most),
        ("right", RIGHT, right, most),
        ("table", TABLE, table, 6),
    )
    return [
        {
            name: [dict(zip(columns, make(), strict=True)) for _ in range(dice.randrange(size))]
            for name, columns, make, size in sources
        }
        for _ in range(days)
    ]


def comparable(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return records that are equal if their values are: one NaN, and one zero."""
    return [tuple("nan" if value != value else value for value in row) for row in rows]
