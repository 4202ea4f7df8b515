"""Set difference: the URLs that only one of two crawlers found, hour by hour.

    a --+-> diff -> a_diff
    b --'     '---> b_diff

Both results are histories: an epoch of `diff` is an hour of the crawls.

Source: CBP (SoCC'10), section 2.2, figure 4.
"""

from __future__ import annotations

from typing import Any

from cbp import Dataflow, DataflowBuilder
from stages.flows import read_document
from stages.translators.set_diff import SetDiff


def document() -> dict[str, Any]:
    """Return the document to register, as JSON values."""
    return read_document("set_diff")


def set_diff() -> Dataflow:
    """Build the dataflow; the same as `document`."""
    flow = DataflowBuilder("set_diff")
    sides = {side: flow.source(side, "url STRING, time TIMESTAMP") for side in ("a", "b")}
    flow.stage("diff", SetDiff(), a=sides["a"], b=sides["b"])
    return flow.build()
