"""Finds stages that can never have a first run, since they wait for themselves around a cycle."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from cbp.errors import Mistake
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.graph.cycles import cycles, predecessors, shortest_cycle

__all__ = ["never_run"]

Wiring = Mapping[str, Mapping[str, str]]
"""Stage -> input -> flow."""


def never_run(
    runnables: Mapping[str, RunnableSpec], wiring: Wiring, flows: Collection[str]
) -> Iterator[Mistake]:
    """Yield a mistake for each stage that can never run, since its first run needs its own output.

    A stage can run once every input that its rule waits for can have an increment, from a source
    or from a stage that can run. The stages left over wait for themselves, around a cycle, or for
    such a stage. A cycle of stages left over may lie inside of a larger one that runs.

    Args:
        runnables: The rule of each stage.
        wiring: Stage -> input -> flow.
        flows: The flows that exist.
    """
    stuck = _stuck(runnables, wiring, flows)
    waits_for = predecessors({name: wiring[name] for name in stuck})
    on_cycle = cycles(waits_for)
    outside = {name for name in on_cycle if _comes_from_outside(wiring[name], on_cycle[name])}
    for name, runnable in stuck.items():
        if name not in on_cycle:
            continue  # it waits for a stage that is reported
        cycle = on_cycle[name]
        if name not in outside and outside.intersection(cycle):
            continue  # it waits for the one at which the cycle begins
        inner = [i for i, flow in wiring[name].items() if flow.partition(".")[0] in cycle]
        if len(inner) == len(wiring[name]):
            hint = "nothing comes from outside of the cycle: wire an input to a source"
        else:
            hint = "use RunAny(), or Phases(...) for an order (in a document: `runnable: run_any`)"
        path = shortest_cycle(waits_for, name)
        yield Mistake(
            "cycle_never_runs",
            f"stages.{name}.runnable",
            f"{runnable.name} waits for {', '.join(inner)}, which only comes after a run of "
            f"this stage (the cycle {' -> '.join((*path, name))}), so it never runs; {hint}",
            runnable.place,
        )


def _stuck(
    runnables: Mapping[str, RunnableSpec], wiring: Wiring, flows: Collection[str]
) -> dict[str, RunnableSpec]:
    """Return the stages without a first run: they wait for themselves, or for one that does."""
    readers: dict[str, list[str]] = {name: [] for name in runnables}
    for name, before in predecessors(wiring).items():
        for stage_before in before:
            readers[stage_before].append(name)
    stuck, changed = dict(runnables), list(runnables)
    while changed:
        more = [name for name in changed if _can_run(stuck[name], wiring[name], stuck, flows)]
        for name in more:
            del stuck[name]
        reached = (reader for name in more for reader in readers[name] if reader in stuck)
        changed = list(dict.fromkeys(reached))
    return stuck


def _comes_from_outside(inputs: Mapping[str, str], cycle: Collection[str]) -> bool:
    return any(flow.partition(".")[0] not in cycle for flow in inputs.values())


def _can_run(
    runnable: RunnableSpec,
    inputs: Mapping[str, str],
    stuck: Collection[str],
    flows: Collection[str],
) -> bool:
    """Tell whether a stage can have a first run while the stages in `stuck` have none.

    An input that is wired to an unknown flow counts as fed; it is another mistake.
    """
    fed = {
        name
        for name, flow in inputs.items()
        if flow not in flows or "." not in flow or flow.partition(".")[0] not in stuck
    }
    return runnable.can_start(fed, tuple(inputs))
