"""From a candidate's name to the candidate; its module is imported only now."""

from __future__ import annotations

from controller.bench.candidate import Candidate, Place
from controller.bench.graph_workloads import GraphWorkload
from controller.bench.options import CANDIDATES, OURS, VARIANTS, BenchOptions
from controller.bench.workload import Workload

__all__ = ["candidate_of"]


def candidate_of(label: str, place: Place, workload: Workload, options: BenchOptions) -> Candidate:
    """Make a candidate in its place; what it needs and lacks is a BenchRefusedError.

    Args:
        label: One of `options.entrants`.
    """
    name, _, form = label.partition("/")
    assert name in CANDIDATES, "the options were checked"
    if name in (OURS, "blackbox", "scan", "jobs", *VARIANTS):
        from controller.bench.candidates.direct import DirectCandidate

        form = form or (options.forms[0] if name == OURS else "groupwise")
        return DirectCandidate(place, workload, grouping=options.grouping, form=form, name=name)
    if name.startswith("streaming"):
        from controller.bench.candidates.streaming import StreamingCandidate

        return StreamingCandidate(place, name)
    if isinstance(workload, GraphWorkload):
        from controller.bench.candidates.whole_graph import WholeGraphCandidate

        return WholeGraphCandidate(place, workload)
    return _batch_peer(name, place)


def _batch_peer(name: str, place: Place) -> Candidate:
    if name == "merge":
        from controller.bench.candidates.merge import MergeCandidate

        return MergeCandidate(place)
    if name == "rewrite":
        from controller.bench.candidates.rewrite import RewriteCandidate

        return RewriteCandidate(place)
    if name == "recompute":
        from controller.bench.candidates.recompute import RecomputeCandidate

        return RecomputeCandidate(place)
    from controller.bench.candidates.upsert import UpsertCandidate

    return UpsertCandidate(place)
