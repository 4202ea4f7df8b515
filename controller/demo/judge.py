"""Compares what the last increment touched with what it had to touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cbp.model.dataflow.dataflow import Dataflow
from controller.demo.corpus import Page
from controller.demo.expect import expected_touched
from controller.demo.queue import groups_in
from controller.demo.tables import TableRef
from controller.demo.watch import Run

__all__ = ["Judgement", "judge"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One stage with state: the figures of its run, and those computed from the pages.

    Attributes:
        groups_held: Number of groups in its state after the run.
    """

    stage: str
    groups_called: int
    groups_expected: int
    groups_held: int
    state_written: int
    state_expected: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it touched exactly what it had to."""
        called = self.groups_called == self.groups_expected
        return called and self.state_written == self.state_expected


def judge(
    flow: Dataflow,
    tables: Mapping[str, TableRef],
    *,
    runs: Sequence[Run],
    pages: Sequence[Page],
    before: Sequence[Page],
) -> list[Judgement]:
    """Compare the runs of one increment with what its pages require.

    Args:
        flow: The crawl queue.
        tables: By label; read for the number of groups.
        runs: The runs that the increment caused.
        pages: The pages of the increment.
        before: All pages that arrived earlier.
    """
    by_stage = {stage: run for run in runs for stage in run.stages}
    judgements = []
    for expected in expected_touched(pages, before):
        spec, run = flow.stages[expected.stage].translator, by_stage[expected.stage]
        kept = spec.states[0]
        state = tables[f"{expected.stage}.{kept.name}"]
        judgements.append(
            Judgement(
                expected.stage,
                run.count_of(expected.stage, "groups"),
                expected.groups,
                groups_in(state, spec.key_of(kept).names),
                run.count_of(expected.stage, "state_written"),
                expected.state_written,
                run.seconds,
            )
        )
    return judgements
