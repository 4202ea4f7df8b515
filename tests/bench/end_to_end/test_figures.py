"""Figures of the service: percentiles, ratios, and the document."""

from __future__ import annotations

import json

import pytest

from tests.bench.end_to_end.figures import (
    Backlog,
    Ingestion,
    Reads,
    ServiceFigures,
    percentile,
)


def test_a_percentile_is_one_of_the_values() -> None:
    """It is the smallest value that the share of the values does not exceed."""
    values = [float(n) for n in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 1.0) == 100.0
    assert percentile([7.0], 0.99) == 7.0


def test_the_ratio_compares_rounds_with_each_other() -> None:
    """A round is compared with the peer's of the same files, since the machine's load changes."""
    assert Ingestion(ours=(10.0, 100.0, 1.0), peer=(20.0, 200.0, 4.0)).ratio == 0.5


def test_a_backlog_is_compared_round_by_round() -> None:
    """The rates are those of the median round; the ratio is that of rounds of the same files."""
    backlog = Backlog(
        10, 5, (1.0, 4.0, 2.0), (0.5, 1.0, 2.0), (1,) * 3, (2,) * 3, (1.0,) * 3, (), ()
    )
    shown = backlog.to_json()
    assert (shown["files_per_second"], shown["lines_per_second"]) == (5.0, 25.0)
    assert shown["ratio"] == 0.5


def test_the_document_has_what_was_measured_and_nothing_else() -> None:
    """What was not measured is null; each latency is no line of the document."""
    reads = Reads(2, 4.0, {"503": 1}, {"look-up": [0.1, 0.3], "runs": []}, runs=5)
    shown = json.loads(json.dumps(ServiceFigures(10, 3, "local", reads=reads).to_json()))
    assert shown["ingestion"] is None
    assert shown["delays"] == []
    assert shown["reads"]["per_second"] == pytest.approx(0.5)
    assert shown["reads"]["errors"] == {"503": 1}
    assert shown["reads"]["requests"] == {"look-up": {"count": 2, "p50": 0.1, "p99": 0.3}}
