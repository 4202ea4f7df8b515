"""The parts of a controller: each gets what its constructor names."""

from __future__ import annotations

from functools import cached_property
from inspect import signature
from typing import Any, get_type_hints

import pytest

from controller.loop.assembly import Environment, Parts

KINDS = {
    name: get_type_hints(one.func)["return"]
    for name, one in vars(Parts).items()
    if isinstance(one, cached_property)
}
CLASSES = {name: kind for name, kind in KINDS.items() if isinstance(kind, type)}
GIVEN = get_type_hints(Environment)


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES.keys())
def test_a_part_gets_what_its_constructor_names(kind: Any):
    """A parameter that is called as a part, or as a thing given, is of its type."""
    hints = get_type_hints(kind) | get_type_hints(kind.__init__)
    wrong = [
        name
        for name in signature(kind).parameters
        if name in hints
        and isinstance(expected := KINDS.get(name) or GIVEN.get(name), type)
        and isinstance(hints[name], type)
        and hints[name] is not expected
    ]
    assert wrong == []
