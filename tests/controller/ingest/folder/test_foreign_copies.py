"""Files that a person put into `claimed` never vanish, and never overwrite another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.ingest.harness import Drop, lines

SCHEMA = "id BIGINT, name STRING"


def put_into_claimed(drop: Drop, name: str, number: int, source: str = "orders") -> None:
    (drop.place("claimed", source) / name).write_bytes(lines(1, start=number))


def settle(drop: Drop) -> list[int]:
    """Make passes until nothing is left; return the ids that were taken in."""
    for _ in range(3):
        assert drop.scan().failures == ()
    assert drop.names("claimed") == drop.names("incoming") == []
    return sorted(row["id"] for row in drop.rows())


@pytest.mark.parametrize(
    "name", ["part-{}.jsonl", "deadbeef0123-{}.jsonl", "20260101120000-{}", "{}.jsonl"]
)
def test_files_of_one_prefix_are_taken_in_each_for_itself(name: str, tmp_path: Path):
    """Spark calls its files `part-0`, `part-1`: what looks like one id is none."""
    drop = Drop(tmp_path, SCHEMA)
    for number in range(3):
        put_into_claimed(drop, name.format(number), number)
    assert settle(drop) == [0, 1, 2]


def test_one_name_in_two_sources_is_two_files(tmp_path: Path):
    """The claim of one source says nothing about a file of another."""
    drop = Drop(tmp_path, SCHEMA, sources=("orders", "returns"))
    put_into_claimed(drop, "deadbeef0123-a", 0)
    assert settle(drop) == [0]
    put_into_claimed(drop, "deadbeef0123-a", 1, "returns")
    for _ in range(3):
        assert drop.scan().failures == ()
    assert len(drop.increments("returns")) == 1


def test_a_copy_of_a_settled_file_does_not_replace_it(tmp_path: Path):
    """What is in `finished` is evidence; the file that came later is taken in by itself."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(1))
    drop.scan()
    (kept,) = drop.names("finished")
    put_into_claimed(drop, kept, 1)
    assert settle(drop) == [0, 1]
    assert (drop.place("finished") / kept).read_bytes() == lines(1)


def test_a_claimed_file_that_was_put_back_is_taken_in(tmp_path: Path):
    """It was settled as gone, so its content was never read."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", lines(1))
    drop.start(lambda point: _fail_at(point, "data_sync.before"))
    drop.scan()
    (name,) = drop.names("claimed")
    (drop.place("claimed") / name).rename(tmp_path / "away")
    drop.start()
    drop.scan()
    (claim,) = drop.store.claim_rows.values()
    assert claim.status == "quarantined"
    (tmp_path / "away").rename(drop.place("claimed") / name)
    assert settle(drop) == [0]


def test_a_file_beside_the_copy_of_an_open_claim_is_not_the_copy(tmp_path: Path):
    """Both have the claim's id; the one with the claim's name is its file."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("m", lines(1))
    drop.start(lambda point: _fail_at(point, "data_sync.before"))
    drop.scan()
    (name,) = drop.names("claimed")
    for number, other in enumerate(("a", "z"), 1):
        put_into_claimed(drop, name[: -len("m")] + other, number)
    drop.start()
    assert settle(drop) == [0, 1, 2]
    first = next(iter(drop.store.claim_rows.values()))
    assert (first.path, first.index) == ("m", 0)


def test_a_name_that_is_too_long_or_taken_is_given_back_under_another_one(tmp_path: Path):
    """Nothing in `incoming` is overwritten, and no name stops the source."""
    drop = Drop(tmp_path, SCHEMA)
    put_into_claimed(drop, "p-" + "x" * 253, 0)
    put_into_claimed(drop, "p-a", 1)
    drop.put("recovered-p-a", lines(1, start=2))
    assert settle(drop) == [0, 1, 2]


def _fail_at(point: str, wanted: str) -> None:
    if point == wanted:
        raise OSError(5, "Input/output error")
