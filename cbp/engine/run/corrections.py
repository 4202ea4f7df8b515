"""The increment of a correction: one Parquet file, and the plan of the run that reads it.

    _corrections/<stage>/<epoch>-00000-<run>.parquet

The file is durable before the run that reads it is recorded, and it is never removed: together
with the run's note, it documents what an operator changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.row_codec import encode_rows
from cbp.engine.interface.runs import RunPlan
from cbp.engine.storage.checked_parquet import parquet_file
from cbp.engine.storage.files import Files
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.dataflow.run_context import time_of
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.run.correction import Correction, correcting, correction_rows

FOLDER = "_corrections"


def write_corrections(
    plan: RunPlan, node: StageNode, state: str, corrections: Sequence[Correction], *, files: Files
) -> Increment:
    """Make corrections of a state durable, and return their increment."""
    schema, rows = correction_rows(node.translator.state(state).schema, corrections)
    table = pa.table(encode_rows(rows, schema), schema=arrow_schema(schema))
    path = f"{FOLDER}/{node.name}/{plan.epoch:012d}-00000-{plan.run}.parquet"
    whole = parquet_file(table, f"{plan.folder}/{path}")
    files.write_durable(f"{plan.folder}/{path}", whole, what="correction")
    file = DataFile(path, len(rows), len(whole))
    return Increment(f"{node.name}.{state}", plan.epoch, plan.epoch, (file,))


def correcting_plan(plan: RunPlan, node: StageNode, state: str, increment: Increment) -> RunPlan:
    """Return the plan of a run that reads corrections instead of the stage's inputs.

    Fused stages run, too, if they read only changes of this stage's views, or outputs of stages
    that run for the same reason.
    """
    spec = correcting(node.translator, state, time_of(plan.time_ms))
    (input_,) = spec.inputs
    corrector = replace(node, translator=spec, wiring={input_.name: increment.flow})
    flows = {f"{node.name}.{output.name}" for output in spec.outputs}
    behind = []
    for member in plan.fused:
        if flows.issuperset(member.wiring.values()):
            behind.append(member)
            flows |= {f"{member.name}.{output.name}" for output in member.translator.outputs}
    # No group is called for its timer.
    inputs = {input_.name: (increment,)}
    return replace(plan, node=corrector, inputs=inputs, fused=tuple(behind), time_ms=0)
