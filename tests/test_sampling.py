"""What the default run plays of many cases, and that it plays the same each time."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from tests.sampling import keep_a_part

ODD = 8_675_309
"""A constant of this module, which Hypothesis would try."""


@pytest.mark.part(every=3, first=1)
@pytest.mark.parametrize("case", range(7))
def test_a_part_is_played(case: int) -> None:
    """By default cases 1 and 4 of these; the long run plays all."""
    assert case in range(7)


def test_the_others_are_soaks(request: pytest.FixtureRequest) -> None:
    """Cases are counted per test, and what is a soak already is none of them."""
    items = [
        item
        for item in request.session.items
        if getattr(item, "originalname", "") == test_a_part_is_played.__name__
    ]
    assert {item.callspec.params["case"] for item in items} in ({1, 4}, set(range(7)))  # type: ignore[attr-defined]
    keep_a_part(items)
    kept = [item for item in items if item.get_closest_marker("soak") is None]
    assert len(kept) == 1


def test_examples_do_not_depend_on_the_modules_that_are_loaded() -> None:
    """The same examples follow the loading of any module of ours."""
    seen: list[list[int]] = []

    def play() -> None:
        seen.append([])

        @given(st.integers())
        def collect(number: int) -> None:
            seen[-1].append(number)

        collect()

    play()
    for place in range(3):
        name = f"tests.made_{place}"
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__file__ = __file__
    try:
        play()
    finally:
        for place in range(3):
            del sys.modules[f"tests.made_{place}"]
    assert seen[0] == seen[1]
    assert ODD not in providers._get_local_constants().integers
