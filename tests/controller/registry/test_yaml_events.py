"""What reads the text of a document takes time that grows with its size, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from cbp.errors import DataflowInvalidError
from controller.registry.text import DEPTH_MAX, DIRECTIVES_MAX, parse_document, read_events
from controller.registry.text_positions import TextPositions
from tests.growth import assert_linear, thread_seconds

YAML, JSON = "application/yaml", "application/json"


def directives(break_: str) -> Callable[[int], str]:
    return lambda count: "".join(f"%TAG !a{n}! x{break_}" for n in range(count)) + "--- {}"


QUADRATIC: dict[str, tuple[Callable[[int], str], int]] = {
    "directives": (directives("\n"), 3_000),
    "directives, by carriage returns": (directives("\r"), 3_000),
    "directives, by next lines": (directives("\x85"), 3_000),
    "directives, by line separators": (directives("\u2028"), 3_000),
    "sequences": (lambda count: "[" * count, 3_000),
    "mappings": (lambda count: "{a: " * count, 3_000),
    "block sequences": (lambda count: "- " * count, 4_000),
    "aliases": (lambda count: "- &a x\n" + "- *a\n" * count, 3_000),
}


@pytest.mark.parametrize("kind", [YAML, JSON])
@pytest.mark.parametrize("make", QUADRATIC)
def test_reading_takes_time_in_proportion_to_the_text(make: str, kind: str) -> None:
    """The values, and the places of mistakes, which are asked for once a text was refused."""
    text, few = QUADRATIC[make]

    def read(count: int) -> float:
        made = text(count)

        def both() -> None:
            with suppress(DataflowInvalidError):
                parse_document(made, kind)
            TextPositions(made, kind)

        return thread_seconds(both)

    assert_linear(read, few)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (directives("\n"), DIRECTIVES_MAX),
        (directives("\r\n"), DIRECTIVES_MAX),
        (lambda count: "\ufeff" + directives("\r")(count), DIRECTIVES_MAX),
        (lambda count: "[" * count + "]" * count, DEPTH_MAX),
    ],
)
def test_limits_are_exact(text: Callable[[int], str], most: int) -> None:
    """So many directives and levels are read; one more is refused, and says by which limit."""
    assert [*read_events(text(most))]
    with pytest.raises(DataflowInvalidError) as caught:
        [*read_events(text(most + 1))]
    assert [mistake.code for mistake in caught.value.mistakes] == ["document_too_large"]


def test_levels_beside_each_other_do_not_add_up() -> None:
    """What counts is how deep a text is at one place."""
    assert [*read_events("[" + "[1], " * 10 * DEPTH_MAX + "]")]
