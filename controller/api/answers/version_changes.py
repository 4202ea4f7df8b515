"""What a new version changes in a dataflow, as the API shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from cbp.errors import Mistake
from cbp.errors.counts import format_count
from cbp.errors.message_limits import listed
from cbp.model.version.succession import Queueing
from cbp.model.version.version_change import Choice
from controller.api.answers.schemas import Model
from controller.loop.operations.version_switch import Changed
from controller.registry.text_positions import TextPositions

_STAGES_MAX = 500
_BESIDE = (
    "All tables are rebuilt beside the present ones. The present ones are still updated and read "
    "until all new ones are swapped in at one time."
)
Names = Annotated[list[str], Field(max_length=_STAGES_MAX)]


class ChangeQuery(Model):
    """The author's choices about stages, which the document does not make."""

    keep: Names = Field([], description="Replaced stages that keep their tables and their queues.")
    rebuild: Names = Field([], description="Stages whose tables are rebuilt from their input.")
    retained: Names = Field([], description="Added stages that begin with the retained input.")
    expected_version: int | None = Field(
        None, ge=1, description="Refuse the change if the dataflow is at another version."
    )
    beside: bool = Field(
        False,
        description="Build all tables beside the present ones, by a rebuild that swaps them in as "
        "soon as they are ready. If false, readers see the tables of rebuilt stages grow.",
    )
    dry_run: bool = Field(False, description="Change nothing; return the plan.")

    @property
    def choice(self) -> Choice:
        """The same choices as the model's `Choice`."""
        return Choice(frozenset(self.keep), frozenset(self.rebuild), frozenset(self.retained))


class NodeOut(Model):
    """What happens to one source or stage."""

    name: str
    kind: str = Field(description="`kept`, `added`, `removed` or `replaced`.")
    state: str = Field(description="`none`, `kept`, `new` or `rebuilt`.")
    buckets: list[int] | None = Field(
        description="Number of buckets before and after, if it changes; `null` otherwise."
    )
    columns: dict[str, list[str]] = Field(
        description="Maps each flow or state to its changed columns."
    )
    differences: list[str]
    settings: list[str] = Field(
        description="Settings that change, such as `on_error`; this does not change any table."
    )
    rewired: list[str] = Field(description="Inputs that the new version connects to another flow.")
    views: dict[str, str] = Field(
        description="Maps each new view to how it gets its first records. `filled`: the last "
        "record of each key of the output that had the view's name. `rebuilt`: the stage reads "
        "its input again. `empty`: the view stays empty until groups are called."
    )
    emptied: list[str] = Field(
        description="States and outputs that are rebuilt in place: readers see their tables empty "
        "at first, and then growing."
    )


class QueueChangeOut(Model):
    """What changes in the queue of one input."""

    stage: str
    input: str
    dropped_increments: int
    dropped_records: int
    queued_increments: int
    queued_records: int
    queued_bytes: int
    skipped_increments: int = Field(
        description="Earlier increments that the input skips, because it begins with the next "
        "increment to arrive."
    )


class RefusalOut(Model):
    """One reason why a version cannot be applied."""

    code: str
    where: str
    message: str
    line: int = Field(description="Its line in the document that was sent, from 1.")
    column: int


class ChangeOut(Model):
    """The effects of a new version, planned or applied."""

    name: str
    version: int
    changed: bool = Field(
        description="Whether the document or its code differs from the registered version."
    )
    done: bool = Field(description="Whether the new version is now the registered one.")
    sources: list[NodeOut]
    stages: list[NodeOut]
    queues: list[QueueChangeOut]
    meanwhile: list[str] = Field(
        description="Sentences on the effects of the change: what readers see while a stage is "
        "being rebuilt, which stages keep results of earlier code, and which other dataflows "
        "still run the old code of changed files."
    )
    refused: list[RefusalOut] = Field(
        description="Why the new version is refused; empty if it can be applied."
    )
    rebuild: str = Field(
        description="The rebuild that was started, which applies the version at its end; empty if "
        "none was started. `GET /dataflows/{name}/rebuilds/{rebuild}` shows its progress."
    )


def change_out(
    changed: Changed,
    places: TextPositions,
    *,
    older: Sequence[str],
    beside: bool = False,
    rebuild: str = "",
) -> ChangeOut:
    """Return a change as the API shows it; `places` locates mistakes in the new document."""
    refused = (*changed.plan.refused, *changed.succession.refused)
    if beside:
        stages = {n: replace(one, emptied=()) for n, one in changed.plan.stages.items()}
        changed = replace(
            changed,
            plan=replace(changed.plan, stages=stages),
            succession=replace(changed.succession, queues=()),
        )
    return ChangeOut.of(
        changed,
        name=changed.dataflow,
        sources=[NodeOut(**node.to_json()) for node in changed.plan.sources.values()],
        stages=[NodeOut(**node.to_json()) for node in changed.plan.stages.values()],
        queues=[_queue(queue) for queue in changed.succession.queues],
        meanwhile=[
            *([_BESIDE] if beside else _meanwhile(changed)),
            *changed.sinks,
            *_others(older),
        ],
        refused=[_refusal(mistake, places) for mistake in refused],
        rebuild=rebuild,
    )


def _meanwhile(changed: Changed) -> Iterator[str]:
    """Yield a sentence for readers of each stage that is rebuilt, or keeps earlier results."""
    for name, node in changed.plan.stages.items():
        if node.behind:
            made = "keeps what it" if len(node.behind) == 1 else "keep what they"
            yield (
                f"{name} keeps the results of its earlier code, and {listed(node.behind)} {made} "
                "computed from them: the new code reads only new input."
            )
        if not node.emptied:
            continue
        queues = (one for one in changed.succession.queues if one.stage == name)
        queued = sum(len(one.queued) for one in queues)
        what = "the repeated input" if not queued else format_count(queued, "increment")
        tables = listed([f"{name}.{state}" for state in node.emptied])
        yield (
            f"Until {name} has read {what}{' again' if queued else ''}, readers see {tables} "
            "empty at first, and then growing. If its code fails, this lasts until the code is "
            f"fixed. Meanwhile, cbp status {changed.dataflow} shows the progress, and how to read "
            "the earlier tables."
        )


def _others(older: Sequence[str]) -> Iterator[str]:
    if older:
        one = len(older) == 1
        run = "runs" if one else "run"
        wait = "it waits until it is" if one else "they wait until they are"
        yield (
            f"{listed(tuple(older))} still {run} the old code of changed files. After the next "
            f"restart of the service, {wait} registered again."
        )


def _refusal(mistake: Mistake, places: TextPositions) -> RefusalOut:
    line, column = places.of_mistake(mistake)
    return RefusalOut.of(mistake, line=line, column=column)


def _queue(queue: Queueing) -> QueueChangeOut:
    return QueueChangeOut.of(
        queue,
        dropped_increments=len(queue.dropped),
        dropped_records=sum(i.records for i in queue.dropped),
        queued_increments=len(queue.queued),
        queued_records=sum(i.records for i in queue.queued),
        queued_bytes=sum(i.bytes for i in queue.queued),
        skipped_increments=queue.skipped,
    )
