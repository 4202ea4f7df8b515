"""The parts of a controller: each gets what its constructor names."""

from __future__ import annotations

from dataclasses import is_dataclass
from inspect import signature
from typing import Any, get_type_hints

import pytest

from cbp.engine.interface.engine import Engine
from controller.loop.assembly import Environment, LoopLimits, Part, Parts

PARTS = {name: one for name, one in vars(Parts).items() if isinstance(one, Part)}
OF_ENGINE = {
    name: get_type_hints(one.fget)["return"]
    for name, one in vars(Engine).items()
    if isinstance(one, property)
}
GIVEN = OF_ENGINE | get_type_hints(LoopLimits) | get_type_hints(Environment)
GIVEN |= {name: one.kind for name, one in PARTS.items()}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_a_part_gets_what_its_constructor_names(part: Part[Any]):
    """A parameter that is called as a part, or as a thing given, is of its type."""
    # The constructor of a dataclass names inherited types that its own module may not know.
    typed = part.kind if is_dataclass(part.kind) else part.kind.__init__
    hints = get_type_hints(typed)
    wrong = [
        name
        for name in signature(part.kind).parameters.keys() - part.given.keys()
        if name in hints
        and isinstance(expected := GIVEN.get(name), type)
        and isinstance(hints[name], type)
        and hints[name] is not expected
    ]
    assert wrong == []
