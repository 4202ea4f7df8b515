"""An error about a document says where each of its mistakes is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cbp.errors import (
    CbpError,
    ChangeRefusedError,
    CodeDriftedError,
    CycleUndrainedError,
    DataflowInvalidError,
    Mistake,
)
from cbp.errors.masks import MASK, keep_secret


def test_the_message_has_the_authors_line_of_each_mistake() -> None:
    """Where only the message is shown, as in a status, it leads to the file, too."""
    mistakes = [
        Mistake("a", "stages.a", "is wrong", "/shop/a.py:3"),
        Mistake("b", "stages.b", "too"),
    ]
    message = DataflowInvalidError("d", mistakes).message
    assert message.endswith("stages.a: is wrong (/shop/a.py:3); stages.b: too")


@pytest.fixture
def _canary() -> Iterator[None]:
    keep_secret(["canary"])
    yield
    keep_secret([])


@pytest.mark.usefixtures("_canary")
def test_an_error_that_words_its_message_anew_masks_it_too() -> None:
    """What a mistake or a place quotes may be a secret, in each error of the tree."""
    mistakes = [Mistake("a", "stages.a", "got canary")]
    code = {"stage": "a", "function": "A.translate", "place": "/canary/a.py:3"}
    errors: list[CbpError] = [
        DataflowInvalidError("d", mistakes),
        ChangeRefusedError("d", mistakes),
        CodeDriftedError("d", 3, mistakes),
        CycleUndrainedError(cycle=["a"], turns=9, **code),
    ]
    for error in errors:
        assert MASK in error.message
        assert "canary" not in f"{error} {error.message} {error.details}"
