"""Records that a run holds: in memory while there is room, beyond that in mapped files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.storage.held_records import HeldRecords, Room
from cbp.errors import RunTooLargeError

ROW = 8


def table(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def numbers_of(held: HeldRecords) -> list[int]:
    return [n for one in held.tables for n in one["n"].to_pylist()]


def maps_in(folder: Path) -> int:
    """Return how many files of a folder this process has mapped or open."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").count(f"{folder}/")
    links = Path("/proc/self/fd").iterdir()
    return maps + sum(os.path.realpath(link).startswith(f"{folder}/") for link in links)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["add", "take", "move"]), st.integers(0, 9)),
        max_size=30,
    )
)
def test_what_is_held_comes_back_in_its_order(steps: list[tuple[int, str, int]]) -> None:
    """Wherever it is held; a room counts exactly what holders have, and half of it stays free."""
    room = Room("s", most=64 * ROW, most_on_disk=1 << 20)
    held, expected = [HeldRecords(room) for _ in range(3)], [list[int]() for _ in range(3)]
    moved = HeldRecords(room)
    for number, (at, what, many) in enumerate(steps):
        if what == "add":
            held[at].add(table(*[number] * many))
            expected[at] += [number] * many
        elif what == "take":
            tables = held[at].take()
            assert [n for one in tables for n in one["n"].to_pylist()] == expected[at]
            expected[at] = []
        else:
            moved.take()
            moved = held[at].move()
            assert numbers_of(moved) == expected[at]
            expected[at] = []
        assert [numbers_of(one) for one in held] == expected
        every = [*held, moved]
        assert room.taken == sum(one.memory for one in every)
        assert room.on_disk == sum(one.on_disk for one in every)
        least = room.most // 16
        assert room.taken <= room.most // 2 + moved.memory + len(held) * least


def test_files_are_gone_with_what_they_hold(temporary: Path) -> None:
    """They never have a name; no map and no open file is left once nobody holds the records."""
    room = Room("s", most=100, most_on_disk=1 << 20)
    held = HeldRecords(room)
    held.add(table(*range(1000)))
    assert (room.taken, room.on_disk) == (0, 8000)
    assert maps_in(temporary) == 1, "a map, and no open file"
    assert not list(temporary.iterdir())
    tables = held.take()
    assert tables[0]["n"].to_pylist() == [*range(1000)]
    del tables
    assert maps_in(temporary) == 0


def test_files_have_a_bound_too(temporary: Path) -> None:
    """The error names the bytes in files and the setting; nothing is left behind."""
    room = Room("s", most=100, most_on_disk=1_000)
    held = HeldRecords(room)
    for _ in range(6):
        held.add(table(*range(20)))
    with pytest.raises(RunTooLargeError, match="temporary files") as caught:
        held.add(table(*range(20)))
    assert caught.value.details["bytes"] > caught.value.details["bytes_max"] == 1_000
    del held, room, caught
    assert not list(temporary.iterdir())


def test_without_files_memory_is_the_bound() -> None:
    """A room without files refuses as soon as the memory is taken."""
    room = Room("s", most=100)
    held = HeldRecords(room)
    held.add(table(*range(12)))
    with pytest.raises(RunTooLargeError, match="memory"):
        held.add(table(1))


def test_pieces_are_made_one_at_a_time(temporary: Path) -> None:
    """Each is asked for once there is room for those before it, so memory never has all."""
    room = Room("s", most=160, most_on_disk=1 << 20)
    seen = list[int]()

    def pieces() -> Iterator[pa.Table]:
        for number in range(50):
            seen.append(room.taken)
            yield table(number)

    kept = room.keep(pieces())
    assert kept["n"].to_pylist() == [*range(50)]
    assert max(seen) <= 80
    assert (room.taken + room.on_disk, room.holders) == (400, [])
