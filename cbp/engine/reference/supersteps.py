"""Supersteps of the reference engine: one epoch calls groups until no message is left.

The state of a superstep is settled before the next one begins. The changes of a view are the
difference between its records before the first superstep and after the last. If an aggregate ends a
loop, the messages of that loop are dropped, and those of the loops inside it.

A superstep reads the messages of a loopback unless a loopback inside it has waiting messages
(`cbp.model.graph.loop_nesting`). Messages that are not read wait, behind those that waited before.
The first superstep reads all inputs, and chooses in the same manner among the messages that earlier
epochs left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from cbp.engine.columnar.values import Row
from cbp.engine.reference.views import group_changes
from cbp.model.dataflow.stage import TranslatorSpec

Key = Row
States = dict[str, dict[Key, list[Row]]]
Inputs = Mapping[str, Sequence[Sequence[Row]]]
Aggregates = Mapping[str, float | None]

_FIRST = ("records_in",)
"""Figures that only the first superstep adds to: later ones read messages, not the run's input."""


@dataclass
class Superstep:
    """The records that one superstep emitted to outputs and aggregates; its states are settled."""

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
    """Run the supersteps of one epoch; if one fails, restore the states."""
    with _restoring(state) as before:
        aggregates: Aggregates = {one.name: None for one in spec.aggregates}
        loopbacks = [one.name for one in spec.loopbacks]
        outputs: dict[str, list[Row]] = {one.name: [] for one in spec.outputs}
        keys: set[Key] = set()
        inputs, waiting = _first(spec, inputs)
        figures = Counter({"records_in": sum(map(len, waiting.values()))})
        read: Collection[str] = ()
        for number in range(spec.supersteps):
            done = run(inputs, number == 0, aggregates)
            keys.update(done.keys)
            more = Counter(done.figures)
            figures.update(
                more if number == 0 else {n: c for n, c in more.items() if n not in _FIRST}
            )
            for output in spec.outputs:
                if not output.view and output.name not in loopbacks:
                    outputs[output.name] += done.outputs[output.name]
            figures["supersteps"] += 1
            numbers = {one.name: [n for (n,) in done.outputs[one.name]] for one in spec.aggregates}
            aggregates = spec.aggregated(numbers)
            waiting = {name: rows + done.outputs[name] for name, rows in waiting.items()}
            waiting |= {name: [] for name in spec.ended(aggregates, read)}
            if number + 1 == spec.supersteps or not any(waiting.values()):
                break
            read = spec.loops.next_of([name for name, rows in waiting.items() if rows])
            inputs = {o.name: [waiting[o.name] if o.name in read else []] for o in spec.inputs}
            waiting |= {name: [] for name in read}
        outputs |= waiting
        for view in spec.views:
            olds, news = before[view.name], state[view.name]
            for key in sorted(keys, key=order):
                outputs[view.changes] += group_changes(view, olds.get(key, ()), news.get(key, ()))
        figures["records_out"] = sum(map(len, outputs.values()))
        return Superstep(outputs, sorted(keys, key=order), dict(figures))


@contextmanager
def _restoring(state: States) -> Iterator[States]:
    before = {name: {key: [*rows] for key, rows in by.items()} for name, by in state.items()}
    try:
        yield before
    except BaseException:
        for name, records in before.items():
            state[name].clear()
            state[name].update(records)
        raise


def _first(spec: TranslatorSpec, inputs: Inputs) -> tuple[Inputs, dict[str, list[Row]]]:
    """Return the records that the first superstep reads, and each loopback's waiting messages."""
    came = [one.name for one in spec.loopbacks if any(inputs.get(one.name, ()))]
    held = set(came) - spec.loops.next_of(came)
    waiting = {
        one.name: [*chain(*inputs[one.name])] if one.name in held else [] for one in spec.loopbacks
    }
    return {n: [() if n in held else rows for rows in many] for n, many in inputs.items()}, waiting
