"""The jobs of a run, as far as no Spark is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cbp.engine.spark.jobs import WorkerVariables, jobs_of


@pytest.mark.parametrize("recomputes", [False, True])
def test_each_thread_of_a_recomputation_has_its_workers(recomputes: bool) -> None:
    """Jobs of one run can be made by several threads; each enters `jobs_of`."""
    context: Any = SimpleNamespace(
        environment={"A": "1"},
        addJobTag=lambda tag: None,
        removeJobTag=lambda tag: None,
        setLocalProperty=lambda name, value: None,
    )
    plan: Any = SimpleNamespace(run="r", dataflow="d", recomputes=recomputes)
    variables = WorkerVariables.of(context)
    with jobs_of(context, plan):
        assert context.environment is variables
        assert ("CBP_RECOMPUTES" in dict(variables)) is recomputes
    assert dict(variables) == {"A": "1"}
