"""What a recomputation decodes of retained files; `test_replacement` has what comes of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp import Input, Translate, View
from cbp.engine.columnar.key_index import indexed_keys, with_index
from cbp.engine.storage.checked_parquet import check_parquet, seal
from cbp.engine.storage.file_names import INDEX_PREFIX
from cbp.errors import FileDamagedError
from tests.controller.corrected_files import DOCUMENT, Row, Shelf
from tests.controller.verified import verified
from tests.controller.world import SCHEMA

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


class PerNumber(Translate):
    """How many words have each number."""

    items = Input(SCHEMA, route_by="n")
    counts = View("n BIGINT, words BIGINT", key="n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count them."""
        words = sum(1 for _ in group.items) + sum(row.words for row in group.counts)
        out.counts(key.n, words)


def test_a_file_of_other_numbers_is_not_decoded(tmp_path: Path) -> None:
    """A key of numbers has no index; what the file says of its least and greatest serves."""
    stage = {"translator": "per_number", "inputs": {"items": "a"}, "any_order": True}
    document = {**DOCUMENT, "stages": {"numbers": {**stage, "buckets": 2}}}
    shelf = Shelf(tmp_path, document, {"per_number": PerNumber})
    put(shelf, "monday", [("a", 1), ("b", 2), ("c", 9)])
    dice = random.Random(5)
    path = put(shelf, "long", [(dice.randbytes(1_000).hex(), 10 + n) for n in range(800)])
    assert pq.read_schema(path).names == ["word", "n"]
    put(shelf, "tuesday", [("a", 2), ("d", 9), ("e", 5_000)])
    with path.open("r+b") as file:
        file.seek(500_000)
        file.write(bytes(100))
    shelf.replace("monday", ("a", 2), ("b", 2), ("c", 9))
    shelf.take_in()
    node = shelf.named()[1].stages["numbers"]
    folder = f"{shelf.world.tables}/shelf"
    rows = shelf.world.engine.records.read_state(folder, node, "counts")
    found = dict(tuple(row.values()) for row in rows)
    assert {n: words for n, words in found.items() if n < 10} == {2: 3, 9: 2}
    assert len(found) == 2 + 800 + 1
    shelf.close()


def test_a_file_of_other_texts_is_not_decoded(shelf: Shelf) -> None:
    """Where keys follow time, it is passed over for what it says of them, without an index."""
    put(shelf, "monday", MONDAY)
    dice = random.Random(5)
    path = put(shelf, "later", [(f"z{dice.randbytes(1_000).hex()}", n) for n in range(800)])
    pq.write_table(pq.read_table(path).select(["word", "n"]), path)
    seal(str(path))
    put(shelf, "tuesday", TUESDAY)
    with path.open("r+b") as file:
        file.seek(500_000)
        file.write(bytes(100))
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


