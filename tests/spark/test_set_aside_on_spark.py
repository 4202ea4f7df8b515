"""What a stage sets aside on Spark, in every form and way of its records."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from tests.cbp.engine.set_aside_pair import FORMS, Pair
from tests.limited import limits_of

pytestmark = pytest.mark.spark


@pytest.mark.part(every=6)
@pytest.mark.parametrize(("form", "shuffled"), list(itertools.product(FORMS, (False, True))))
def test_it_is_what_the_reference_sets_aside(
    form: str, shuffled: bool, spark: Any, tmp_path: Path
) -> None:
    """The same records, in the same order, of the same increments; and once they are given back."""
    engine = DirectEngine(
        SparkExecutor(spark),
        cache=str(tmp_path / "cache"),
        limits=limits_of(shuffled=shuffled),
    )
    pair = Pair(tmp_path, form, engine=engine)
    pair.feed(
        rows=[(f"g{n % 7}", n, "raise" if n in (3, 12) else None) for n in range(20)],
        more=[(f"g{n}", n) for n in range(5)],
    )
    pair.feed(rows=[("g3", 0, None), (None, 4, "type"), ("g5", 5, "raise")], more=[("g3", 3)])
    pair.compare()
    seen = pair.driver.set_aside("stage")
    assert [one["increment"] for one in seen] == sorted(one["increment"] for one in seen)
    assert {one["increment"] for one in seen} == {0, 1}
    pair.mend()
    pair.give_back()
    pair.compare()
    assert pair.aside() == []
