"""Run files stay of bounded size, and keep every row in its order."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.file_sizes import FileCutter


@settings(deadline=None)
@given(
    tables=st.lists(st.lists(st.integers(0, 60), max_size=20), max_size=6),
    rows_max=st.integers(1, 12),
    bytes_max=st.integers(1, 200),
)
def test_pieces_are_small_and_together_everything(
    tables: list[list[int]], rows_max: int, bytes_max: int
) -> None:
    """No piece exceeds rows or bytes but a single record; their sequence is the input's."""
    cutter = FileCutter(EngineLimits(file_rows=rows_max, file_bytes=bytes_max))
    pieces: list[pa.Table] = []
    for lengths in tables:
        pieces += cutter.add(pa.table({"text": pa.array(["x" * n for n in lengths])}))
    pieces += cutter.rest()
    assert [len(t) for p in pieces for t in p["text"].to_pylist()] == list(
        chain.from_iterable(tables)
    )
    for piece in pieces:
        assert 0 < piece.num_rows <= rows_max
        assert piece.nbytes <= bytes_max or piece.num_rows == 1