@pytest.mark.parametrize("is_stale", [False, True])
@pytest.mark.parametrize("width", [16, 32])
def test_an_index_of_an_earlier_version_is_read(
    shelf: Shelf, width: int, is_stale: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where files like this one have another width now. One that is wrong is noticed."""
    put(shelf, "monday", MONDAY)
    path = put(shelf, "tuesday", TUESDAY)
    key = indexed_keys(shelf.named()[1].sources["a"], shelf.named()[1])
    table = pq.read_table(path)
    assert table.schema.field(2).type == pa.uint16()
    earlier = with_index(table.select(["word", "n"]), key, width)
    pq.write_table(stale(earlier) if is_stale else earlier, path)
    seal(str(path))
    replace(shelf, "monday", [("a", 1), ("b", 3), ("d", 4)])
    assert ("the index of" in caplog.text) == is_stale


def stale(table: pa.Table) -> pa.Table:
    """Give each record the bits of the one before it."""
    bits, field = table.column(2).to_pylist(), table.schema.field(2)
    return table.set_column(2, field, pa.array(bits[-1:] + bits[:-1], field.type))


def of_another_key(table: pa.Table) -> pa.Table:
    """Name the index after a key of other columns, and let it have nothing but zeros."""
    zeros = pa.array([bytes(2)] * table.num_rows, pa.binary(2))
    return table.select(["word", "n"]).append_column(f"{INDEX_PREFIX}0123456789abcdef", zeros)


def absent(table: pa.Table) -> pa.Table:
    """Leave it out."""
    return table.select(["word", "n"])


def with_nulls(table: pa.Table) -> pa.Table:
    """Leave all values out."""
    nulls = pa.nulls(table.num_rows, table.schema.field(2).type)
    return table.set_column(2, table.column_names[2], nulls)


def too_large(table: pa.Table) -> pa.Table:
    """Add a bit that the index does not have."""
    bits = [one + (1 << 12) for one in table.column(2).to_pylist()]
    return table.set_column(2, table.schema.field(2), pa.array(bits, pa.uint16()))


def of_type(type_: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def harm(table: pa.Table) -> pa.Table:
        """Give it another type."""
        column = pa.array([0] * table.num_rows).cast(type_) if pa.types.is_integer(type_) else None
        if column is None:
            size = getattr(type_, "byte_width", 2) if pa.types.is_fixed_size_binary(type_) else 2
            column = pa.array([bytes(size)] * table.num_rows, type_)
        return table.set_column(2, table.column_names[2], column)

    return harm


HARMS = [
    stale,
    of_another_key,
    absent,
    with_nulls,
    too_large,
    of_type(pa.int64()),
    of_type(pa.binary()),
    of_type(pa.binary(8)),
]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", ["monday", "tuesday"])
def test_an_index_that_is_not_right_is_harmless(
    shelf: Shelf, name: str, harm: Callable[[pa.Table], pa.Table]
) -> None:
    """In the file that is replaced, and in one beside it that has a record of the same group.

    Other bits than the hashes of its keys, another key, none, nulls, more bits, another type.
    """
    paths = {"monday": put(shelf, "monday", MONDAY), "tuesday": put(shelf, "tuesday", TUESDAY)}
    table = pq.read_table(paths[name])
    pq.write_table(harm(table), paths[name])
    seal(str(paths[name]))
    replace(shelf, "monday", [("a", 1), ("b", 3), ("d", 4)])
    replace(shelf, "tuesday", [("c", 7)])


def test_an_index_of_zeros_that_lets_nothing_pass_is_found_by_a_verification(shelf: Shelf) -> None:
    """Nobody writes one: a file that holds other bytes than were written is refused. If one is
    there all the same, verify does not believe it."""
    put(shelf, "monday", MONDAY)
    path = put(shelf, "tuesday", TUESDAY)
    table = pq.read_table(path)
    field = table.schema.field(2)
    pq.write_table(table.set_column(2, field, pa.array([0] * table.num_rows, field.type)), path)
    seal(str(path))
    shelf.replace("monday", ("a", 1), ("b", 3))
    shelf.take_in()
    assert shelf.sums()["a"] == (1, 1), "the record of tuesday is missed"
    assert verified(shelf.world, "shelf").status == "differs"


@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_a_file_that_was_cut_off_is_noticed(shelf: Shelf, kept: float) -> None:
    """Its run fails with the file's name, and goes on once the file is there again."""
    put(shelf, "monday", MONDAY)
    path = put(shelf, "tuesday", TUESDAY)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    shelf.replace("monday", ("a", 1), ("b", 3))
    shelf.take_in()
    shelf.counts["monday"] = [("a", 1), ("b", 3)]
    (failed,) = [run for run in shelf.world.store.runs("shelf").items if run.error]
    assert failed.error is not None
    assert str(path) in failed.error["message"]
    path.write_bytes(whole)
    shelf.world.controller.retry("shelf", "sums")
    shelf.take_in()
    shelf.require_right()


def test_a_page_of_the_index_that_was_damaged_is_noticed(shelf: Shelf) -> None:
    """Its checksum is that of the file's pages."""
    put(shelf, "monday", MONDAY)
    path = put(shelf, "tuesday", TUESDAY)
    chunk = pq.read_metadata(path).row_group(0).column(2)
    with path.open("r+b") as file:
        file.seek(chunk.data_page_offset + chunk.total_compressed_size - 1)
        file.write(b"\xff")
    shelf.replace("monday", ("a", 1), ("b", 3))
    shelf.take_in()
    (failed,) = [run for run in shelf.world.store.runs("shelf").items if run.error]
    assert failed.error is not None
    assert str(path) in failed.error["message"]


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
