"""One epoch has one record per key of an output of which the last record counts, in every form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate, TranslateArrow
from cbp.engine.direct import LocalEngine
from cbp.engine.kernel.arrow.emission import OutputKeys
from cbp.errors import AuthorCodeError, AuthorMisuse
from cbp.sdk.translate import spec_of
from cbp.testing import run_epochs
from tests.cbp.engine.epochs import NARROW
from tests.cbp.engine.small_limits import small_limits
from tests.cbp.sdk.test_output_keys import Emits
from tests.driver import Driver

COLUMNS = "k STRING, other STRING, part BIGINT"
WRONG = [
    ([("a", "b", 1)], "output_key_foreign"),
    ([("a", "b", 1), ("b", "b", 1)], "output_key_foreign"),
    ([("a", "a", 1), ("a", "a", 1)], "output_key_twice"),
    ([("a", "a", None), ("b", "b", 7), ("a", "a", None)], "output_key_twice"),
]


class EmitsArrow(TranslateArrow):
    """The same as `Emits`, on tables."""

    items = Input(COLUMNS, route_by="k")
    seen = State("k STRING")
    totals = Output("k STRING, part BIGINT, n BIGINT", key="k, part")

    def translate(self, groups: Any, out: Any) -> None:
        """Emit."""
        items = groups.items
        n = pa.array(range(items.num_rows), pa.int64())
        columns = [items.column("other"), items.column("part"), n]
        out.totals(pa.table(columns, names=["k", "part", "n"]))
        out.seen(groups.keys)


class Many(Translate):
    """A group that emits more than fits in memory; on request, one key again at its end."""

    items = Input(COLUMNS, route_by="k")
    totals = Output("k STRING, part BIGINT", key="k, part")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit each part, and the first one again."""
        again = False
        for row in group.items:
            again = again or row.other == "again"
            out.totals(key.k, row.part)
        if again:
            out.totals(key.k, 0)


def driver_of(folder: Path, translator: Any, *, hash_mask: int = -1) -> Driver:
    builder = DataflowBuilder("one")
    builder.stage("one", translator, items=builder.source("items", COLUMNS))
    engine = LocalEngine(cache=str(folder / "cache"), limits=small_limits(), hash_mask=hash_mask)
    return Driver(engine, builder.build(), folder / "t")


def rows_of(rows: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(("k", "other", "part"), row, strict=True)) for row in rows]


@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("translator", [Emits, EmitsArrow])
@pytest.mark.parametrize(("rows", "code"), WRONG)
def test_a_second_record_of_a_key_fails_the_run(
    rows: list[Any], code: str, translator: Any, hash_mask: int, tmp_path: Path
) -> None:
    """And a record of another group's key; nothing of the run is there, and its line is named."""
    driver = driver_of(tmp_path, translator(), hash_mask=hash_mask)
    driver.feed("items", rows_of([("a", "a", 1), ("b", "b", 1), ("b", "b", 2)]))
    driver.run_until_idle()
    driver.feed("items", rows_of(rows))
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    if translator is EmitsArrow and len(rows) > 1:
        code = "output_key_twice"  # which group a record of a table is from, nobody can know
    assert caught.value.code == code
    assert "test_output_keys.py" in str(caught.value.details["place"])
    assert len(driver.outputs("one.totals")) == 1
    with pytest.raises(AuthorCodeError) as expected:
        run_epochs(translator, [rows])
    assert expected.value.code == code


@pytest.mark.soak
def test_a_key_that_comes_again_in_a_large_group_is_found(tmp_path: Path) -> None:
    """However far behind the first one; without it nothing is refused."""
    driver = driver_of(tmp_path, Many())
    driver.feed("items", rows_of([("a", "", at) for at in range(5_000)]))
    driver.run_until_idle()
    assert len(driver.outputs("one.totals")[0]) == 5_000
    driver.feed("items", rows_of([("a", "again", at) for at in range(5_000)]))
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert caught.value.code == "output_key_twice"


@pytest.mark.parametrize("part", [0, 3, 7, 18])
def test_a_key_of_any_earlier_part_is_found(part: int) -> None:
    """A group too large for a window emits its keys part by part, of different sizes."""
    keys, start = OutputKeys(spec_of(Many())), 0
    keys.begin(pa.table({"k": ["a"]}))

    def take(numbers: list[int]) -> None:
        keys.take("totals", [pa.array(["a"] * len(numbers)), pa.array(numbers, pa.int64())])

    firsts = []
    for size in (3, 1, 1, 1, 8, 2, 2, 4, 1, 1, 1, 1, 20, 1, 1, 1, 1, 1, 1):
        firsts.append(start)
        take(list(range(start, start + size)))
        start += size
    with pytest.raises(AuthorMisuse):
        take([start, firsts[part]])


class Numbers(Translate):
    """Its keys have floating-point numbers, whose values have several spellings."""

    items = Input("x DOUBLE", route_by="x")
    totals = Output("x DOUBLE, tags ARRAY<INT>, n BIGINT", key="x, tags")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Never called here."""


@pytest.mark.parametrize(
    ("tables", "refused"),
    [
        ([[(0.0, [1], 1), (float("nan"), [1], 2)], [(-0.0, [2], 3)]], False),
        ([[(0.0, [1], 1), (-0.0, [1], 2)]], True),
        ([[(float("nan"), None, 1), (float("nan"), None, 2)]], True),
        ([[(1.0, None, 1)]], True),
    ],
)
def test_keys_are_compared_by_value(tables: list[Any], refused: bool) -> None:
    """Both zeros are one key, and so are all NaNs; lists are compared item by item."""
    keys = OutputKeys(spec_of(Numbers()))
    keys.begin(pa.table({"x": pa.array([float("nan"), -0.0])}))

    def take() -> None:
        for rows in tables:
            x, tags, n = zip(*rows, strict=True)
            types = (pa.float64(), pa.list_(pa.int32()), pa.int64())
            columns = [pa.array(c, t) for c, t in zip((x, tags, n), types, strict=True)]
            keys.take("totals", columns)

    if not refused:
        take()
        return
    with pytest.raises(AuthorMisuse):
        take()
