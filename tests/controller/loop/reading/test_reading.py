"""Pages of flows and look-ups of state, as a controller answers them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from cbp.errors import (
    DefinitionError,
    NotFoundError,
)
from cbp.model.flow.increment import Increment
from tests.controller.world import ONE, World


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_put_together_are_the_flow(world: World, limit: int) -> None:
    """Pages of any size give every record once, in order, empty increments included."""
    world.controller.register(ONE)
    numbers = iter(range(100))
    for size in (3, 1, 0, 2):
        if size:
            world.arrive("one", "a", *[("x", next(numbers)) for _ in range(size)])
        else:
            world.enqueue("one", Increment("a", 2, 2))
    pages, cursor = [], None
    for _ in range(10):
        page, cursor = world.controller.reading.read_flow("one", "a", cursor, limit)
        pages.append([row["n"] for row in page])
        if cursor is None:
            break
    assert list(chain(*pages)) == [0, 1, 2, 3, 4, 5]
    assert all(len(page) == limit for page in pages[:-1])


def test_what_does_not_exist_is_not_found(world: World) -> None:
    """Unknown names are errors that say what there is not."""
    world.controller.register(ONE)
    calls: list[Callable[[], object]] = [
        lambda: world.controller.dataflow("two"),
        lambda: world.controller.reading.read_flow("one", "b", None, 1),
        lambda: world.controller.reading.look_up("one", "sum", "no", {"word": "x"}),
        lambda: world.controller.reading.look_up("one", "no", "sums", {"word": "x"}),
        lambda: world.controller.retry("one", "no"),
        lambda: world.controller.delete("two"),
        lambda: world.controller.pause("two"),
    ]
    for call in calls:
        with pytest.raises(NotFoundError):
            call()


@pytest.mark.parametrize("cursor", ["", "1", "a.b", "-1.0", "1.0.0", "1.0\n"])
def test_a_cursor_that_nobody_gave_is_refused(world: World, cursor: str) -> None:
    """Cursors are checked like any input."""
    world.controller.register(ONE)
    with pytest.raises(DefinitionError) as caught:
        world.controller.reading.read_flow("one", "a", cursor, 1)
    assert caught.value.mistake.code == "cursor_invalid"


@pytest.mark.parametrize("key", [{}, {"wrd": "x"}, {"word": "x", "n": 1}])
def test_a_look_up_needs_exactly_the_key(world: World, key: dict[str, Any]) -> None:
    """A key with missing or foreign columns is refused, naming the key."""
    world.controller.register(ONE)
    with pytest.raises(DefinitionError) as caught:
        world.controller.reading.look_up("one", "sum", "sums", key)
    assert caught.value.mistake.code == "key_invalid"
    assert "word STRING" in caught.value.message
