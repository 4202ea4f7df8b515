"""Groups of a vectorised call: what the engine asks of them does not depend on flows' names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.kernel.arrow.groups import Groups, group_numbers


@pytest.mark.parametrize("name", ["ids", "sizes", "offsets", "sums"])
def test_a_flow_may_have_the_name_of_a_method(name: str) -> None:
    """A translator in SQL may call a state so: the engine still finds each record's group."""
    offsets = np.array([0, 2, 2, 3])
    table = pa.table({"n": [1, 2, 3]})
    groups = Groups(pa.table({"k": ["a", "b", "c"]}), {name: (table, offsets)})
    assert getattr(groups, name) is table
    assert Groups.ids(groups, name).tolist() == [0, 0, 2]


@given(
    keys=st.lists(st.integers(-9, 9), unique=True),
    wanted=st.lists(st.integers(-9, 9)),
    type_=st.sampled_from([pa.int64(), pa.int8(), pa.float64(), pa.large_string()]),
    has_null=st.booleans(),
)
def test_the_group_of_a_key_is_its_row(
    keys: list[int], wanted: list[int], type_: pa.DataType, has_null: bool
) -> None:
    """-1 for a key of no group: of any type, in any order, with a null among them or without."""
    own, asked = (
        pa.array(list(map(str, values)) if type_ == pa.large_string() else values, type_)
        for values in (keys, wanted)
    )
    null = pa.nulls(int(has_null), type_)
    own, asked = pa.concat_arrays([own, null]), pa.concat_arrays([asked, null])
    numbers = group_numbers(pa.table({"k": own}), pa.table({"key": asked}))
    rows = {key: row for row, key in enumerate(own.to_pylist())}
    assert numbers.tolist() == [rows.get(key, -1) for key in asked.to_pylist()]
