"""State that is placed by another hash, or in other buckets, than the stage expects.

A state table with another hash, key or number of buckets is refused before any work.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cbp.engine.delta.actions import CommitInfo, encode
from cbp.engine.delta.managed_table import open_table
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.files import LocalFiles
from cbp.errors import PlacementDiffersError
from tests.cbp.engine.epochs import dataflow_of
from tests.driver import Driver


def folder_files(folder: Path) -> list[Path]:
    """Return every file below a folder, but the input of the test."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and "sources" not in p.parts)


def started(folder: Path) -> Driver:
    """Return a driver whose state holds a record, and who has something to do."""
    dataflow = dataflow_of("url_count")
    driver = Driver(LocalEngine(cache=str(folder / "cache")), dataflow, folder / "t")
    driver.feed("s_urls", [{"url": "a"}])
    driver.run_until_idle()
    driver.feed("s_urls", [{"url": "a"}])
    return driver


def test_another_number_of_buckets_is_refused_before_any_work(tmp_path: Path) -> None:
    """A stage that was given other buckets finds nothing, so it may not look: both are named."""
    driver = started(tmp_path)
    stage = driver.dataflow.stages["stage"]
    other = replace(driver.dataflow, stages={"stage": replace(stage, buckets=8)})
    driver.dataflow = other
    before = folder_files(tmp_path)
    for attempt in (
        driver.run_until_idle,
        lambda: driver.state("stage", "counts"),
        lambda: driver.engine.records.look_up(
            driver.folder, other.stages["stage"], "counts", {"url": "a"}
        ),
    ):
        with pytest.raises(PlacementDiffersError) as caught:
            attempt()
        assert caught.value.details["found"] == "4"
        assert caught.value.details["expected"] == "8"
    assert folder_files(tmp_path) == before


def test_a_state_that_lies_by_another_column_is_not_searched(tmp_path: Path) -> None:
    """Its table names the columns it is divided by; by others, nothing would be found, silently."""
    dataflow = dataflow_of("ranks")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    driver.feed("s_items", [{"k": "a", "part": 1.0, "n": 3}])
    driver.run_until_idle()
    (node,) = dataflow.stages.values()
    key = {"whom": "a", "at": 1.0}
    (actual,) = driver.engine.records.look_up(driver.folder, node, "kept", key)
    assert actual["n"] == 3
    (kept,) = node.translator.states
    states = (replace(kept, route_by=("whom", "n")),)
    other = replace(node, translator=replace(node.translator, states=states))
    with pytest.raises(PlacementDiffersError) as refused:
        driver.engine.records.look_up(driver.folder, other, "kept", {"whom": "a", "n": 3})
    found, expected = (refused.value.details[name] for name in ("found", "expected"))
    assert (refused.value.details["setting"], found, expected) == ("cbp.key", "whom,at", "whom,n")


def test_another_hash_is_refused(tmp_path: Path) -> None:
    """A table that a later version of the service hashed otherwise is left alone."""
    driver = started(tmp_path)
    table = open_table(str(tmp_path / "t/state/stage.counts"), LocalFiles())
    metadata = table.snapshot.metadata
    settings = {**metadata.configuration, "cbp.hash": "siphash"}
    entry = encode(
        [CommitInfo(1, "CBP RUN", engine="cbp/9"), replace(metadata, configuration=settings)]
    )
    LocalFiles().put_if_absent(table.log.entry_path(table.snapshot.version + 1), entry)
    again = LocalEngine(cache=str(tmp_path / "cache"))
    driver.engine = again
    with pytest.raises(PlacementDiffersError) as caught:
        driver.run_until_idle()
    assert caught.value.details["setting"] == "cbp.hash"
    assert caught.value.details["found"] == "siphash"
