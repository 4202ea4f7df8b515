"""Runs of translators with mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cbp import DataflowBuilder, Translate
from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import Dataflow

Run = Callable[[Translate], None]


def one_stage(translator: Any) -> Dataflow:
    builder = DataflowBuilder("flow")
    builder.stage("one", translator, urls=builder.source("urls", "url STRING"))
    return builder.build()


def failure(run: Run, translator: Any) -> CbpError:
    with pytest.raises(CbpError) as caught:
        run(translator)
    return caught.value
