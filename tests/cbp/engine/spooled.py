"""Batches for a spill file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cbp import Input, Output, Translate
from cbp.engine.shuffle.layout import shuffle_layout


class _Two(Translate):
    left = Input("k STRING, n BIGINT", route_by="k")
    right = Input("k STRING, n BIGINT", route_by="k")
    out = Output("k STRING")

    def translate(self, key: object, group: object, out: object) -> None:
        """Never called."""


LAYOUT = shuffle_layout(_Two().spec())


def batch(flows: list[int], buckets: list[int], first: int) -> pa.RecordBatch:
    """Return records in the layout, numbered from `first`."""
    many = len(flows)
    return pa.RecordBatch.from_pydict(
        {
            "_flow": pa.array(flows, pa.int8()),
            "_bucket": pa.array(buckets, pa.int32()),
            "_hash": pa.array(np.arange(first, first + many)),
            "k0": pa.array(["k"] * many),
            "p0": pa.array(np.arange(first, first + many)),
            "_seq": pa.array(np.arange(first, first + many)),
        }
    )
