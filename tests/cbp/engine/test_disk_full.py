"""A disk that runs full while a run writes: a coded error, nothing published, nothing lost."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import DiskFullError
from tests import machine
from tests.cbp.engine.epochs import dataflow_of
from tests.driver import Driver


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of two megabytes."""
    with machine.small_disk(tmp_path / "small", "2m") as folder:
        yield folder


def test_a_run_that_fills_the_disk_changes_nothing_and_runs_again(
    small_disk: Path, tmp_path: Path
) -> None:
    """The state stays the last published one; with space, the same epoch goes on."""
    dataflow = dataflow_of("url_count")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, small_disk / "t")
    chance = random.Random(1)
    words = [f"{chance.getrandbits(400):0100x}" for _ in range(12_000)]
    driver.feed("s_urls", [{"url": word} for word in words[:100]])
    driver.run_until_idle()
    before = driver.state("stage", "counts")
    driver.feed("s_urls", [{"url": word} for word in words])
    with pytest.raises(DiskFullError):
        driver.run_until_idle()
    assert driver.state("stage", "counts") == before
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    driver.run_until_idle()
    counts = {row["url"]: row["n"] for row in driver.state("stage", "counts")}
    assert counts == Counter(words[:100]) + Counter(words)
