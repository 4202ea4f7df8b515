"""Valid inputs: each file is read as it counts now, where it first came."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.model.flow.increment import Increment
from controller.loop.verification.errors import InputNotRetainedError
from controller.loop.verification.valid_inputs import ValidInputs
from tests.controller.corrected_files import DOCUMENT, Row, Shelf

pytestmark = pytest.mark.usefixtures("without_syncs")

STAGE = {**DOCUMENT, "stages": {"sums": DOCUMENT["stages"]["sums"]}}


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path / "world", STAGE)
    yield made
    made.close()


def read(shelf: Shelf, end: int | None = None) -> list[list[Row]]:
    """Return the records of each increment as they are valid, in the order of their files."""
    record, dataflow = shelf.named()
    store, folder = shelf.world.store, f"{shelf.root}/scratch"
    found = ValidInputs(store, shelf.world.files, folder, f"{folder}/", NO_FAULTS).of(
        record, dataflow.sources["a"], store.next_index("shelf", "a") if end is None else end, ()
    )
    every = [one.increment for one in store.oldest_increments("shelf", "a")]
    return [_rows(record.folder, found.get(one.index, one)) for one in every]


def _rows(folder: str, increment: Increment) -> list[Row]:
    tables = [pq.read_table(Path(folder, file.path)) for file in increment.files]
    return [(row["word"], row["n"]) for table in tables for row in table.to_pylist()]


def test_a_file_is_read_where_it_first_came(shelf: Shelf) -> None:
    """What remains of it keeps its order; what replaced it came after that, and no more later."""
    shelf.put("monday", ("a", 1), ("b", 2), ("a", 1), ("c", 3))
    shelf.take_in()
    shelf.put("tuesday", ("d", 4))
    shelf.take_in()
    shelf.replace("monday", ("c", 3), ("e", 5), ("a", 1))
    shelf.take_in()
    assert read(shelf) == [[("a", 1), ("c", 3), ("e", 5)], [("d", 4)], []]
    assert read(shelf, 2)[0] == [("a", 1), ("b", 2), ("a", 1), ("c", 3)], "it came later"
    shelf.retract("tuesday")
    shelf.take_in()
    shelf.replace("monday", ("f", 6))
    shelf.take_in()
    assert read(shelf) == [[("f", 6)], [], [], [], []]


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_hold_what_counts(shelf: Shelf, seed: int) -> None:
    """Increment by increment, over files that are replaced, taken back and come again."""
    rng, first = random.Random(seed), dict[str, int]()
    for _ in range(14):
        name = f"file-{rng.randrange(4)}"
        rows = [(rng.choice("abc"), rng.randrange(2)) for _ in range(rng.randrange(6))]
        if name not in first:
            first[name] = shelf.world.store.next_index("shelf", "a")
            shelf.put(name, *rows)
        elif name in shelf.counts and rng.random() < 0.2:
            shelf.retract(name)
            shelf.counts.pop(name)
            shelf.take_in()
            continue
        elif name in shelf.counts:
            shelf.replace(name, *rows)
        else:
            continue
        shelf.counts[name] = rows
        shelf.take_in()
    found = read(shelf)
    for name, index in first.items():
        assert Counter(found[index]) == Counter(shelf.counts.get(name, ())), name
    assert sum(map(len, found)) == sum(map(len, shelf.counts.values()))


def test_what_is_gone_cannot_be_read(shelf: Shelf) -> None:
    """It is an error, and never less."""
    shelf.put("monday", ("a", 1))
    shelf.take_in()
    shelf.replace("monday", ("b", 2))
    shelf.take_in()
    record, _ = shelf.named()
    for file in shelf.world.store.increment("shelf", "a", 0).increment.files:
        Path(record.folder, file.path).unlink()
    with pytest.raises(InputNotRetainedError):
        read(shelf)
