"""What a recomputation decodes of retained files; `test_replacement` has what comes of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cbp.engine.storage.checked_parquet import check_parquet, seal
from cbp.errors import FileDamagedError
from tests.controller.corrected_files import DOCUMENT, Row, Shelf
from tests.controller.verified import verified

pytestmark = pytest.mark.usefixtures("without_syncs")

MONDAY: list[Row] = [("a", 1), ("b", 2), ("a", 1)]
TUESDAY: list[Row] = [("a", 5), ("c", 7)]


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    """Return a service without files."""
    made = Shelf(tmp_path, {**DOCUMENT, "stages": {"sums": DOCUMENT["stages"]["sums"]}})
    yield made
    made.close()


def put(shelf: Shelf, name: str, rows: list[Row]) -> Path:
    """Add a file, and return that of its increment."""
    shelf.put(name, *rows)
    shelf.counts[name] = rows
    shelf.take_in()
    index = shelf.world.store.next_index("shelf", "a") - 1
    (file,) = shelf.world.store.increment("shelf", "a", index).increment.files
    return Path(shelf.named()[0].folder) / file.path


def replace(shelf: Shelf, name: str, rows: list[Row]) -> None:
    """Replace a file, and compare all tables with what counts."""
    shelf.replace(name, *rows)
    shelf.counts[name] = rows
    shelf.take_in()
    shelf.require_right()


def test_a_file_without_records_of_the_groups_is_not_decoded(shelf: Shelf) -> None:
    """What damages it is met by those only that need it."""
    put(shelf, "monday", MONDAY)
    dice = random.Random(5)
    path = put(shelf, "long", [(dice.randbytes(1_000).hex(), n) for n in range(800)])
    put(shelf, "tuesday", TUESDAY)
    with path.open("r+b") as file:
        file.seek(500_000)
        file.write(bytes(100))
    with pytest.raises(FileDamagedError):
        check_parquet(str(path))
    replace(shelf, "monday", [("a", 1), ("b", 3)])


@pytest.mark.parametrize("lacking", [{"monday"}, {"tuesday"}, {"monday", "tuesday"}])
def test_a_file_without_an_index_is_searched(shelf: Shelf, lacking: set[str]) -> None:
    """As earlier versions wrote them, between files that have one."""
    paths = {"monday": put(shelf, "monday", MONDAY), "tuesday": put(shelf, "tuesday", TUESDAY)}
    for name in lacking:
        table = pq.read_table(paths[name])
        assert table.column_names[:2] == ["word", "n"]
        assert len(table.column_names) == 3
        pq.write_table(table.select(["word", "n"]), paths[name])
        seal(str(paths[name]))
    replace(shelf, "monday", [("a", 1), ("b", 2), ("d", 4)])
    replace(shelf, "tuesday", [("c", 7)])
    shelf.retract("monday")
    del shelf.counts["monday"]
    shelf.take_in()
    shelf.require_right()
    assert verified(shelf.world, "shelf").status == "equal"


def test_readers_of_an_increment_do_not_see_the_index(shelf: Shelf) -> None:
    """Its records have the columns of the source, as rows and on columns."""
    put(shelf, "monday", MONDAY)
    assert shelf.world.flow("shelf", "a") == [{"word": word, "n": n} for word, n in MONDAY]
    (record, dataflow), increments = shelf.named(), shelf.world.engine.increments
    increment = shelf.world.store.increment("shelf", "a", 0).increment
    batches = increments.batches(record.folder, increment, dataflow.sources["a"].schema)
    assert {tuple(batch.schema.names) for batch in batches} == {("word", "n")}


def test_many_files_are_read_in_their_order(shelf: Shelf) -> None:
    """By several threads; what is gone is taken out of the earliest file that has it."""
    for day in range(12):
        put(shelf, f"day-{day}", [("a", day), ("b", 1), (f"only-{day}", day)])
    replace(shelf, "day-3", [("a", 3), ("b", 2)])
    shelf.retract("day-0")
    del shelf.counts["day-0"]
    shelf.take_in()
    shelf.require_right()
