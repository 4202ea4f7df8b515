"""Finds the groups that a run calls in one bucket, with their records in each state.

A group is called for its records, for messages that it shares with other groups, for its timers;
with outer grouping also for its state alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.groups import FlowRun, Ranges, rows_of_hashes, union, window_ends
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.due_groups import Woken
from cbp.engine.state.large_groups import LargeGroup, large_groups, without
from cbp.model.dataflow.stage import TranslatorSpec


@dataclass(frozen=True, slots=True)
class GroupsToCall:
    """The groups of one bucket that a run calls.

    Attributes:
        hashes: Their hashes, ascending.
        positions: The looked-up records of each state that is not kept, without large groups.
        large: By state, the groups with more than `above` records (`find_groups`), by hash.
        ranges: For every input, every state in `positions` and every looked-up table, the rows of
            each hash.
        sizes: How many records each hash has: `ranges`, large groups and shared records.
        row_bytes: The width of the widest records.
    """

    hashes: Int64s
    positions: Mapping[str, RecordPositions]
    large: Mapping[str, Mapping[int, LargeGroup]]
    ranges: Sequence[Ranges]
    sizes: Sequence[Ranges]
    row_bytes: int

    def spans(self, *, rows_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
        """Yield parts of the groups that fit into one window: first group, last one + 1."""
        most = max(1, min(rows_max, bytes_max // self.row_bytes))
        return pairwise([0, *window_ends(self.sizes, len(self.hashes), most)])


def find_groups(
    spec: TranslatorSpec,
    runs: Sequence[FlowRun],
    states: Mapping[str, BucketState],
    *,
    above: int = sys.maxsize,
    deliveries: Deliveries | None = None,
    woken: Woken | None = None,
) -> GroupsToCall:
    """Return the groups to call; those with more than `above` records in a state are large."""
    others = [*([deliveries.hashes] if deliveries else []), *([woken.hashes] if woken else [])]
    hashes = union([*(run.hashes for run in runs), *others])
    positions: dict[str, RecordPositions] = {}
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
        positions[state.name] = without(states[state.name], list(groups), wanted)
        if wanted is None:
            of_groups = np.array(sorted(groups), np.int64)
            hashes = union([hashes, positions[state.name].hashes, of_groups])
    read = (*spec.replaced, *spec.looked_up)
    flows = (*(run.hashes for run in runs), *(positions[one.name].hashes for one in read))
    ranges = [rows_of_hashes(hashes, flow) for flow in flows]
    sizes = [*ranges, *(_sizes(hashes, groups) for groups in large.values() if groups)]
    if deliveries is not None:
        sizes.append(deliveries.sizes(hashes))
    # Not earlier: a state knows the width of its records once they were looked up.
    widths = (*(run.row_bytes for run in runs), *(one.row_bytes for one in states.values()))
    return GroupsToCall(hashes, positions, large, ranges, sizes, max([1, *widths]))


def _sizes(hashes: Int64s, groups: Mapping[int, LargeGroup]) -> Ranges:
    sizes = np.zeros(len(hashes), np.int64)
    for hash_, group in groups.items():
        sizes[np.searchsorted(hashes, hash_)] = group.rows
    return Ranges(np.zeros(len(hashes), np.int64), sizes)
