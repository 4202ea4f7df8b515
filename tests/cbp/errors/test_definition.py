"""An error about a document says where each of its mistakes is."""

from __future__ import annotations

from cbp.errors import DataflowInvalidError, Mistake


def test_the_message_has_the_authors_line_of_each_mistake() -> None:
    """Where only the message is shown, as in a status, it leads to the file, too."""
    mistakes = [
        Mistake("a", "stages.a", "is wrong", "/shop/a.py:3"),
        Mistake("b", "stages.b", "too"),
    ]
    message = DataflowInvalidError("d", mistakes).message
    assert message.endswith("stages.a: is wrong (/shop/a.py:3); stages.b: too")
