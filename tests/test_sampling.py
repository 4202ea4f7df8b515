"""What the default run plays of many cases, and that it plays the same each time."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis.internal.conjecture import providers

import cbp.testing  # noqa: F401
from tests.sampling import keep_a_part


@dataclass
class Case:
    """What `keep_a_part` sees of a test's case."""

    nodeid: str
    marks: list[pytest.Mark]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.marks.append(marker.mark)


def test_of_so_many_cases_one_is_played() -> None:
    """Tests are counted one by one; a soak, or what has no such mark, is left alone."""
    part = pytest.mark.part(every=3, first=1).mark
    cases = [Case(f"a.py::test_a[{n}]", [part]) for n in range(7)]
    cases.insert(2, Case("a.py::test_a[soak]", [part, pytest.mark.soak.mark]))
    others = [Case("a.py::test_b[0]", [pytest.mark.part(every=2).mark]), Case("a.py::test_c", [])]
    keep_a_part(cast("list[pytest.Item]", [*cases, *others]))
    played = [one.nodeid for one in (*cases, *others) if one.get_closest_marker("soak") is None]
    assert played == ["a.py::test_a[1]", "a.py::test_a[4]", "a.py::test_b[0]", "a.py::test_c"]


def test_examples_do_not_depend_on_the_modules_that_are_loaded() -> None:
    """No constant of a module is tried, though modules of the product are loaded."""
    assert any(name.startswith("cbp.") for name in sys.modules)
    assert len(providers._get_local_constants()) == 0
