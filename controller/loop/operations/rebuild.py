"""Rebuild: registers dataflows again that folders describe and a lost store does not know.

Dataflows that were deleted without `purge` come back too, since their folders still describe
them. A dataflow that cannot be brought back does not stop the others.

Tables are rebuilt elsewhere: in place (a back-fill) by `controller.loop.operations.version_change`,
beside the present ones by `controller.loop.beside.build_beside`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from cbp.engine.storage.files import Files
from cbp.errors import CbpError, NotFoundError, RebuildIncompleteError
from cbp.errors.message_limits import listed
from controller.loop.records.dataflow_folder import described
from controller.store.base import Store


def rebuild_missing(
    store: Store,
    files: Files,
    tables_root: str,
    register: Callable[[Any], object],
    *,
    only: Collection[str],
    on_dataflow: Callable[[str], None],
) -> list[str]:
    """Register every dataflow that a folder describes and the store does not know.

    Args:
        store: The store; it may be empty.
        register: Takes a document and brings back what its folder holds.
        only: Bring back these and no others; empty means all.
        on_dataflow: Called with each name before its dataflow is brought back.

    Returns:
        The names, sorted.

    Raises:
        NotFoundError: If no folder describes one of `only`.
        RebuildIncompleteError: At the end, if some could not be brought back.
    """
    known = {record.name for record in store.dataflows()}
    descriptions_by_name = described(files, tables_root)
    for name in sorted(set(only) - descriptions_by_name.keys()):
        raise NotFoundError(
            kind="folder with a description of the dataflow",
            name=name,
            hint=f"there are: {listed(sorted(descriptions_by_name)) or 'none'}",
        )
    lost = [n for n in sorted(descriptions_by_name) if n not in known and (not only or n in only)]
    failed: dict[str, CbpError] = {}
    for name in lost:
        on_dataflow(name)
        try:
            register(descriptions_by_name[name])
        except CbpError as error:
            failed[name] = error
    rebuilt = [name for name in lost if name not in failed]
    if failed:
        raise RebuildIncompleteError(rebuilt, failed)
    return rebuilt
