"""Added columns: new columns of a source's files join its schema (`options: {unknown: add}`).

A file with further columns waits, claimed, while a new version of its dataflow declares them; then
it is read again. The columns are nullable, so older records have null in them, and no stage
changes. A document that is registered later need not name the columns: they are kept.

The version is refused if it would change a stage (for example because the stage's code on disk is
no longer the registered code), or if the document is invalid with these columns. Then the file goes
to quarantine with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cbp.errors import ChangeRefusedError, DefinitionError, Mistake
from cbp.model.flow.schema import Schema
from cbp.model.source.options import ADDS_COLUMNS
from controller.loop.operations.version_switch import Changed
from controller.store.base import DataflowRecord


def add_columns(
    change: Callable[..., Changed], record: DataflowRecord, source: str, columns: Sequence[str]
) -> int:
    """Declare columns of a source by a new version; return its number.

    Args:
        change: `Controller.change`.
        columns: Declarations of new columns, such as `device STRING`.

    Raises:
        ChangeRefusedError: The version would change a stage, or is refused; nothing changed.
        DataflowInvalidError: The document is wrong with these columns.
        OperatingError: The dataflow cannot be changed now; retry.
    """
    document = with_columns(record.document, source, columns)
    planned = change(document, expected_version=record.version, dry_run=True)
    planned.require_allowed()
    if others := [one for one in planned.plan.stages.values() if one.kind != "kept"]:
        message = (
            f"the new version would also change this stage ({others[0].kind}). Register a version "
            f"whose schema of {source!r} has {', '.join(columns)}, then run `cbp quarantine "
            "readmit`"
        )
        mistake = Mistake("columns_not_alone", f"stages.{others[0].name}", message)
        raise ChangeRefusedError(record.name, [mistake])
    return change(document, expected_version=record.version).version


def with_columns(
    document: Mapping[str, Any], source: str, columns: Sequence[str]
) -> dict[str, Any]:
    """Return a document whose source has these columns too."""
    declared = document["sources"][source]
    changed = {**declared, "schema": ", ".join([declared["schema"], *columns])}
    return {**document, "sources": {**document["sources"], source: changed}}


def with_added_columns(registered: Mapping[str, Any], document: Any) -> Any:
    """Return a new version's document with columns that were added to its sources before."""
    sources = document.get("sources") if isinstance(document, Mapping) else None
    if not isinstance(sources, Mapping):
        return document
    for name in sources:
        before = registered.get("sources", {}).get(name)
        if before and (columns := _left_out(before, sources[name])):
            document = with_columns(document, name, columns)
    return document


def _left_out(before: Mapping[str, Any], after: Any) -> list[str]:
    """Return the nullable columns that were added to a source and that its new document lacks."""
    if not isinstance(after, Mapping) or not isinstance(options := after.get("options"), Mapping):
        return []
    if options.get("unknown") != ADDS_COLUMNS:
        return []
    try:
        had, has = Schema.parse(before["schema"]), Schema.parse(after["schema"])
    except (DefinitionError, KeyError, TypeError, AttributeError):
        return []  # the check of the document says what is wrong
    known = {name.lower() for name in has.names}
    left_out = (one for one in had.fields if one.nullable and one.name.lower() not in known)
    return [f"{one.name} {one.type}" for one in left_out]
