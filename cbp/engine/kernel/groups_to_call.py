"""Finds the groups that a run calls in one bucket, with their records in each state.

A group is called for its records, for messages that it shares with other groups, for its timers;
with outer grouping also for its state alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.groups import FlowRun, Ranges, union
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.due_groups import Woken
from cbp.engine.state.large_groups import LargeGroup, large_groups, without
from cbp.model.dataflow.stage import TranslatorSpec


def look_up(
    spec: TranslatorSpec,
    runs: Sequence[FlowRun],
    states: Mapping[str, BucketState],
    *,
    deliveries: Deliveries | None = None,
    woken: Woken | None = None,
) -> tuple[Int64s, dict[str, RecordPositions]]:
    """Return the hashes to call, and the records found for them in each state."""
    hashes, rows_by_state, _ = look_up_large(
        spec, runs, states, above=sys.maxsize, deliveries=deliveries, woken=woken
    )
    return hashes, rows_by_state


def rows_that_fit(
    runs: Sequence[FlowRun], states: Mapping[str, BucketState], *, rows_max: int, bytes_max: int
) -> int:
    """Return how many records fit in `bytes_max`, judged by the flow with the widest rows.

    Args:
        states: States after their look-up, which gives the width of their records.
    """
    widths = [*(run.row_bytes for run in runs), *(state.row_bytes for state in states.values())]
    return max(1, min(rows_max, bytes_max // max([1, *widths])))


def look_up_large(
    spec: TranslatorSpec,
    runs: Sequence[FlowRun],
    states: Mapping[str, BucketState],
    *,
    above: int,
    deliveries: Deliveries | None = None,
    woken: Woken | None = None,
) -> tuple[Int64s, dict[str, RecordPositions], dict[str, dict[int, LargeGroup]]]:
    """Like `look_up`, but return the large groups of each state separately.

    A group is large if it has more than `above` records in that state.
    """
    others = [*([deliveries.hashes] if deliveries else []), *([woken.hashes] if woken else [])]
    hashes = union([*(run.hashes for run in runs), *others])
    rows_by_state: dict[str, RecordPositions] = {}
    large: dict[str, dict[int, LargeGroup]] = {}
    whole = {
        state.name
        for state in spec.replaced
        if state.grouping == "outer" or (deliveries and deliveries.reaches(state.name))
    }
    # Looked-up tables come last, when all groups are known.
    read = (*sorted(spec.replaced, key=lambda one: one.name not in whole), *spec.looked_up)
    for state in read:
        wanted = None if state.name in whole else hashes
        most = sys.maxsize if state.expires else above  # a group has one timer
        groups = large[state.name] = large_groups(states[state.name], wanted, most)
        rows_by_state[state.name] = without(states[state.name], list(groups), wanted)
        if wanted is None:
            of_groups = np.array(sorted(groups), np.int64)
            hashes = union([hashes, rows_by_state[state.name].hashes, of_groups])
    return hashes, rows_by_state, large


def large_group_ranges(hashes: Int64s, groups: Mapping[int, LargeGroup]) -> Ranges:
    """Return the number of records of each large group, as ranges that begin at 0."""
    sizes = np.zeros(len(hashes), np.int64)
    for hash_, group in groups.items():
        sizes[np.searchsorted(hashes, hash_)] = group.rows
    return Ranges(np.zeros(len(hashes), np.int64), sizes)
