"""Names under which tools write are unfinished; a source may give its own list."""

from __future__ import annotations

from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.errors import DataflowInvalidError
from cbp.model.source.unfinished_names import (
    ENDINGS_MAX,
    UNFINISHED,
    is_unfinished,
    parse_endings,
)

WRITTEN = (
    "day.jsonl.filepart",
    "day.jsonl.1a2b3c4d.partial",
    "day.jsonl._COPYING_",
    "day.jsonl.crdownload",
    ".day.jsonl.swp",
    "day.jsonl.swp",
    "day.jsonl~",
    "day.jsonl.part",
    "day.jsonl.tmp",
    ".day.jsonl.Xy12Zz",
)


@pytest.mark.parametrize("name", WRITTEN)
def test_names_of_tools_are_unfinished_by_default(name: str) -> None:
    """WinSCP, rclone, hdfs, browsers, editors, rsync."""
    assert is_unfinished(name)


@pytest.mark.parametrize("name", ["day.jsonl", "part", "partial.csv", "COPYING", "a.part.csv"])
def test_other_names_are_whole(name: str) -> None:
    """Only the end of a name says that it is not."""
    assert not is_unfinished(name)


def test_a_list_takes_the_place_of_the_usual_one() -> None:
    """Hidden names stay hidden."""
    assert is_unfinished("a.wip", (".wip",))
    assert not is_unfinished("a.tmp", (".wip",))
    assert is_unfinished(".a", ())


@pytest.mark.parametrize(
    "value", ["~", None, 3, [""], [3], ["a/b"], ["x" * 101], [".a"] * (ENDINGS_MAX + 1)]
)
def test_what_is_no_list_of_endings_is_refused(value: Any) -> None:
    """A text is no list of its letters."""
    with pytest.raises(ValueError, match=r"expected|limit is|not a valid name ending"):
        parse_endings(value)


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ({"same_name": "rename"}, "same_name_invalid"),
        ({"unfinished": (".a/b",)}, "unfinished_invalid"),
    ],
)
def test_a_builder_tells_the_place(setting: dict[str, Any], code: str) -> None:
    """A mistake of a source is one of the dataflow."""
    assert parse_endings(list(UNFINISHED)) == UNFINISHED
    builder = DataflowBuilder("d")
    builder.source("s", "a STRING", **setting)
    with pytest.raises(DataflowInvalidError) as caught:
        builder.build()
    assert code in [mistake.code for mistake in caught.value.mistakes]
