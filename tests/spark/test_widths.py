"""How many records a batch may have where nobody counts its bytes; no session is started.

A batch of results in SQL is bounded by its records where no text is wide, and by its bytes where
one is.
"""

from __future__ import annotations

import pytest

from cbp.engine.spark.sql.job import (
    BATCH_BYTES_MAX,
    TEXT_BYTES_MAX,
    batch_settings,
    checked,
    is_wide,
)
from cbp.model.flow.schema import Schema

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


@pytest.mark.parametrize(
    "flows",
    [["url STRING, n BIGINT"], ["a STRING, b BINARY, c STRING", "n INT"], ["n INT", "x DOUBLE"]],
)
def test_records_whose_texts_are_as_wide_as_may_be_fit_a_batch(flows: list[str]) -> None:
    """Records of a batch times their widest texts are at most its bytes, in every flow."""
    schemas = [Schema.parse(text) for text in flows]
    settings = batch_settings(schemas)
    assert settings is not None
    assert settings[BYTES] == str(2**31 - 1)  # what Spark takes for: do not count
    for schema in schemas:
        texts = sum(str(field.type) in ("STRING", "BINARY") for field in schema.fields)
        assert 1_000 <= int(settings[RECORDS]) <= 65_536
        assert int(settings[RECORDS]) * texts * TEXT_BYTES_MAX <= BATCH_BYTES_MAX


@pytest.mark.parametrize("column", ["ARRAY<INT>", "MAP<STRING, INT>", "STRUCT<a: STRING>"])
def test_lists_have_no_known_width(column: str) -> None:
    """A flow with a nested column is counted in bytes."""
    schemas = [Schema.parse("n INT"), Schema.parse(f"n INT, x {column}")]
    assert batch_settings(schemas) is None


def test_only_texts_are_checked() -> None:
    """A number stays as it is; a check that fails is distinguished from an author's mistake."""
    schema = Schema.parse("n INT, url STRING")
    assert checked("n", schema.fields[0].type) == "n"
    assert is_wide(RuntimeError(checked("url", schema.fields[1].type)))
    assert not is_wide(RuntimeError("[USER_RAISED_EXCEPTION] too wide"))
