"""The direct engine against the reference engine: equal at every epoch, in every order.

The tasks, files and tables are the product's; only Spark is left out (tests/spark runs
the same flows on it). Narrow hashes force keys to share one.

Windows are tiny and runs spill. A run costs what its increment touches. The `ranks` and `parcels`
cases keep a state by its own columns and in its own order; `probe` has keys, `ALL`, multicast,
messages and remote writes; in `parcels` state for other keys is appended once; in `shelf` groups
are larger than memory, in any order of reading and emitting; `gathered` and `board` have groups
first, then single records.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.direct import LocalEngine
from tests.cbp.engine.epochs import CASES, NARROW, assert_same, dataflow_of, epochs_of
from tests.cbp.engine.small_limits import small_limits
from tests.driver import Driver
from tests.sampling import examples


@pytest.mark.part(every=7)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_every_epoch_equals_the_reference(case: str, hash_mask: int, data: st.DataObject) -> None:
    """Outputs, their order, and state are the reference's; also when keys share a hash."""
    limits = small_limits(pending_rows=data.draw(st.sampled_from([4, 1000])))
    epochs = data.draw(epochs_of(case))
    dataflow = dataflow_of(case)
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(cache=f"{folder}/cache", hash_mask=hash_mask, limits=limits)
        driver = Driver(engine, dataflow, Path(folder) / "t")
        # The reference visits groups by the whole hash: with a narrow one the order differs.
        assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)


@pytest.mark.parametrize("last", ["give", "blind", "forget", "look"])
@pytest.mark.parametrize("part", [0.0, -0.0])
def test_a_large_state_with_both_zeros_is_not_taken_for_another_keys(
    last: str, part: float, tmp_path: Path
) -> None:
    """Each of the keys that share a hash has its own records, also where a zero has two spellings.

    `b` and `ab` share a hash, and both zeros are spelled among their records.
    """
    limits = small_limits()

    def order(k: str, verb: str = "give") -> dict[str, Any]:
        return {"k": k, "part": part, "verb": verb, "n": 0}

    epochs = [
        [*[order("a")] * 7, order("b")],
        [*[order("a")] * 3, order("ab")],
        [order("b", last)],
        [order("ab", last)],
    ]
    dataflow = dataflow_of("parcels")
    engine = LocalEngine(cache=str(tmp_path / "cache"), hash_mask=NARROW, limits=limits)
    driver = Driver(engine, dataflow, tmp_path / "t")
    assert_same(dataflow, driver, [{"orders": orders} for orders in epochs], ordered=False)


def test_unchanged_records_are_not_written_again(tmp_path: Path) -> None:
    """One new member of a large group writes one record, and removes none."""
    dataflow = dataflow_of("members")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    driver.feed("s_items", [{"url": f"a{i}", "drop": False} for i in range(500)])
    driver.run_until_idle()
    driver.feed("s_items", [{"url": "a-new", "drop": False}])
    driver.run_until_idle()
    assert driver.figures[-1]["state_written"] == 1
    assert driver.figures[-1]["state_removed"] == 0


def test_the_files_of_a_bucket_stay_few(tmp_path: Path) -> None:
    """Compaction inside runs bounds the live files, whatever the number of epochs."""
    dataflow = dataflow_of("url_count")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    for epoch in range(60):
        driver.feed("s_urls", [{"url": f"u{(epoch * 7 + i) % 97}"} for i in range(20)])
        driver.run_until_idle()
    table = driver.engine.history.tables.table(str(tmp_path / "t" / "state/stage.counts"))  # type: ignore[attr-defined]
    assert len(table.snapshot.live) <= 4 * 8
    assert sum(row["n"] for row in driver.state("stage", "counts")) == 60 * 20
