"""How the files of an increment are encoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.key_index import GroupKey
from cbp.model.flow.schema import Schema
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.increment_parts import PartWriter

SCHEMA = Schema.parse("word STRING, n INT, tags ARRAY<STRING>, both STRUCT<a: INT, b: STRING>")
KEYS = [
    GroupKey(SCHEMA.select(("word",)), Schema.parse("k STRING")),
    GroupKey(SCHEMA.select(("n", "word")), Schema.parse("m INT, k STRING")),
]


def written(folder: Path, rows: pa.Table, schema: Schema, keys: list[GroupKey]) -> dict[str, bool]:
    """Write a file; return whether each of its columns has a dictionary."""
    writer = PartWriter(
        str(folder), index=0, claim="c", schema=schema, limits=IngestLimits(), keys=keys
    )
    writer.write(rows.to_batches())
    (part,) = writer.finish()
    assert part.records == rows.num_rows
    (file,) = folder.iterdir()
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    for column in columns:
        is_index = column.path_in_schema.startswith("_key_")
        assert column.compression == ("UNCOMPRESSED" if is_index else "ZSTD")
        assert column.is_stats_set == (not is_index)
        is_packed = is_index and column.physical_type == "INT32"
        assert ("DELTA_BINARY_PACKED" in column.encodings) == is_packed
    return {column.path_in_schema: "RLE_DICTIONARY" in column.encodings for column in columns}


def test_the_index_of_a_file_has_no_dictionary_and_all_else_has(tmp_path: Path) -> None:
    """A dictionary of hashes would be as large as they are; of nested columns it stays."""
    row = {"word": "a", "n": 1, "tags": ["x", "y"], "both": {"a": 1, "b": "z"}}
    rows = pa.Table.from_pylist([row] * 3_000, arrow_schema(SCHEMA))
    columns = written(tmp_path, rows, SCHEMA, KEYS)
    assert len(columns) == 7
    for name, has in columns.items():
        assert has == (not name.startswith("_key_")), name


@pytest.mark.parametrize("keys", [[], KEYS[:1]])
def test_a_column_of_values_that_hardly_repeat_has_no_dictionary(
    tmp_path: Path, keys: list[GroupKey]
) -> None:
    """Neither sorted nor in any order; one whose values repeat among neighbours or far away has.

    All but a few values are null: one value that repeats.
    """
    dice, many = np.random.default_rng(3), 20_000
    schema = Schema.parse(
        "word STRING, n BIGINT, few BIGINT, runs BIGINT, half BIGINT, none STRING, tags ARRAY<INT>"
    )
    unique = dice.permutation(many)
    table = pa.table(
        {
            "word": pa.array([f"w{n}" for n in unique.tolist()]),
            "n": pa.array(np.arange(many)),
            "few": pa.array(unique % (many // 10)),
            "runs": pa.array(np.arange(many) // 10),
            "half": pa.array(dice.integers(2 * many, size=many)),
            "none": pa.array(["x", *[None] * (many - 1)]),
            "tags": pa.array([[1]] * many, pa.list_(pa.int32())),
        }
    ).cast(arrow_schema(schema))
    columns = written(tmp_path, table, schema, keys)
    assert {name for name, has in columns.items() if not has and not name.startswith("_key_")} == {
        "word", "n", "half",
    }  # fmt: skip
    (file,) = tmp_path.iterdir()
    assert pq.read_table(file).select(schema.names).equals(table)


@pytest.mark.parametrize(("text", "most"), [(12, 1.7), (40, 2.01), (80, 4.01)])
def test_the_index_takes_a_twentieth_of_the_records_at_most(
    tmp_path: Path, text: int, most: float
) -> None:
    """As they are received, in lines of JSON: of 35 bytes, or of more."""
    schema, many = Schema.parse("word STRING, n BIGINT"), 20_000
    words = [f"{n:0{text}d}" for n in range(many)]
    table = pa.table({"word": words, "n": [n % 1_000 for n in range(many)]})
    key = GroupKey(schema.select(("word",)), Schema.parse("k STRING"))
    written(tmp_path, table.cast(arrow_schema(schema)), schema, [key])
    (file,) = tmp_path.iterdir()
    group = pq.read_metadata(file).row_group(0)
    taken = group.column(2).total_compressed_size / many
    assert taken <= most
    assert taken <= 0.05 * len(f'{{"word": "{words[0]}", "n": 123}}\n')


def test_a_draft_is_neither_compressed_nor_indexed(tmp_path: Path) -> None:
    """It is read once, to be compared with the file that it replaces; its records are the same."""
    schema, many = Schema.parse("word STRING, n BIGINT"), 3_000
    words = [f"w{n % 7}" for n in range(many)]
    table = pa.table({"word": words, "n": range(many)}).cast(arrow_schema(schema))
    key = GroupKey(schema.select(("word",)), Schema.parse("k STRING"))
    writer = PartWriter(
        str(tmp_path),
        index=0,
        claim="c",
        schema=schema,
        limits=IngestLimits(),
        keys=[key],
        draft=True,
    )
    writer.write(table.to_batches())
    writer.finish()
    (file,) = tmp_path.iterdir()
    group = pq.read_metadata(file).row_group(0)
    assert {group.column(at).compression for at in range(group.num_columns)} == {"UNCOMPRESSED"}
    assert pq.read_table(file).equals(table)
