"""Drop folders: what is in each source's folder, what became of files, and why some stay."""

from __future__ import annotations

from collections.abc import Mapping

from controller.access.scopes import Scope
from controller.api.answers.folder_schemas import (
    SourceFilesOut,
    SourceFolderOut,
    SourceFolders,
)
from controller.api.answers.json_values import json_value
from controller.api.figures.rejected import rejected_by_source
from controller.api.routing.dependencies import ControllerDep, DropFolderDep, StoreDep
from controller.api.routing.routers import problems, router
from controller.api.routing.scopes import needs
from controller.store.base import ClaimStatus, Store

routes = router("sources")


@routes.get("/dataflows/{name}/sources", responses=problems(404))
@needs(Scope.VIEWER)
def list_sources(
    name: str, store: StoreDep, controller: ControllerDep, drop_folder: DropFolderDep
) -> SourceFolders:
    """List each source: waiting files, names that are not taken in, and counts of all files."""
    dataflow = controller.dataflow(name)
    record = store.dataflow(name)
    folders = drop_folder.look(record, dataflow)
    rejected = rejected_by_source(record, dataflow.sources)
    counts, unread = store.claim_counts(name), _unread(store, name)
    items = []
    for folder in folders:
        source = str(folder["name"])
        waits = max((unread.get(reader, 0) for reader in dataflow.consumers(source)), default=0)
        files = _files(store, name, source, counts.get(source, {}), waits)
        figures = {"files": files, "rejected": rejected.get(source, 0)}
        items.append(SourceFolderOut.model_validate({**json_value(folder), **figures}))
    return SourceFolders(items=items)


def _unread(store: Store, name: str) -> dict[tuple[str, str], int]:
    """Return how many increments wait at each (stage, input)."""
    return {
        (stage, input_): len(connector.arrived if connector.framing else connector.unread)
        for stage, connectors in store.connectors(name).items()
        for input_, connector in connectors.items()
    }


def _files(
    store: Store, name: str, source: str, counts: Mapping[ClaimStatus, int], unread: int
) -> SourceFilesOut:
    newest = store.claims(name, source, limit=1).items
    accepted = counts.get("accepted", 0)
    return SourceFilesOut(
        arrived=sum(counts.values()),
        claimed=counts.get("claiming", 0) + counts.get("claimed", 0),
        accepted=accepted,
        applied=max(0, accepted - unread),
        duplicate=counts.get("duplicate", 0),
        quarantined=counts.get("quarantined", 0),
        decided=counts.get("readmitted", 0) + counts.get("discarded", 0),
        withdrawn=counts.get("withdrawn", 0),
        last_arrival_at=newest[0].created_at if newest else None,
    )
