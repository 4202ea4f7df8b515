"""Groups of a vectorised call: what the engine asks of them does not depend on flows' names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cbp.engine.kernel.arrow.groups import Groups


@pytest.mark.parametrize("name", ["ids", "sizes", "offsets", "sums"])
def test_a_flow_may_have_the_name_of_a_method(name: str) -> None:
    """A translator in SQL may call a state so: the engine still finds each record's group."""
    offsets = np.array([0, 2, 2, 3])
    table = pa.table({"n": [1, 2, 3]})
    groups = Groups(pa.table({"k": ["a", "b", "c"]}), {name: (table, offsets)})
    assert getattr(groups, name) is table
    assert Groups.ids(groups, name).tolist() == [0, 0, 2]
