"""Check from the tables alone whether an epoch of a stage was published completely (applied).

Each log entry of a publication names all entries of the publication (`TOGETHER`). So this can be
decided even without the epoch's record: the epoch was published if an entry of it exists, and so
does every entry that this one names. Conversely, a table that shows less than was published has an
old copy of its log, or a log that lost its end; no run may continue from it.

Not guaranteed: an answer for epochs that changed no table, or were published by an earlier version
of the service; these count as not applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cbp.engine.commit.table_entries import TOGETHER, app_id, kind_of, shown_generation
from cbp.engine.delta.actions import Action, CommitInfo, Txn
from cbp.engine.delta.log import DeltaLog
from cbp.engine.storage.files import Files
from cbp.errors import FileLostError, NotFoundError
from cbp.model.run.intention import Intention

_AREAS = ("state", "flows", "set_aside")


def applied_ms(folder: str, files: Files, stage: str, epoch: int, generation: int) -> int | None:
    """Return when an epoch of a generation was published completely, in ms; `None` if unknown."""
    named: set[str] = set()
    stamps: list[int] = []
    shown: dict[str, Mapping[str, int]] = {}
    end = str(generation) if generation else ""
    for table in _tables_of(folder, files, stage):
        entries: list[Sequence[Action]] = []
        log = DeltaLog(f"{folder}/{table}", files)
        try:
            snapshot = log.snapshot(visit=lambda _, actions, kept=entries: kept.append(actions))  # type: ignore[misc]
        except NotFoundError:
            continue  # no table yet
        shown[table] = snapshot.txns
        for actions in entries:
            ids = [t.app_id for t in actions if isinstance(t, Txn) and t.version == epoch]
            if any(_table_of(one) == table and _generation_of(one) == end for one in ids):
                for info in (action for action in actions if isinstance(action, CommitInfo)):
                    named.update(info.parameters.get(TOGETHER, "").split())
                    stamps.append(info.in_commit_ms or info.timestamp_ms)
    for name in named:
        table = _table_of(name)
        if table not in shown:
            shown[table] = DeltaLog(f"{folder}/{table}", files).snapshot().txns
        if shown[table].get(name, -1) < epoch:
            return None
    return max(stamps) if named else None


def require_shown(folder: str, files: Files, intention: Intention) -> None:
    """Refuse tables that lack a published run (`FileLostError`): an old copy was restored.

    Later runs on such a table would produce a state that never existed.
    """
    for table in dict.fromkeys(change.table for change in intention.changes):
        log = DeltaLog(f"{folder}/{table}", files)
        try:
            snapshot = log.snapshot()
        except NotFoundError:
            continue  # the table does not exist: the engine reports that
        for change in (one for one in intention.changes if one.table == table):
            name = app_id(intention.dataflow, table, kind_of(change), intention.generation)
            shown = snapshot.txns.get(name, -1)
            if shown < intention.epoch:
                published = f"epoch {intention.epoch} of {intention.stage!r} was published"
                why = f"{published}, but the table ends at epoch {shown}: perhaps it is an old copy"
                raise FileLostError(log.entry_path(snapshot.version + 1), why)


def require_generations(folder: str, files: Files, newest: int) -> None:
    """Raise `FileLostError` if tables show a later roll-back than `newest`, the last recorded."""
    for table in _tables_of(folder, files, ""):
        try:
            shown = shown_generation(DeltaLog(f"{folder}/{table}", files).snapshot().txns)
        except NotFoundError:
            continue  # no table yet
        if shown > newest:
            path = f"{folder}/_intentions/_generations/{newest + 1:020d}.json"
            raise FileLostError(path, f"the table {table} is at generation {shown}")


def _tables_of(folder: str, files: Files, stage: str) -> list[str]:
    """Return the folders of a stage's tables, or of all tables (`""`), below the dataflow's."""
    return [
        f"{area}/{name}"
        for area in _AREAS
        for name in files.list_names(f"{folder}/{area}")
        if stage in ("", name) or name.startswith(f"{stage}.")
    ]


def _table_of(application: str) -> str:
    return "/".join(application.split("/")[2:4])


def _generation_of(application: str) -> str:
    return application.rpartition("/")[2].partition("@")[2]
