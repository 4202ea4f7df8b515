"""What is around the calls of an author's function."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from cbp.engine.kernel.author_call import free_cycles


class Knot:
    """An object that refers to itself, as some code of authors leaves behind."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def without_automatic_collection() -> Iterator[None]:
    """Let nothing be collected but by the test, as in a task."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_automatic_collection")
def test_cycles_of_the_author_are_freed_once_they_are_many() -> None:
    """A task of millions of records keeps no more of them than some windows have."""
    alive: weakref.WeakSet[Knot] = weakref.WeakSet()
    most = 0
    for _ in range(40):
        alive.update([Knot() for _ in range(1_000)])
        free_cycles()
        most = max(most, len(alive))
    assert most < 15_000


@pytest.mark.usefixtures("without_automatic_collection")
def test_a_task_of_few_records_looks_for_no_cycles() -> None:
    """That would take longer than the call of its author."""
    knots = weakref.WeakSet([Knot() for _ in range(10)])
    free_cycles()
    assert len(knots) == 10
