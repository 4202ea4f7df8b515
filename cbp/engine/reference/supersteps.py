"""Supersteps of the reference engine: one epoch calls groups until no message is left.

    inputs -> superstep 0 -> messages -> superstep 1 -> ... -> messages that are left
                '-> state ------------------'-> state ...

The state of a superstep is settled before the next one begins. The changes of a view are what
became of its records from the first superstep to the last. If an aggregate ends the loop, the
messages of the last superstep are dropped.

Guarantee: an epoch that fails changes nothing (tests/cbp/engine/reference/test_engine.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cbp.engine.columnar.values import Row
from cbp.engine.reference.views import group_changes
from cbp.model.dataflow.stage import TranslatorSpec

Key = Row
States = dict[str, dict[Key, list[Row]]]
Inputs = Mapping[str, Sequence[Sequence[Row]]]
Aggregates = Mapping[str, float | None]

_FIRST = ("records_in",)
"""Counts of the first superstep alone: the others read messages, which are no input of the run."""


@dataclass
class Superstep:
    """The records that one superstep emitted; its states are settled.

    Attributes:
        outputs: Output name to its records, and aggregate name to the numbers that groups emitted.
    """

    outputs: dict[str, list[Row]]
    keys: Sequence[Key] = ()
    figures: Mapping[str, int] = field(default_factory=dict)


def run_supersteps(
    spec: TranslatorSpec,
    state: States,
    inputs: Inputs,
    run: Callable[[Inputs, bool, Aggregates], Superstep],
    order: Callable[[Key], Any],
) -> Superstep:
    """Run the supersteps of one epoch; if one fails, restore the states.

    Args:
        run: Runs a superstep on inputs; the flag says whether it is the first, and the aggregates
            are those of the one before.
        order: Returns the order in which groups are visited.
    """
    before = {name: {key: [*rows] for key, rows in by.items()} for name, by in state.items()}
    try:
        return _run(spec, state, before, inputs, run, order)
    except BaseException:
        for name, records in before.items():
            state[name].clear()
            state[name].update(records)
        raise


def _run(
    spec: TranslatorSpec,
    state: States,
    before: States,
    inputs: Inputs,
    run: Callable[[Inputs, bool, Aggregates], Superstep],
    order: Callable[[Key], Any],
) -> Superstep:
    aggregates: Aggregates = {one.name: None for one in spec.aggregates}
    loopbacks = [one.name for one in spec.loopbacks]
    outputs: dict[str, list[Row]] = {one.name: [] for one in spec.outputs}
    figures: Counter[str] = Counter()
    keys: set[Key] = set()
    for number in range(spec.supersteps):
        done = run(inputs, number == 0, aggregates)
        keys.update(done.keys)
        more = Counter(done.figures)
        figures.update(more if number == 0 else {n: c for n, c in more.items() if n not in _FIRST})
        for output in spec.outputs:
            if not output.view and output.name not in loopbacks:
                outputs[output.name] += done.outputs[output.name]
        messages = {name: done.outputs[name] for name in loopbacks}
        inputs = {one.name: [messages.get(one.name, [])] for one in spec.inputs}
        figures["supersteps"] += 1
        numbers = {one.name: [n for (n,) in done.outputs[one.name]] for one in spec.aggregates}
        aggregates = spec.aggregated(numbers)
        if number and spec.is_converged(aggregates):
            messages = {name: [] for name in loopbacks}
        if not any(messages.values()):
            break
    outputs |= messages
    for view in spec.views:
        olds, news = before[view.name], state[view.name]
        for key in sorted(keys, key=order):
            outputs[view.changes] += group_changes(view, olds.get(key, ()), news.get(key, ()))
    figures["records_out"] = sum(map(len, outputs.values()))
    return Superstep(outputs, sorted(keys, key=order), dict(figures))
