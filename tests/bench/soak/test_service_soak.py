"""The soak of a whole service: its samples, and what counts as growth.

A soak in which memory, open files or run time grow fails, and names them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import BenchFailedError, BenchRefusedError, draw_service_soak, service_soak
from tests.bench.soak.service_soak import (
    FIGURES,
    ServiceSample,
    ServiceSoak,
    grown,
    growth_of,
    left_behind,
    per_run,
)


def test_growth_is_of_the_last_tenth_over_the_one_in_the_middle() -> None:
    """What is filled before does not count, nor does what one sample of a tenth shows."""
    sizes = [*range(13), 10, 100, 10, *[11] * 11, 20, 900, 20]
    samples = [ServiceSample(2 * n, 1.0, size, 1, 7, 3) for n, size in enumerate(sizes)]
    assert len(samples) == 30
    growth = growth_of(samples)
    assert growth == {"seconds": 1.0, "disk_bytes": 2.0, "memory_bytes": 1.0, "handles": 1.0}
    assert per_run(samples, "disk_bytes") == 10 / (2 * 14)


def test_what_grows_more_than_it_may_is_told() -> None:
    """In words, with how much; as much as allowed is allowed."""
    growth = {"seconds": 1.21, "disk_bytes": 5.0, "memory_bytes": 1.2, "handles": 2.0}
    actual = ServiceSoak(100, growth, 400.0, 0.0, (), {})
    assert grown(actual, 1.2) == {"seconds per run": 1.21, "open files": 2.0}
    assert grown(actual, 2.0) == {}


@pytest.mark.parametrize(
    ("size", "files", "told"),
    [
        (2000.0, 0.1, {}),
        (2001.0, 0.0, {"bytes on disk per run": 2001.0}),
        (700.0, 1.0, {"files on disk per run": 1.0}),
    ],
)
def test_what_each_run_leaves_on_disk_is_told(
    size: float, files: float, told: dict[str, float]
) -> None:
    """There are runs enough to see beyond what is removed at intervals."""
    growth = dict.fromkeys(FIGURES, 1.0)
    assert left_behind(ServiceSoak(10_000, growth, size, files, (), {}), 2000) == told
    assert left_behind(ServiceSoak(9_999, growth, size, files, (), {}), 2000) == {}


@pytest.mark.soak
def test_a_service_runs_all_of_them(tmp_path: Path) -> None:
    """Every file goes in and every run is committed; the four figures are there, and drawn."""
    told: list[int] = []
    actual = service_soak(tmp_path / "root", 40, on_run=told.append)
    assert told == list(range(40))
    assert [sample.runs for sample in actual.samples] == list(range(1, 41))
    assert actual.growth.keys() == FIGURES.keys()
    assert all(sample.memory_bytes and sample.handles for sample in actual.samples)
    assert actual.samples[-1].handles <= actual.samples[10].handles + 2
    draw_service_soak(actual, tmp_path / "soak.svg")
    assert (tmp_path / "soak.svg").stat().st_size > 1000


def test_too_few_runs_are_refused(tmp_path: Path) -> None:
    """Tenths of them would say nothing."""
    with pytest.raises(BenchRefusedError):
        service_soak(tmp_path, 10)


@pytest.mark.soak
def test_a_run_that_does_not_end_is_a_failure_of_the_soak(tmp_path: Path) -> None:
    """No option was wrong, so the error names the run and not an option."""
    with pytest.raises(BenchFailedError) as failed:
        service_soak(tmp_path / "root", 40, run_seconds_max=0.0)
    assert failed.value.details["candidate"] == "soak"
    assert "run 0 " in failed.value.message
