"""Which increments can be read together without a declaration. Pure.

The increments of a source with `batch` are whatever waited: where one ends means nothing. A stage
behind it that counts on the final state only may read several of them in one run, which costs one
look at its state instead of many (`stages_together`):

- Its translator has no Runnable, nor has its document a rule, and it has one input, which is such
  a source or the output of such a stage, and is not framed.
- Its author declared what counts: each output is a view or has a key, by which the last record
  counts, or it is record-wise without state. None is a history. It reads no `group.run`, sets
  no timers, lets no state expire and looks nothing up.
- No stage behind it depends on where its increments end: none reads another flow beside, which
  would have to stay in step, none has windows, frames or histories.

So the tables are those of one increment a run, as `cbp verify` compares them; epochs are fewer.

`sources_cut_anywhere` finds the sources of which a backlog may be taken in as few increments,
although their documents have no `batch`: all that read them are stages as above, and no sink
publishes increment after increment what comes of them.

`sources_rebuilt_together` finds the sources of which a rebuild may read many increments in one run,
although the runs before it read one each. That takes a promise of all stages, not only declarations
from which none could tell: a view may count how often a word changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from cbp.model.dataflow.nodes import SourceNode, StageNode
from cbp.model.dataflow.runnable import RunAll
from cbp.model.dataflow.stage import RunnableSpec, TranslatorSpec
from cbp.model.graph.cycles import Predecessors, predecessors, reached

TOGETHER = RunnableSpec(RunAll(batch=1_000, bytes=16 << 20))
"""The most increments, and bytes of Parquet, that one run reads. These bytes hold about a million
short records, as many as one increment of a source by default. Longer runs would keep the slots
of the dataflow from its other stages."""


def stages_together(
    sources: Mapping[str, SourceNode], stages: Mapping[str, StageNode]
) -> frozenset[str]:
    """Return the names of stages whose runs read all queued increments."""
    cut_anywhere = {name for name, source in sources.items() if source.batch.files > 1}
    together, before = set[str](), _predecessors(stages)
    waiting = dict(stages) if cut_anywhere else {}
    while ready := [n for n, node in waiting.items() if set(node.wiring.values()) <= cut_anywhere]:
        for name in ready:
            node = waiting.pop(name)
            if _counts_on_final_state(node) and _readers_do([name], stages, before):
                together.add(name)
                cut_anywhere |= _written([node])
    return frozenset(together)


def sources_cut_anywhere(
    sources: Mapping[str, SourceNode], stages: Mapping[str, StageNode], published: Collection[str]
) -> frozenset[str]:
    """Return the sources whose increment boundaries affect no result, not even a published flow."""
    before = _predecessors(stages)

    def is_hidden(name: str) -> bool:
        readers = [n for n, node in stages.items() if name in node.wiring.values()]
        return (
            bool(readers)
            and all(_counts_on_final_state(stages[reader]) for reader in readers)
            and _readers_do(readers, stages, before)
            and name not in published
            and _written(stages[n] for n in reached(before, readers)).isdisjoint(published)
        )

    return frozenset(n for n, one in sources.items() if one.format != "delta" and is_hidden(n))


def sources_rebuilt_together(
    sources: Mapping[str, SourceNode], stages: Mapping[str, StageNode]
) -> frozenset[str]:
    """Return the sources of which a run of a rebuild may read many increments.

    Each stage promises that its answer depends on its records only (`any_order`), and all outputs
    are views. To read signed records is no such promise: what sums signs could count them, too. A
    source that says `batch: {files: 1}` is none. With look-ups none is, since they find what was
    published, after some runs; nor if stages set records aside, which are counted for each run.
    """
    for node in stages.values():
        spec = node.translator
        views = all(one.view for one in spec.outputs)
        if not (node.any_order and views) or node.sets_aside or spec.lookups:
            return frozenset()
    return frozenset(
        name
        for name, source in sources.items()
        if source.joins_backlog or (source.cut_anywhere and source.batch.files > 1)
    )


def _written(nodes: Iterable[StageNode]) -> set[str]:
    return {f"{node.name}.{output.name}" for node in nodes for output in node.translator.outputs}


def _predecessors(stages: Mapping[str, StageNode]) -> Predecessors:
    return predecessors({name: node.wiring for name, node in stages.items()})


def _counts_on_final_state(node: StageNode) -> bool:
    spec = node.translator
    if node.rule is not None or spec.runnable != RunnableSpec():
        return False
    whole = spec.record_wise and not spec.states
    return _reads_one_flow(node) and all(whole or one.key or one.view for one in spec.outputs)


def _reads_one_flow(node: StageNode) -> bool:
    """Return whether a stage has one input, and nothing that depends on its runs."""
    spec: TranslatorSpec = node.translator
    by_runs = spec.reads_run or spec.timers or spec.expiries or spec.framed or spec.lookups
    histories = any(output.history for output in spec.outputs)
    return len(spec.inputs) == len(node.wiring) == 1 and not by_runs and not histories


def _readers_do(
    names: Sequence[str], stages: Mapping[str, StageNode], before: Predecessors
) -> bool:
    """Return whether all stages behind these read the same, wherever increments end."""
    behind = (stages[name] for name in reached(before, names)[len(names) :])
    return all(_reads_one_flow(node) and node.declared_rule.split_free for node in behind)
