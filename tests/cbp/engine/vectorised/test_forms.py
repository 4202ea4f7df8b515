"""Vectorised translators against groupwise ones: equal at every epoch, in every order.

The reference engine runs the groupwise form, the direct engine the vectorised one that
does the same; the flows are those of tests/cbp/engine/test_direct.py and tests/keys.py.

So they are for every type of key, with shared hashes and small calls.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.engine.storage.engine_limits import EngineLimits
from stages.translators.url_count_arrow import UrlCountArrow
from tests import keys
from tests.bench.candidates.ours.blackbox import LocalBlackboxExecutor
from tests.cbp.engine.epochs import CASES, NARROW, assert_same, dataflow_of, epochs_of
from tests.cbp.engine.vectorised.arrow_forms import in_arrow
from tests.driver import Driver
from tests.sampling import examples

GROUPWISE = (*("parcels", "probe", "outer_probe", "board", "single_stamps", "nudges"),)
"""A vectorised translator writes state of called keys only, binds none to addresses, and has no
single records."""

GROUPED = [c for c in CASES if not CASES[c][0]().spec().record_wise and c not in GROUPWISE]


@pytest.mark.part(every=4)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("case", GROUPED)
@settings(
    max_examples=examples(3),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_epoch_equals_the_groupwise_form(
    case: str, hash_mask: int, data: st.DataObject
) -> None:
    """Outputs, their order, and state are the same; also in small calls, and with shared hashes."""
    limits = EngineLimits(call_rows=7, spool_bytes=500)
    dataflow = dataflow_of(case)
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(cache=f"{folder}/cache", hash_mask=hash_mask, limits=limits)
        driver = Driver(engine, in_arrow(dataflow), Path(folder) / "t")
        assert_same(dataflow, driver, data.draw(epochs_of(case)), ordered=hash_mask == -1)


@pytest.mark.part(every=2)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
def test_keys_of_every_type_make_the_same_groups(hash_mask: int, tmp_path: Path) -> None:
    """Null, empty, a megabyte, NaN, both zeros, several columns: keys as they are groupwise."""
    every = list(keys.TRANSLATORS)
    dataflow = keys.dataflow_of_keys(*every)
    rows = [keys.epochs_of_keys(types, seed=at) for at, types in enumerate(every)]
    # Keys of a megabyte take most of the time: some of them do.
    parts = [slice(None, None, 3 if "STRING" in types else 1) for types in every]
    epochs = [
        {str(at): many[epoch][parts[at]] for at, many in enumerate(rows)} for epoch in range(2)
    ]
    texts = [row["k0"] or "" for epoch in epochs for row in epoch[str(every.index(("STRING",)))]]
    assert max(map(len, texts)) >= len(keys.LONG)
    engine = LocalEngine(cache=str(tmp_path / "cache"), hash_mask=hash_mask)
    driver = Driver(engine, in_arrow(dataflow), tmp_path / "t")
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1, source="r")


@given(epochs=epochs_of("url_count"))
@settings(max_examples=examples(8), deadline=None)
def test_counts_on_columns_are_the_counts(epochs: list[dict[str, list[dict[str, str]]]]) -> None:
    """The ready vectorised URL count holds what the groupwise one does."""
    dataflow = dataflow_of("url_count")
    node = replace(dataflow.stages["stage"], translator=UrlCountArrow().spec())
    vectorised = replace(dataflow, stages=MappingProxyType({"stage": node}))
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(LocalEngine(cache=f"{folder}/cache"), vectorised, Path(folder) / "t")
        assert_same(dataflow, driver, epochs)
        assert_same(vectorised, Driver(driver.engine, vectorised, Path(folder) / "u"), epochs)


@given(epochs=epochs_of("members"))
@settings(max_examples=examples(4), deadline=None)
def test_the_black_box_runs_this_form_too(epochs: list[dict[str, list[dict[str, str]]]]) -> None:
    """State that arrives with the input is settled alike."""
    dataflow = dataflow_of("members")
    with tempfile.TemporaryDirectory() as folder:
        engine = DirectEngine(LocalBlackboxExecutor(), cache=f"{folder}/cache")
        assert_same(dataflow, Driver(engine, in_arrow(dataflow), Path(folder) / "t"), epochs)
