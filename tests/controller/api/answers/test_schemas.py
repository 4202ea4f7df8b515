"""Answers that take the attributes of values by their names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.api.answers.schemas import Model


class Shown(Model):
    """An answer."""

    name: str
    size: int
    words: str = "none"


class Costly:
    """A value whose size costs something."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def size(self) -> int:
        self.asked += 1
        return 3


def test_an_attribute_is_asked_for_once() -> None:
    """A list has hundreds of values, and a property may add up thousands of files."""
    value: Any = Costly()
    assert Shown.of(value, name="a", words="") == Shown(name="a", size=3, words="")
    assert value.asked == 1


def test_the_first_value_that_has_an_attribute_gives_it() -> None:
    """Later values fill in what it lacks, and what is named replaces both."""
    first, second = SimpleNamespace(name="a"), SimpleNamespace(name="b", size=1)
    assert Shown.of(first, second, words="x") == Shown(name="a", size=1, words="x")


@pytest.mark.parametrize("values", [(), (SimpleNamespace(name="a", size=1),)])
def test_a_field_that_no_value_has_is_named(values: tuple[object, ...]) -> None:
    """Also one with a default: an answer never leaves out what its value should have."""
    with pytest.raises(AttributeError, match=r"field '(name|words)' of Shown"):
        Shown.of(*values)
