"""State for other keys: bounded memory, few files, nothing lost.

State for other keys is appended once, whichever groups are called.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings

from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from tests.cbp.engine.epochs import assert_same, dataflow_of, epochs_of
from tests.driver import Driver
from tests.sampling import examples


def orders(*given: tuple[str, str, int]) -> list[dict[str, object]]:
    """Return records of the case `parcels`: who, what, how many."""
    return [{"k": k, "part": 1.0, "verb": verb, "n": n} for k, verb, n in given]


@settings(max_examples=examples(5), deadline=None)
@given(epochs=epochs_of("parcels"))
def test_what_does_not_fit_in_memory_goes_to_files(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[dict[str, list[dict[str, object]]]]
) -> None:
    """Several files per bucket and task hold what one would."""
    folder = tmp_path_factory.mktemp("remote")
    engine = LocalEngine(cache=str(folder / "cache"), limits=EngineLimits(remote_bytes=100))
    dataflow = dataflow_of("parcels")
    assert_same(dataflow, Driver(engine, dataflow, folder / "t"), epochs)


def test_a_bucket_that_is_only_written_to_stays_compact(tmp_path: Path) -> None:
    """Its owner merges the files that others leave there, and no record is lost."""
    dataflow = dataflow_of("parcels")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    reference = ReferenceEngine(dataflow)
    for n in range(50):
        for one in (driver, reference):
            one.feed("s_orders", orders(("caller", "give", n)))
            one.run_until_idle()
    table = driver.engine.history.tables.table(str(tmp_path / "t" / "state/stage.kept"))  # type: ignore[attr-defined]
    live = Counter(Path(file.path).parent.name for file in table.snapshot.live.values())
    assert max(live.values()) <= 2 * DEFAULT_LIMITS.state_fanout
    kept = [row for row in driver.state("stage", "kept") if row["k"] in "ab"]
    assert sorted(r["n"] for r in kept) == sorted([*range(50), *range(50)])
    assert len(kept) == sum(row["k"] in "ab" for row in reference.state("stage", "kept"))


def test_a_remote_write_is_counted(tmp_path: Path) -> None:
    """Among the records written, and apart from those of called groups."""
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")), dataflow_of("parcels"), tmp_path / "t"
    )
    driver.feed("s_orders", orders(("c", "give", 1), ("a", "give", 2)))
    driver.run_until_idle()
    # `c` writes to a, b and, as part -1.0, to itself; `a` likewise; each keeps one of its own.
    assert driver.figures[-1]["state_remote"] == 6
    assert driver.figures[-1]["state_written"] == 8
