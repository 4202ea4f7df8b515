"""`python -m tests.invariants` lists what the tests hold, out of their own docstrings."""

from __future__ import annotations

import pytest

from tests.invariants import held_by, main, matching, read_tests, written

SOURCE = '''
"""Roll-backs of a toy.

Nothing is lost.
"""

def test_a_crash_changes_nothing():
    """Killed anywhere: the toy is whole.

    In detail.
    """

class TestToys:
    def test_two(self):
        """Two toys are two."""

def helper():
    """No test."""
'''


def test_a_file_and_its_tests_have_a_line_each():
    """By file: what it is about, then each test with the first line of its docstring."""
    assert written(held_by("tests/test_toy.py", SOURCE)).splitlines() == [
        "tests/test_toy.py  Roll-backs of a toy.",
        "  tests/test_toy.py::test_a_crash_changes_nothing  Killed anywhere: the toy is whole.",
        "  tests/test_toy.py::TestToys::test_two  Two toys are two.",
    ]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["lost"], ["test_a_crash_changes_nothing", "TestToys::test_two"]),
        (["LOST", "killed"], ["test_a_crash_changes_nothing"]),
        (["two"], ["TestToys::test_two"]),
        (["two", "killed"], None),
    ],
)
def test_words_leave_out_what_does_not_name_all_of_them(words: list[str], found: list[str] | None):
    """Words are looked for in paths, names and docstrings, the file's included."""
    left = matching(held_by("tests/test_toy.py", SOURCE), words)
    assert (left and [name for name, _ in left.tests]) == found


def test_every_test_says_which_rule_it_holds(capsys: pytest.CaptureFixture[str]):
    """The list replaces a table of invariants: a test without a docstring has no line in it."""
    assert [
        f"{held.path}::{name}" for held in read_tests() for name, said in held.tests if not said
    ] == []
    assert [held.path for held in read_tests() if not held.header] == []
    assert main(["foreign", "vacuum"]) == 0
    assert "test_a_foreign_vacuum_takes_nothing_away" in capsys.readouterr().out
    assert main(["no such word anywhere, " + "x"]) == 1


def test_no_rule_opens_with_of():
    """A rule begins with its subject, so that it is understood at first reading."""
    assert [
        f"{held.path}::{name}"
        for held in read_tests()
        for name, said in [("", held.header), *held.tests]
        if said.startswith("Of ")
    ] == []
