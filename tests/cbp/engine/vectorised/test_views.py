"""Views of vectorised translators: the groupwise form's records and changes, in its order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from tests.cbp.engine.epochs import NARROW, assert_same, repr_of
from tests.cbp.engine.small_limits import small_limits
from tests.driver import Driver
from tests.view_dataflows import links_dataflow, random_items


@pytest.mark.part(every=9)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("oracle", ["groupwise", "arrow"])
def test_views_by_tables_are_those_of_groups(
    oracle: str, seed: int, hash_mask: int, tmp_path: Path
) -> None:
    """Both in the engine, and in the reference engine, which calls tables by another way."""
    engine = LocalEngine(cache=str(tmp_path / "cache"), hash_mask=hash_mask, limits=small_limits())
    dataflow = links_dataflow("arrow")
    driver = Driver(engine, dataflow, tmp_path / "t")
    epochs = random_items(random.Random(seed), epochs=4)
    # The order of an author's own output is that in which the form emits.
    assert_same(links_dataflow(oracle), driver, epochs, ordered=False)
    in_order(driver, oracle, epochs, ordered=hash_mask == -1)


def in_order(driver: Driver, oracle: str, epochs: Any, *, ordered: bool) -> None:
    reference = ReferenceEngine(links_dataflow(oracle))
    for epoch in epochs:
        reference.feed("s_items", epoch["items"])
        reference.run_until_idle()
    flows = ("links.links", "sizes.counted", "visits.visits", "crowd.counted")
    for flow in flows if ordered else ():
        mine, its = driver.outputs(flow), reference.outputs(flow)
        assert list(map(repr_of, mine)) == list(map(repr_of, its))
