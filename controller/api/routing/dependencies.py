"""What a route can ask for: one dependency for each part of the service.

    def show(name: str, reading: ReadingDep) -> Records: ...

A route names the narrowest part that it needs, so its signature says what it can touch.
`create_api` puts the parts where these functions find them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import anyio
from fastapi import Depends, Header, Request

from cbp.model.schedule.lease import Standing
from controller.api.requests.idempotency import IdempotencyKeys
from controller.ingest.drop_folder import DropFolder
from controller.loop.controller import Controller
from controller.loop.housekeeping.collector import Housekeeping
from controller.loop.housekeeping.scrubs import Scrubs
from controller.loop.operations.amendments import Amendments
from controller.loop.reading.explain import Explaining
from controller.loop.reading.reader import Reading
from controller.loop.reading.snapshots import Snapshots
from controller.loop.verification.jobs import Verifications
from controller.registry import Registry
from controller.settings import Settings
from controller.store.base import Store

__all__ = [
    "AmendmentsDep",
    "ControllerDep",
    "DropFolderDep",
    "ExplainingDep",
    "HousekeepingDep",
    "IdempotencyKey",
    "IdempotencyKeysDep",
    "Parts",
    "ReadingDep",
    "RegistryDep",
    "ScrubsDep",
    "SettingsDep",
    "SnapshotsDep",
    "StandingDep",
    "StoreDep",
    "UploadLimiterDep",
    "VerificationsDep",
    "standing_of",
]

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of a service that routes use; kept in the state of the application.

    Attributes:
        standing: Returns the role of this instance; answers at once.
        uploads: Limits how many uploads are received at a time.
    """

    controller: Controller
    store: Store
    drop_folder: DropFolder
    settings: Settings
    standing: Callable[[], Standing]
    idempotency_keys: IdempotencyKeys
    uploads: anyio.CapacityLimiter


def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


def standing_of(request: Request) -> Standing:
    """Return the role of the instance that got a request."""
    return _parts(request).standing()


def _part(choose: Callable[[Parts], _T]) -> Callable[[Request], object]:
    # A coroutine: FastAPI calls any other function in a thread of its own.
    async def dependency(request: Request) -> _T:
        return choose(_parts(request))

    return dependency


ControllerDep = Annotated[Controller, Depends(_part(lambda parts: parts.controller))]
AmendmentsDep = Annotated[Amendments, Depends(_part(lambda parts: parts.controller.amendments))]
ExplainingDep = Annotated[Explaining, Depends(_part(lambda parts: parts.controller.explaining))]
HousekeepingDep = Annotated[
    Housekeeping, Depends(_part(lambda parts: parts.controller.housekeeping))
]
ReadingDep = Annotated[Reading, Depends(_part(lambda parts: parts.controller.reading))]
RegistryDep = Annotated[Registry, Depends(_part(lambda parts: parts.controller.registry))]
ScrubsDep = Annotated[Scrubs, Depends(_part(lambda parts: parts.controller.scrubs))]
SnapshotsDep = Annotated[Snapshots, Depends(_part(lambda parts: parts.controller.snapshots))]
VerificationsDep = Annotated[
    Verifications, Depends(_part(lambda parts: parts.controller.verifications))
]
StoreDep = Annotated[Store, Depends(_part(lambda parts: parts.store))]
DropFolderDep = Annotated[DropFolder, Depends(_part(lambda parts: parts.drop_folder))]
SettingsDep = Annotated[Settings, Depends(_part(lambda parts: parts.settings))]
StandingDep = Annotated[Standing, Depends(_part(lambda parts: parts.standing()))]
IdempotencyKeysDep = Annotated[
    IdempotencyKeys, Depends(_part(lambda parts: parts.idempotency_keys))
]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]
"""The header Idempotency-Key; its parameter must be named `idempotency_key`."""
UploadLimiterDep = Annotated[anyio.CapacityLimiter, Depends(_part(lambda parts: parts.uploads))]
