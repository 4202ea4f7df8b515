"""The symptom, the loss and the repair of each kind of damage, as the guide `damage` lists them.

tests/controller/loop/recovery/test_damages.py damages state files, outputs, records, table logs,
checkpoints and descriptions, and runs the repairs, also with a lost database.
tests/controller/loop/recovery/test_damages_of_services.py does so with logs of sources, roll-backs,
files in drop folders and the database; tests/cbp/engine/state/test_copies.py covers index copies.
Not covered by a test: the advice for increments of sources, closes and notes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DAMAGES", "Damage"]

_FROM_BACKUP = (
    "restore a backup of the file; without one: cbp delete DATAFLOW --purge, register it again, "
    "and drop its files again"
)


@dataclass(frozen=True, slots=True)
class Damage:
    """One kind of damage.

    Attributes:
        what: What is damaged or missing.
        shows: How it shows: the error code, and where it appears.
        lost: What is lost for good.
        mends: The command that repairs it, or what else to do.
    """

    what: str
    shows: str
    lost: str
    mends: str


DAMAGES = (
    Damage(
        "an index copy (cache folder)",
        "a line in the log and in damaged.jsonl of the cache folder; `cbp doctor` warns",
        "nothing: the damaged copy is discarded and rebuilt",
        "nothing to do; check the disk",
    ),
    Damage(
        "a state's data file or vector (state/STAGE.STATE)",
        "file_damaged or file_lost: the stage that reads it stops; requests for a key answer 500",
        "nothing, while the inputs are retained",
        "cbp backfill DATAFLOW STAGE (it emits its outputs again; name readers that keep "
        "their state with --keep)",
    ),
    Damage(
        "a run's record (_intentions/STAGE)",
        "nothing, if the tables show its epoch; otherwise file_damaged or file_lost: its stage "
        "stops",
        "nothing, while the inputs are retained",
        "nothing to do while the stage runs; otherwise cbp backfill DATAFLOW STAGE",
    ),
    Damage(
        "an output's data file (flows/STAGE.OUTPUT)",
        "file_damaged, file_lost, or increment_damaged at a stage that has yet to read it",
        "the records of its epochs, unless runs write them again",
        "cbp rollback DATAFLOW (to before the epoch); runs write it again",
    ),
    Damage(
        "an increment of a source (sources/SOURCE)",
        "increment_damaged: the stages that have yet to read it stop",
        "its records, unless finished/ or the producer still has the original file",
        "cbp rollback DATAFLOW --drop-later (to before it came), then drop the originals again",
    ),
    Damage(
        "a table's log entry (_delta_log/N.json)",
        "file_damaged or file_lost: the stage stops, no reader opens the table",
        "the table's newest versions",
        _FROM_BACKUP,
    ),
    Damage(
        "a wrong file was restored: an old copy, another file, a folder restored only in part",
        "like damage of that kind of file, or: a table shows less than was published",
        "as for that kind of file",
        "restore the right files, all from the same backup; otherwise as for that kind of file",
    ),
    Damage(
        "a checkpoint of a table's log",
        "nothing, while the earlier entries exist; otherwise as for a log entry",
        "nothing, while the earlier entries exist",
        "nothing to do: the next checkpoint replaces it",
    ),
    Damage(
        "a position (_intentions/_positions)",
        "nothing, while an older one is kept; otherwise file_damaged at the start of the service",
        "roll-backs to it",
        "remove the file if the database is undamaged; otherwise restore a backup of the file",
    ),
    Damage(
        "a description (_description)",
        "file_damaged or file_lost: no run of the dataflow starts, and its status shows why",
        "the columns and the code of its version, and where it began",
        _FROM_BACKUP,
    ),
    Damage(
        "the priorities of stages (_description/priorities)",
        "nothing; `cbp scrub` finds it, and the database still has the priorities",
        "the priorities, if the database is also lost: all stages are then normal",
        "remove the file, then set them again: cbp priority DATAFLOW STAGE high",
    ),
    Damage(
        "a roll-back (_intentions/_generations)",
        "file_damaged or file_lost: no run of the dataflow starts, and its status shows why",
        "what was undone",
        _FROM_BACKUP,
    ),
    Damage(
        "an entry of a source's log (sources/SOURCE/_log)",
        "nothing, while the database is undamaged; otherwise the source takes in no files, and "
        "its status shows why",
        "the name and the content that identify its file, if the database is also lost",
        _FROM_BACKUP,
    ),
    Damage(
        "the list of fetched objects of a bucket (sources/SOURCE/_objects)",
        "the source takes in no new objects, and `cbp status` shows why",
        "nothing",
        "remove the folder _objects: claims still identify the objects, so none is counted twice",
    ),
    Damage(
        "a close, or the note of a correction",
        "file_damaged when it is read; `cbp scrub` finds it earlier",
        "its content, which is stored nowhere else",
        "restore a backup of the file",
    ),
    Damage(
        "a dropped file, the reason of a rejected one, a manifest",
        "file_gone, file_changed, reason_unreadable, manifest_mismatch or manifest_refused in "
        "`cbp claims`",
        "nothing that was accepted",
        "drop the file again",
    ),
    Damage(
        "the database, lost",
        "`cbp status` and `cbp doctor` (tables) name the dataflows that the folder has",
        "the lists of runs and claims; no records",
        "stop the service; cbp recover --rebuild",
    ),
    Damage(
        "the database, damaged",
        "database_damaged: the service does not start, and `cbp doctor` (database) fails",
        "as for the lost database",
        "stop the service; cbp recover --rebuild (it moves the damaged file aside)",
    ),
)
