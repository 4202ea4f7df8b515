"""Keys of every type: groups, state and order are the reference's, whatever the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from cbp.engine.direct import LocalEngine
from tests.cbp.engine.test_direct import NARROW, assert_same, repr_of
from tests.driver import Driver
from tests.keys import COMPOSED, VALUES, dataflow_of_keys, epochs_of_keys

KEYS = [*((kind,) for kind in VALUES), *COMPOSED]


@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("types", KEYS, ids=lambda types: "-".join(types))
def test_keys_of_every_type_make_the_references_groups(
    types: tuple[str, ...], hash_mask: int, tmp_path: Path
) -> None:
    """Null, empty, a megabyte, every script, NaN and both zeros: each is one group."""
    dataflow = dataflow_of_keys(types)
    engine = LocalEngine(cache=str(tmp_path / "cache"), hash_mask=hash_mask)
    driver = Driver(engine, dataflow, tmp_path / "t")
    epochs = [{"0": rows} for rows in epochs_of_keys(types, seed=1)]
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1, source="r")
    stage, names = dataflow.stages["s0"], [f"k{i}" for i in range(len(types))]
    for record in driver.state("s0", "seen")[:20]:
        key = {name: record[name] for name in names}
        assert repr_of(engine.look_up(driver.folder, stage, "seen", key)) == repr_of([record])
