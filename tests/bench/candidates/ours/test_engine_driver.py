"""The drive makes every commit of a run, and knows where its time went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from tests.bench.candidates.ours.engine_driver import STEPS, DataflowDrive
from tests.bench.workloads.workload import CrawlQueue, UrlCount, Workload, write_arrival


def test_every_run_is_recorded_and_published(tmp_path: Path) -> None:
    """What is timed includes the intention and the log entries of state and output."""
    workload = UrlCount(100)
    dataflow = workload.dataflow(grouping="inner", form="groupwise", buckets=4)
    drive = DataflowDrive(LocalEngine(cache=str(tmp_path / "c")), dataflow, tmp_path / "t")
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        drive.offer("urls", write_arrival(workload.records(number, 20, before=20 * number), path))
        (run,) = drive.run_until_idle()
        assert set(run.steps) == set(STEPS)
        assert run.tasks == run.figures["tasks"] >= 1
    assert len(list((tmp_path / "t/_intentions/count").glob("*.json"))) == 2
    for table in ("state/count.counts", "flows/count.totals"):
        entries = sorted((tmp_path / "t" / table / "_delta_log").glob("*.json"))
        assert len(entries) == 3
        assert any("txn" in json.loads(line) for line in entries[-1].read_text().splitlines())


@pytest.mark.parametrize("grouping", ["inner", "outer"])
def test_a_whole_dataflow_gives_what_the_reference_gives(tmp_path: Path, grouping: str) -> None:
    """Increments pass through all stages, in the order of the wiring."""
    workload: Workload = CrawlQueue(200)
    dataflow = workload.dataflow(grouping=grouping, form="groupwise", buckets=4)
    drive = DataflowDrive(LocalEngine(cache=str(tmp_path / "c")), dataflow, tmp_path / "t")
    reference = ReferenceEngine(dataflow)
    for number in range(2):
        pages = workload.records(number, 10, before=10 * number)
        drive.offer("pages", write_arrival(pages, tmp_path / f"{number}.parquet"))
        drive.run_until_idle()
        reference.feed("pages", pages.to_pylist())
        reference.run_until_idle()
    node = dataflow.stages["merge"]
    actual = list(drive.engine.records.read_state(str(drive.folder), node, "known"))
    expected = list(reference.state("merge", "known"))
    assert sorted(map(repr, actual)) == sorted(map(repr, expected))
    assert actual
