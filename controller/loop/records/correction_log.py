"""Correction log: person, state, time and reason of corrections; notes are kept forever.

    _corrections/<stage>/<epoch>-00000-<run>.parquet    what was corrected
    _corrections/<run>.json                             the note, if the run is recorded

Redo writes a note after the record of its run, and before the epoch is committed. The note stays
when the record is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cbp.engine.run.corrections import FOLDER
from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Files
from cbp.model.flow.generation import Generation, home_of
from cbp.model.run.correction import CorrectionNote
from cbp.model.run.intention import Intention
from controller.loop.records.version_log import TakenBack


@dataclass(frozen=True, slots=True)
class Corrected:
    """A recorded correction."""

    run: str
    leader: str
    epoch: int
    generation: int
    at_ms: int
    note: CorrectionNote
    undone: bool = False


def read_notes(files: Files, folder: str) -> Iterator[Corrected]:
    """Yield the notes of a dataflow's folder, oldest first."""
    for name in files.list_names(f"{folder}/{FOLDER}"):
        if name.endswith(".json"):
            yield read_record(files, f"{folder}/{FOLDER}/{name}", _from_json)


def is_undone(
    one: Corrected, generations: Sequence[Generation], taken_back: Mapping[str, Sequence[TakenBack]]
) -> bool:
    """Return whether a correction was undone: by a roll-back, or with the swap before it."""
    swaps = taken_back.get(one.leader, ())
    home = home_of(generations, one.leader, one.epoch)
    return home != one.generation or any(one.epoch in swap.epochs for swap in swaps)


def put_note(files: Files, folder: str, intention: Intention) -> None:
    """Make the note of a correction durable, as a part of redo; ignores other runs."""
    if intention.correction is None:
        return
    one = corrected_by(intention)
    value = {**asdict(one), "note": one.note.to_json()}
    del value["undone"]  # found, not recorded
    path = f"{folder}/{FOLDER}/{one.run}.json"
    data = digested(json.dumps(value, indent=1).encode(), path)
    files.put_if_absent(path, data, what="correction")


def corrected_by(intention: Intention) -> Corrected:
    """Return the correction that a record describes."""
    assert intention.correction is not None, f"run {intention.run} is not a correction"
    return Corrected(
        intention.run,
        intention.stage,
        intention.epoch,
        intention.generation,
        intention.prepared_ms,
        intention.correction,
    )


def _from_json(value: Mapping[str, Any]) -> Corrected:
    return Corrected(**{**value, "note": CorrectionNote.from_json(value["note"])})
