"""What is open: what a recovery finds to do, told before anything is done.

    log beyond the store     records that are redone, from the position that stands for the
                             older ones if the store lies behind it
    source log beyond it     increments that are indexed and enqueued again
    runs without a record    interrupted: what they read is still queued
    a folder without a row   a dataflow that the store does not know; `rebuild` brings it back

Guaranteed: reads only, and reads names of files rather than files where that is enough.
Not guaranteed: that it is still so a moment later, if a service is at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cbp.engine.base import source_folder
from cbp.engine.files import Files
from cbp.engine.intentions import IntentionLog
from cbp.errors import CbpError, InvariantError
from controller.loop.folder import described
from controller.store.base import Store

__all__ = ["Outlook", "StageOutlook", "look_out"]


@dataclass(frozen=True, slots=True)
class StageOutlook:
    """What is open at one stage that leads.

    Attributes:
        epoch: Its next epoch, as the store has it.
        recorded: The epoch behind its newest record.
        redo: Records that are committed to the store again.
        interrupted: Runs that are intended and not recorded.
    """

    stage: str
    epoch: int
    recorded: int
    redo: int
    interrupted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is open in one dataflow.

    Attributes:
        known: Whether the store has it.
        position: Number of the position from which it is brought forward; `None`: it is not.
        arrivals: Source to its increments that the store does not know.
        problem: Why nothing can be said of it, in words; `""`.
    """

    dataflow: str
    known: bool
    stages: tuple[StageOutlook, ...] = ()
    arrivals: Mapping[str, int] = field(default_factory=dict)
    position: int | None = None
    problem: str = ""

    @property
    def steps(self) -> int:
        """Records and increments that recovery goes through."""
        return sum(stage.redo for stage in self.stages) + sum(self.arrivals.values())

    @property
    def open(self) -> bool:
        """Whether recovery would change anything."""
        interrupted = any(stage.interrupted for stage in self.stages)
        return not self.known or interrupted or bool(self.steps or self.problem)


def look_out(store: Store, files: Files, tables_root: str) -> list[Outlook]:
    """Return what is open, by dataflow; those that only a folder describes included."""
    documents = described(files, tables_root)
    folders = {record.name: record.folder for record in store.dataflows()}
    names = {name: f"{tables_root}/{name}" for name in documents} | folders
    interrupted: dict[tuple[str, str], list[str]] = {}
    for run in store.intended_runs():
        interrupted.setdefault((run.dataflow, run.stage), []).append(run.id)
    found = []
    for name, folder in sorted(names.items()):
        document = store.dataflow(name).document if name in folders else documents[name]
        sources = tuple(document.get("sources") or ())
        try:
            found.append(
                _outlook(store, files, folder, name, known=name in folders, sources=sources)
            )
        except (CbpError, ValueError, KeyError, TypeError) as error:
            found.append(Outlook(name, name in folders, problem=str(error)))
    return [_with_runs(outlook, interrupted) for outlook in found]


def _outlook(
    store: Store, files: Files, folder: str, name: str, *, known: bool, sources: tuple[str, ...]
) -> Outlook:
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
        stages.append(StageOutlook(stage, epoch, end, max(0, end - start)))
    arrivals = {}
    for source in sources:
        end = _next_number(files, f"{folder}/{source_folder(source)}/_log")
        missing = end - store.next_index(name, source)
        if missing > 0:
            arrivals[source] = missing
    number = position.number if behind and position is not None else None
    return Outlook(name, known, tuple(stages), arrivals, number)


def _next_number(files: Files, folder: str) -> int:
    names = [name for name in files.list_names(folder) if name.endswith(".json")]
    if not names:
        return 0
    last = names[-1].removesuffix(".json")
    if not last.isdecimal():
        message = f"{folder} holds {names[-1]}, which is no entry of a source log"
        raise InvariantError(message, folder=folder)
    return int(last) + 1


def _with_runs(outlook: Outlook, runs: Mapping[tuple[str, str], list[str]]) -> Outlook:
    stages = tuple(
        StageOutlook(
            stage.stage,
            stage.epoch,
            stage.recorded,
            stage.redo,
            # A run whose record is there is settled by its redo.
            tuple(runs.get((outlook.dataflow, stage.stage), ())) if not stage.redo else (),
        )
        for stage in outlook.stages
    )
    return Outlook(
        outlook.dataflow, outlook.known, stages, outlook.arrivals, outlook.position, outlook.problem
    )
