"""Notes of corrections: who corrected what, where, when and why; they stay for good.

    _corrections/<stage>/<epoch>-00000-<run>.parquet    what was corrected
    _corrections/<run>.json                             the note; of recorded ones only

A note follows its run's record by redo, before the epoch is committed, and stays when the
record is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from cbp.engine.correct import FOLDER
from cbp.engine.files import Files
from cbp.model.correction import CorrectionNote
from cbp.model.intention import Intention

__all__ = ["Corrected", "corrected_by", "put_note", "read_notes"]


@dataclass(frozen=True, slots=True)
class Corrected:
    """A correction that was recorded.

    Attributes:
        leader: The stage whose epoch it is.
        at_ms: Milliseconds since 1970.
        undone: Whether a roll-back has undone it.
    """

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
            yield _from_json(files.read(f"{folder}/{FOLDER}/{name}"))


def put_note(files: Files, folder: str, intention: Intention) -> None:
    """Make the note of a recorded correction durable; redo, does nothing for other runs."""
    if intention.correction is None:
        return
    one = corrected_by(intention)
    value = {
        "run": one.run,
        "leader": one.leader,
        "epoch": one.epoch,
        "generation": one.generation,
        "at_ms": one.at_ms,
        "note": one.note.to_json(),
    }
    data = json.dumps(value, indent=1).encode()
    files.put_if_absent(f"{folder}/{FOLDER}/{one.run}.json", data, what="correction")


def corrected_by(intention: Intention) -> Corrected:
    """Return what a record that is a correction says of it."""
    assert intention.correction is not None, "only called for corrections"
    return Corrected(
        intention.run,
        intention.stage,
        intention.epoch,
        intention.generation,
        intention.prepared_ms,
        intention.correction,
    )


def _from_json(data: bytes) -> Corrected:
    value = json.loads(data)
    return Corrected(**{**value, "note": CorrectionNote.from_json(value["note"])})
