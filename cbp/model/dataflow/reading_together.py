"""Which increments can be read together without a declaration. Pure.

An increment of a source with `batch` holds all files that waited, so its end has no meaning. A
stage downstream for which only the final state counts may read several of them in one run, which
then reads its state once instead of many times (`stages_together`). These conditions must hold:

- Neither its translator nor its document has a Runnable. It has one input, without frames: a source
  with `batch`, or an output of a stage for which these conditions hold.
- Its author declared what counts: each output is a view, or has a key whose last record counts, or
  the stage is record-wise without state. No output is a history. The code reads no `group.run`,
  sets no timers, lets no state expire, and has no look-ups.
- No stage downstream depends on the ends of its increments: none reads a second flow, which would
  have to stay in step, and none has windows, frames or histories.

So `cbp verify` finds the same tables as with one increment per run; there are fewer epochs.

`sources_cut_anywhere` finds the sources whose backlog may be taken in as few increments although
their documents have no `batch`: all their readers are stages as above, and no sink publishes the
increments of the source or of a stage downstream.

`sources_rebuilt_together` finds the sources whose increments a rebuild may read many at a time,
although each earlier run read one. For that, all stages must promise that increments do not matter.
The declarations above are not enough: a view may count how often a word changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from cbp.model.dataflow.nodes import SourceNode, StageNode
from cbp.model.dataflow.runnable import RunAll
from cbp.model.dataflow.stage import RunnableSpec, TranslatorSpec
from cbp.model.graph.cycles import Predecessors, predecessors, reached

TOGETHER = RunnableSpec(RunAll(batch=1_000, bytes=16 << 20))
"""Maximum number of increments, and of bytes of Parquet, that one run reads. These bytes hold about
a million short records, as many as one increment of a source by default. Longer runs would occupy
the slots that other stages of the dataflow need."""


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
    """Return the sources whose increments can end anywhere without effect on tables and sinks."""
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
    """Return the sources whose increments a rebuild may read many at a time.

    There are none unless each stage promises that its answer depends only on its records
    (`any_order`), and all outputs are views. Reading signed records is not such a promise: a stage
    that adds up signs could also count them. A source with `batch: {files: 1}` is left out. There
    are none either if a stage has look-ups, which read the results of earlier runs, or sets records
    aside, which are counted for each run.
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
    """Return whether all stages downstream read the same records, wherever increments end."""
    behind = (stages[name] for name in reached(before, names)[len(names) :])
    return all(_reads_one_flow(node) and node.declared_rule.split_free for node in behind)
