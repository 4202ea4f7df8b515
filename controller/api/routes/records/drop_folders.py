"""Drop folders: what is in each source's folder, what became of files, and why some stay."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from controller.api.answers.json_values import json_value
from controller.api.answers.schemas import Model
from controller.api.figures.rejected import rejected_by_source
from controller.api.routing.dependencies import ControllerDep, DropFolderDep, StoreDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.store.base import ClaimStatus, Store


class UnclaimedOut(Model):
    """A name in a drop folder that will not be taken in."""

    name: str
    why: str
    since: datetime | None = Field(description="When it was last changed.")


class GoneOut(Model):
    """A file that disappeared after it was claimed."""

    name: str
    claim: str
    since: datetime = Field(description="When it was claimed.")
    lost: bool = Field(
        description="Whether the service had acknowledged the file: then drop it again."
    )


class SourceTroubleOut(Model):
    """What stopped the intake of one source."""

    error: dict[str, Any]
    since: datetime
    tries: int = Field(description="Consecutive failed attempts.")
    retry_at: datetime


class BucketOut(Model):
    """The last listing of a source's location in a bucket."""

    location: str
    listed_at: datetime | None = Field(
        description="`null` if the answering instance has not listed the location."
    )
    objects: int
    waiting: int = Field(description="New objects that are not fetched yet.")
    left_out: int = Field(description="Objects that will not be taken in.")
    oldest_left_out: list[UnclaimedOut] = Field(description="The first 100 of them.")


class SourceFilesOut(Model):
    """The numbers of a source's files, by what happened to them."""

    arrived: int = Field(description="Files that were claimed.")
    claimed: int = Field(description="Files that are being taken in.")
    accepted: int = Field(description="Files that became an increment.")
    applied: int = Field(description="Files whose increment every reading stage has read.")
    duplicate: int
    quarantined: int = Field(description="Files that wait for a decision.")
    decided: int = Field(description="Quarantined files that were readmitted or discarded.")
    withdrawn: int = Field(description="Files whose increment a roll-back dropped.")
    last_arrival_at: datetime | None


class SourceFolderOut(Model):
    """The content of one source's drop folder."""

    name: str
    folder: str = Field(description="Where producers put files.")
    waiting: int = Field(description="Files that are not claimed yet.")
    waiting_bytes: int
    oldest_at: datetime | None = Field(
        description="When the oldest `waiting` file was last changed."
    )
    unclaimed: int = Field(description="Names that will not be taken in.")
    oldest_unclaimed: list[UnclaimedOut] = Field(description="The first 100 of them.")
    gone: list[GoneOut] = Field(
        description="Files that disappeared after they were claimed, newest first: at most 100 "
        "that this instance noticed. Each is listed for a day, or until a file of that "
        "name is taken in."
    )
    files: SourceFilesOut
    rejected: int = Field(description="Rejected records of accepted files so far.")
    warning: str = Field(description="What an operator should do; empty if nothing.")
    trouble: SourceTroubleOut | None = Field(
        description="What stopped the intake of the source, as far as the answering instance knows."
    )
    bucket: BucketOut | None = Field(
        description="`null` if the source has no location in a bucket."
    )


class SourceFolders(Model):
    """The drop folders of a dataflow."""

    items: list[SourceFolderOut]


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
