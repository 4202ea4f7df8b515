"""Graph algorithms: cycles and strongly connected components of a dataflow, in a fixed order.

A *component* is a maximal set of stages in which each stage reaches every other; a stage on no
cycle is a component of its own. Components come upstream first, so one pass over them in order
carries an increment through an acyclic dataflow.

    >>> wiring = {"a": {"i": "source"}, "b": {"i": "a.out", "j": "c.out"}, "c": {"i": "b.out"}}
    >>> components(predecessors(wiring))
    (('a',), ('b', 'c'))
    >>> sorted(inner_inputs(wiring))
    [('b', 'j'), ('c', 'i')]

Invariant: the order depends only on the wiring, not on the order of its keys
(tests/cbp/model/graph/test_cycles.py).

Sources: Tarjan, "Depth-first search and linear graph algorithms" (1972); Kahn, "Topological sorting
of large networks" (1962), in which the next node is the first by name among those that are ready.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter

Wiring = Mapping[str, Mapping[str, str]]
"""Maps each stage to its inputs, and each input to its flow."""

Predecessors = Mapping[str, frozenset[str]]
"""Maps each stage to the stages whose flows it reads, itself included if it reads its own."""


def predecessors(wiring: Wiring) -> dict[str, frozenset[str]]:
    """Return, for each stage, the stages that feed it; sources are left out."""
    return {
        stage: frozenset(flow.partition(".")[0] for flow in inputs.values()) & wiring.keys()
        for stage, inputs in wiring.items()
    }


def components(before: Predecessors) -> tuple[tuple[str, ...], ...]:
    """Return the components, upstream first, then by name; the stages of each by name."""
    components_by_first = {
        min(component): tuple(sorted(component)) for component in _connected(before)
    }
    home = {stage: first for first, component in components_by_first.items() for stage in component}
    order: TopologicalSorter[str] = TopologicalSorter({first: () for first in components_by_first})
    for stage, feeding in before.items():
        order.add(home[stage], *({home[one] for one in feeding} - {home[stage]}))
    order.prepare()
    ordered, ready = [], list[str]()
    while order.is_active():
        for first in order.get_ready():
            heapq.heappush(ready, first)
        first = heapq.heappop(ready)
        ordered.append(components_by_first[first])
        order.done(first)
    return tuple(ordered)


def cycles(before: Predecessors) -> dict[str, tuple[str, ...]]:
    """Return, for each stage that is on a cycle, the stages of its component."""
    return {
        stage: component
        for component in components(before)
        for stage in component
        if len(component) > 1 or stage in before[stage]
    }


def readers(before: Predecessors) -> dict[str, list[str]]:
    """Return, for each stage, the stages that it feeds, in their order."""
    after: dict[str, list[str]] = {stage: [] for stage in before}
    for stage, feeding in before.items():
        for one in feeding:
            after[one].append(stage)
    return after


def reached(before: Predecessors, stages: Iterable[str]) -> list[str]:
    """Return these stages, then all that read from them, directly or not; the nearest first."""
    found, after = list(dict.fromkeys(stages)), readers(before)
    known = set(found)
    for stage in found:
        further = [one for one in after[stage] if one not in known]
        found += further
        known.update(further)
    return found


def shortest_cycle(before: Predecessors, stage: str) -> tuple[str, ...]:
    """Return a shortest cycle through a stage that is on one: its stages, this one first."""
    after = readers(dict(sorted(before.items())))
    came_from: dict[str, str] = {}
    ends = deque([stage])
    while stage not in came_from:
        end = ends.popleft()
        for one in after[end]:
            if one not in came_from:
                came_from[one] = end
                ends.append(one)
    path = [came_from[stage]]
    while path[-1] != stage:
        path.append(came_from[path[-1]])
    return tuple(reversed(path))


def inner_inputs(wiring: Wiring) -> frozenset[tuple[str, str]]:
    """Return the (stage, input) pairs that are fed from inside the stage's own cycle."""
    on_cycle = cycles(predecessors(wiring))
    return frozenset(
        (stage, input_)
        for stage, component in on_cycle.items()
        for input_, flow in wiring[stage].items()
        if flow.partition(".")[0] in component
    )


def _connected(before: Predecessors) -> Iterator[list[str]]:
    """Yield the strongly connected components (Tarjan, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    inside: set[str] = set()
    for root in before:
        walk = [] if root in number else [(root, iter(before[root]))]
        while walk:
            stage, further = walk[-1]
            if stage not in number:
                number[stage] = low[stage] = len(number)
                stack.append(stage)
                inside.add(stage)
            for other in further:
                if other not in number:
                    walk.append((other, iter(before[other])))
                    break
                if other in inside:
                    low[stage] = min(low[stage], number[other])
            else:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[stage])
                if low[stage] == number[stage]:
                    at = stack.index(stage)
                    component, stack[at:] = stack[at:], []
                    inside.difference_update(component)
                    yield component
