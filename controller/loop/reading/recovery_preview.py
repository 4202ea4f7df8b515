"""Recovery preview: reports the actions of a recovery in advance.

    log beyond the store     records to redo, from the newest position if the store is
                             before it (the position replaces the older records)
    source log beyond it     increments to index and enqueue again
    runs without a record    interrupted: what they read is still queued
    a folder without a row   a dataflow that the store does not know; `rebuild` brings it back

Guaranteed: reads only, and lists names of files instead of reading the files where that suffices.
Not guaranteed: that the result is still true a moment later, if a service is running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.storage.checked_json import record_numbers
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import source_folder
from cbp.errors import CbpError
from cbp.model.run.intention import Intention
from controller.loop.records.dataflow_folder import described
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.run_commit import ParkedRuns
from controller.store.base import Store


@dataclass(frozen=True, slots=True)
class OpenIntention:
    """One record that readers of the tables do not see yet.

    Attributes:
        waits_for: `publication` if nothing is wrong; `finish` if finishing it failed, see
            `because`.
        because: Why finishing it failed, and when it is retried; `""` if it did not fail.
    """

    intention: Intention
    waits_for: Literal["publication", "finish"]
    because: str = ""
    tries: int = 0

    @property
    def records(self) -> int:
        """Number of records in all outputs of the run."""
        return sum(increment.records for increment in self.intention.outputs.values())

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that will change, in the order in which the run changed them."""
        return tuple(dict.fromkeys(change.table for change in self.intention.changes))


def open_intentions(
    dataflow: str, publisher: Publisher, parked: ParkedRuns
) -> Sequence[OpenIntention]:
    """Return the open intentions of a dataflow, by stage and epoch.

    Its policy (`publish:`) may delay a publication. Only the instance that leads knows which
    records its tables lack.
    """
    by_epoch: dict[tuple[str, int], OpenIntention] = {}
    for stage, records in publisher.records(dataflow).items():
        for one in records:
            by_epoch[stage, one.epoch] = OpenIntention(one, "publication")
    for (name, stage), known in parked.all().items():
        if name == dataflow:
            one = known.run.intention
            by_epoch[stage, one.epoch] = OpenIntention(one, "finish", known.reason, known.tries)
    return [by_epoch[key] for key in sorted(by_epoch)]


@dataclass(frozen=True, slots=True)
class StagePreview:
    """The open work of one leading stage.

    Attributes:
        recorded: The epoch after its newest record.
    """

    stage: str
    epoch: int
    recorded: int
    redo: int
    interrupted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryPreview:
    """The open work of one dataflow.

    Attributes:
        position: Number of the position that will be restored; `None` if there is none.
        arrivals: Source -> number of its increments that the store does not know.
        problem: Why its state cannot be determined, in words; `""` if it can.
    """

    dataflow: str
    known: bool
    stages: tuple[StagePreview, ...] = ()
    arrivals: Mapping[str, int] = field(default_factory=dict)
    position: int | None = None
    problem: str = ""

    @property
    def steps(self) -> int:
        """Number of records and increments that recovery processes."""
        return sum(stage.redo for stage in self.stages) + sum(self.arrivals.values())

    @property
    def open(self) -> bool:
        """Whether recovery would change anything."""
        interrupted = any(stage.interrupted for stage in self.stages)
        return not self.known or interrupted or bool(self.steps or self.problem)


def preview_recovery(store: Store, files: Files, tables_root: str) -> list[RecoveryPreview]:
    """Return the open work of each dataflow, including those that only a folder describes."""
    documents = described(files, tables_root)
    folders = {record.name: record.folder for record in store.dataflows()}
    names = {name: f"{tables_root}/{name}" for name in documents} | folders
    interrupted: dict[tuple[str, str], list[str]] = {}
    for run in store.intended_runs():
        interrupted.setdefault((run.dataflow, run.stage), []).append(run.id)
    outlooks = []
    for name, folder in sorted(names.items()):
        document = store.dataflow(name).document if name in folders else documents[name]
        sources, known = document.get("sources") or (), name in folders
        try:
            outlook = _outlook(
                store, files, folder, name, known=known, sources=sources, runs=interrupted
            )
        except (CbpError, ValueError, KeyError, TypeError) as error:
            outlook = RecoveryPreview(name, known, problem=str(error))
        outlooks.append(outlook)
    return outlooks


def _outlook(
    store: Store,
    files: Files,
    folder: str,
    name: str,
    *,
    known: bool,
    sources: Iterable[str],
    runs: Mapping[tuple[str, str], list[str]],
) -> RecoveryPreview:
    log = IntentionLog(folder, files)
    epochs = {stage.stage: stage.epoch for stage in store.stages(name)}
    recorded, position = log.next_epochs(), log.position()
    closes = store.next_punctuation(name) if known else 0
    behind = position is not None and log.trails(epochs, position, punctuations=closes)
    stages = []
    for stage in sorted(epochs.keys() | recorded.keys()):
        epoch, end = epochs.get(stage, 0), recorded.get(stage, 0)
        start = epoch
        if behind and position is not None and stage in position.stages:
            start = max(epoch, position.stages[stage].epoch)
        redo = max(0, end - start)
        # If a run's record exists, its redo settles the run.
        interrupted = () if redo else tuple(runs.get((name, stage), ()))
        stages.append(StagePreview(stage, epoch, end, redo, interrupted))
    arrivals = {}
    for source in sources:
        names = files.list_names(f"{folder}/{source_folder(source)}/_log")
        missing = max(record_numbers(names), default=-1) + 1 - store.next_index(name, source)
        if missing > 0:
            arrivals[source] = missing
    number = position.number if behind and position is not None else None
    return RecoveryPreview(name, known, tuple(stages), arrivals, number)
