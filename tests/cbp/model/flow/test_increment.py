"""Increments: counts, names and their JSON."""

from __future__ import annotations

import json

import pytest

from cbp.errors import InvariantError
from cbp.model.flow.increment import DataFile, Increment

INCREMENT = Increment("count.totals", 3, 2, (DataFile("a/1", 2, 100), DataFile("a/2", 5, 50)))


def test_counts_are_the_sum_of_the_files() -> None:
    """Records and bytes are those of the files; an empty increment has none."""
    assert (INCREMENT.records, INCREMENT.bytes, INCREMENT.name) == (7, 150, "count.totals/3")
    assert (Increment("f", 0, 0).records, Increment("f", 0, 0).bytes) == (0, 0)


@pytest.mark.parametrize("framing_key", [2, "2026-11-21T05"])
def test_json_round_trip(framing_key: int | str) -> None:
    """An increment survives JSON, whatever its framing key."""
    increment = Increment("f", 0, framing_key, INCREMENT.files, (DataFile("a/3", 1, 10),))
    assert Increment.from_json(json.loads(json.dumps(increment.to_json()))) == increment


def test_bindings_stay_with_their_messages_and_are_none() -> None:
    """Their files are kept as the others are, and count for nothing."""
    increment = Increment("f", 0, 0, INCREMENT.files, (DataFile("a/3", 1, 10),))
    assert (increment.records, increment.bytes) == (INCREMENT.records, INCREMENT.bytes)
    assert [file.path for file in increment.kept] == ["a/1", "a/2", "a/3"]
    assert "bindings" not in INCREMENT.to_json()


@pytest.mark.parametrize("sizes", [(-1, 5), (5, -1)])
def test_negative_sizes_are_refused(sizes: tuple[int, int]) -> None:
    """A file of negative size is corrupt data."""
    with pytest.raises(InvariantError):
        DataFile("a", *sizes)
