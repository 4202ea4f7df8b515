"""Changes of views: a record that did not change gives none, however the diff writes it again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cbp.engine.kernel.view_changes import ViewChanges
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.schema import Schema


@pytest.mark.parametrize("type_", ["DOUBLE", "FLOAT"])
def test_a_record_with_nan_that_is_written_again_is_no_change(type_: str) -> None:
    """Beside it a change of a number, and one to NaN, are changes."""
    schema = Schema.parse(f"k INT, part {type_}")
    view = StateSpec("v", schema, second_key=("k",), changes="v")
    written: list[Any] = []
    changes = ViewChanges(view, lambda name, columns: written.append(columns))
    kind = pa.float64() if type_ == "DOUBLE" else pa.float32()
    before, after = (
        pa.table({"k": pa.array([1, 2, 3], pa.int32()), "part": pa.array(parts, kind)})
        for parts in ([float("nan"), 1.0, 1.0], [float("nan"), 2.0, float("nan")])
    )
    groups = np.arange(3)
    changes.write(before, groups, after, groups)
    (columns,) = written
    assert columns[0].to_pylist() == [2, 2, 3, 3]
    assert columns[-1].to_pylist() == [-1, 1, -1, 1]
