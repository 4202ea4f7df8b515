"""What commands share: the session (settings, connection), and the options of several commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated

import httpx
import typer

from controller.client.service_client import ServiceClient
from controller.settings import Settings, load_settings

__all__ = [
    "AsJson",
    "At",
    "Cursor",
    "DataflowName",
    "Epoch",
    "Limit",
    "Session",
    "Stage",
    "moment",
    "session",
]

_DAY = "%Y-%m-%d"
_FORMATS = [
    _DAY,
    *(f"{_DAY}{sep}%H:%M:%S{part}" for sep in "T " for part in ("", ".%f", "%z", ".%f%z")),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Cursor = Annotated[
    str | None, typer.Option(help="Continue after the page that printed this cursor.")
]
DataflowName = Annotated[str, typer.Argument(help="Name of the dataflow.", show_default=False)]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number of rows.")]

Epoch = Annotated[
    int | None,
    typer.Option(min=0, help="Read the first snapshot that has this epoch.", show_default=False),
]
Stage = Annotated[
    str | None,
    typer.Option(help="Stage that --epoch counts; by default every stage.", show_default=False),
]
At = Annotated[
    datetime | None,
    typer.Option(
        formats=_FORMATS,
        metavar="TIME",
        help="Read the newest snapshot at this time, such as 2026-11-21 or "
        "2026-11-21T10:00:00+02:00; UTC without an offset.",
        show_default=False,
    ),
]


@dataclass
class Session:
    """One call of `cbp`; tests pass settings and a transport.

    Attributes:
        given: Replaces the settings of the environment.
        transport: Replaces the network.
    """

    given: Settings | None = None
    transport: httpx.BaseTransport | None = field(default=None, repr=False)

    @cached_property
    def settings(self) -> Settings:
        """The settings, read when a command first needs them."""
        return self.given if self.given is not None else load_settings()

    def connect(self) -> ServiceClient:
        """Return a client of the service that the settings name."""
        return ServiceClient(self.settings, self.transport)


def session(context: typer.Context) -> Session:
    """Return the session of this call."""
    if not isinstance(context.obj, Session):
        context.obj = Session()
    return context.obj


def moment(
    epoch: int | None, stage: str | None, at: datetime | None, *, prefix: str = ""
) -> dict[str, int | str | None]:
    """Return the query parameters of these options; `None` for options that are not given."""
    if at is not None and at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    given = {"epoch": epoch, "stage": stage, "at": None if at is None else at.isoformat()}
    return {f"{prefix}{name}": value for name, value in given.items()}
