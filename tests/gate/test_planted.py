"""The gate says red of a planted fault of the product, and green of a flake, in a copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gate.__main__ import REPO
from tests.gate.planted import (
    FAULTS,
    FLAKE,
    LEAVER,
    LEAVERS,
    PLANTED,
    SLEEP,
    copy_of_project,
    play_fault,
    play_planted,
)


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    with copy_of_project() as folder:
        yield folder


def test_the_lines_of_the_faults_are_there() -> None:
    """A line that was written anew would be looked for in vain."""
    for one in FAULTS.values():
        assert (REPO / one.path).read_text(encoding="utf-8").count(one.right) == 1, one
        assert (REPO / one.tests).is_file(), one


@pytest.mark.soak
@pytest.mark.parametrize("room", FAULTS)
def test_a_fault_in_any_room_is_red_also_after_the_second_chance(room: str, copy: Path) -> None:
    """The tests of that room find it, and no second run excuses it."""
    said = play_fault(copy, FAULTS[room])
    assert not said.green
    assert said.again
    assert said.named("FAILED")


@pytest.mark.soak
def test_a_flake_is_green_and_named(copy: Path) -> None:
    """It holds nothing back."""
    said = play_planted(copy, FLAKE)
    assert said.green
    assert said.named("flaky:")


@pytest.mark.soak
@pytest.mark.parametrize("beginning", LEAVERS)
def test_what_a_file_of_tests_leaves_behind_is_named(beginning: str, copy: Path) -> None:
    """A thread, a process and a port, in a file of this project's tests."""
    said = play_planted(copy, LEAVER.format(left=LEAVERS[beginning]))
    assert not said.green
    assert said.named(beginning)


@pytest.mark.soak
def test_a_sleep_is_found(copy: Path) -> None:
    """In any file of tests."""
    said = play_planted(copy, SLEEP, "tests/test_clocks.py")
    assert not said.green
    assert [line for line in said.lines if PLANTED in line]
