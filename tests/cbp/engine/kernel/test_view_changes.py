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


@pytest.mark.parametrize(("gone", "new"), [([], []), ([1], []), ([], [4]), ([0, 2], [5, 6])])
def test_an_update_is_both_of_its_records_side_by_side(gone: list[int], new: list[int]) -> None:
    """Whether all groups are updated, or some are gone, or others are new."""
    view = StateSpec("v", Schema.parse("k INT, n INT"), second_key=(), changes="v")
    written: list[Any] = []
    changes = ViewChanges(view, lambda name, columns: written.append(columns))
    died = np.arange(4)
    born = np.sort(np.append(np.setdiff1d(died, gone), np.array(new, np.int64)))
    tables = [
        pa.table({"k": pa.array(some, pa.int32()), "n": pa.array(10 * some + side, pa.int32())})
        for side, some in enumerate((died, born))
    ]
    changes.write(tables[0], died, tables[1], born)
    (columns,) = written
    _, numbers, _, signs = (column.to_pylist() for column in columns)
    right = sorted([(10 * k, -1) for k in died.tolist()] + [(10 * k + 1, 1) for k in born.tolist()])
    assert list(zip(numbers, signs, strict=True)) == right
