"""The shape of a dataflow: its strongly connected components, in one fixed order.

A *component* is a set of stages each of which reaches every other; a stage that lies on
no cycle is a component of its own. Components come upstream first, so that going
through them in order hands an increment through an acyclic dataflow in one pass.

    >>> wiring = {"a": {"i": "source"}, "b": {"i": "a.out", "j": "c.out"}, "c": {"i": "b.out"}}
    >>> components(predecessors(wiring))
    (('a',), ('b', 'c'))
    >>> sorted(inner_inputs(wiring))
    [('b', 'j'), ('c', 'i')]

Invariant: the order depends on the wiring alone, not on its own order of keys
(tests/cbp/model/test_graph.py).

Source: Tarjan, "Depth-first search and linear graph algorithms" (1972), here in the
simplest form for graphs of some hundred stages.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Wiring", "components", "cycles", "inner_inputs", "predecessors"]

Wiring = Mapping[str, Mapping[str, str]]
"""Stage to input to flow."""

Predecessors = Mapping[str, frozenset[str]]
"""Stage to the stages whose flows it reads; itself included when it reads its own."""


def predecessors(wiring: Wiring) -> dict[str, frozenset[str]]:
    """Return, for each stage, the stages that feed it; sources are left out."""
    return {
        stage: frozenset(flow.partition(".")[0] for flow in inputs.values()) & wiring.keys()
        for stage, inputs in wiring.items()
    }


def components(before: Predecessors) -> tuple[tuple[str, ...], ...]:
    """Return the components, upstream first; stages of one, and unrelated ones, by name."""
    reach = {stage: _upstream(stage, before) for stage in sorted(before)}
    found: list[tuple[str, ...]] = []
    placed: set[str] = set()
    while len(placed) < len(before):
        for stage in sorted(before):
            component = {stage, *(o for o in reach[stage] if stage in reach[o])}
            if stage not in placed and reach[stage] - component <= placed:
                found.append(tuple(sorted(component)))
                placed |= component
                break
    return tuple(found)


def cycles(before: Predecessors) -> dict[str, tuple[str, ...]]:
    """Return, for each stage that lies on a cycle, the stages of its component."""
    return {
        stage: component
        for component in components(before)
        for stage in component
        if len(component) > 1 or stage in before[stage]
    }


def inner_inputs(wiring: Wiring) -> frozenset[tuple[str, str]]:
    """Return the (stage, input) pairs that are fed from inside the stage's own cycle."""
    on_cycle = cycles(predecessors(wiring))
    return frozenset(
        (stage, input_)
        for stage, component in on_cycle.items()
        for input_, flow in wiring[stage].items()
        if flow.partition(".")[0] in component
    )


def _upstream(stage: str, before: Predecessors) -> frozenset[str]:
    """Return every stage from which this one can be reached."""
    found: set[str] = set()
    edge = set(before[stage])
    while edge:
        found |= edge
        edge = {further for one in edge for further in before[one]} - found
    return frozenset(found)
