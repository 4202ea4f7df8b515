"""The benchmark of the service from start to end, at a tiny size."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench import ServiceBenchOptions, run_service_bench
from tests.bench.end_to_end.figures import PARTS

TINY = ServiceBenchOptions(
    state_keys=100,
    lines=5,
    files=2,
    warmup=1,
    ingest_seconds=0.01,
    batch_files=2,
    batch_lines=3,
    read_seconds=0.5,
    clients=2,
    readers=1,
    backlog=5,
    backlog_lines=3,
    engine="local",
)


@pytest.mark.soak
def test_a_service_is_measured_from_the_rename_to_the_answer(tmp_path: Path) -> None:
    """Each file has all parts; readers meet no error; both readers of the files are measured."""
    target, stream = tmp_path / "out.json", io.StringIO()
    run_service_bench(replace(TINY, json_file=target), console=Console(file=stream, width=200))
    written = json.loads(target.read_text())
    assert written["complete"] is True
    found = written["service"]
    assert len(found["delays"]) == 2
    for delay in found["delays"]:
        assert list(delay["parts"]) == list(PARTS)
        assert sum(delay["parts"].values()) == pytest.approx(delay["seconds"])
        assert delay["parts"]["run"] > 0
        assert "job" in delay["phases"]
    assert found["reads"]["errors"] == {}
    assert set(found["reads"]["requests"]) == {"look-up", "dataflows", "increments", "runs"}
    assert found["reads"]["runs"] >= 1
    assert found["reads"]["client_limit"] > 500
    assert set(found["reads"]["cpu_ms_per_request"]) == {"service", "readers", "clients"}
    assert len(found["ingestion"]["ours"]) == len(found["ingestion"]["peer"]) >= 1
    backlog = found["backlog"]
    assert len(backlog["seconds"]) == len(backlog["peer_seconds"]) == 1
    assert backlog["peak_bytes"][0] >= backlog["first_bytes"][0] > 50 << 20
    assert backlog["beside"]
    assert backlog["elsewhere"]
    assert backlog["cpu_seconds"][0] > 0
    printed = stream.getvalue()
    for word in ("claim", "waiting files", "publish", "Polars", "look-up", "p99"):
        assert word in printed
