"""Compares the groups and records that an increment touched with those that it must touch.

The expected counts come from the pages alone. They follow from the documented wiring of the
dataflow, not from what an engine did: a link calls the group of its target's site, and a page
calls the group of its own site. The queue has a group per URL.

    count_in_links  groups: sites linked to
                    state:  one record per URL linked to, and one per site (its total)
    merge           groups: sites linked to, and sites of the pages
                    state:  one record per URL linked to or crawled now, one per site whose
                            total grew, and one per site that was unknown before
    threshold       groups: URLs linked to that were never crawled, and URLs that are crawled now
                            and were linked to before
                    state:  one record per URL of the former

Guaranteed: exact if no page of the increment arrived before
(tests/controller/demo/results/test_touched_groups.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cbp.model.dataflow.dataflow import Dataflow
from controller.demo.corpus.pages import Page
from controller.demo.results.tables import TableRef, groups_in
from controller.demo.service.watch import Run

__all__ = ["Judgement", "Touched", "expected_touched", "judge"]


@dataclass(frozen=True, slots=True)
class Touched:
    """What one run of one stage touches.

    Attributes:
        groups: Number of groups called.
        state_written: Number of state records that are new or have changed.
    """

    stage: str
    groups: int
    state_written: int


def expected_touched(pages: Sequence[Page], before: Iterable[Page]) -> list[Touched]:
    """Return what the stages with state must touch for `pages`, after the pages `before`."""
    linked = {link for page in pages for link in page.links}
    linked_sites = set(map(_site, linked))
    crawled = {page.url for page in pages}
    called = linked_sites | set(map(_site, crawled))
    before = list(before)
    linked_before = {link for page in before for link in page.links}
    known = {_site(url) for url in (*linked_before, *(page.url for page in before))}
    waiting = linked - crawled - {page.url for page in before}
    totals = linked_sites | (called - known)
    return [
        Touched("count_in_links", len(linked_sites), len(linked) + len(linked_sites)),
        Touched("merge", len(called), len(linked | crawled) + len(totals)),
        Touched("threshold", len(waiting | (crawled & linked_before)), len(waiting)),
    ]


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


def _site(url: str) -> str:
    return url.partition(".")[0]
