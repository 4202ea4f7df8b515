"""The session that every command shares: the settings, the connection, and the option `--json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

import httpx
import typer

from controller.cli.client import ServiceClient
from controller.settings import Settings, load_settings

__all__ = ["AsJson", "Cursor", "DataflowName", "Limit", "Session", "session"]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Cursor = Annotated[str | None, typer.Option(help="Of the page before.")]
DataflowName = Annotated[str, typer.Argument(help="Name of the dataflow.", show_default=False)]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Most rows to print.")]


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
