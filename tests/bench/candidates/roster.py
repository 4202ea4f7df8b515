"""Maps a candidate's name to the candidate, whose module is imported only then."""

from __future__ import annotations

from tests.bench.candidates.candidate import Candidate, Place
from tests.bench.options import CANDIDATES, OURS, PAPER, VARIANTS, BenchOptions
from tests.bench.workloads.graph_workloads import GraphWorkload, PageRank
from tests.bench.workloads.workload import Workload

__all__ = ["candidate_of"]


def candidate_of(label: str, place: Place, workload: Workload, options: BenchOptions) -> Candidate:
    """Make a candidate at its place; raises BenchRefusedError if it lacks a package.

    Args:
        label: One of `options.entrants`.
    """
    name, _, form = label.partition("/")
    assert name in CANDIDATES, "the options were checked"
    if name in (OURS, "blackbox", "scan", "jobs", *VARIANTS, *PAPER):
        from tests.bench.candidates.ours.direct import DirectCandidate

        form = form or (options.forms[0] if name == OURS else "groupwise")
        grouping = "outer" if name in PAPER else options.grouping
        return DirectCandidate(place, workload, grouping=grouping, form=form, name=name)
    if name == "service":
        from tests.bench.candidates.ours.service import ServiceCandidate

        return ServiceCandidate(place, workload, options)
    if name.startswith("streaming"):
        from tests.bench.candidates.peers.streaming import StreamingCandidate

        return StreamingCandidate(place, name)
    if isinstance(workload, GraphWorkload):
        return _graph_peer(name, place, workload)
    return _table_peer(name, place)


def _graph_peer(name: str, place: Place, workload: GraphWorkload) -> Candidate:
    if name == "recompute":
        from tests.bench.candidates.peers.whole_graph import WholeGraphCandidate

        return WholeGraphCandidate(place, workload)
    from tests.bench.candidates.peers import graph_process

    if isinstance(workload, PageRank):
        return graph_process.RanksCandidate(place, workload, name)
    return graph_process.CoefficientsCandidate(place, workload, name)


def _table_peer(name: str, place: Place) -> Candidate:
    if name.startswith("merge-"):
        from tests.bench.candidates.peers.merge import MergeCandidate

        return MergeCandidate(place, name)
    if name == "rewrite":
        from tests.bench.candidates.peers.rewrite import RewriteCandidate

        return RewriteCandidate(place)
    if name == "recompute":
        from tests.bench.candidates.peers.recompute import RecomputeCandidate

        return RecomputeCandidate(place)
    if name in ("duckdb-key", "duckdb-update"):
        from tests.bench.candidates.peers.duckdb_table import DuckdbTableCandidate

        return DuckdbTableCandidate(place, name)
    from tests.bench.candidates.peers import parquet_state

    if name == "polars":
        return parquet_state.PolarsCandidate(place)
    return parquet_state.DuckdbParquetCandidate(place)
