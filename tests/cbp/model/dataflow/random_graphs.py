"""Random dataflows without cycles, by seed: what pictures of graphs are tested with."""

from __future__ import annotations

import random

from cbp import DataflowBuilder
from cbp.model.dataflow.dataflow import Dataflow
from tests.chains import SCHEMA, Pair, Spread


def random_flow(seed: int) -> Dataflow:
    """Return a dataflow of two sources and one to eight stages."""
    draw = random.Random(seed)
    builder = DataflowBuilder("any")
    flows = [builder.source(name, SCHEMA) for name in ("a", "b")]
    for number in range(draw.randint(1, 8)):
        name = f"s{number}"
        if draw.random() < 0.5:
            stage = builder.stage(name, Spread(), items=draw.choice(flows))
            flows.append(stage.o)
        else:
            stage = builder.stage(name, Pair(), left=draw.choice(flows), right=draw.choice(flows))
            flows += [stage.o, stage.p]
    return builder.build()
