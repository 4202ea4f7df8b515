"""How the files of an increment are encoded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

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


def test_the_index_of_a_file_has_no_dictionary_and_all_else_has(tmp_path: Path) -> None:
    """A dictionary of hashes would be as large as they are; of nested columns it stays."""
    row = {"word": "a", "n": 1, "tags": ["x", "y"], "both": {"a": 1, "b": "z"}}
    batches = pa.Table.from_pylist([row] * 3_000, arrow_schema(SCHEMA)).to_batches()
    writer = PartWriter(
        str(tmp_path), index=0, claim="c", schema=SCHEMA, limits=IngestLimits(), keys=KEYS
    )
    writer.write(batches)
    (part,) = writer.finish()
    (file,) = tmp_path.iterdir()
    group = pq.read_metadata(file).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(7)}
    assert group.num_columns == 7
    assert part.records == 3_000
    for name, column in columns.items():
        assert ("RLE_DICTIONARY" in column.encodings) == (not name.startswith("_key_")), name
        assert column.compression == "ZSTD"
