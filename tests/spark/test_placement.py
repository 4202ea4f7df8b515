"""Which executor a task asks for.

Tasks of numbered jobs come back to their executor; neighbors share one, and all executors have
nearly as many.
"""

from __future__ import annotations

import pytest

from cbp.engine.spark.placement import homes


@pytest.mark.parametrize("executors", [1, 2, 3, 8])
@pytest.mark.parametrize("tasks", [1, 2, 4, 8, 16])
def test_neighbors_share_an_executor_and_all_have_nearly_as_many(tasks: int, executors: int):
    """Tasks are given to executors in order; no executor has two more than another."""
    actual = homes(tasks, [str(number) for number in range(executors)])
    assert actual == sorted(actual, key=int)
    counts = [actual.count(str(number)) for number in range(executors)]
    assert sum(counts) == tasks
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("executors", [1, 2, 4])
def test_a_share_of_the_hashes_stays_where_it_is_when_tasks_are_doubled(executors: int):
    """The two halves of a task's share are asked for where the whole was."""
    names = [str(number) for number in range(executors)]
    for tasks in (4, 8, 16):
        few, many = homes(tasks, names), homes(2 * tasks, names)
        assert [many[2 * part] for part in range(tasks)] == few
        assert [many[2 * part + 1] for part in range(tasks)] == few
