"""More than 2 GB of strings in one bucket: no record is lost, none is cut."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
MEGABYTE = 1 << 20
EPOCHS, GROUPS = 12, 200


def run_big(folder: Path, groups: int) -> None:
    """Run what a fresh process does: see the test."""
    import resource

    from cbp import DataflowBuilder
    from cbp.engine.direct import LocalEngine
    from cbp.engine.hashing import bucket_of, key_hash
    from cbp.model.schema import DataType
    from tests import flows
    from tests.driver import Driver

    def bucket(key: int) -> int:
        hash_ = key_hash([key], [DataType("BIGINT")])
        return bucket_of(hash_ - (1 << 64) if hash_ >= 1 << 63 else hash_, 2)

    every = [key for key in range(EPOCHS * groups * 3) if bucket(key) == 0][: EPOCHS * groups]
    builder = DataflowBuilder("big")
    source = builder.source("arrivals", "k BIGINT, mark STRING, copies INT")
    builder.stage("stage", flows.Pages(), buckets=2, arrivals=source)
    driver = Driver(LocalEngine(cache=f"{folder}/cache"), builder.build(), folder / "t")
    for epoch in range(EPOCHS):
        keys = every[epoch::EPOCHS]
        driver.feed("arrivals", [{"k": k, "mark": "x", "copies": MEGABYTE} for k in keys])
        driver.run_until_idle()
    again = every[:: len(every) // 20]
    driver.feed("arrivals", [{"k": k, "mark": "yz", "copies": 10} for k in again])
    driver.run_until_idle()
    sizes = driver.outputs("stage.sizes")[-1]
    assert {row["k"] for row in sizes} == set(again)
    assert {(row["before"], row["after"]) for row in sizes} == {(MEGABYTE, 20)}
    found = {}
    for row in driver.engine.read_state(driver.folder, driver.dataflow.stages["stage"], "pages"):
        found[row["k"]] = len(row["text"]), row["text"][:1], row["text"][-1:]
    assert found == {k: (20, "y", "z") if k in set(again) else (MEGABYTE, "x", "x") for k in every}
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_bucket_holds_more_than_two_gigabytes_of_strings(tmp_path: Path) -> None:
    """Look-ups, replacement, compaction and reading see every record.

    It takes 9.3 GB of resident memory at most, mapped pages included.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.cbp.engine.test_big_strings", str(tmp_path), str(GROUPS)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


if __name__ == "__main__":
    run_big(Path(sys.argv[1]), int(sys.argv[2]))
