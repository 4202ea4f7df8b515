"""Jobs of one kind: one value each, which no longer changes once the job has ended."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cbp.errors import DataflowBusyError
from controller.loop.records.job_table import KEPT_MAX, JobTable


@dataclass(frozen=True)
class Copy:
    dataflow: str
    done: int = 0
    ended: bool = False
    seconds: float = 0.0


def table() -> tuple[JobTable[Copy], list[float]]:
    now = [0.0]
    return JobTable(lambda: now[0]), now


def test_a_job_under_way_is_shown_with_its_time_and_an_ended_one_stays() -> None:
    """Whatever its thread shows later is dropped."""
    jobs, now = table()
    jobs.begin("b1", Copy("one"))
    now[0] = 3.0
    jobs.show("b1", done=1)
    assert jobs.get("b1") == Copy("one", 1, seconds=3.0)
    jobs.show("b1", ended=True)
    now[0] = 9.0
    jobs.show("b1", done=2)
    assert jobs.all() == [Copy("one", 1, ended=True, seconds=3.0)]


def test_a_job_may_refuse_to_run_beside_others_and_begins_once() -> None:
    """It is asked about jobs under way only; the same job again is the one under way."""
    jobs, _ = table()

    def refuse(id_: str, known: Copy) -> None:
        raise DataflowBusyError(known.dataflow, id_)

    begun = jobs.begin("b1", Copy("one"), refuse)
    assert jobs.begin("b1", Copy("one", 7), refuse) == begun
    with pytest.raises(DataflowBusyError):
        jobs.begin("b2", Copy("one"), refuse)
    jobs.show("b1", ended=True)
    assert jobs.begin("b2", Copy("one"), refuse) == Copy("one")
    jobs.forget("b2")
    assert jobs.get("b2") is None


def test_the_newest_are_remembered_and_all_that_are_under_way() -> None:
    """What was forgotten is neither shown nor changed; a job under way can always be asked for."""
    jobs, _ = table()
    jobs.begin("long", Copy("two"))
    for number in range(KEPT_MAX + 1):
        jobs.begin(f"b{number}", Copy("one", number))
        jobs.show(f"b{number}", ended=True)
    jobs.begin("last", Copy("three"))
    jobs.show("b0", done=99)
    shown = [one.done for one in jobs.all() if one.dataflow == "one"]
    assert shown == list(range(3, KEPT_MAX + 1))
    assert [one.dataflow for one in jobs.all() if not one.ended] == ["two", "three"]
    for number in range(KEPT_MAX):
        jobs.begin(f"c{number}", Copy("four"))
    assert len(jobs.all()) == KEPT_MAX + 2
