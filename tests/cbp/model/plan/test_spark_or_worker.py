"""Which jobs bypass Spark: those to which the start of a Spark job would matter."""

from __future__ import annotations

import pytest

from cbp.model.plan.spark_or_worker import (
    START_SHARE,
    Bypass,
    Lane,
    lane_figure,
    lanes_of,
    work_seconds,
)

BYPASS = Bypass(tasks_max=2, job_start_seconds=0.1)


@pytest.mark.parametrize("form", ["groupwise", "arrow"])
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_job_bypasses_spark_while_its_start_is_a_tenth_of_it_at_least(
    form: str, tasks: int
) -> None:
    """The bound that operators see is where the share of the start passes a tenth."""
    bound = BYPASS.records_max(form, tasks)
    for records, bypasses in ((bound * 99 // 100, True), (bound * 101 // 100, False)):
        seconds = work_seconds(records, 0, tasks=tasks, form=form)
        share = BYPASS.job_start_seconds / (BYPASS.job_start_seconds + seconds)
        assert (share > START_SHARE) == bypasses == BYPASS.takes(tasks, seconds)


def test_small_increments_bypass_spark_and_a_million_records_do_not() -> None:
    """Measured: 100,000 records are faster without a job, a million with one."""
    of = [work_seconds(n, n * 12, tasks=2, form="groupwise") for n in (10_000, 100_000, 10**6)]
    assert [BYPASS.takes(2, seconds) for seconds in of] == [True, True, False]


def test_few_records_of_many_bytes_are_a_long_run() -> None:
    """Bytes count as well: 60 MB take more than a second to read."""
    assert not BYPASS.takes(1, work_seconds(100, 60 << 20, tasks=1, form="groupwise"))
    assert BYPASS.takes(1, work_seconds(100, 1 << 20, tasks=1, form="groupwise"))


@pytest.mark.parametrize("bypass", [Bypass(0), Bypass(2, 0.0)], ids=["no workers", "no start"])
def test_without_workers_or_a_start_to_save_every_job_is_sparks(bypass: Bypass) -> None:
    """Either setting switches the lane off."""
    assert not bypass.takes(1, 0.0)
    assert Bypass(1).takes(1, 0.0)
    assert not Bypass(1).takes(2, 0.0), "more tasks than workers"


def test_a_run_names_the_lanes_of_its_jobs() -> None:
    """In one order, each once; a run without a job, or of an earlier version, names none."""
    figures = {lane_figure(Lane.SPARK): 1.0, lane_figure(Lane.RESIDENT): 2.0, "groups": 3.0}
    assert lanes_of(figures) == (Lane.RESIDENT, Lane.SPARK)
    assert lanes_of({"records_in": 0.0, lane_figure(Lane.SQL): 0.0}) == ()
