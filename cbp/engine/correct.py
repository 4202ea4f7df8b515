"""The increment of a correction: one Parquet file, and the plan of the run that reads it.

    _corrections/<stage>/<epoch>-00000-<run>.parquet

It is durable before the run that reads it is recorded, and stays for good: it is what tells,
with the run's note, what an operator changed.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.arrow import arrow_schema
from cbp.engine.base import RunPlan
from cbp.engine.files import Files
from cbp.engine.rows import encode_rows
from cbp.model.correction import Correction, correcting, correction_rows
from cbp.model.dataflow import StageNode
from cbp.model.increment import DataFile, Increment

__all__ = ["FOLDER", "correcting_plan", "write_corrections"]

FOLDER = "_corrections"


def write_corrections(
    plan: RunPlan, node: StageNode, state: str, corrections: Sequence[Correction], *, files: Files
) -> Increment:
    """Make corrections of a state durable; returns their increment."""
    schema, rows = correction_rows(node.translator.state(state).schema, corrections)
    table = pa.table(encode_rows(rows, schema), schema=arrow_schema(schema))
    data = io.BytesIO()
    pq.write_table(table, data)
    path = f"{FOLDER}/{node.name}/{plan.epoch:012d}-00000-{plan.run}.parquet"
    files.write_durable(f"{plan.folder}/{path}", data.getvalue(), what="correction")
    file = DataFile(path, len(rows), data.getbuffer().nbytes)
    return Increment(f"{node.name}.{state}", plan.epoch, plan.epoch, (file,))


def correcting_plan(plan: RunPlan, node: StageNode, state: str, increment: Increment) -> RunPlan:
    """Return the run that reads corrections in place of the stage's inputs."""
    spec = correcting(node.translator, state)
    (input_,) = spec.inputs
    corrector = replace(node, translator=spec, wiring={input_.name: increment.flow})
    return replace(plan, node=corrector, inputs={input_.name: (increment,)}, fused=())
