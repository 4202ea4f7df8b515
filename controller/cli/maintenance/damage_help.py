"""The command `cbp help damage`: for each kind of damage its symptom, its loss and its repair.

tests/controller/test_damages.py damages state files, outputs, records, table logs, checkpoints and
descriptions, and runs the repairs, also with a lost database.
tests/controller/test_damages_of_services.py does so with logs of sources, roll-backs, files in drop
folders and the database; tests/cbp/engine/state/test_copies.py covers index copies. Not covered by
a test: the advice for increments of sources, closes and notes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from cbp.errors import NotFoundError
from controller.cli.session import AsJson
from controller.terminal import print_json, print_text

__all__ = ["PAGE", "Row", "help_command"]

SUBJECTS = {"damage": "each kind of damage: how it shows, what is lost, what mends it"}

Subject = Annotated[
    str | None,
    typer.Argument(help="Name of the page; without it, all are listed.", show_default=False),
]

_HEAD = (
    "What is damaged, how it shows, what is lost, what mends it. A stage that meets a damage "
    "stops, the others go on; after mending: cbp resume DATAFLOW. Find all damages with: cbp scrub."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of damage.

    what: What is damaged or missing.
    shows: The error code, and where it appears.
    lost: What cannot be recovered.
    mends: The command that repairs it, or what else to do.
    """

    what: str
    shows: str
    lost: str
    mends: str


PAGE = (
    Row(
        "an index copy (cache folder)",
        "a line in the log and in damaged.jsonl of the cache folder; `cbp doctor` warns",
        "nothing: it is dropped before it is believed, and made anew",
        "nothing to do; look at the disk",
    ),
    Row(
        "a state's data file or vector (state/STAGE.STATE)",
        "file_damaged or file_lost: the stage that reads it stops; requests for a key answer 500",
        "nothing, while the inputs are retained",
        "cbp backfill DATAFLOW STAGE (its outputs come once more: name readers that --keep)",
    ),
    Row(
        "a run's record (_intentions/STAGE)",
        "nothing, where the tables show its epoch; else file_damaged or file_lost: its stage stops",
        "nothing, while the inputs are retained",
        "nothing to do while the stage runs; else cbp backfill DATAFLOW STAGE",
    ),
    Row(
        "an output's data file (flows/STAGE.OUTPUT)",
        "file_damaged, file_lost, or increment_damaged at a stage that has yet to read it",
        "the records of its epochs, unless they are made again",
        "cbp rollback DATAFLOW (to before the epoch); runs make it again",
    ),
    Row(
        "an increment of a source (sources/SOURCE)",
        "increment_damaged: the stages that have yet to read it stop",
        "its records, unless the original lies in finished/ or with its producer",
        "cbp rollback DATAFLOW --drop-later (to before it came), then drop the originals again",
    ),
    Row(
        "a table's log entry (_delta_log/N.json)",
        "file_damaged or file_lost: the stage stops, no reader opens the table",
        "the table's newest versions",
        "a backup of the file; else cbp delete DATAFLOW --purge, register it, drop its files again",
    ),
    Row(
        "a wrong file put back: an old copy, another file, a folder restored only in part",
        'as its kind, damaged: "written as ...", or lost: a table shows less than was published',
        "as its kind",
        "put back the file that belongs there, all of one moment; else as its kind",
    ),
    Row(
        "a checkpoint of a table's log",
        "nothing, while the entries before it are there; else as a log entry",
        "nothing, while the entries before it are there",
        "nothing to do: the next checkpoint takes its place",
    ),
    Row(
        "a position (_intentions/_positions)",
        "nothing, while an older one is kept; else file_damaged at the start of the service",
        "roll-backs to it",
        "remove the file, if the database is whole; else a backup of the file",
    ),
    Row(
        "a description (_description)",
        "file_damaged or file_lost: the dataflow stands still, and says so",
        "what its version meant: columns, code, where it began",
        "a backup of the file; else cbp delete DATAFLOW --purge, register it, drop its files again",
    ),
    Row(
        "a roll-back (_intentions/_generations)",
        "file_damaged or file_lost: the dataflow stands still, and says so",
        "what was undone",
        "a backup of the file; else cbp delete DATAFLOW --purge, register it, drop its files again",
    ),
    Row(
        "an entry of a source's log (sources/SOURCE/_log)",
        "nothing, while the database is whole; else the source takes in nothing, and says so",
        "by which name and content its file is known, if the database is lost too",
        "a backup of the file; else cbp delete DATAFLOW --purge, register it, drop its files again",
    ),
    Row(
        "a close, a correction's note",
        "file_damaged when it is read; `cbp scrub` finds it before",
        "what it says: nothing else says it",
        "a backup of the file",
    ),
    Row(
        "a dropped file, the reason of a rejected one, a manifest",
        "file_gone, file_changed, reason_unreadable or manifest_mismatch in `cbp claims`",
        "nothing that was accepted",
        "drop the file again",
    ),
    Row(
        "the database, lost",
        "`cbp status` names the dataflows that lie there; `cbp doctor`: tables",
        "nothing that tables show; the lists of runs and claims",
        "stop the service; cbp recover --rebuild",
    ),
    Row(
        "the database, damaged",
        "database_damaged: the service does not start; `cbp doctor`: database",
        "as above",
        "stop the service; cbp recover --rebuild (it puts the damaged file aside)",
    ),
)


def help_command(subject: Subject = None, json_: AsJson = False) -> None:
    """Print a help page: `damage` explains each kind of damage, and its repair."""
    if subject is None:
        _print_subjects(as_json=json_)
        return
    if subject not in SUBJECTS:
        raise NotFoundError(kind="help page", name=subject, hint=f"there is: {', '.join(SUBJECTS)}")
    if json_:
        print_json({"items": [asdict(row) for row in PAGE]})
        return
    print_text(_HEAD)
    for row in PAGE:
        print_text("")
        print_text(row.what, "bold")
        for name in ("shows", "lost", "mends"):
            print_text(f"  {name + ':':7}{getattr(row, name)}")


def _print_subjects(*, as_json: bool) -> None:
    if as_json:
        print_json({"subjects": SUBJECTS})
        return
    for subject, about in SUBJECTS.items():
        print_text(f"cbp help {subject}: {about}")
    print_text("for a command's options: cbp COMMAND --help; for all commands: cbp --help")
