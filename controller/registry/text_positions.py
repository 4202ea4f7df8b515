r"""Positions of the values of a dataflow document in its text: line and column, both from 1.

    places = TextPositions("name: a\nstages: {}", "application/yaml")
    places.of("stages", key=False)   # (2, 9): the value
    places.of("stages.count.translator", key=False)   # (2, 1): the nearest name that exists

The text is read for positions only if the document has mistakes, so a sound document costs nothing.

Guaranteed: never raises, whatever the text (tests/controller/registry/test_text_positions.py).
Absent on purpose: the content of aliases; the place of an alias is where it is used.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import yaml

from cbp.errors import DataflowInvalidError, Mistake
from controller.registry.text import read_events

Place = tuple[int, int]

_IN_TEXT = re.compile(r"line (\d+), column (\d+)\Z")
_ABOUT_NAMES = frozenset({"field_unknown", "name_twice", "input_twice", "option_invalid"})
"""Codes of mistakes in the name of a pair; all others are in its value."""
_EVENTS_MAX = 200_000


@dataclass(slots=True)
class _Node:
    """A value in the text; `children` maps a name or an index to the name's place and value."""

    place: Place
    is_scalar: bool = False
    children: dict[str, tuple[Place, _Node]] = field(default_factory=dict)


def add_positions(error: DataflowInvalidError, text: str, content_type: str) -> None:
    """Add line and column in this text to the mistakes of a document."""
    positions = TextPositions(text, content_type)
    error.add_places(positions.of_mistake)


class TextPositions:
    """Finds the line and column of the values of one text."""

    def __init__(self, text: str, content_type: str) -> None:
        # JSON allows tabs between tokens, YAML does not. A space counts as one column, too.
        plain = text.replace("\t", " ") if "json" in content_type else text
        self._root = _read(plain)

    def of_mistake(self, mistake: Mistake) -> Place:
        """Return the place of a mistake; the start of the text if it has no other place."""
        if given := _IN_TEXT.search(mistake.where):
            return int(given[1]), int(given[2])
        return self.of(mistake.where, key=mistake.code in _ABOUT_NAMES)

    def of(self, path: str, *, key: bool) -> Place:
        """Return the place of the value at a path, or of the nearest name on the way to it.

        Args:
            path: Names joined by dots, such as `stages.count.inputs.links`.
            key: Whether to return the place of the name. For a mapping or a list it is returned
                always.
        """
        rest = path.removeprefix("document").removeprefix(".")
        node, named = self._root, self._root.place
        while rest:
            name = _first_name(node, rest)
            if name is None:
                return named
            named, node = node.children[name]
            rest = rest[len(name) + 1 :]
        return node.place if node.is_scalar and not key else named


def _first_name(node: _Node, path: str) -> str | None:
    """Return the longest name in a node with which a path begins; names may contain dots."""
    ends = [at for at, letter in enumerate(path) if letter == "."]
    for end in (len(path), *reversed(ends)):
        if path[:end] in node.children:
            return path[:end]
    return None


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been read yet; `name` belongs to the present pair."""

    node: _Node
    is_list: bool
    name: tuple[str, Place] | None = None


def _read(text: str) -> _Node:
    document = _Open(_Node((1, 1)), is_list=True)
    stack = [document]
    # Everything before a syntax error, or before a limit, is kept.
    with suppress(yaml.YAMLError, DataflowInvalidError):
        for event in islice(read_events(text), _EVENTS_MAX):
            if isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
            elif isinstance(event, yaml.NodeEvent):
                _add(event, stack)
    return next((node for _, node in document.node.children.values()), document.node)


def _add(event: yaml.NodeEvent, stack: list[_Open]) -> None:
    """Add one value to the innermost open collection; the first one of a pair is its name."""
    assert event.start_mark is not None, "the YAML parser returned an event without a mark"
    top, place = stack[-1], (event.start_mark.line + 1, event.start_mark.column + 1)
    node = _Node(place, is_scalar=not isinstance(event, yaml.CollectionStartEvent))
    if top.is_list:
        top.node.children[str(len(top.node.children))] = place, node
    elif top.name is None and node.is_scalar:
        top.name = str(getattr(event, "value", "")), place
    elif top.name is not None:
        label, named = top.name
        # The last one of equal names counts, as it does for the document.
        top.node.children[label] = named, node
        top.name = None
    if not node.is_scalar:
        stack.append(_Open(node, isinstance(event, yaml.SequenceStartEvent)))
