"""The black-box mode gives what the direct engine gives; only its costs differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.blackbox import BlackboxTask, LocalBlackboxExecutor
from cbp.engine.direct import DirectEngine, LocalEngine
from cbp.errors import InvariantError, TableFeatureError
from tests.cbp.engine.test_direct import CASES, assert_same, dataflow_of, epochs_of
from tests.driver import Driver

STATEFUL = [name for name in CASES if CASES[name][0]().spec().key is not None]


def blackbox(folder: Path, **options: Any) -> DirectEngine:
    """Give an engine that rewrites state, without Spark."""
    return DirectEngine(LocalBlackboxExecutor(), cache=str(folder / "cache"), **options)


@pytest.mark.parametrize("case", STATEFUL)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_every_epoch_equals_the_reference(
    tmp_path_factory: pytest.TempPathFactory, case: str, data: st.DataObject
) -> None:
    """Outputs and state of every epoch are the reference engine's, for both groupings."""
    folder = tmp_path_factory.mktemp("blackbox")
    dataflow = dataflow_of(case)
    driver = Driver(blackbox(folder), dataflow, folder / "tables")
    assert_same(dataflow, driver, data.draw(epochs_of(case)))


def test_every_record_is_written_again(tmp_path: Path) -> None:
    """A run of one record rewrites all state: that is what makes it the baseline."""
    driver = Driver(blackbox(tmp_path), dataflow_of("url_count"), tmp_path / "tables")
    driver.feed("s_urls", [{"url": f"u{i}"} for i in range(100)])
    driver.feed("s_urls", [{"url": "u7"}])
    driver.run_until_idle()
    assert driver.figures[1]["groups"] == 1
    assert driver.figures[1]["state_written"] == 100


def test_the_direct_engine_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Both modes share one layout of tables, so a state can change hands."""
    driver = Driver(blackbox(tmp_path), dataflow_of("url_count"), tmp_path / "tables")
    driver.feed("s_urls", [{"url": "a"}, {"url": "b"}])
    driver.run_until_idle()
    driver.engine = LocalEngine(cache=str(tmp_path / "cache"))
    driver.feed("s_urls", [{"url": "a"}])
    driver.run_until_idle()
    state = {row["url"]: row["n"] for row in driver.state("stage", "counts")}
    assert state == {"a": 2, "b": 1}


def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    """A file with dead rows would bring them back to life when it is read whole."""
    local = LocalEngine(cache=str(tmp_path / "cache"))
    driver = Driver(local, dataflow_of("url_count"), tmp_path / "tables")
    driver.feed("s_urls", [{"url": f"u{i}"} for i in range(100)])
    driver.feed("s_urls", [{"url": "u7"}])
    driver.run_until_idle()
    driver.engine = blackbox(tmp_path)
    driver.feed("s_urls", [{"url": "u8"}])
    with pytest.raises(TableFeatureError):
        driver.run_until_idle()


def test_lost_state_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State that does not arrive in a task would be dropped by the rewrite."""
    driver = Driver(blackbox(tmp_path), dataflow_of("url_count"), tmp_path / "tables")
    driver.feed("s_urls", [{"url": f"u{i}"} for i in range(100)])
    driver.run_until_idle()
    driver.feed("s_urls", [{"url": "u7"}])
    monkeypatch.setattr(BlackboxTask, "run_arranged", lambda task: [{"kind": "counts"}])
    with pytest.raises(InvariantError, match="100 records, but 0"):
        driver.run_until_idle()
